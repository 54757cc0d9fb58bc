package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nova-store/nova/sim/play"
)

// minimizeReport is the JSON of a minimization.
type minimizeReport struct {
	report
	From      string   `json:"from"`
	FromSteps int      `json:"from_steps"`
	To        string   `json:"to"`
	Runs      int      `json:"runs"`
	Dropped   []string `json:"dropped"`
	Remains   []string `json:"remains"`
	Chance    []string `json:"chance"`
	Saved     string   `json:"saved"`
}

// chanceMost bounds how many of chance's doings are printed.
const chanceMost = 20

// shrink makes a failing run smaller, saves what is left, and says what that is.
func (c *command) shrink(s *play.Saved) int {
	if c.save == "" {
		c.save = fmt.Sprintf("seed-%d.json", c.seed)
		if c.replay != "" {
			c.save = strings.TrimSuffix(c.replay, ".json") + ".min.json"
		}
	}
	start := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), c.within)
	defer cancel()
	opt := play.MinimizeOptions{Parallel: c.parallel}
	clear := func() {}
	if terminal(c.errOut) {
		var last time.Time
		clear = func() { fmt.Fprint(c.errOut, "\r\x1b[K") }
		opt.Progress = func(p play.Progress) {
			if now := time.Now(); now.Sub(last) > 100*time.Millisecond {
				last = now
				fmt.Fprintf(c.errOut, "\r\x1b[K%3.0f s of %.0f  %5d runs  %s, %d steps: %s", now.Sub(start).Seconds(), c.within.Seconds(), p.Runs, p.Size, p.Steps, p.Now)
			}
		}
	}
	m, err := play.Minimize(ctx, s, opt)
	clear()
	if holds := (*play.HoldsError)(nil); errors.As(err, &holds) {
		return c.nothingToMinimize(&holds.Outcome, time.Since(start))
	}
	if err != nil {
		if s.Plan == nil {
			err = unusable{err}
		}
		return c.failed(err)
	}
	if err := c.write(m.Saved); err != nil {
		return c.failed(err)
	}
	wall := time.Since(start)
	if c.trace != "" || c.html != "" {
		if err := c.observed(m.Saved.From, func(opt play.Options) (*play.Outcome, error) {
			r, err := m.Saved.Play(opt)
			return &r.Outcome, err
		}); err != nil {
			return c.failed(err)
		}
	}
	replay := "novasim -replay " + quote(c.save)
	if c.output == "json" {
		r := minimizeReport{report: newReport(&m.Outcome, wall), From: m.From, FromSteps: m.FromStep, To: m.To, Runs: m.Runs, Dropped: m.Kept,
			Remains: strings.Split(strings.TrimSpace(m.Remains), "\n"), Chance: m.Chance, Saved: c.save}
		r.Replay = replay
		c.json(r)
		return status(m.Outcome.Finding)
	}
	fmt.Fprintf(c.out, "minimized in %.1f s, %d runs\n", wall.Seconds(), m.Runs)
	fmt.Fprintf(c.out, "  from %s, %d steps\n  to   %s, %d steps\n", m.From, m.FromStep, m.To, m.Outcome.Steps)
	fmt.Fprintf(c.out, "\nwhat remains\n%s", m.Remains)
	fmt.Fprintf(c.out, "\nwhat chance did\n")
	for _, line := range m.Chance[max(0, len(m.Chance)-chanceMost):] {
		fmt.Fprintf(c.out, "  %s\n", line)
	}
	if n := len(m.Chance) - chanceMost; n > 0 {
		fmt.Fprintf(c.out, "  (and %d before; all are in the trace)\n", n)
	}
	if len(m.Chance) == 0 {
		fmt.Fprintf(c.out, "  nothing went wrong but in the program: only who goes on when\n")
	}
	fmt.Fprintf(c.out, "\n%s\nreplay: %s\n", m.Outcome.Finding.Report(), replay)
	if c.html == "" {
		fmt.Fprintf(c.out, "next:   %s -html %s\n", replay, quote(strings.TrimSuffix(c.save, ".json")+".html"))
	}
	return status(m.Outcome.Finding)
}
