package catalog_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nova-store/nova/catalog"
	"github.com/nova-store/nova/metastore"
	"github.com/nova-store/nova/objstore/format"
)

// window is W in these tests.
const window = 3

// object is what a bucket holds: per stream the values of its records, and the index.
type object struct {
	footer format.Footer
	values map[catalog.StreamID][]uint64
	seal   bool
}

func (o *object) section(id catalog.StreamID) *format.Section {
	for i := range o.footer.Sections {
		if o.footer.Sections[i].Stream == uint64(id) {
			return &o.footer.Sections[i]
		}
	}
	return nil
}

const blockBytes = 100

// add adds a section with a block for each record.
func (o *object) add(id catalog.StreamID, first uint64, values []uint64, appends []format.Append) {
	s := format.Section{Stream: uint64(id), Offset: format.HeaderLength, Records: uint32(len(values)), FirstOffset: first, Appends: appends}
	for _, other := range o.footer.Sections {
		s.Offset += other.Length
	}
	for i := range values {
		s.Blocks = append(s.Blocks, format.Block{Offset: s.Offset + s.Length, Length: blockBytes, Ordinal: uint32(i), Records: 1})
		s.Length += blockBytes
	}
	o.footer.Sections = append(o.footer.Sections, s)
	o.values[id] = values
}

func (o *object) size() int64 {
	n := int64(format.HeaderLength)
	if o.footer.Bundled {
		return n
	}
	for _, s := range o.footer.Sections {
		n += s.Length
	}
	return n
}

func newObject() *object { return &object{values: map[catalog.StreamID][]uint64{}} }

// world is a bucket, stars and publishers around a catalog: the duties in miniature,
// each a few calls of transitions, cut wherever the store's faults please.
type world struct {
	store *faultStore
	clk   *manualClock
	cat   *catalog.Catalog
	fail  func(format string, args ...any)
	ctx   context.Context

	objects map[string]*object
	log     map[catalog.StreamID]map[uint64]uint64 // stream → offset → value, for ever
	killed  map[catalog.StreamID]uint64            // what a watermark lets go
	retired map[catalog.ChainID]bool
	last    *keyspace

	streams    []catalog.StreamID
	stars      []*starLife
	publishers []*publisher
	values     uint64
	ulids      uint64
}

func newWorld(s *faultStore, clk *manualClock, cat *catalog.Catalog, fail func(string, ...any)) *world {
	w := &world{store: s, clk: clk, cat: cat, fail: fail, ctx: context.Background(),
		objects: map[string]*object{}, log: map[catalog.StreamID]map[uint64]uint64{},
		killed: map[catalog.StreamID]uint64{}, retired: map[catalog.ChainID]bool{}}
	s.committed = w.check
	return w
}

func (w *world) put(key string, o *object) {
	if w.objects[key] != nil {
		w.fail("%s is put twice", key)
	}
	w.objects[key] = o
	w.store.trace.write(key)
	w.look()
}

// look checks, where every effect is looked at.
func (w *world) look() {
	if w.store.committed != nil {
		w.store.committed()
	}
}

func (w *world) get(key string) *object {
	w.store.trace.read(key)
	return w.objects[key]
}

func (w *world) delete(key string) {
	delete(w.objects, key)
	w.store.trace.write(key)
	w.look()
}

func (w *world) createStream(name string) catalog.StreamID {
	v, created, err := w.cat.CreateStream(w.ctx, name, catalog.Policy{})
	if err == nil && created {
		w.streams = append(w.streams, v.ID)
	}
	return v.ID
}

// starLife is one process of a star, with the chain that it minted.
type starLife struct {
	name        string
	incarnation uint64
	chain       catalog.ChainID
	session     metastore.Session
	ended       bool // the session
	dead        bool // the process
	busy        bool
	notAfter    time.Time
	cache       *catalog.Cache
	next        uint64                    // first slot not known durable
	pending     map[uint64]catalog.SlotIn // by slot: what is durable
	bundles     map[uint64]*bundling      // by slot: what is on its way
}

func (s *starLife) holds(slot uint64) bool { return s.pending[slot].Footer != nil }

// start begins a process: it opens a session and mints.
func (w *world) start(name string) *starLife {
	session, err := w.store.OpenSession(w.ctx, w.cat.Timing().SessionTTL)
	if err != nil {
		return nil
	}
	s := &starLife{name: name, incarnation: w.clk.Rand(), session: session, cache: catalog.NewCache(8), pending: map[uint64]catalog.SlotIn{}, bundles: map[uint64]*bundling{}}
	w.stars = append(w.stars, s)
	s.busy = true
	died := dies(func() {
		chain, err := w.cat.Mint(w.ctx, catalog.MintRequest{Star: name, Incarnation: s.incarnation, Session: session.ID(), Address: "here", Window: window})
		if err != nil {
			s.dead = true
			return
		}
		s.chain = chain
		w.refresh(s)
	})
	s.busy, s.dead = false, s.dead || died
	return s
}

// refresh reads the route, as a star does after a keep-alive.
func (w *world) refresh(s *starLife) {
	now := w.clk.Now()
	if held, err := w.cat.HoldsRoute(w.ctx, s.chain); err == nil && held && !s.ended {
		s.notAfter = now.Add(w.cat.Timing().SessionTTL + w.cat.Timing().PutHorizon)
	}
}

// putSlot PUTs a slot of the window, or finds it taken.
func (w *world) putSlot(s *starLife, ahead uint64, build func(o *object)) {
	slot := s.next + ahead
	if s.dead || s.holds(slot) || s.bundles[slot] != nil || w.clk.Now().After(s.notAfter) {
		return
	}
	o := newObject()
	build(o)
	w.commitSlot(s, slot, o, 0)
}

// commitSlot PUTs a slot that was built.
func (w *world) commitSlot(s *starLife, slot uint64, o *object, intent metastore.Version) {
	key := catalog.SlotKey(s.chain, slot)
	if w.get(key) != nil {
		s.dead = true // another's object in its slot: fenced
		return
	}
	s.pending[slot] = catalog.SlotIn{Slot: slot, Size: o.size(), Footer: &o.footer, Intent: intent}
	w.put(key, o)
	for s.holds(s.next) {
		s.next++
	}
}

// bundling is a flight too large for its slot: announced, then its bundle is put, then its slot.
type bundling struct {
	armed  catalog.Armed
	bundle *object
	put    bool
}

// announce begins a bundle for a slot of the window.
func (w *world) announce(s *starLife, ahead uint64, build func(o *object)) {
	slot := s.next + ahead
	if s.dead || s.busy || s.holds(slot) || s.bundles[slot] != nil {
		return
	}
	b := &bundling{bundle: newObject()}
	build(b.bundle)
	f := &b.bundle.footer
	f.Kind, f.Star, f.Epoch, f.Slot, f.BodyLength = format.KindBundle, s.chain.Star, s.chain.Epoch, slot, b.bundle.size()-format.HeaderLength
	binary.BigEndian.PutUint64(f.Flight[:], w.clk.Rand())
	s.bundles[slot] = b
	s.busy = true
	if dies(func() {
		var err error
		if b.armed, err = w.cat.ArmIntent(w.ctx, catalog.BundleKey(s.chain, slot, f.Flight)); err != nil {
			s.dead = true // it can't decide the slot
		}
	}) {
		s.dead = true
	}
	s.busy = false
}

// stepBundle takes a bundle of that slot one step further.
func (w *world) stepBundle(s *starLife, slot uint64) {
	b := s.bundles[slot]
	switch {
	case b == nil || s.dead || s.busy || s.holds(slot):
	case !b.put && w.clk.Now().After(b.armed.NotAfter), b.put && w.clk.Now().After(s.notAfter):
		s.dead = true
	case !b.put:
		b.put = true
		w.put(b.armed.Object, b.bundle)
	default:
		index := newObject()
		index.footer = b.bundle.footer
		index.footer.Kind, index.footer.Bundled = format.KindSlot, true
		w.commitSlot(s, slot, index, b.armed.Version)
	}
}

// record adds one append of n new records.
func (w *world) record(o *object, id catalog.StreamID, n int, a format.Append) {
	var values []uint64
	for range n {
		w.values++
		values = append(values, w.values)
	}
	a.Count, a.Bytes = uint32(n), uint64(10*n)
	a.FirstTimestamp = w.clk.Now().UnixMilli()
	a.MaxTimestamp = a.FirstTimestamp
	if s := o.section(id); s != nil {
		old, appends := o.values[id], s.Appends
		i := slices.IndexFunc(o.footer.Sections, func(x format.Section) bool { return x.Stream == uint64(id) })
		if i != len(o.footer.Sections)-1 {
			return // only the section last begun still grows
		}
		o.footer.Sections = o.footer.Sections[:i]
		o.add(id, 0, append(old, values...), append(appends, a))
		return
	}
	o.add(id, 0, values, []format.Append{a})
}

// absorb runs the star's absorb of up to n released slots.
func (w *world) absorb(s *starLife, n int, cached bool) (catalog.Absorbed, error) {
	at := w.store.read().chains[s.chain].Checkpoint
	if w.retired[s.chain] {
		at = 0
	}
	var slots []catalog.SlotIn
	for slot := at; slot < s.next && len(slots) < n && s.holds(slot); slot++ {
		slots = append(slots, s.pending[slot])
	}
	if len(slots) == 0 {
		return catalog.Absorbed{}, nil
	}
	req := catalog.AbsorbRequest{Chain: s.chain, Slots: slots}
	if cached {
		req.Cache = s.cache
	}
	out, err := w.cat.Absorb(w.ctx, req)
	if err != nil {
		if errors.Is(err, catalog.ErrFenced) {
			s.dead = true
		}
		return out, err
	}
	w.checkVerdicts(slots, out)
	return out, nil
}

// holderOf is the object that holds a slot's records.
func holderOf(c catalog.ChainID, in *catalog.SlotIn) string {
	if in.Footer.Bundled {
		return catalog.BundleKey(c, in.Slot, in.Footer.Flight)
	}
	return catalog.SlotKey(c, in.Slot)
}

// isOf tells whether an object is a slot or its bundle.
func isOf(object string, c catalog.ChainID, slot uint64) bool {
	key := catalog.SlotKey(c, slot)
	return object == key || strings.HasPrefix(object, "bundle/"+key[len("slot/"):]+"-")
}

// checkVerdicts demands that what was accepted lies where the verdict says.
func (w *world) checkVerdicts(slots []catalog.SlotIn, out catalog.Absorbed) {
	if w.store.committed == nil {
		w.check() // which notes what the offsets hold
	}
	for i, slot := range out.Verdicts {
		for j := range slot {
			sec := &slots[i].Footer.Sections[j]
			id, ordinal := catalog.StreamID(sec.Stream), uint64(0)
			values := w.objects[holderOf(out.Chain.ID, &slots[i])]
			for k, v := range slot[j] {
				count := uint64(sec.Appends[k].Count)
				if v.Code == catalog.Accepted {
					if v.Last != v.First+count-1 {
						w.fail("a verdict of %d records: %+v", count, v)
					}
					for n := range count {
						if values != nil && w.log[id][v.First+n] != values.values[id][ordinal+n] {
							w.fail("3: offset %d of stream %v was acknowledged and holds something else", v.First+n, id)
						}
					}
				}
				ordinal += count
			}
		}
	}
}

// publisher writes one settled object, a step a call.
type publisher struct {
	armed   catalog.Armed
	object  *object
	runs    []catalog.Run
	stage   int // 0 armed, 1 put, then swapping
	whole   bool
	busy    bool
	gone    bool // died, or done
	givesUp bool
}

// publish begins a publisher of these runs of spans.
func (w *world) publish(runs [][]catalog.SpanAt) *publisher {
	w.ulids++
	p := &publisher{object: newObject(), whole: true}
	for _, old := range runs {
		var values []uint64
		first := old[0].Span.First
		for _, s := range old {
			for i := range s.Span.Count {
				values = append(values, w.log[s.Stream][s.Span.First+i])
			}
		}
		p.object.add(old[0].Stream, first, values, nil)
	}
	for i, old := range runs {
		p.runs = append(p.runs, catalog.Run{Stream: old[0].Stream, Old: old, Section: &p.object.footer.Sections[i]})
	}
	var err error
	if dies(func() {
		p.armed, err = w.cat.ArmIntent(w.ctx, catalog.SettledKey(fmt.Sprintf("%026d", w.ulids)))
	}) || err != nil {
		return nil
	}
	w.publishers = append(w.publishers, p)
	return p
}

// step takes the publisher one step further; n runs are swapped at a time.
func (w *world) step(p *publisher, n int) {
	if p.busy || p.gone {
		return
	}
	p.busy = true
	if dies(func() { w.stepOn(p, n) }) {
		p.gone = true
	}
	p.busy = false
}

func (w *world) stepOn(p *publisher, n int) {
	switch {
	case p.givesUp:
		p.gone = w.cat.GiveUp(w.ctx, p.armed.Object) == nil
	case p.stage == 0:
		if w.clk.Now().After(p.armed.NotAfter) {
			p.gone = true // no PUT, the intent is the orphan duty's
			return
		}
		w.put(p.armed.Object, p.object)
		p.stage = 1
	case len(p.runs) > 0:
		n = min(n, len(p.runs))
		out, err := w.cat.Swap(w.ctx, catalog.Publish{Object: p.armed.Object, Size: p.object.size(), Intent: p.armed.Version}, p.runs[:n])
		if errors.Is(err, catalog.ErrIntentLost) {
			p.givesUp = true
		}
		if err != nil {
			p.whole = false
			return
		}
		p.whole = p.whole && out.Dropped == 0
		p.runs = p.runs[n:]
	default:
		err := w.cat.ResolveIntent(w.ctx, p.armed.Object, p.armed.Version, p.whole)
		p.givesUp = errors.Is(err, catalog.ErrIntentLost)
		p.gone = err == nil || errors.Is(err, catalog.ErrMoved)
	}
}

// marker returns a marker as discovery reads it.
func (w *world) marker(key string) catalog.MarkerAt {
	r := w.store.mirror[key]
	return catalog.MarkerAt{Due: must(catalog.ParseDue(key)), Value: r.Value, Version: r.Version}
}

// folded is an object's key as a subject.
func (w *world) folded(object string) string { return strings.ReplaceAll(object, "/", "!") }
