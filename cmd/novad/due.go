package main

import (
	"fmt"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/nova-store/nova/api"
)

// dueCmd shows the due queues.
type dueCmd struct {
	serverFlag
	Output string `help:"How to print: table or json." enum:"table,json" default:"table" env:"-"`
}

// Help is shown by novad due --help.
func (dueCmd) Help() string {
	return `A marker stands from when work was announced, and is ripe once it may be done. The age is how far past
its ready time the oldest ripe marker is. A marker that is not ripe is no backlog.`
}

// Run prints the eight queues.
func (c *dueCmd) Run(p *process) error {
	client, err := c.client()
	if err != nil {
		return err
	}
	defer client.Close()
	queues, err := client.Due(p.ctx)
	if err != nil {
		return err
	}
	if c.Output == "json" {
		return printJSON(p.stdout, queues)
	}
	rows := make([]table.Row, 0, len(queues))
	for _, q := range queues {
		rows = append(rows, table.Row{q.Queue, counted(q.Standing, q), counted(q.Ripe, q), age(q)})
	}
	return renderTable(p.stdout, 1, table.Row{"queue", "standing", "ripe", "age"}, rows)
}

// counted marks a count that stopped at its bound.
func counted(n int, q api.Queue) string {
	if q.More {
		return fmt.Sprintf("%d+", n)
	}
	return fmt.Sprint(n)
}

func age(q api.Queue) string {
	if q.Ripe == 0 {
		return "-"
	}
	return time.Duration(q.Age * float64(time.Second)).Round(time.Millisecond).String()
}
