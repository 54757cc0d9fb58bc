package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nova-store/nova/clock"
)

// drain ends what the node does and leaves it open: the star takes no more appends, those taken are absorbed and
// answered, its route goes and its chain is announced for settlement; then the auditor ends its jobs and leaves the
// ring. Only then does it return, and every later call with the same answer.
func (n *node) drain() error {
	n.startDrain()
	<-n.drained
	return n.drainErr
}

func (n *node) startDrain() {
	n.drainOnce.Do(func() {
		n.draining.Store(true)
		if n.onDrain != nil {
			n.onDrain()
		}
		go func() {
			defer close(n.drained)
			n.drainErr = n.drainAll()
		}()
	})
}

func (n *node) drainAll() error {
	var errs []error
	if n.starDone != nil {
		errs = append(errs, n.star.Drain(context.Background()))
		err := <-n.starDone
		n.starDone <- err
		n.stopStar()
		errs = append(errs, err)
	}
	if n.auditorDone != nil {
		n.stopAuditor()
		<-n.auditorDone
	}
	return errors.Join(errs...)
}

// starStopped is told when the star stops by itself, which ends the node: not when it was drained.
func (n *node) starStopped() <-chan error {
	if n.starDone == nil {
		return nil
	}
	stopped := make(chan error, 1)
	go func() {
		err := <-n.starDone
		n.starDone <- err
		if !n.draining.Load() {
			stopped <- err
		}
	}()
	return stopped
}

// drainFor begins a drain, and tells whether it was over before ctx ended. It goes on whatever becomes of ctx.
func (n *node) drainFor(ctx context.Context) (done bool, err error) {
	n.startDrain()
	select {
	case <-n.drained:
		return true, n.drainErr
	case <-ctx.Done():
		return false, nil
	}
}

// drainCmd drains a node.
type drainCmd struct {
	serverFlag
	Delay   time.Duration `help:"Wait before the drain begins, until nobody is sent to the node any more who would be turned away." default:"0s" env:"-"`
	Timeout time.Duration `help:"How long to wait for the end of the drain." default:"5m" env:"-"`
	Output  string        `help:"How to tell the result: text or json." enum:"text,json" default:"text" env:"-"`
}

// Help is shown by novad drain --help.
func (drainCmd) Help() string {
	return `A drained node takes no more appends. What it had taken is absorbed and answered, its chain is handed to the auditor to be
sealed and settled, and its own auditor has ended its jobs and left the ring. It still answers reads and /livez, no longer /readyz,
and ends with SIGTERM like any other. Started again, it serves again.

An interrupted novad drain leaves the drain under way; asking again waits for its end.`
}

// Run asks until the node is drained.
func (c *drainCmd) Run(p *process) error {
	client, err := c.client()
	if err != nil {
		return err
	}
	defer client.Close()
	if c.Delay < 0 {
		return usagef("--delay=%v must not be below 0", c.Delay)
	}
	if err := clock.NewReal().Sleep(p.ctx, c.Delay); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(p.ctx, c.Timeout)
	defer cancel()
	for {
		d, err := client.Drain(ctx)
		switch {
		case err != nil && ctx.Err() != nil && p.ctx.Err() == nil:
			return fmt.Errorf("not drained after %v; it goes on", c.Timeout)
		case err != nil:
			return err
		case !d.Drained:
			continue // the server has waited
		case c.Output == "json":
			return printJSON(p.stdout, d)
		}
		return printLine(p.stdout, "drained")
	}
}
