package catalog_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/nova-store/nova/catalog"
	"github.com/nova-store/nova/objstore/format"
)

// machine draws what happens next. An action may be let in between any two calls of
// another one, so that transitions meet as they would on several nodes.
type machine struct {
	*world
	rng   *rand.Rand // rapid draws its seed: its own draws favour small numbers, and so the first action
	depth int
	// A run first draws how it is, so that runs differ more than their moments do.
	mix, faulty int   // chance in percent that another action comes between, that a commit meets a fault
	weights     []int // of the actions
	did         map[string]int
}

func (m *machine) chance(percent int) bool { return m.rng.IntN(100) < percent }

// pick draws one of the list; ok is false where it is empty.
func pick[T any](m *machine, list []T) (v T, ok bool) {
	if len(list) == 0 {
		return v, false
	}
	return list[m.rng.IntN(len(list))], true
}

var actions = []struct {
	name   string
	weight int
	run    func(m *machine)
}{
	{"create", 2, (*machine).create},
	{"start", 2, (*machine).begin},
	{"die", 1, (*machine).die},
	{"leave", 1, (*machine).leave},
	{"decommission", 1, (*machine).decommissionSome},
	{"put", 10, (*machine).append},
	{"announce", 4, (*machine).announceSome},
	{"bundle", 8, (*machine).bundleSome},
	{"absorb", 10, (*machine).absorbSome},
	{"publish", 8, (*machine).publishSome},
	{"step", 16, (*machine).stepSome},
	{"abandon", 1, (*machine).abandon},
	{"complete", 6, (*machine).completeSome},
	{"move batch", 3, (*machine).moveBatch},
	{"trimcheck", 6, (*machine).trimCheckSome},
	{"settle", 6, (*machine).settleSome},
	{"orphan", 4, (*machine).orphanSome},
	{"reap", 8, (*machine).reapSome},
	{"kill", 4, (*machine).killSome},
	{"trim", 2, (*machine).trimSome},
	{"policy", 2, (*machine).setPolicy},
	{"delete", 1, (*machine).deleteSome},
	{"retention", 6, (*machine).retainSome},
	{"teardown", 4, (*machine).tearDownSome},
	{"gc", 4, (*machine).collectSome},
	{"merge", 4, (*machine).mergeSome},
	{"lease", 1, (*machine).lease},
	{"late", 4, (*machine).landLate},
	{"time", 8, (*machine).pass},
}

// act draws an action and runs it, until its end or its caller's death.
func (m *machine) act() {
	total := 0
	for _, w := range m.weights {
		total += w
	}
	n := m.rng.IntN(total)
	for i, a := range actions {
		if n -= m.weights[i]; n < 0 {
			m.did[a.name]++
			if dies(func() { a.run(m) }) {
				m.did["died"]++
			}
			return
		}
	}
}

// between lets another action in before a call, one level deep.
func (m *machine) between(string) {
	if m.depth == 0 && m.chance(m.mix) {
		m.depth++
		m.did["between"]++
		m.act()
		m.depth--
	}
}

func (m *machine) fault() fault {
	if !m.chance(m.faulty) {
		return noFault
	}
	f, _ := pick(m, []fault{conflict, lostWithoutEffect, lostWithEffect, lostLate, crashBefore, crashAfter, crashLate})
	return f
}

func (m *machine) create() { m.createStream(fmt.Sprint("stream-", m.rng.IntN(3))) }

func (m *machine) begin() {
	if len(m.stars) < 8 {
		m.start(string(rune('a' + m.rng.IntN(2))))
	}
}

// alive returns the processes that still act; zombies are among them.
func (m *machine) alive() []*starLife {
	var out []*starLife
	for _, s := range m.stars {
		if !s.dead && !s.busy {
			out = append(out, s)
		}
	}
	return out
}

func (m *machine) die() {
	if s, ok := pick(m, m.stars); ok && !s.ended && !s.busy {
		s.ended = true
		m.store.end(s.session) // the process may go on as a zombie
		s.dead = s.dead || m.chance(50)
	}
}

// decommissionSome retires one of the stars, mostly in vain: it lives.
func (m *machine) decommissionSome() {
	if s, ok := pick(m, m.stars); ok && m.chance(30) {
		_, _ = m.cat.Decommission(m.ctx, s.name)
	}
}

func (m *machine) leave() {
	if s, ok := pick(m, m.alive()); ok {
		s.busy, s.dead = true, true
		_ = m.cat.DropRoute(m.ctx, s.chain)
		s.busy = false
	}
}

func (m *machine) append() {
	s, ok := pick(m, m.alive())
	if !ok || len(m.streams) == 0 {
		return
	}
	if m.chance(50) {
		m.refresh(s)
	}
	m.putSlot(s, uint64(m.rng.IntN(window)), m.flight)
}

// announceSome begins a flight with a bundle, bundleSome takes one further.
func (m *machine) announceSome() {
	if s, ok := pick(m, m.alive()); ok && len(m.streams) > 0 {
		m.announce(s, uint64(m.rng.IntN(window)), m.flight)
	}
}

func (m *machine) bundleSome() {
	s, ok := pick(m, m.alive())
	if !ok {
		return
	}
	if m.chance(50) {
		m.refresh(s)
	}
	slots := slices.Sorted(maps.Keys(s.bundles))
	if slot, ok := pick(m, slots); ok {
		m.stepBundle(s, slot)
	}
}

// flight fills an object with appends.
func (m *machine) flight(o *object) {
	for range 1 + m.rng.IntN(3) {
		id, _ := pick(m, m.streams)
		var a format.Append
		next := m.last.heads[id].Next
		if a.HasExpected = m.chance(20); a.HasExpected {
			a.Expected = next + uint64(m.rng.IntN(2))
		}
		if a.HasProducer = m.chance(30); a.HasProducer {
			a.Producer = format.Producer{ID: fmt.Sprint(m.rng.IntN(3)), Seq: uint64(m.rng.IntN(3)), Since: next}
		}
		m.record(o, id, 1+m.rng.IntN(3), a)
	}
}

func (m *machine) absorbSome() {
	s, ok := pick(m, m.alive())
	if !ok {
		return
	}
	s.busy = true
	if dies(func() { _, _ = m.absorb(s, 1+m.rng.IntN(3), m.chance(70)) }) {
		s.dead = true
	}
	s.busy = false
}

// publishSome moves some runs of spans of some streams into one new object.
func (m *machine) publishSome() {
	if len(m.publishers)-m.done() >= 3 {
		return
	}
	var runs [][]catalog.SpanAt
	for _, id := range m.streams {
		if m.chance(40) {
			continue
		}
		spans, _, err := m.cat.Spans(m.ctx, id, uint64(m.rng.IntN(8)), 6)
		if err != nil || len(spans) == 0 {
			continue
		}
		spans = spans[m.rng.IntN(len(spans)):]
		spans = spans[:1+m.rng.IntN(len(spans))]
		if m.contiguous(spans) {
			runs = append(runs, spans)
		}
	}
	if len(runs) == 0 {
		return
	}
	if p := m.publish(runs); p != nil && m.chance(50) {
		p.part()
	}
}

// part makes a run of each span, beside one another in one section: pieces that can be merged.
func (p *publisher) part() {
	var parts []catalog.Run
	for _, r := range p.runs {
		for i := range r.Old {
			parts = append(parts, catalog.Run{Stream: r.Stream, Old: r.Old[i : i+1], Section: r.Section})
		}
	}
	p.runs = parts
}

func (m *machine) contiguous(spans []catalog.SpanAt) bool {
	for i := range spans[1:] {
		if spans[i+1].Span.First != spans[i].Span.Last()+1 {
			return false
		}
	}
	return true
}

func (m *machine) done() (n int) {
	for _, p := range m.publishers {
		if p.gone {
			n++
		}
	}
	return n
}

func (m *machine) working() []*publisher {
	return slices.DeleteFunc(slices.Clone(m.publishers), func(p *publisher) bool { return p.gone || p.busy })
}

func (m *machine) stepSome() {
	if p, ok := pick(m, m.working()); ok {
		m.step(p, 1+m.rng.IntN(3))
	}
}

func (m *machine) abandon() {
	if p, ok := pick(m, m.working()); ok {
		p.gone = true
	}
}

func (m *machine) chains() []catalog.ChainID {
	var out []catalog.ChainID
	for _, key := range m.store.keys("chain/") {
		if strings.Count(key, "/") == 2 {
			out = append(out, must(catalog.ParseChainKey(key)))
		}
	}
	return out
}

func (m *machine) completeSome() {
	if c, ok := pick(m, m.chains()); ok {
		_ = m.complete(c, 1+m.rng.IntN(4))
	}
}

func (m *machine) moveBatch() {
	c, ok := pick(m, m.chains())
	if !ok {
		return
	}
	owed, err := m.cat.OwedBatches(m.ctx, c, 0, 4)
	b, ok := pick(m, owed)
	if err != nil || !ok {
		return
	}
	if m.chance(50) {
		_ = m.cat.RipenBatch(m.ctx, b)
		return
	}
	_ = m.cat.DelayBatch(m.ctx, b, b.Batch, time.Duration(m.rng.IntN(60))*time.Second)
}

// queued draws a marker of a queue, mostly one that is ripe.
func (m *machine) queued(q catalog.Queue) (catalog.MarkerAt, bool) {
	key, ok := pick(m, m.store.keys("due/"+string(q)+"/"))
	if !ok {
		return catalog.MarkerAt{}, false
	}
	marker := m.marker(key)
	return marker, m.ripe(marker) || q != catalog.Reap && m.chance(30)
}

func (m *machine) trimCheckSome() {
	if marker, ok := m.queued(catalog.TrimCheck); ok {
		_ = m.trimCheck(marker)
	}
}

func (m *machine) settleSome() {
	if marker, ok := m.queued(catalog.Settle); ok {
		_ = m.settle(marker)
	}
}

func (m *machine) reapSome() {
	if marker, ok := m.queued(catalog.Reap); ok {
		_ = m.reap(marker)
	}
}

func (m *machine) collectSome() {
	if key, ok := pick(m, m.store.keys("due/gc/")); ok && len(m.publishers)-m.done() < 3 {
		_ = m.collect(m.marker(key))
	}
}

func (m *machine) mergeSome() {
	if id, ok := pick(m, m.streams); ok {
		_ = m.merge(id, uint64(m.rng.IntN(12)))
	}
}

func (m *machine) orphanSome() {
	if key, ok := pick(m, m.store.keys("due/orphan/")); ok {
		_ = m.orphan(must(catalog.ParseDue(key)).Object())
	}
}

// killSome does at once what a trim and a retention run do.
func (m *machine) killSome() {
	id, ok := pick(m, m.streams)
	if !ok {
		return
	}
	next := m.last.heads[id].Next
	mark, err := m.cat.TrimStream(m.ctx, id, min(m.killed[id]+uint64(m.rng.IntN(5)), next))
	if err == nil {
		_ = m.kill(id, mark.Watermark)
	}
}

func (m *machine) trimSome() {
	if id, ok := pick(m, m.streams); ok {
		_, _ = m.cat.TrimStream(m.ctx, id, uint64(m.rng.IntN(int(m.last.heads[id].Next)+2)))
	}
}

func (m *machine) setPolicy() {
	if id, ok := pick(m, m.streams); ok {
		_, _ = m.cat.SetPolicy(m.ctx, id, catalog.Policy{MaxAgeMS: int64(m.rng.IntN(3)) * 90_000, MaxBytes: uint64(m.rng.IntN(3)) * 25})
	}
}

func (m *machine) deleteSome() {
	if id, ok := pick(m, m.streams); ok {
		_, _ = m.cat.DeleteStream(m.ctx, id)
	}
}

func (m *machine) retainSome() {
	if marker, ok := m.queued(catalog.Retention); ok {
		_ = m.retain(marker)
	}
}

func (m *machine) tearDownSome() {
	if marker, ok := m.queued(catalog.Teardown); ok {
		_ = m.tearDown(marker)
	}
}

func (m *machine) lease() {
	s, ok := pick(m, m.alive())
	if !ok || s.ended {
		return
	}
	if v, err := m.cat.Claim(m.ctx, s.session.ID(), "job", s.name); err == nil {
		_ = m.cat.Release(m.ctx, "job", v)
	}
}

func (m *machine) landLate() {
	if len(m.store.late) > 0 && m.store.land(m.rng.IntN(len(m.store.late))) {
		m.did["landed"]++
	}
}

func (m *machine) pass() {
	d, _ := pick(m, []time.Duration{time.Second, 10 * time.Second, time.Minute, 4 * time.Minute, 2 * time.Hour})
	m.clk.now = m.clk.now.Add(d)
}

// converge ends the faults and runs every duty until nothing is owed any more.
func (m *machine) converge() {
	m.store.draw, m.store.interject, m.store.readFails = nil, nil, nil
	for len(m.store.late) > 0 {
		m.landLate()
	}
	for _, s := range m.stars {
		if !s.ended {
			s.ended = true
			m.store.end(s.session)
		}
		s.dead = true
	}
	for _, p := range m.publishers {
		p.gone = p.gone || !m.finish(p)
	}
	for range 40 {
		m.clk.now = m.clk.now.Add(10 * time.Minute)
		for _, q := range []catalog.Queue{catalog.Teardown, catalog.Settle, catalog.Retention, catalog.Reap, catalog.TrimCheck, catalog.Orphan, catalog.GC} {
			for _, key := range m.store.keys("due/" + string(q) + "/") {
				if _, stands := m.store.mirror[key]; stands {
					m.duty(q, key)
				}
			}
		}
		for _, c := range m.chains() {
			m.rewrite(c)
		}
		if len(m.leftovers()) == 0 {
			return
		}
	}
	m.fail("8: left behind: %q", m.leftovers())
}

func (m *machine) duty(q catalog.Queue, key string) {
	var err error
	switch marker := m.marker(key); q {
	case catalog.Teardown:
		err = m.tearDown(marker)
	case catalog.Retention:
		err = m.retain(marker)
	case catalog.Settle:
		err = m.settle(marker)
	case catalog.TrimCheck:
		err = m.trimCheck(marker)
	case catalog.Reap:
		err = m.reap(marker)
	case catalog.Orphan:
		err = m.orphan(marker.Due.Object())
	case catalog.GC:
		err = m.collect(marker)
	}
	if err != nil {
		m.fail("%s: %v", key, err)
	}
}

// finish lets a publisher end what it began, and tells whether it came to an end.
func (m *machine) finish(p *publisher) bool {
	for range 20 {
		if m.step(p, 3); p.gone {
			return true
		}
	}
	m.fail("a publisher never ends: %+v", p)
	return false
}

// rewrite settles everything that a chain owes.
func (m *machine) rewrite(c catalog.ChainID) {
	for _, id := range m.streams {
		spans, _, err := m.cat.Spans(m.ctx, id, 0, 1000)
		if err != nil {
			m.fail("%v", err)
		}
		spans = slices.DeleteFunc(spans, func(s catalog.SpanAt) bool {
			return !strings.HasPrefix(s.Span.Object, "slot/"+c.Star+"/") && !strings.HasPrefix(s.Span.Object, "bundle/"+c.Star+"/")
		})
		for _, s := range spans {
			m.finish(m.publish([][]catalog.SpanAt{{s}}))
		}
	}
	if err := m.complete(c, 1000); err != nil {
		m.fail("%v", err)
	}
}

// Random transitions, cut and mixed at will, keep every object watched, every cursor
// going forward and every record where it was, after every single commit; and once the
// faults stop everything drains.
func TestTransitionsHold(t *testing.T) {
	t.Parallel()
	did, branches := map[string]int{}, map[string]int{}
	rapid.Check(t, func(t *rapid.T) {
		maxOps := rapid.SampledFrom([]int{32, 128, 1024}).Draw(t, "max ops")
		clk, store := newManualClock(), openStore(t, maxOps)
		cat := catalog.New(store, clk, testTiming(), func(name string) { branches[name]++ })
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		m := &machine{rng: rng, did: did, world: newWorld(store, clk, cat, t.Fatalf)}
		m.mix, _ = pick(m, []int{2, 10, 25})
		m.faulty, _ = pick(m, []int{0, 15, 30})
		for _, a := range actions {
			f, _ := pick(m, []int{1, 2, 6})
			m.weights = append(m.weights, a.weight*f)
		}
		m.createStream("stream-0")
		m.createStream("stream-1")
		m.start("a")
		store.draw, store.interject = m.fault, m.between
		store.readFails = func(string) bool { return m.chance(1) }
		for range rapid.SampledFrom([]int{30, 100, 200, 400}).Draw(t, "actions") {
			m.act()
		}
		m.converge()
	})
	t.Logf("actions: %v", did)
	t.Logf("branches: %v", branches)
}
