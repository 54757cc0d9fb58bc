package catalog_test

import (
	"fmt"
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
	t     *rapid.T
	depth int
	did   map[string]int
}

func (m *machine) intn(n int, what string) int { return rapid.IntRange(0, n-1).Draw(m.t, what) }

func (m *machine) chance(percent int, what string) bool { return m.intn(100, what) < percent }

// pick draws one of the list; ok is false where it is empty.
func pick[T any](m *machine, list []T, what string) (v T, ok bool) {
	if len(list) == 0 {
		return v, false
	}
	return list[m.intn(len(list), what)], true
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
	{"put", 10, (*machine).append},
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
	{"lease", 1, (*machine).lease},
	{"late", 4, (*machine).landLate},
	{"time", 8, (*machine).pass},
}

// act draws an action and runs it, until its end or its caller's death.
func (m *machine) act() {
	total := 0
	for _, a := range actions {
		total += a.weight
	}
	n := m.intn(total, "action")
	for _, a := range actions {
		if n -= a.weight; n < 0 {
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
	if m.depth == 0 && m.chance(4, "between") {
		m.depth++
		m.did["between"]++
		m.act()
		m.depth--
	}
}

func (m *machine) fault() fault {
	if m.chance(80, "fine") {
		return noFault
	}
	return rapid.SampledFrom([]fault{conflict, lostWithoutEffect, lostWithEffect, lostLate, crashBefore, crashAfter, crashLate}).Draw(m.t, "fault")
}

func (m *machine) create() { m.createStream(fmt.Sprint("stream-", m.intn(3, "name"))) }

func (m *machine) begin() {
	if len(m.stars) < 8 {
		m.start(string(rune('a' + m.intn(2, "star"))))
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
	if s, ok := pick(m, m.stars, "star"); ok && !s.ended && !s.busy {
		s.ended = true
		m.store.end(s.session) // the process may go on as a zombie
		s.dead = s.dead || m.chance(50, "dead")
	}
}

func (m *machine) leave() {
	if s, ok := pick(m, m.alive(), "star"); ok {
		s.busy, s.dead = true, true
		_ = m.cat.DropRoute(m.ctx, s.chain)
		s.busy = false
	}
}

func (m *machine) append() {
	s, ok := pick(m, m.alive(), "star")
	if !ok || len(m.streams) == 0 {
		return
	}
	if m.chance(50, "refresh") {
		m.refresh(s)
	}
	m.putSlot(s, uint64(m.intn(window, "ahead")), func(o *object) {
		for range 1 + m.intn(3, "appends") {
			id, _ := pick(m, m.streams, "stream")
			var a format.Append
			next := m.last.heads[id].Next
			if a.HasExpected = m.chance(20, "conditional"); a.HasExpected {
				a.Expected = next + uint64(m.intn(2, "off"))
			}
			if a.HasProducer = m.chance(30, "idempotent"); a.HasProducer {
				a.Producer = format.Producer{ID: fmt.Sprint(m.intn(3, "producer")), Seq: uint64(m.intn(3, "seq")), Since: next}
			}
			m.record(o, id, 1+m.intn(3, "records"), a)
		}
	})
}

func (m *machine) absorbSome() {
	s, ok := pick(m, m.alive(), "star")
	if !ok {
		return
	}
	s.busy = true
	if dies(func() { _, _ = m.absorb(s, 1+m.intn(3, "slots"), m.chance(70, "cached")) }) {
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
		if m.chance(40, "skip") {
			continue
		}
		spans, _, err := m.cat.Spans(m.ctx, id, uint64(m.intn(8, "from")), 6)
		if err != nil || len(spans) == 0 {
			continue
		}
		spans = spans[m.intn(len(spans), "first"):]
		spans = spans[:1+m.intn(len(spans), "count")]
		if m.contiguous(spans) {
			runs = append(runs, spans)
		}
	}
	if len(runs) > 0 {
		m.publish(runs)
	}
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
	if p, ok := pick(m, m.working(), "publisher"); ok {
		m.step(p, 1+m.intn(3, "runs"))
	}
}

func (m *machine) abandon() {
	if p, ok := pick(m, m.working(), "publisher"); ok {
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
	if c, ok := pick(m, m.chains(), "chain"); ok {
		_ = m.complete(c, 1+m.intn(4, "batches"))
	}
}

func (m *machine) moveBatch() {
	c, ok := pick(m, m.chains(), "chain")
	if !ok {
		return
	}
	owed, err := m.cat.OwedBatches(m.ctx, c, 0, 4)
	b, ok := pick(m, owed, "batch")
	if err != nil || !ok {
		return
	}
	if m.chance(50, "ripen") {
		_ = m.cat.RipenBatch(m.ctx, b)
		return
	}
	_ = m.cat.DelayBatch(m.ctx, b, b.Batch, time.Duration(m.intn(60, "delay"))*time.Second)
}

// queued draws a marker of a queue, mostly one that is ripe.
func (m *machine) queued(q catalog.Queue) (catalog.MarkerAt, bool) {
	key, ok := pick(m, m.store.keys("due/"+string(q)+"/"), "marker")
	if !ok {
		return catalog.MarkerAt{}, false
	}
	marker := m.marker(key)
	return marker, m.ripe(marker) || q != catalog.Reap && m.chance(30, "early")
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

func (m *machine) orphanSome() {
	if key, ok := pick(m, m.store.keys("due/orphan/"), "intent"); ok {
		_ = m.orphan(must(catalog.ParseDue(key)).Object())
	}
}

func (m *machine) killSome() {
	if id, ok := pick(m, m.streams, "stream"); ok {
		next := m.last.heads[id].Next
		_ = m.kill(id, m.killed[id]+min(uint64(m.intn(5, "by")), next-min(m.killed[id], next)))
	}
}

func (m *machine) lease() {
	s, ok := pick(m, m.alive(), "star")
	if !ok || s.ended {
		return
	}
	if v, err := m.cat.Claim(m.ctx, s.session.ID(), "job", s.name); err == nil {
		_ = m.cat.Release(m.ctx, "job", v)
	}
}

func (m *machine) landLate() {
	if len(m.store.late) > 0 && m.store.land(m.intn(len(m.store.late), "which")) {
		m.did["landed"]++
	}
}

func (m *machine) pass() {
	d := rapid.SampledFrom([]time.Duration{time.Second, time.Minute, 4 * time.Minute, 2 * time.Hour}).Draw(m.t, "time")
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
		for _, q := range []catalog.Queue{catalog.Settle, catalog.TrimCheck, catalog.Reap, catalog.Orphan} {
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
	case catalog.Settle:
		err = m.settle(marker)
	case catalog.TrimCheck:
		err = m.trimCheck(marker)
	case catalog.Reap:
		err = m.reap(marker)
	case catalog.Orphan:
		err = m.orphan(marker.Due.Object())
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
			return !strings.HasPrefix(s.Span.Object, catalog.SlotKey(c, 0)[:len("slot/a/")])
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
	did, branches := map[string]int{}, map[string]int{}
	rapid.Check(t, func(t *rapid.T) {
		maxOps := rapid.SampledFrom([]int{32, 128, 1024}).Draw(t, "max ops")
		clk, store := newManualClock(), openStore(t, maxOps)
		cat := catalog.New(store, clk, testTiming(), func(name string) { branches[name]++ })
		m := &machine{t: t, did: did, world: newWorld(store, clk, cat, t.Fatalf)}
		m.createStream("stream-0")
		m.createStream("stream-1")
		m.start("a")
		store.draw, store.interject = m.fault, m.between
		store.readFails = func(string) bool { return m.chance(1, "read fails") }
		for range rapid.IntRange(10, 100).Draw(t, "actions") {
			m.act()
		}
		m.converge()
	})
	t.Logf("actions: %v", did)
	t.Logf("branches: %v", branches)
}
