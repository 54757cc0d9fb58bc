package play

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nova-store/nova/catalog"
	"github.com/nova-store/nova/metastore"
	"github.com/nova-store/nova/sim"
	"github.com/nova-store/nova/sim/check"
)

// lives tells the streams apart that have had a name: how many deletions of one have
// ended, whether one is under way, and whether a stream of that name is there as far as its
// creator knows.
type lives struct {
	ended           int
	deleting, there bool
}

func (g *game) lives(stream string) lives { return g.deletions[stream] }

// found judges an answer that there is no such stream: there was one all the while, unless one
// was deleted.
func (g *game) found(stream string, before lives, err error) {
	if errors.Is(err, catalog.ErrNoStream) && before.there && before == g.lives(stream) {
		g.w.Finding(check.Lost, stream, fmt.Sprintf("stream %q was not found, and nobody has deleted it: %v", stream, err))
	}
}

// until calls do with a process that serves, again until it returns true.
func (g *game) until(ctx context.Context, c *sim.Client, do func(p *Process) bool) {
	for ctx.Err() == nil && g.w.Found() == nil {
		if p := g.serving(c.Rand.N(len(g.order))); p != nil && do(p) {
			return
		}
		_ = c.Clock().Sleep(ctx, 100*time.Millisecond)
	}
}

type createAnswer struct {
	id      catalog.StreamID
	created bool
	err     error
}

// create makes a stream, again until it is there.
func (g *game) create(ctx context.Context, c *sim.Client, name string, policy catalog.Policy) {
	ended := 0
	g.until(ctx, c, func(p *Process) bool {
		ended = g.lives(name).ended
		asked := g.check.AskCreate(name, policy)
		defer g.check.Uncreated(asked)
		ans, lost := sim.Call(ctx, c, p.Inc, "create", func(ctx context.Context) createAnswer {
			v, created, err := p.Cat.CreateStream(ctx, name, policy)
			return createAnswer{v.ID, created, err}
		})
		if lost != nil || !g.done("creation", name, ans.err) {
			return false
		}
		g.check.Created(asked, ans.id, ans.created)
		return true
	})
	// Someone else's deletion may have come and gone since this call made it, whose answer was slow: seed 64394.
	if l := g.deletions[name]; !l.deleting && l.ended == ended {
		l.there = true
		g.deletions[name] = l
	}
}

// deleteStream deletes the stream of that name, again until it is: of several that it has had,
// the one that it had when this began.
func (g *game) deleteStream(ctx context.Context, c *sim.Client, name string) (id catalog.StreamID) {
	l := g.deletions[name]
	l.deleting, l.there = true, false
	g.histories.Spoil(name)
	g.deletions[name] = l
	g.until(ctx, c, func(p *Process) bool {
		err, lost := sim.Call(ctx, c, p.Inc, "delete", func(ctx context.Context) error {
			if id == 0 {
				var err error
				if id, err = p.Cat.FindStream(ctx, name); err != nil {
					return err
				}
				g.check.Deleting(id)
			}
			_, err := p.Cat.DeleteStream(ctx, id)
			return err
		})
		if lost != nil || !errors.Is(err, catalog.ErrNoStream) && !g.done("deletion", name, err) {
			return false
		}
		if id != 0 {
			g.check.Deleted(id)
		}
		return true
	})
	l.ended, l.deleting = l.ended+1, false
	g.deletions[name] = l
	return id
}

// undelete brings a deleted stream back, again until that is definite, and tells whether it is there.
func (g *game) undelete(ctx context.Context, c *sim.Client, name string, id catalog.StreamID) (back bool) {
	ended := 0
	g.until(ctx, c, func(p *Process) bool {
		ended = g.lives(name).ended
		err, lost := sim.Call(ctx, c, p.Inc, "undelete", func(ctx context.Context) error {
			_, err := p.Cat.UndeleteStream(ctx, id)
			return err
		})
		switch {
		case lost != nil:
			return false
		case errors.Is(err, catalog.ErrNoStream), errors.Is(err, catalog.ErrTearing), errors.Is(err, catalog.ErrNameTaken):
			return true
		}
		back = g.done("undeletion", name, err)
		return back
	})
	if !back {
		g.w.Mark("client/undelete-failed")
		return false
	}
	g.w.Mark("client/undeleted")
	if l := g.deletions[name]; !l.deleting && l.ended == ended {
		g.check.Undeleted(id)
		l.there = true
		g.deletions[name] = l
	}
	return true
}

// trim moves a stream's watermark, once.
func (g *game) trim(ctx context.Context, c *sim.Client, p *Process, name string, upTo uint64) error {
	var asked *check.TrimAsk
	return g.change(ctx, c, p, "trim", name, func(ctx context.Context, id catalog.StreamID) error {
		asked = g.check.Trimming(id, upTo)
		_, err := p.Cat.TrimStream(ctx, id, upTo)
		if err != nil && !errors.Is(err, metastore.ErrUnknown) {
			g.check.TrimRefused(asked)
		}
		return err
	}, func(catalog.StreamID) { g.check.Trimmed(asked) })
}

// setPolicy gives a stream a policy, once.
func (g *game) setPolicy(ctx context.Context, c *sim.Client, p *Process, name string, policy catalog.Policy) error {
	var asked *check.PolicyAsk
	return g.change(ctx, c, p, "policy", name, func(ctx context.Context, id catalog.StreamID) error {
		asked = g.check.AskPolicy(id, policy)
		_, err := p.Cat.SetPolicy(ctx, id, policy)
		if err != nil && !errors.Is(err, metastore.ErrUnknown) {
			g.check.PolicyRefused(asked)
		}
		return err
	}, func(catalog.StreamID) { g.check.PolicySet(asked) })
}

// change does what changes a stream, once, and judges the answer: an error, or that it is done.
func (g *game) change(ctx context.Context, c *sim.Client, p *Process, what, name string, do func(context.Context, catalog.StreamID) error, done func(catalog.StreamID)) error {
	var id catalog.StreamID
	lives := g.lives(name)
	err, lost := sim.Call(ctx, c, p.Inc, what, func(ctx context.Context) (err error) {
		if id, err = p.Cat.FindStream(ctx, name); err != nil {
			return err
		}
		return do(ctx, id)
	})
	if lost != nil {
		return lost
	}
	g.found(name, lives, err)
	if errors.Is(err, catalog.ErrNoStream) {
		return err
	}
	if g.done(what, name, err) {
		done(id)
	}
	return err
}

// livesPlan is what befalls streams beside appends: trims, policies, and their end. Each
// chance is that of a round.
type livesPlan struct {
	rounds               int
	gap                  time.Duration // between rounds, at most
	all                  bool          // each round is of every stream, side by side
	stagger              time.Duration // each of them begins within that time
	settled              bool          // trims go as far as records lie in settled objects
	trim, policy, remove float64
	undelete             float64       // chance that a deletion is undone, or tried to
	age                  time.Duration // policies go up to it
	bytes                int           // likewise
	away                 time.Duration // a name is free for so long, at most, before it is used again
	policies             []catalog.Policy
	backdate             time.Duration // records say that they are up to so old
}

// drawPolicy draws a policy: by age, by bytes, by both, or none.
func (l *livesPlan) drawPolicy(r *sim.Rand) catalog.Policy {
	var p catalog.Policy
	kind := r.N(5)
	if kind == 1 || kind == 3 {
		p.MaxAgeMS = r.Between(time.Millisecond, l.age).Milliseconds() + 1
	}
	if kind == 2 || kind == 3 {
		p.MaxBytes = uint64(1 + r.N(l.bytes))
	}
	return p
}

// policyOf is the policy that a stream is created with.
func (p *plan) policyOf(stream string) catalog.Policy {
	for i, s := range p.streams {
		if s == stream && i < len(p.lives.policies) {
			return p.lives.policies[i]
		}
	}
	return catalog.Policy{}
}

// live plays what befalls streams: of one stream a round, or of all side by side, so that many
// killers meet at one packed object.
func (g *game) live(ctx context.Context, c *sim.Client, p *plan) {
	l := &p.lives
	if p.garbage {
		g.litter(ctx, c)
	}
	for i := 0; i < l.rounds && ctx.Err() == nil && g.w.Found() == nil; i++ {
		_ = c.Clock().Sleep(ctx, c.Rand.Between(l.gap/2, l.gap))
		chosen := p.streams
		if !l.all {
			at := c.Rand.N(len(p.streams))
			chosen = p.streams[at : at+1]
		}
		left := 1
		done := c.Clock().NewParker()
		end := func() {
			if left--; left == 0 {
				done.Unpark()
			}
		}
		kind := c.Rand.Float64()
		for _, stream := range chosen {
			left++
			c.Go(func(ctx context.Context) {
				defer end()
				if l.stagger > 0 {
					_ = c.Clock().Sleep(ctx, c.Rand.Between(0, l.stagger))
				}
				g.befall(ctx, c, p, stream, kind)
			})
		}
		end()
		_ = done.Park(ctx)
	}
}

// befall does to one stream what the round's draw says.
func (g *game) befall(ctx context.Context, c *sim.Client, p *plan, stream string, kind float64) {
	l := &p.lives
	on := g.serving(c.Rand.N(len(g.order)))
	switch {
	case on == nil:
	case kind < l.trim:
		next := g.check.Next(stream)
		upTo := next
		switch {
		case l.settled:
			if upTo = g.check.Settled(stream); upTo <= g.check.Readable(stream) {
				return
			}
		case !l.all:
			upTo = uint64(c.Rand.N(int(next) + 1))
		}
		g.noted("trim", g.trim(ctx, c, on, stream, upTo))
	case kind < l.trim+l.policy:
		g.noted("policy", g.setPolicy(ctx, c, on, stream, l.drawPolicy(c.Rand)))
	case kind < l.trim+l.policy+l.remove:
		id := g.deleteStream(ctx, c, stream)
		g.w.Mark("client/deleted")
		_ = c.Clock().Sleep(ctx, c.Rand.Between(0, l.away))
		if id != 0 && c.Rand.Chance(l.undelete) && g.undelete(ctx, c, stream, id) {
			return
		}
		g.create(ctx, c, stream, l.drawPolicy(c.Rand))
	}
}

// decommission stops a node for good, and retires its star, again until that is done; then someone
// starts it all the same, and it must refuse.
func (g *game) decommission(ctx context.Context, c *sim.Client, name string) {
	g.gone[name] = true
	if inc := g.w.Node(name).Current(); inc != nil {
		if c.Rand.N(2) == 0 {
			inc.Kill()
		} else {
			inc.Interrupt()
		}
	}
	g.retire(ctx, c, g.star(name))
	g.w.Mark("client/decommissioned")
	_ = c.Clock().Sleep(ctx, c.Rand.Between(0, 10*time.Second))
	if g.w.Node(name).Current() == nil && g.w.Found() == nil {
		g.boot(g.configs[name])
	}
}

// retire decommissions a star, again until it is.
func (g *game) retire(ctx context.Context, c *sim.Client, star string) {
	g.until(ctx, c, func(p *Process) bool {
		err, lost := sim.Call(ctx, c, p.Inc, "decommission", func(ctx context.Context) error {
			_, err := p.Cat.Decommission(ctx, star)
			return err
		})
		return lost == nil && (err == nil || errors.Is(err, catalog.ErrNoStar))
	})
}

// litter writes markers that no version of the program could read, into every queue but denorm. They
// must go, and must not hold up what stands behind them.
func (g *game) litter(ctx context.Context, c *sim.Client) {
	var b metastore.Batch
	for _, q := range catalog.Queues() {
		if q != catalog.Denorm {
			b.Ops = append(b.Ops, metastore.Put(catalog.ShardRange(q, c.Rand.N(catalog.Shards)).Start+"0", nil))
		}
	}
	g.until(ctx, c, func(p *Process) bool {
		err, lost := sim.Call(ctx, c, p.Inc, "litter", func(ctx context.Context) error {
			_, err := p.Cat.Store().Commit(ctx, b)
			return err
		})
		return lost == nil && err == nil
	})
}

func (g *game) noted(what string, err error) {
	if err != nil {
		g.w.Mark("client/" + what + "-failed")
		return
	}
	g.w.Mark("client/" + what)
}
