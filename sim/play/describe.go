package play

import (
	"fmt"
	"strings"

	"github.com/nova-store/nova/catalog"
)

// String describes the plan, a line for each part of it.
func (p *plan) String() string {
	var b strings.Builder
	line := func(format string, a ...any) { fmt.Fprintf(&b, "  "+format+"\n", a...) }
	world := "shared"
	if p.config.Embedded {
		world = "embedded"
	}
	line("world    %s, at most %d operations a commit; %d streams; the bucket's clock off by %v", world, p.config.MaxOps, len(p.streams), p.config.BucketSkew)
	t := p.nodes[0].Timing
	line("graces   reap %v, trim %v, retire %v, orphan %v; put horizon %v, session %v, skew %v, job deadline %v",
		t.ReapGrace, t.TrimGrace, t.RetireGrace, t.OrphanGrace, t.PutHorizon, t.SessionTTL, t.MaxClockSkew, t.JobDeadline)
	line("undelete %v; gc from %.2f of an object; unreadable markers: %v; stalled publishers %.2f", t.UndeleteWindow, p.nodes[0].GCMinDeadRatio, p.garbage, p.stall)
	line("settle   age cap %v, recheck %v, owed %d bytes", t.SettleAgeCap, t.SettleRecheck, t.SettleOwedBytes)
	for i := range p.nodes {
		n := &p.nodes[i]
		roles := ""
		if n.Serve {
			roles += fmt.Sprintf(" star %s (window %d, flights of %d bytes, %d inline, slot deadline %v)", n.star(), n.Window, n.FlightBytes, n.InlineBytes, n.SlotDeadline)
		}
		if n.Audit {
			roles += fmt.Sprintf(" auditor (%d workers, idle %v, %d markers an era, pages of %d, objects from %d bytes, leases %v)",
				n.Workers, n.IdleInterval, n.MarkersPerEra, n.PageSize, n.SettleObjectMin, !n.NoLeases)
		}
		line("node %s  %s; clock off by %v, drifting %d ppm", n.Name, roles, p.skews[i], p.drifts[i])
	}
	if p.retired != "" {
		line("retired  node %s, after %v", p.retired, p.retiredAt)
	}
	for i := range p.writers {
		w := &p.writers[i]
		line("w%-6d  %s: %d appends of up to %d records to %d streams, pausing up to %v", i, w.kind, w.appends, w.records, len(w.streams), w.pause)
	}
	l := &p.lives
	line("clients  %d readers, an operator who looks %d times; records up to %v old", p.readers, p.looks, l.backdate)
	line("lives    %d rounds, at most %v apart, of all streams: %v; trims %.2f, policies %.2f (up to %v, %d bytes), deletions %.2f (away %v at most, undone %.2f)",
		l.rounds, l.gap, l.all, l.trim, l.policy, l.age, l.bytes, l.remove, l.away, l.undelete)
	for i, policy := range l.policies {
		if policy != (catalog.Policy{}) {
			line("         %s is created with a max age of %d ms, max bytes %d", p.streams[i], policy.MaxAgeMS, policy.MaxBytes)
		}
	}
	if c := p.chaos; c.every > 0 {
		line("chaos    each %v at most; down for %v at most, stopped for %v", c.every, c.down, c.pauseMost)
	}
	if p.sleep > 0 {
		line("sleep    all is down for %v", p.sleep)
	}
	line("faults   %s", strings.Join(p.names, ", "))
	f := p.config.Faults
	line("         commits: unknown %v without effect, %v with, %v late (up to %v), slow %v (up to %v)",
		f.CommitUnknownNoEffect, f.CommitUnknownEffect, f.CommitUnknownLate, f.CommitLateMax, f.CommitSlow, f.CommitSlowMax)
	line("         puts: unknown %v without effect, %v with, %v late (up to %v); deletes: unknown %v, partial %v",
		f.PutUnknownNoEffect, f.PutUnknownEffect, f.PutUnknownLate, f.PutLateMax, f.DeleteUnknown, f.DeletePartial)
	line("         bucket: throttled %v, read errors %v, corrupt %v, truncated %v; store unavailable %v, short pages %v; network %v",
		f.BucketThrottle, f.BucketReadError, f.CorruptRead, f.TruncateRead, f.StoreUnavailable, f.ScanShort, f.NetLost)
	return b.String()
}

func (k writerKind) String() string {
	return [...]string{"plain", "idempotent", "expecting", "forgotten"}[k]
}
