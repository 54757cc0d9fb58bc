package main

import (
	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/nova-store/nova/api/service"
)

// streamLsCmd lists streams.
type streamLsCmd struct {
	serverFlag
	Prefix string `arg:"" optional:"" help:"Only streams whose names begin so."`
	Limit  int    `help:"Streams at most; 0 is no limit." env:"-"`
	Output string `help:"table, or json: an object a line." enum:"table,json" default:"table" env:"-"`
}

// Help is shown by novad stream ls --help.
func (streamLsCmd) Help() string {
	return `In the order of the names' bytes. Where a policy expires records, "first" is a bound below which none is
readable; novad stream show gives the offset itself.`
}

// Run prints the streams, which it asks for page by page.
func (c *streamLsCmd) Run(p *process) error {
	if c.Limit < 0 {
		return usagef("--limit=%d must not be below 0", c.Limit)
	}
	client, err := c.client()
	if err != nil {
		return err
	}
	defer client.Close()
	var rows []table.Row
	for after, left := "", c.Limit; ; {
		ask := service.MaxListStreams
		if c.Limit > 0 {
			ask = min(ask, left)
		}
		list, err := client.ListStreams(p.ctx, c.Prefix, after, ask)
		if err != nil {
			return err
		}
		for _, s := range list.Streams {
			after = s.Name
			if c.Output == "json" {
				if err := printJSON(p.stdout, s); err != nil {
					return err
				}
				continue
			}
			rows = append(rows, table.Row{preview([]byte(s.Name)), s.ID, s.FirstOffset, s.NextOffset, s.Bytes, ageText(s.Policy), sizeText(s.Policy)})
		}
		left -= len(list.Streams)
		if !list.More || len(list.Streams) == 0 || c.Limit > 0 && left <= 0 {
			break
		}
	}
	if c.Output == "json" {
		return nil
	}
	return renderTable(p.stdout, 2, table.Row{"stream", "id", "first", "next", "bytes", "max age", "max bytes"}, rows)
}
