package main

import (
	"fmt"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/nova-store/nova/api"
	"github.com/nova-store/nova/api/service"
)

// pendingCmd shows what the auditor owes a stream.
type pendingCmd struct {
	serverFlag
	outputFlag
	Stream string `arg:"" optional:"" help:"Name of the stream, or id: and its id."`
	ID     string `name:"id" help:"The stream's id, instead of its name: also of one that is deleted or gone." env:"-" placeholder:"ID"`
	Limit  int    `help:"Items at most, up to 1000." default:"100" env:"-"`
}

// Help is shown by novad pending --help.
func (pendingCmd) Help() string {
	return `Batches to settle (denorm), objects to probe once nothing refers to them (reap), and objects to compact (gc). "shared" work
concerns more streams than it could be attributed to, so that others' lists may lack it.`
}

// Run prints the work.
func (c *pendingCmd) Run(p *process) error {
	stream, err := streamOrID(c.Stream, c.ID)
	switch {
	case err != nil:
		return err
	case c.Limit < 1 || c.Limit > service.MaxPending:
		return usagef("--limit=%d: it must be 1 to %d", c.Limit, service.MaxPending)
	}
	client, err := c.client()
	if err != nil {
		return err
	}
	defer client.Close()
	list, err := client.Pending(p.ctx, stream, c.Limit)
	if isProblem(err, api.ProblemNoStream) {
		return fmt.Errorf("stream %q does not exist; of one that was deleted ask by --id, which novad stream rm printed", stream)
	}
	if err != nil {
		return err
	}
	if c.Output == "json" {
		return printJSON(p.stdout, list)
	}
	rows := make([]table.Row, 0, len(list.Items))
	for _, i := range list.Items {
		rows = append(rows, table.Row{i.Queue, i.Subject, readyText(i), pendingNotes(i), i.Bytes})
	}
	if err := renderTable(p.stdout, 4, table.Row{"queue", "subject", "ready", "", "bytes"}, rows); err != nil || !list.More {
		return err
	}
	return printLine(p.stdout, "there is more than --limit")
}

func readyText(i api.PendingItem) string {
	if i.Ready == nil {
		return "now"
	}
	return i.Ready.Format(time.RFC3339)
}

func pendingNotes(i api.PendingItem) string {
	switch {
	case i.Damaged && i.Shared:
		return "damaged, shared"
	case i.Damaged:
		return "damaged"
	case i.Shared:
		return "shared"
	}
	return ""
}
