package catalog_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/nova-store/nova/catalog"
	"github.com/nova-store/nova/objstore/format"
)

// scene is one state in which a little of everything stands: a living chain and a dead
// one with slots absorbed and not; a packed object that lost a ref; a trimcheck; and
// publishers at each stage, fresh and forgotten.
type scene struct {
	*world
	t      *testing.T
	s0, s1 catalog.StreamID
	a, b   *starLife
	// Publishers: armed; put; partly swapped; swapped; and the same, older than the orphan grace.
	pubs map[string]*publisher
}

func newScene(t *testing.T, maxOps int, fail func(string, ...any)) *scene {
	clk := newManualClock()
	store := &faultStore{Store: newMemStore(maxOps), mirror: map[string]mirrored{}}
	w := newWorld(store, clk, catalog.New(store, clk, testTiming(), nil), fail)
	c := &scene{world: w, t: t, pubs: map[string]*publisher{}}
	c.s0, c.s1 = w.createStream("s0"), w.createStream("s1")
	c.a, c.b = w.start("a"), w.start("b")
	both := func(o *object) {
		w.record(o, c.s0, 2, format.Append{})
		w.record(o, c.s1, 1, format.Append{})
	}
	slots := func(s *starLife, n int) {
		for range n {
			w.refresh(s)
			w.putSlot(s, 0, both)
			c.ok(w.absorb(s, 1, false))
		}
	}
	// One append of two is accepted.
	turnedDown := func(o *object) {
		w.record(o, c.s0, 2, format.Append{})
		w.record(o, c.s1, 1, format.Append{HasExpected: true, Expected: 99})
	}
	bundled := func(s *starLife, ahead uint64, build func(o *object)) {
		slot := s.next + ahead
		w.announce(s, ahead, build)
		for range 2 {
			w.stepBundle(s, slot)
		}
	}
	spans := func(id catalog.StreamID, from, n int) []catalog.SpanAt {
		out, _, err := w.cat.Spans(w.ctx, id, 0, 100)
		c.no(err)
		return out[from : from+n]
	}
	stage := func(name string, stage int, runs ...[]catalog.SpanAt) {
		p := w.publish(runs)
		c.pubs[name] = p
		for range stage {
			w.step(p, 1)
		}
	}
	// Six slots of a, and two of b, each with two records of s0 and one of s1.
	slots(c.a, 6)
	slots(c.b, 2)
	// Slot 0 of a is settled and its batch completed. Its object is packed; s1's span of it is killed.
	stage("done", 4, spans(c.s0, 0, 1), spans(c.s1, 0, 1))
	c.no(w.complete(c.a.chain, 1))
	c.no(w.kill(c.s1, 1))
	// Publishers that died, before the orphan grace.
	stage("old put", 1, spans(c.s0, 1, 1))
	stage("old half", 2, spans(c.s0, 2, 1), spans(c.s1, 1, 1))
	clk.now = clk.now.Add(testTiming().OrphanGrace + time.Minute)
	w.refresh(c.a)
	w.refresh(c.b)
	stage("armed", 0, spans(c.s1, 2, 1))
	stage("put", 1, spans(c.s0, 2, 2)) // over the half-swapped one's span: it loses its ref
	stage("half", 2, spans(c.s0, 4, 1), spans(c.s1, 3, 1))
	stage("swapped", 2, spans(c.s0, 5, 1))
	// A stream that was deleted, with a record in a slot that is owed.
	gone := w.createStream("gone")
	w.putSlot(c.a, 0, func(o *object) { w.record(o, gone, 1, format.Append{}) })
	c.ok(w.absorb(c.a, 1, false))
	_, err := w.cat.DeleteStream(w.ctx, gone)
	c.no(err)
	// Slots that are durable and not absorbed; b leaves a gap, and its session is gone.
	// Behind those, flights with bundles: of a one that is announced, and one whose bundle is
	// put; of b one that only lacks its absorb, and one beyond the gap.
	w.putSlot(c.a, 0, both)
	w.announce(c.a, 0, turnedDown)
	w.announce(c.a, 1, both)
	w.stepBundle(c.a, c.a.next+1)
	w.putSlot(c.b, 0, both)
	bundled(c.b, 0, turnedDown)
	bundled(c.b, 1, both)
	w.store.end(c.b.session)
	c.b.ended = true
	return c
}

func (c *scene) no(err error) {
	if err != nil {
		c.t.Fatalf("the scene: %v", err)
	}
}

func (c *scene) ok(_ catalog.Absorbed, err error) { c.no(err) }

// sceneActions are what meets in the scene. Errors are none of their business: that they leave
// everything watched is.
func sceneActions() map[string]func(c *scene) {
	actions := map[string]func(c *scene){
		"create":         func(c *scene) { c.createStream("s2") },
		"create same":    func(c *scene) { c.createStream("s0") },
		"mint a":         func(c *scene) { c.start("a") },
		"mint b":         func(c *scene) { c.start("b") },
		"absorb a":       func(c *scene) { c.life(c.a, func() { _, _ = c.absorb(c.a, 4, true) }) },
		"absorb b":       func(c *scene) { c.life(c.b, func() { _, _ = c.absorb(c.b, 4, true) }) },
		"leave a":        func(c *scene) { c.life(c.a, func() { _ = c.cat.DropRoute(c.ctx, c.a.chain); c.a.dead = true }) },
		"decommission b": func(c *scene) { _, _ = c.cat.Decommission(c.ctx, "b") },
		"decommission a": func(c *scene) { _, _ = c.cat.Decommission(c.ctx, "a") },
		"settle a":       func(c *scene) { c.each(catalog.Settle, c.a.chain.String(), c.settle) },
		"settle b":       func(c *scene) { c.each(catalog.Settle, c.b.chain.String(), c.settle) },
		"complete a":     func(c *scene) { _ = c.complete(c.a.chain, 10) },
		"ripen":          func(c *scene) { c.batch(func(b catalog.BatchAt) { _ = c.cat.RipenBatch(c.ctx, b) }) },
		"delay":          func(c *scene) { c.batch(func(b catalog.BatchAt) { _ = c.cat.DelayBatch(c.ctx, b, b.Batch, 0) }) },
		"trimcheck":      func(c *scene) { c.each(catalog.TrimCheck, "", c.trimCheck) },
		"reap":           func(c *scene) { c.each(catalog.Reap, "", c.reap) },
		"kill s0":        func(c *scene) { _ = c.kill(c.s0, 6) },
		"kill s1":        func(c *scene) { _ = c.kill(c.s1, 3) },
		"trim s0":        func(c *scene) { _, _ = c.cat.TrimStream(c.ctx, c.s0, 3) },
		"by bytes s0":    func(c *scene) { _, _ = c.cat.SetPolicy(c.ctx, c.s0, catalog.Policy{MaxBytes: 60}) },
		"by age s0":      func(c *scene) { _, _ = c.cat.SetPolicy(c.ctx, c.s0, catalog.Policy{MaxAgeMS: 60_000}) },
		"delete s0":      func(c *scene) { _, _ = c.cat.DeleteStream(c.ctx, c.s0) },
		"delete s1":      func(c *scene) { _, _ = c.cat.DeleteStream(c.ctx, c.s1) },
		"ripen owed":     func(c *scene) { _, _, _ = c.cat.RipenOwed(c.ctx, c.a.chain, 0, 4) },
		"retention":      func(c *scene) { c.each(catalog.Retention, "", c.retain) },
		"teardown":       func(c *scene) { c.each(catalog.Teardown, "", c.tearDown) },
		"kill s0 less":   func(c *scene) { _ = c.kill(c.s0, 2) },
		"put": func(c *scene) {
			c.putSlot(c.a, 1, func(o *object) { c.record(o, c.s0, 1, format.Append{}) })
		},
		"bundle a": func(c *scene) {
			for _, slot := range []uint64{7, 8} {
				for range 2 {
					c.stepBundle(c.a, slot)
				}
			}
		},
		"announce a": func(c *scene) {
			c.announce(c.a, 2, func(o *object) { c.record(o, c.s0, 1, format.Append{}) })
		},
		"orphan bundles": func(c *scene) {
			for _, key := range c.store.keys("due/orphan/") {
				if object := must(catalog.ParseDue(key)).Object(); catalog.IsBundle(object) {
					_ = c.orphan(object)
				}
			}
		},
		"rewrite": func(c *scene) { // everything into one object, by someone with another plan
			spans, _, err := c.cat.Spans(c.ctx, c.s0, 0, 100)
			if err == nil {
				p := c.publish([][]catalog.SpanAt{spans})
				for range 3 {
					if p != nil {
						c.step(p, 1)
					}
				}
			}
		},
	}
	for _, name := range []string{"done", "old put", "old half", "armed", "put", "half", "swapped"} {
		actions["finish "+name] = func(c *scene) {
			for range 4 {
				c.step(c.pubs[name], 2)
			}
		}
		actions["orphan "+name] = func(c *scene) { _ = c.orphan(c.pubs[name].armed.Object) }
	}
	return actions
}

// life runs f as the star's one absorbing task.
func (c *scene) life(s *starLife, f func()) {
	if s.busy || s.dead {
		return
	}
	s.busy = true
	if dies(f) {
		s.dead = true
	}
	s.busy = false
}

func (c *scene) each(q catalog.Queue, subject string, run func(catalog.MarkerAt) error) {
	for _, key := range c.store.keys("due/" + string(q) + "/") {
		if _, stands := c.store.mirror[key]; !stands {
			continue
		}
		if m := c.marker(key); subject == "" || m.Due.Subject == subject {
			_ = run(m)
		}
	}
}

func (c *scene) batch(f func(catalog.BatchAt)) {
	if owed, err := c.cat.OwedBatches(c.ctx, c.a.chain, 0, 1); err == nil && len(owed) > 0 {
		f(owed[0])
	}
}

// clone copies the scene, so that it need not be built anew.
func (c *scene) clone(fail func(string, ...any)) *scene {
	inner := c.store.Store.(*memStore)
	mem := &memStore{recs: maps.Clone(inner.recs), keys: slices.Clone(inner.keys), last: inner.last, open: maps.Clone(inner.open), limits: inner.limits}
	store := &faultStore{Store: mem, mirror: maps.Clone(c.store.mirror)}
	clk := &manualClock{now: c.clk.now, rand: c.clk.rand}
	w := newWorld(store, clk, catalog.New(store, clk, testTiming(), nil), fail)
	w.objects, w.killed, w.retired, w.last = maps.Clone(c.objects), maps.Clone(c.killed), maps.Clone(c.retired), c.last
	for id, log := range c.log {
		w.log[id] = maps.Clone(log)
	}
	w.streams, w.values, w.ulids = slices.Clone(c.streams), c.values, c.ulids
	n := &scene{world: w, t: c.t, s0: c.s0, s1: c.s1, pubs: map[string]*publisher{}}
	for _, s := range c.stars {
		life := *s
		life.session = &memSession{mem, s.session.ID(), s.session.TTL()}
		life.cache, life.pending = catalog.NewCache(8), maps.Clone(s.pending)
		life.bundles = map[uint64]*bundling{}
		for slot, b := range s.bundles {
			on := *b
			life.bundles[slot] = &on
		}
		w.stars = append(w.stars, &life)
	}
	n.a, n.b = w.stars[0], w.stars[1]
	for name, p := range c.pubs {
		q := *p
		n.pubs[name] = &q
		w.publishers = append(w.publishers, &q)
	}
	return n
}

// drained requires that nothing is left behind once the faults stop.
func (c *scene) drained() {
	c.store.committed = nil // what is sequential and without a fault is judged at its end
	(&machine{world: c.world, rng: rand.New(rand.NewPCG(1, 1)), did: map[string]int{}}).converge()
	c.check()
}

// footprints runs each action alone.
func footprints(from *scene, actions map[string]func(c *scene)) map[string]*footprint {
	out := map[string]*footprint{}
	for name, run := range actions {
		c := from.clone(from.fail)
		f := &footprint{writes: map[string]bool{}}
		c.store.trace = f
		run(c)
		out[name] = f
	}
	return out
}

// Every commit is a compare-and-swap: it changes a key that it is conditional on, so that a late twin of it
// changes nothing.
func TestEveryMutationIsConditional(t *testing.T) {
	t.Parallel()
	commits := 0
	for name, f := range footprints(newScene(t, 128, t.Fatalf), sceneActions()) {
		require.Empty(t, f.blind, name)
		commits += f.commits
	}
	require.Greater(t, commits, 30)
}

// Of every two actions, one comes between any two calls of the other: everything stays
// watched at every commit, and drains in the end. Two of which neither writes what the
// other reads or writes can't tell that they met, and are left out.
func TestEveryTwoActionsMeet(t *testing.T) {
	t.Parallel()
	actions, from := sceneActions(), newScene(t, 128, t.Fatalf)
	prints := footprints(from, actions)
	n := 0
	for first, a := range actions {
		for second, b := range actions {
			if !prints[first].disturbs(prints[second]) && !prints[second].disturbs(prints[first]) {
				continue
			}
			for at := range prints[first].calls {
				what := fmt.Sprintf("%q before call %d of %q", second, at, first)
				c := from.clone(func(format string, args ...any) { t.Fatalf(what+": "+format, args...) })
				i := 0
				c.store.interject = func(string) {
					if i++; i == at+1 {
						b(c)
					}
				}
				a(c)
				c.drained()
				n++
			}
		}
	}
	t.Logf("%d meetings", n)
	require.Greater(t, n, 500)
}

// Each commit of each action meets each fault; then the action is tried once more, and
// what was late lands, before or after that.
func TestEveryActionMeetsEveryFault(t *testing.T) {
	t.Parallel()
	actions, from := sceneActions(), newScene(t, 128, t.Fatalf)
	n := 0
	for name, f := range footprints(from, actions) {
		for at := range f.commits {
			for _, what := range []fault{conflict, lostWithoutEffect, lostWithEffect, lostLate, crashBefore, crashAfter, crashLate} {
				for _, again := range []bool{false, true} {
					which := fmt.Sprintf("fault %d at commit %d of %q, again %v", what, at, name, again)
					c := from.clone(func(format string, args ...any) { t.Fatalf(which+": "+format, args...) })
					c.store.plan = append(make([]fault, at), what)
					dies(func() { actions[name](c) })
					if again {
						c.store.plan = nil
						actions[name](c)
					}
					c.store.landAll()
					c.drained()
					n++
				}
			}
		}
	}
	t.Logf("%d faults", n)
	require.Greater(t, n, 500)
}
