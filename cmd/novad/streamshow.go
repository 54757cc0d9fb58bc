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
	stream, err := streamOrID(c.Stream, c.ID)
	if err != nil {
		return err
	}
	client, err := c.client()
	if err != nil {
		return err
	}
	defer client.Close()
	s, err := client.Stream(p.ctx, stream)
	if err != nil {
		return noStream(stream, err)
	}
	return c.printStream(p.stdout, s)
}

// streamOrID takes a stream's name or its id, one of the two, and returns how the interface names the stream.
func streamOrID(name, id string) (string, error) {
	if (name == "") == (id == "") {
		return "", usagef("give the stream's name, or --id")
	}
	if id != "" {
		return parseStreamID(id)
	}
	return name, checkStream(name)
}

// parseStreamID takes a stream's id, and returns how the interface names the stream.
func parseStreamID(text string) (string, error) {
	id, ok := service.ParseID("id:" + strings.TrimPrefix(text, "id:"))
	if !ok {
		return "", usagef("--id: %q is not a stream's id, which has 16 hex digits", text)
	}
	return service.ByID(id), nil
}
