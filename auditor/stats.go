package auditor

import (
	"context"
	"time"

	"github.com/nova-store/nova/catalog"
)

// nodeStats is what the member remembers between two records of its stats. The
// pass alone touches it.
type nodeStats struct {
	started, published time.Time
	worked             time.Duration // worker time spent until then
}

// publishStats puts the member's stats next to its announcement, at most once an idle interval: how much of
// the workers' time jobs took since the last time. Best effort: nothing in Nova decides by them.
func (a *Auditor) publishStats(ctx context.Context) {
	now := a.clk.Now()
	s := &a.stats
	if s.started.IsZero() {
		s.started, s.published = now, now
	} else if now.Sub(s.published) < a.opts.IdleInterval {
		return
	}
	session := a.ring.live()
	if session == nil {
		return
	}
	worked := a.pool.worked(now)
	v := catalog.NodeStats{Version: a.opts.Version, Started: s.started.UnixMilli(), Published: now.UnixMilli(), Workers: uint64(a.opts.Workers)}
	if span := now.Sub(s.published) * time.Duration(a.opts.Workers); span > 0 {
		v.Utilization = uint64(min(1000*(worked-s.worked)/span, 1000))
	}
	if err := a.cat.PublishStats(ctx, session.ID(), a.opts.Member, v); err != nil {
		if ctx.Err() == nil {
			a.log.Warn("the node's stats could not be published; the next pass tries again", "err", err)
		}
		return
	}
	s.published, s.worked = now, worked
}

// meter adds up the time that workers spend on jobs.
type meter struct {
	running int
	since   time.Time // of the last change
	sum     time.Duration
}

// change notes that by more jobs run from now on.
func (m *meter) change(now time.Time, by int) {
	m.sum = m.total(now)
	m.since = now
	m.running += by
}

// total is the worker time spent until now. A clock that went back adds nothing.
func (m *meter) total(now time.Time) time.Duration {
	return m.sum + time.Duration(m.running)*max(now.Sub(m.since), 0)
}

// worked is the worker time spent until now, in all.
func (p *pool) worked(now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.work.total(now)
}
