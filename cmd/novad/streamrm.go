package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/nova-store/nova/api"
)

// streamRmCmd deletes streams.
type streamRmCmd struct {
	serverFlag
	Streams []string `arg:"" name:"stream" help:"Names of the streams, or id: and an id."`
	Yes     bool     `help:"Do not ask." env:"-"`
	Output  string   `help:"How to tell the result: text, or json: an object a line." enum:"text,json" default:"text" env:"-"`
}

// Help is shown by novad stream rm --help.
func (streamRmCmd) Help() string {
	return `A deleted stream cannot be read or appended to any more, and its name is free at once. Its data is destroyed once the
server's --undelete-window is over; until then novad stream undelete brings it back. The id that is printed is the only name that it has from then on.

On a terminal it asks first; elsewhere it needs --yes. A stream that can't be deleted does not keep the others.`
}

// removal is the output as JSON.
type removal struct {
	Stream string `json:"stream"`
	api.DeletedStream
}

// Run asks, and deletes one stream after the other.
func (c *streamRmCmd) Run(p *process) error {
	for _, stream := range c.Streams {
		if err := checkStream(stream); err != nil {
			return err
		}
	}
	if !c.Yes {
		if !isTerminal(p.stdin) || !isTerminal(p.stderr) {
			return usagef("deleting streams needs an answer, and this is no terminal: add --yes if you mean it")
		}
		yes, err := confirm(p.stderr, p.stdin, c.question())
		if err != nil {
			return err
		}
		if !yes {
			return errors.New("nothing was deleted")
		}
	}
	client, err := c.client()
	if err != nil {
		return err
	}
	defer client.Close()
	var failed []error
	for _, stream := range c.Streams {
		d, err := client.DeleteStream(p.ctx, stream)
		if err == nil {
			err = c.report(p.stdout, removal{stream, d})
		}
		if err != nil {
			failed = append(failed, noStream(stream, err))
		}
		if p.ctx.Err() != nil {
			break
		}
	}
	return errors.Join(failed...)
}

func (c *streamRmCmd) question() string {
	if len(c.Streams) == 1 {
		return fmt.Sprintf("Delete stream %q and all its records?", c.Streams[0])
	}
	return fmt.Sprintf("Delete %d streams (%q to %q) and all their records?", len(c.Streams), c.Streams[0], c.Streams[len(c.Streams)-1])
}

func (c *streamRmCmd) report(w io.Writer, r removal) error {
	if c.Output == "json" {
		return printJSON(w, r)
	}
	text := fmt.Sprintf("deleted stream %q, id %s", r.Stream, r.ID)
	if r.Until.After(r.Deleted) {
		text += ", whose records are kept until " + r.Until.Format(time.RFC3339)
	}
	return printLine(w, text)
}

// confirm asks a question that y or yes answers.
func confirm(w io.Writer, r io.Reader, question string) (bool, error) {
	if _, err := fmt.Fprintf(w, "%s [y/N] ", question); err != nil {
		return false, outputError(err)
	}
	line, err := bufio.NewReader(r).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return false, fmt.Errorf("reading the answer: %w", err)
	}
	answer := strings.ToLower(strings.TrimSpace(line))
	return answer == "y" || answer == "yes", nil
}
