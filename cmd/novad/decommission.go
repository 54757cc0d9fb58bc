package main

import (
	"errors"
	"fmt"

	"github.com/nova-store/nova/catalog"
)

// decommissionCmd retires a star.
type decommissionCmd struct {
	serverFlag
	Star   string `arg:"" help:"Name of the star."`
	Yes    bool   `help:"Do not ask." env:"-"`
	Output string `help:"How to tell the result: text or json." enum:"text,json" default:"text" env:"-"`
}

// Help is shown by novad decommission --help.
func (decommissionCmd) Help() string {
	return `The star must be stopped, and its name can never be used again: a novad serve of that name is refused from then on.
Its records stay where they are read: the auditor settles what its chains still hold (novad chains shows them go), and in the end
deletes whatever else is left of it in the bucket.

On a terminal it asks first; elsewhere it needs --yes.`
}

// Run asks, and retires the star.
func (c *decommissionCmd) Run(p *process) error {
	if err := catalog.CheckNodeName(c.Star); err != nil {
		return usagef("star: %w", err)
	}
	if !c.Yes {
		if !isTerminal(p.stdin) || !isTerminal(p.stderr) {
			return usagef("retiring a star for good needs an answer, and this is no terminal: add --yes if you mean it")
		}
		yes, err := confirm(p.stderr, p.stdin, fmt.Sprintf("Retire star %q for good? Its name can never be used again.", c.Star))
		if err != nil {
			return err
		}
		if !yes {
			return errors.New("nothing was changed")
		}
	}
	client, err := c.client()
	if err != nil {
		return err
	}
	defer client.Close()
	d, err := client.Decommission(p.ctx, c.Star)
	switch {
	case err != nil:
		return err
	case c.Output == "json":
		return printJSON(p.stdout, d)
	case d.Already:
		return printLine(p.stdout, fmt.Sprintf("star %q was retired before", c.Star))
	}
	return printLine(p.stdout, fmt.Sprintf("star %q is retired", c.Star))
}
