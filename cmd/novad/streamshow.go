package main

import (
	"strings"

	"github.com/nova-store/nova/api/service"
)

// streamShowCmd describes a stream.
type streamShowCmd struct {
	serverFlag
	outputFlag
	Stream string `arg:"" optional:"" help:"Name of the stream, or id: and its id."`
	ID     string `name:"id" help:"The stream's id, instead of its name." env:"-" placeholder:"ID"`
}

// Run prints the stream.
func (c *streamShowCmd) Run(p *process) error {
	switch {
	case (c.Stream == "") == (c.ID == ""):
		return usagef("give the stream's name, or --id")
	case c.ID != "":
		id, err := parseStreamID(c.ID)
		if err != nil {
			return err
		}
		c.Stream = id
	}
	if err := checkStream(c.Stream); err != nil {
		return err
	}
	client, err := c.client()
	if err != nil {
		return err
	}
	defer client.Close()
	s, err := client.Stream(p.ctx, c.Stream)
	if err != nil {
		return noStream(c.Stream, err)
	}
	return c.printStream(p.stdout, s)
}

// parseStreamID takes a stream's id, and returns how the interface names the stream.
func parseStreamID(text string) (string, error) {
	id, ok := service.ParseID("id:" + strings.TrimPrefix(text, "id:"))
	if !ok {
		return "", usagef("--id: %q is not a stream's id, which has 16 hex digits", text)
	}
	return service.ByID(id), nil
}
