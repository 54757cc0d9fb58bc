package main

import (
	"fmt"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/nova-store/nova/api"
)

// chainsCmd shows the chains.
type chainsCmd struct {
	serverFlag
	Output string `help:"How to print: table or json." enum:"table,json" default:"table" env:"-"`
}

// Help is shown by novad chains --help.
func (chainsCmd) Help() string {
	return `A chain is one epoch of a star: slots from 0 on. Slots below trimmed are deleted, below rewritten
settled into objects of their own, below checkpoint visible to readers; head is the next slot.
Slots that are damaged or missing hold back their chain, and no other, until the streams in them are trimmed past
them or removed, or the objects are restored; novad verify names the objects.`
}

// Run prints the chains that are not retired.
func (c *chainsCmd) Run(p *process) error {
	client, err := c.client()
	if err != nil {
		return err
	}
	defer client.Close()
	chains, err := client.Chains(p.ctx)
	if err != nil {
		return err
	}
	if c.Output == "json" {
		if chains == nil {
			chains = []api.Chain{}
		}
		return printJSON(p.stdout, chains)
	}
	rows := make([]table.Row, 0, len(chains))
	for _, ch := range chains {
		rows = append(rows, table.Row{ch.Star, ch.Epoch, stateOf(ch), ch.Trimmed, ch.Rewritten, ch.Checkpoint, ch.Head})
	}
	return renderTable(p.stdout, 3, table.Row{"star", "epoch", "state", "trimmed", "rewritten", "checkpoint", "head"}, rows)
}

func stateOf(ch api.Chain) string {
	state := ch.State
	if ch.Live {
		state += ", live"
	}
	if ch.DamagedEnd > 0 {
		state += fmt.Sprintf(", damaged in slots %d to %d", ch.DamagedFrom, ch.DamagedEnd-1)
	}
	return state
}
