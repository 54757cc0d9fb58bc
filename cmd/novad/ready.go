package main

import (
	"context"
	"time"
)

// readyTimeout bounds how long an answer is waited for.
const readyTimeout = 5 * time.Second

// readyCmd asks a node whether it serves.
type readyCmd struct{ serverFlag }

// Help is shown by novad ready --help.
func (readyCmd) Help() string {
	return `Asks a node's /readyz, as a health check does where there is no other program: of a container, say. A star is ready once it has a chain
and until it is drained, a node that audits only while it is on the ring.

Exit status 1: it is not, and why; or it does not answer within 5 seconds.`
}

// Run asks once.
func (c *readyCmd) Run(p *process) error {
	client, err := c.client()
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(p.ctx, readyTimeout)
	defer cancel()
	if err := client.Ready(ctx); err != nil {
		return err
	}
	return printLine(p.stdout, "ready")
}
