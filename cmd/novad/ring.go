package main

import (
	"fmt"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/nova-store/nova/api"
)

// ringCmd shows the ring.
type ringCmd struct {
	serverFlag
	Output string `help:"How to print: table or json." enum:"table,json" default:"table" env:"-"`
}

// Help is shown by novad ring --help.
func (ringCmd) Help() string {
	return `Members audit: stars with both roles, and nodes that audit only. Each walks its shards of the due queues, of 64 in all, and
settles the chains of its stars. Busy is the share of its workers' time that jobs took lately: near 100 % on all of
them, and more members are needed.`
}

// Run prints the members.
func (c *ringCmd) Run(p *process) error {
	client, err := c.client()
	if err != nil {
		return err
	}
	defer client.Close()
	members, err := client.Ring(p.ctx)
	if err != nil {
		return err
	}
	if c.Output == "json" {
		if members == nil {
			members = []api.Member{}
		}
		return printJSON(p.stdout, members)
	}
	rows := make([]table.Row, 0, len(members))
	for _, m := range members {
		busy, workers, started := "", "", ""
		if m.PublishedMS > 0 {
			busy = fmt.Sprintf("%.1f %%", 100*m.Utilization)
			workers = fmt.Sprint(m.Workers)
			started = time.UnixMilli(m.StartedMS).UTC().Format(time.RFC3339)
		}
		rows = append(rows, table.Row{m.Member, len(m.Shards), len(m.Stars), len(m.Chains), busy, workers, m.Version, started})
	}
	return renderTable(p.stdout, 1, table.Row{"member", "shards", "stars", "chains", "busy", "workers", "version", "started"}, rows)
}
