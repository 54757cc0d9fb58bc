package play

import (
	"fmt"
	"strings"
	"time"

	"github.com/nova-store/nova/catalog"
)

// remains describes a plan by what there is in it, and leaves out what is not: of a minimized one it is all that is
// needed for the failure.
func (p *plan) remains() string {
	var b strings.Builder
	line := func(what, format string, a ...any) {
		fmt.Fprintf(&b, "  %-9s"+format+"\n", append([]any{what}, a...)...)
	}
	world := "shared"
	if p.config.Embedded {
		world = "embedded"
	}
	line("world", "%s, at most %d operations a commit", world, p.config.MaxOps)
	t := p.nodes[0].Timing
	line("graces", "reap %v, trim %v, retire %v, orphan %v; job deadline %v", t.ReapGrace, t.TrimGrace, t.RetireGrace, t.OrphanGrace, t.JobDeadline)
	if !p.config.Embedded {
		line("", "put horizon %v, session %v, skew %v", t.PutHorizon, t.SessionTTL, t.MaxClockSkew)
		if p.config.BucketSkew != 0 {
			line("bucket", "clock off by %v", p.config.BucketSkew)
		}
	}
	for i := range p.nodes {
		n := &p.nodes[i]
		var roles []string
		if n.Serve {
			roles = append(roles, "star "+n.star())
		}
		if n.Audit {
			roles = append(roles, fmt.Sprintf("auditor (%s)", count(n.Workers, "worker")))
		}
		if p.skews[i] != 0 || p.drifts[i] != 0 {
			roles = append(roles, fmt.Sprintf("clock off by %v, drifting %d ppm", p.skews[i], p.drifts[i]))
		}
		if n.Name == p.retired {
			roles = append(roles, fmt.Sprintf("decommissioned after %v", p.retiredAt))
		}
		line("node "+n.Name, "%s", strings.Join(roles, ", "))
	}
	for i := range p.writers {
		w := &p.writers[i]
		text := fmt.Sprintf("%s writer, %s to %s", w.kind, count(w.appends, "append"), strings.Join(w.streams, " "))
		if w.burst > 1 && w.kind == writePlain {
			text += fmt.Sprintf(", %d at once", w.burst)
		}
		if w.records > 1 {
			text += fmt.Sprintf(", up to %d records each", w.records)
		}
		if w.pause > 0 {
			text += fmt.Sprintf(", pausing up to %v", w.pause)
		}
		line(fmt.Sprintf("w%d", i), "%s", text)
	}
	if p.readers > 0 {
		line("readers", "%d", p.readers)
	}
	if p.looks > 0 {
		line("operator", "looks %s", count(p.looks, "time"))
	}
	p.remainingLives(line)
	for _, f := range p.faultsOn() {
		line("fault", "%s", f)
	}
	if p.chaos.every > 0 {
		line("chaos", "each %v at most, down for %v at most", p.chaos.every, p.chaos.down)
	}
	return b.String()
}

func (p *plan) remainingLives(line func(what, format string, a ...any)) {
	l := &p.lives
	if l.rounds > 0 {
		of := "of one stream"
		if l.all {
			of = "of all streams at once"
		}
		var kinds []string
		for _, k := range []struct {
			name   string
			chance float64
		}{{"trims", l.trim}, {"policies", l.policy}, {"deletions", l.remove}} {
			if k.chance > 0 {
				kinds = append(kinds, k.name)
			}
		}
		line("lives", "%s %s: %s, at most %v apart", count(l.rounds, "round"), of, strings.Join(kinds, ", "), l.gap)
	}
	for i, q := range l.policies {
		if i < len(p.streams) && q != (catalog.Policy{}) {
			line("policy", "%s is created with max age %v, max bytes %d", p.streams[i], time.Duration(q.MaxAgeMS)*time.Millisecond, q.MaxBytes)
		}
	}
	if l.backdate > 0 {
		line("records", "up to %v old", l.backdate)
	}
}
