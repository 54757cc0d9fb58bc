package catalog

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nova-store/nova/clock"
	"github.com/nova-store/nova/metastore"
	"github.com/nova-store/nova/objstore/format"
)

// SlotIn is a released slot: durable, like all before it, and not absorbed yet.
type SlotIn struct {
	Slot   uint64
	Size   int64 // of the object, without its bundle
	Footer *format.Footer
	// Intent is the version of a bundled slot's intent; 0: it is read.
	Intent metastore.Version
}

// AbsorbRequest is one call of the absorb primitive.
type AbsorbRequest struct {
	Chain ChainID
	// Slots are consecutive, from the checkpoint on.
	Slots []SlotIn
	// Fence is the settle duty's run; nil: the chain's own star.
	Fence *Fence
	// Cache spares reads; nil: everything is read.
	Cache *Cache
}

// Absorbed is what one absorb did.
type Absorbed struct {
	// Slots is how many of the request's slots were absorbed, at least one.
	Slots int
	// Verdicts has, for each absorbed slot and section, one verdict an append.
	Verdicts [][][]Verdict
	// Chain is the record as it stands now.
	Chain ChainAt
	// Owed is how many bytes the chain now owes to the settle rewrite, as far as known.
	Owed uint64
}

// Absorb makes released slots into spans.
//
// Conditions: the chain record is at the version read (open, or, for the settle duty, fencing
// by this very run) with its checkpoint at the first slot; stream/ and head/ of every
// stream touched are at the versions judged; mark/ where retention is armed. Effects: offsets are assigned, spans
// put, heads moved; retention is armed at a stream's first commit, and later only
// where policy asks for it; exactly one batch marker is armed, for exactly these
// slots, with its schedule and pending entries; the checkpoint moves past them; the chain
// record gets a nonce. Spans of a bundled slot name its bundle, with their refs: see bundle.go.
//
// A crash before it leaves the slots at or above the checkpoint, watched by the
// chain's settle marker; after it they are in the batch marker. Spans held by slots
// have no ref. A late twin fails on the chain record.
//
// ErrIntentLost: the first slot's bundle is not announced any more, which nothing of Nova's
// brings about; the slot can't be absorbed.
//
// On a conflict the chain record tells: this call's nonce in it means that a twin
// landed, and the verdicts are those it carried; the same checkpoint means that a
// stream moved: judged again at the versions then read; anything else is ErrFenced.
//
// It takes as many slots as fit MaxOps; a single one always does if its flight kept
// to [Catalog.FlightCost].
func (c *Catalog) Absorb(ctx context.Context, req AbsorbRequest) (Absorbed, error) {
	a := absorb{c: c, req: req, cache: req.Cache, nonce: c.clk.Rand()}
	if a.cache == nil {
		a.cache = NewCache(0)
	}
	what := fmt.Sprintf("absorbing slot %d of %s", req.Slots[0].Slot, req.Chain)
	var last *Absorbed
	for round := 0; ; round++ {
		out, b, err := a.build(ctx, last)
		if last != nil && errors.Is(err, metastore.ErrUnavailable) {
			// Only this call, which knows the nonce, can tell that a twin of its own landed.
			if err := c.pause(ctx, round); err != nil {
				return Absorbed{}, fmt.Errorf("%s: %w", what, err)
			}
			continue
		}
		if err != nil {
			return Absorbed{}, fmt.Errorf("%s: %w", what, err)
		}
		if b == nil {
			c.branch("absorb.twin")
			return *out, nil
		}
		v, _, err := c.commit(ctx, what, b.done())
		if err == nil {
			a.remember(v)
			out.Chain.Version = v
			return *out, nil
		}
		a.cache.purge()
		if !errors.Is(err, metastore.ErrConflict) {
			return Absorbed{}, err
		}
		c.branch("absorb.conflict")
		last = out
		if err := c.pause(ctx, round); err != nil {
			return Absorbed{}, fmt.Errorf("%s: %w", what, err)
		}
	}
}

// absorb is one call's state. streams is rebuilt by each try.
type absorb struct {
	c       *Catalog
	req     AbsorbRequest
	cache   *Cache
	nonce   uint64
	streams []*touched
	by      map[StreamID]*touched
	chain   Chain
	intents map[uint64]metastore.Version // of bundled slots; 0: lost
	lost    *arms                        // bundles of which a part was turned down
}

// touched is a stream that the try judges.
type touched struct {
	id      StreamID
	cached  *cachedStream
	head    Head // moved by judging
	judged  bool
	moved   bool
	mark    metastore.Record
	hasMark bool
	spans   int   // put by this commit
	oldest  int64 // running maximum of timestamps up to the end of the first of them
}

// build reads what is missing, judges as many slots as fit and returns the commit. A
// nil batch means that an earlier try of this call landed: out is its result.
func (a *absorb) build(ctx context.Context, last *Absorbed) (*Absorbed, *batch, error) {
	if err := a.readIntents(ctx, last != nil); err != nil {
		return nil, nil, err
	}
	chain, trim, err := a.readChain(ctx)
	if err != nil {
		return nil, nil, err
	}
	if last != nil && chain.Version != 0 && chain.Chain.Nonce == a.nonce {
		last.Chain = chain
		return last, nil, nil
	}
	if err := a.mine(chain); err != nil {
		return nil, nil, err
	}
	if err := a.readStreams(ctx); err != nil {
		return nil, nil, err
	}
	limits := a.c.store.Limits()
	b := &batch{ops: make([]metastore.Op, 0, 8+4*len(a.streams)), conds: make([]metastore.Cond, 0, 1+2*len(a.streams))}
	out := &Absorbed{}
	m := Batch{}
	a.lost = newArms()
	budget := limits.MaxOps - chainOps
	for i := range a.req.Slots {
		in := &a.req.Slots[i]
		cost := a.slotCost(in)
		if in.Footer.Bundled && a.intents[in.Slot] == 0 {
			if i > 0 {
				break
			}
			return nil, nil, fmt.Errorf("the bundle of slot %d: %w", in.Slot, ErrIntentLost)
		}
		if i > 0 && (cost > budget || b.bytes > limits.MaxBytes/2 || 24*len(m.Inventory) > limits.MaxBytes/4) {
			break
		}
		budget -= cost
		out.Verdicts = append(out.Verdicts, a.judgeSlot(b, &m, in))
		m.End = in.Slot + 1
		m.Bytes += uint64(in.bytes())
		out.Slots++
	}
	a.chain = chain.Chain
	a.chain.Checkpoint = m.End
	a.chain.AbsorbedBytes += m.Bytes
	a.chain.Nonce = a.nonce
	out.Chain = ChainAt{ID: a.req.Chain, Chain: a.chain}
	out.Owed = a.chain.AbsorbedBytes - min(trim.SettledBytes, a.chain.AbsorbedBytes)
	if out.Owed > a.c.timing.SettleOwedBytes {
		// The cached trim record may be old: look before hurrying the auditor.
		at, err := a.c.ReadTrim(ctx, a.req.Chain)
		if err != nil {
			return nil, nil, err
		}
		a.cache.trim = at.Trim
		out.Owed = a.chain.AbsorbedBytes - min(at.Trim.SettledBytes, a.chain.AbsorbedBytes)
	}
	b.when(metastore.At(ChainKey(a.req.Chain), chain.Version))
	b.append(metastore.Put(ChainKey(a.req.Chain), a.chain.encode()))
	now := a.c.clk.Now()
	if err := a.finishStreams(ctx, b, now); err != nil {
		return nil, nil, err
	}
	a.armBatch(b, &m, out.Owed, now)
	if err := a.c.armReaps(ctx, b, a.lost); err != nil {
		return nil, nil, err
	}
	return out, b, nil
}

func (a *absorb) readChain(ctx context.Context) (ChainAt, Trim, error) {
	if a.cache.chain.Version != 0 && a.cache.chain.ID == a.req.Chain {
		return a.cache.chain, a.cache.trim, nil
	}
	recs, err := a.c.store.Get(ctx, ChainKey(a.req.Chain), TrimKey(a.req.Chain))
	if err != nil {
		return ChainAt{}, Trim{}, err
	}
	chain, err := decodeChainRecord(a.req.Chain, recs[0])
	if err != nil {
		return ChainAt{}, Trim{}, err
	}
	var trim Trim
	if recs[1].Exists() {
		if trim, err = DecodeTrim(recs[1].Value); err != nil {
			return ChainAt{}, Trim{}, err
		}
	}
	a.cache.chain, a.cache.trim = chain, trim
	return chain, trim, nil
}

// mine tells whether the chain is still this caller's to absorb, from this slot on.
func (a *absorb) mine(at ChainAt) error {
	want, nonce := ChainOpen, at.Chain.SettleNonce
	if a.req.Fence != nil {
		want, nonce = ChainFencing, a.req.Fence.Nonce
	}
	switch {
	case at.Version == 0:
		return fmt.Errorf("%w: the chain is retired", ErrFenced)
	case at.Chain.State != want || at.Chain.SettleNonce != nonce:
		return fmt.Errorf("%w: the chain is %v", ErrFenced, at.Chain.State)
	case at.Chain.Checkpoint != a.req.Slots[0].Slot:
		return fmt.Errorf("%w: its checkpoint is %d, not %d", ErrFenced, at.Chain.Checkpoint, a.req.Slots[0].Slot)
	}
	return nil
}

// readStreams gathers the streams of all slots and reads those not cached.
func (a *absorb) readStreams(ctx context.Context) error {
	a.streams = a.streams[:0]
	a.by = make(map[StreamID]*touched)
	var keys []string
	var missing []*touched
	for _, in := range a.req.Slots {
		for i := range in.Footer.Sections {
			id := StreamID(in.Footer.Sections[i].Stream)
			if a.by[id] != nil {
				continue
			}
			t := &touched{id: id, cached: a.cache.get(id)}
			a.by[id] = t
			a.streams = append(a.streams, t)
			if t.cached == nil {
				missing = append(missing, t)
				keys = append(keys, StreamKey(id), HeadKey(id))
			}
		}
	}
	recs, err := a.c.get(ctx, keys...)
	if err != nil {
		return err
	}
	for i, t := range missing {
		t.cached = decodeCached(recs[2*i], recs[2*i+1])
		a.cache.put(t.id, t.cached)
	}
	for _, t := range a.streams {
		t.head = t.cached.head.clone()
	}
	return nil
}

// judgeSlot judges a slot's appends in order, and puts spans for what it accepts.
func (a *absorb) judgeSlot(b *batch, m *Batch, in *SlotIn) [][]Verdict {
	verdicts := make([][]Verdict, len(in.Footer.Sections))
	object := in.object(a.req.Chain)
	placed := uint64(0)
	for i := range in.Footer.Sections {
		sec := &in.Footer.Sections[i]
		t := a.by[StreamID(sec.Stream)]
		t.judged = true
		first := t.head.Next
		out := make([]Verdict, len(sec.Appends))
		run := Span{Object: object}
		ordinal := uint32(0)
		for j := range sec.Appends {
			ap := &sec.Appends[j]
			before := t.head.MaxTimestamp
			if t.cached.unreadable {
				a.c.branch("absorb.unreadable")
				out[j] = Verdict{Code: Unreadable}
			} else {
				out[j] = judge(t.cached.streamOrNil(), &t.head, ap)
			}
			if out[j].Code == Accepted {
				if run.Count == 0 {
					run.First, run.Ordinal, run.FirstTimestamp = out[j].First, ordinal, max(before, ap.FirstTimestamp)
				}
				run.Count += uint64(ap.Count)
				run.Bytes += ap.Bytes
				run.MaxTimestamp, run.BytePos = t.head.MaxTimestamp, t.head.Bytes
			} else {
				a.putRun(b, in, t, sec, &run)
			}
			ordinal += ap.Count
		}
		a.putRun(b, in, t, sec, &run)
		verdicts[i] = out
		if t.head.Next == first {
			continue
		}
		t.moved = true
		t.head.setLast(a.req.Chain, in.Slot)
		m.Inventory = append(m.Inventory, SlotItem{in.Slot, t.id, first, t.head.Next - first})
		m.add(t.id)
		placed += t.head.Next - first
	}
	if in.Footer.Bundled {
		a.resolveBundle(b, in, placed)
	}
	return verdicts
}

// putRun puts the span of a run of accepted records, and begins a new one.
func (a *absorb) putRun(b *batch, in *SlotIn, t *touched, sec *format.Section, run *Span) {
	if run.Count == 0 {
		return
	}
	run.Offset, run.Length = sec.Range(run.Ordinal, uint32(run.Count))
	b.append(metastore.Put(SpanKey(t.id, run.Last()), run.Encode()))
	if t.spans++; t.spans == 1 {
		t.oldest = run.MaxTimestamp
	}
	if in.Footer.Bundled {
		b.append(metastore.Put(RefKey(run.Object, t.id, run.Last()),
			Ref{Bytes: uint64(run.Length), ObjectSize: uint64(in.bundleSize())}.encode()))
	}
	*run = Span{Object: run.Object}
}

// setLast notes the chain's last slot that holds records of the stream.
func (h *Head) setLast(c ChainID, slot uint64) {
	for i := range h.Chains {
		if h.Chains[i].Chain == c {
			h.Chains[i].Slot = slot
			return
		}
	}
	h.Chains = append(h.Chains, ChainLast{c, slot})
}

// finishStreams adds the conditions of all streams judged, and the heads and retention markers of those that moved.
// A stream that was judged and did not move is a condition all the same: a verdict
// that turns an append down is as binding as one that accepts it.
func (a *absorb) finishStreams(ctx context.Context, b *batch, now time.Time) error {
	var keys []string
	var marked []*touched
	for _, t := range a.streams {
		if t.moved && wantsMark(t) {
			marked = append(marked, t)
			keys = append(keys, MarkKey(t.id))
		}
	}
	recs, err := a.c.get(ctx, keys...)
	if err != nil {
		return err
	}
	for i, t := range marked {
		t.mark, t.hasMark = recs[i], true
	}
	if err := a.dropChains(ctx); err != nil {
		return err
	}
	for _, t := range a.streams {
		if !t.judged {
			continue // only slots that did not fit hold it
		}
		b.when(metastore.At(StreamKey(t.id), t.cached.streamVersion), metastore.At(HeadKey(t.id), t.cached.headVersion))
		if !t.moved {
			continue
		}
		b.append(metastore.Put(HeadKey(t.id), t.head.encode()))
		if t.hasMark && t.mark.Exists() {
			if err := armRetention(b, t, now); err != nil {
				return err
			}
		}
	}
	return nil
}

// wantsMark tells whether absorb may have to arm the stream's retention: at its
// first commit, or where its policy asks for it. A stream without a policy costs
// nothing more after its first commit.
func wantsMark(t *touched) bool {
	return t.cached.head.Next == 0 || t.cached.stream.Policy != (Policy{})
}

// armRetention moves the stream's one retention marker where it must: at the first
// commit; where none stands and there is a max age, to when the first span expires, but for a max age from now at most; and where a whole span is expired by size, to the end of the present
// MinRearm bucket. The earlier time wins, else nothing is written.
//
// Not to the very moment: a busy stream at its limit expires a span at almost every
// append, and would get a retention run for each. Readers judge by the policy, so that what is killed
// so much later is not served meanwhile. How far the head must come the last run of
// retention has noted; where it has not, the bytes above the watermark tell, at worst for one run too many.
//
// A marker that stands is also a reason to write nothing, so the mark is a condition all the
// same: retention resolves its marker only if mark and head are as it judged them, and either it or
// this commit comes second and sees the other.
func armRetention(b *batch, t *touched, now time.Time) error {
	mark, err := DecodeMark(t.mark.Value)
	if err != nil {
		// Which marker stands can't be told. What holds the stream's retention back must not hold back its chain.
		return nil
	}
	b.when(metastore.At(MarkKey(t.id), t.mark.Version))
	p := t.cached.stream.Policy
	ready := uint64(0)
	switch {
	case mark.overBytes(p, t.head.Bytes):
		ready = ceilMS(clock.RoundUp(now, MinRearm))
	case p.MaxAgeMS > 0 && mark.RetentionKey == "":
		// Records may say that they are old: of what has expired already, again a whole bucket at once.
		expires := uint64(max(t.oldest, 0)) + uint64(p.age().Milliseconds())
		ready = min(readyAt(now, p.age()), max(expires, ceilMS(clock.RoundUp(now, MinRearm))))
	case t.cached.head.Next == 0 && mark.RetentionKey == "":
		ready = readyAt(now, MarkerBucket)
	default:
		return nil
	}
	if mark.moveRetention(b, t.id, ready) {
		b.append(metastore.Put(MarkKey(t.id), mark.encode()))
	}
	return nil
}

// overBytes tells whether a whole span may be expired by size.
func (m *Mark) overBytes(p Policy, bytes uint64) bool {
	switch {
	case p.MaxBytes == 0:
		return false
	case m.NextBytes > 0:
		return bytes >= m.NextBytes
	}
	return bytes-min(m.WatermarkBytes, bytes) > p.MaxBytes
}

// dropChains forgets the chains that are gone or rewritten past the slot noted, in the heads that got a new one: a
// teardown need not wait for them. Cursors only advance, so that no condition is needed. The heads of all streams
// are looked up in one read, since an acknowledgement waits for it.
func (a *absorb) dropChains(ctx context.Context) error {
	var keys []string
	at := make(map[ChainID]int) // of a chain's trim record, in keys
	var grown []*touched
	for _, t := range a.streams {
		if !t.moved || len(t.head.Chains) <= len(t.cached.head.Chains) || len(t.head.Chains) < 2 {
			continue
		}
		grown = append(grown, t)
		for _, l := range t.head.Chains {
			if _, ok := at[l.Chain]; !ok && l.Chain != a.req.Chain {
				at[l.Chain] = len(keys)
				keys = append(keys, TrimKey(l.Chain))
			}
		}
	}
	if len(grown) == 0 {
		return nil
	}
	recs, err := a.c.get(ctx, keys...)
	if err != nil {
		return err
	}
	for _, t := range grown {
		kept := t.head.Chains[:0:0]
		for _, l := range t.head.Chains {
			if l.Chain != a.req.Chain {
				rec := recs[at[l.Chain]]
				if !rec.Exists() {
					continue
				}
				if trim, err := DecodeTrim(rec.Value); err == nil && trim.Rewritten > l.Slot {
					continue
				}
			}
			kept = append(kept, l)
		}
		t.head.Chains = kept
	}
	return nil
}

// armBatch arms the one batch marker of these slots.
func (a *absorb) armBatch(b *batch, m *Batch, owed uint64, now time.Time) {
	first := a.req.Slots[0].Slot
	ready := readyAt(now, a.c.timing.SettleAgeCap)
	if owed > a.c.timing.SettleOwedBytes {
		ready = uint64(unixMS(now))
	}
	m.Ready = int64(ready)
	key := BatchKey(a.req.Chain, first)
	b.append(metastore.Put(key, m.Encode()))
	b.append(metastore.Put(ScheduleKey(a.req.Chain, first, m.Ready), newEncoder(0).b))
	for _, id := range m.Streams {
		b.append(metastore.Put(pendingKey(id, key), newEncoder(0).b))
	}
}

// remember keeps in the cache what the commit wrote.
func (a *absorb) remember(v metastore.Version) {
	a.cache.chain = ChainAt{a.req.Chain, a.chain, v}
	for _, t := range a.streams {
		if t.moved {
			t.cached.head, t.cached.headVersion = t.head, v
			a.cache.put(t.id, t.cached)
		}
	}
}
