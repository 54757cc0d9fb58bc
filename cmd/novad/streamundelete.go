package main

import (
	"fmt"
	"strings"

	"github.com/nova-store/nova/api/service"
)

// streamUndeleteCmd undoes the deletion of a stream.
type streamUndeleteCmd struct {
	serverFlag
	ID string `arg:"" name:"id" help:"Id of the stream, which novad stream rm has printed."`
	outputFlag
}

// Help is shown by novad stream undelete --help.
func (streamUndeleteCmd) Help() string {
	return `The stream has its name again, and the records, the policy and the producers that it had when it was deleted; what was appended meanwhile
was refused. It can be undone until the server begins to destroy the stream's data, --undelete-window after the deletion
(by default at once), and only while no other stream has the name. Of a stream that is not deleted nothing changes.`
}

// Run undoes it and describes the stream.
func (c *streamUndeleteCmd) Run(p *process) error {
	stream := c.ID
	if !strings.HasPrefix(stream, "id:") {
		stream = "id:" + stream
	}
	if _, ok := service.ParseID(stream); !ok {
		return usagef("%q is no id of a stream, which has 16 hex digits, as in the answer of novad stream rm: a deleted stream has no name", c.ID)
	}
	client, err := c.client()
	if err != nil {
		return err
	}
	defer client.Close()
	s, err := client.UndeleteStream(p.ctx, stream)
	if err != nil {
		return fmt.Errorf("stream %s was not undeleted: %w", stream, err)
	}
	return c.printStream(p.stdout, s)
}
