package check

import (
	"math"
	"slices"

	"github.com/nova-store/nova/catalog"
	"github.com/nova-store/nova/metastore"
	"github.com/nova-store/nova/objstore/format"
)

const everything = math.MaxUint64

// chain is one epoch of a star: its records, its markers and its slots in the bucket.
type chain struct {
	id                  catalog.ChainID
	touched             bool
	exists, trimExists  bool
	rec, was            catalog.Chain
	trim, trimWas       catalog.Trim
	settles             int
	batches             []batch           // standing, in order
	checks              map[string]uint64 // trimchecks: key → upTo
	slots               []uint64          // in the bucket, in order
	frontier            uint64
	dirtyFrom, dirtyEnd uint64 // slots whose watch may have changed
}

type batch struct {
	first, end uint64
	damaged    bool
	inventory  []catalog.SlotItem // of a damaged one
}

// names tells whether the batch holds records of the stream back. One that is not damaged
// may, whatever it names.
func (b *batch) names(id catalog.StreamID) bool {
	return !b.damaged || slices.ContainsFunc(b.inventory, func(i catalog.SlotItem) bool { return i.Stream == id })
}

func (c *Checker) chain(id catalog.ChainID) *chain {
	ch, ok := c.chains[id]
	if !ok {
		ch = &chain{id: id, checks: make(map[string]uint64), dirtyFrom: everything}
		c.chains[id] = ch
	}
	return ch
}

func (c *Checker) touchChain(id catalog.ChainID) *chain {
	ch := c.chain(id)
	if !ch.touched {
		ch.touched = true
		c.touchedChains = append(c.touchedChains, ch)
	}
	return ch
}

func (ch *chain) dirty(from, end uint64) {
	ch.dirtyFrom, ch.dirtyEnd = min(ch.dirtyFrom, from), max(ch.dirtyEnd, end)
}

func (ch *chain) addSlot(slot uint64) {
	if i, ok := slices.BinarySearch(ch.slots, slot); !ok {
		ch.slots = slices.Insert(ch.slots, i, slot)
	}
}

func (ch *chain) removeSlot(slot uint64) {
	if i, ok := slices.BinarySearch(ch.slots, slot); ok {
		ch.slots = slices.Delete(ch.slots, i, i+1)
	}
}

func (c *Checker) chainChanged(key string, _, now metastore.Record) {
	id, err := catalog.ParseChainKey(key)
	if err != nil {
		return // chain/{star}
	}
	ch := c.touchChain(id)
	if ch.exists = now.Exists(); !ch.exists {
		ch.dirty(0, everything)
		return
	}
	v, err := catalog.DecodeChain(now.Value)
	if err != nil {
		c.fail(Bounded, key, "unreadable: %v", err)
		return
	}
	if v.Checkpoint != ch.rec.Checkpoint {
		ch.dirty(min(ch.rec.Checkpoint, v.Checkpoint), max(ch.rec.Checkpoint, v.Checkpoint))
	}
	if v.State == catalog.ChainSealed {
		// Its retirement deletes up to the window's end.
		ch.dirty(v.WindowEnd, everything)
	}
	ch.rec = v
}

func (c *Checker) trimChanged(key string, _, now metastore.Record) {
	id, err := catalog.ParseChainKey("chain" + key[len("trim"):])
	if err != nil {
		c.fail(Bounded, key, "unreadable: %v", err)
		return
	}
	ch := c.touchChain(id)
	if ch.trimExists = now.Exists(); !ch.trimExists {
		ch.dirty(0, everything)
		return
	}
	v, err := catalog.DecodeTrim(now.Value)
	if err != nil {
		c.fail(Bounded, key, "unreadable: %v", err)
		return
	}
	if v.Trimmed != ch.trim.Trimmed {
		ch.dirty(min(v.Trimmed, ch.trim.Trimmed), max(v.Trimmed, ch.trim.Trimmed))
	}
	ch.trim = v
}

// batchChanged takes a change of due/denorm/{shard}/{star}~{epoch}~{first}.
func (c *Checker) batchChanged(key string, old, now metastore.Record) {
	const tail = 1 + 16 // ~first
	at := len("due/denorm/00/")
	if len(key) < at+tail {
		c.fail(Bounded, key, "unreadable")
		return
	}
	id, err := catalog.ParseChainSubject(key[at : len(key)-tail])
	if err != nil {
		c.fail(Bounded, key, "unreadable: %v", err)
		return
	}
	ch := c.touchChain(id)
	var before, after catalog.Batch
	if old.Exists() {
		before, _ = catalog.DecodeBatch(old.Value)
		c.index.owe(key, before.Streams, -1)
		c.index.oweSchedule(key, before.Ready, -1)
	}
	if now.Exists() {
		if after, err = catalog.DecodeBatch(now.Value); err != nil {
			c.fail(Bounded, key, "unreadable: %v", err)
			return
		}
		c.index.owe(key, after.Streams, 1)
		c.index.oweSchedule(key, after.Ready, 1)
	}
	first := parseHex(key[len(key)-16:])
	i, ok := slices.BinarySearchFunc(ch.batches, first, func(b batch, f uint64) int {
		switch {
		case b.first < f:
			return -1
		case b.first > f:
			return 1
		}
		return 0
	})
	switch {
	case now.Exists() && ok:
		if after.End != ch.batches[i].end {
			c.fail(Watched, key, "a standing batch marker was changed from end %d to %d", ch.batches[i].end, after.End)
		}
		ch.batches[i] = newBatch(first, &after)
	case now.Exists():
		ch.batches = slices.Insert(ch.batches, i, newBatch(first, &after))
	case ok:
		ch.batches = slices.Delete(ch.batches, i, i+1)
		ch.dirty(first, before.End)
	}
}

func newBatch(first uint64, v *catalog.Batch) batch {
	b := batch{first: first, end: v.End, damaged: v.Damaged}
	if v.Damaged {
		b.inventory = v.Inventory
	}
	return b
}

func parseHex(s string) (v uint64) {
	for i := range len(s) {
		d := uint64(s[i] - '0')
		if s[i] >= 'a' {
			d = uint64(s[i]-'a') + 10
		}
		v = v<<4 | d
	}
	return v
}

func (c *Checker) trimCheckChanged(d catalog.Due, _, now metastore.Record) {
	id, err := catalog.ParseChainSubject(d.Subject)
	if err != nil {
		return
	}
	ch := c.touchChain(id)
	was := ch.checks[d.Key]
	if !now.Exists() {
		delete(ch.checks, d.Key)
		ch.dirty(0, was)
		return
	}
	v, err := catalog.DecodeTrimCheckMarker(now.Value)
	if err != nil {
		return
	}
	if v.UpTo < was {
		ch.dirty(0, was)
	}
	ch.checks[d.Key] = v.UpTo
}

// frontierNow is the settle frontier as the records say at this moment.
func (ch *chain) frontierNow() uint64 {
	switch {
	case !ch.exists:
		return everything
	case len(ch.batches) > 0:
		return ch.batches[0].first
	}
	return ch.rec.Checkpoint
}

// frontierFor is the frontier behind which nothing is owed that concerns the stream.
func (ch *chain) frontierFor(id catalog.StreamID) uint64 {
	if !ch.exists {
		return everything
	}
	for i := range ch.batches {
		if ch.batches[i].names(id) {
			return ch.batches[i].first
		}
	}
	return ch.rec.Checkpoint
}

// mayAbsorb tells whether the chain's slot may still be absorbed.
func (c *Checker) mayAbsorb(ch *chain, slot uint64) bool {
	if !ch.exists || slot < ch.rec.Checkpoint || ch.rec.State == catalog.ChainSealed && ch.rec.Seal <= slot {
		return false
	}
	i, _ := slices.BinarySearch(ch.slots, ch.rec.Checkpoint)
	for ; i < len(ch.slots) && ch.slots[i] <= slot; i++ {
		if c.object(catalog.SlotKey(ch.id, ch.slots[i])).footer.Kind == format.KindSeal {
			return false
		}
	}
	return true
}

// chainsOf returns how many chains of the star are not retired.
func (c *Checker) chainsOf(star string) int {
	n := 0
	for id, ch := range c.chains {
		if id.Star == star && ch.exists {
			n++
		}
	}
	return n
}

// bounded is the part of invariant 7 on which a seal's window rests: a slot that is put
// lies below the chain's first empty one + W.
func (ch *chain) bounded(c *Checker, o *object) {
	if !ch.exists {
		return
	}
	empty := ch.rec.Checkpoint
	for i, _ := slices.BinarySearch(ch.slots, empty); i < len(ch.slots) && ch.slots[i] == empty; i++ {
		empty++
	}
	if o.slot >= empty+ch.rec.Window {
		c.fail(Bounded, o.key, "slot %d was put while slot %d is empty and the window is %d", o.slot, empty, ch.rec.Window)
	}
}

// watched is invariant 1 for a slot. Its clauses are those of docs/invariants.md.
func (ch *chain) watched(p uint64) bool {
	sealed := ch.rec.State == catalog.ChainSealed
	if ch.exists && p >= ch.rec.Checkpoint && ch.settles > 0 && (!sealed || p < ch.rec.WindowEnd) {
		return true
	}
	i, found := slices.BinarySearchFunc(ch.batches, p, func(b batch, p uint64) int {
		switch {
		case b.end <= p:
			return -1
		case b.first > p:
			return 1
		}
		return 0
	})
	if found && p >= ch.batches[i].first {
		return true
	}
	if !ch.exists || !ch.trimExists || p < ch.trim.Trimmed {
		return false
	}
	if sealed && ch.settles > 0 && p < ch.rec.WindowEnd {
		return true
	}
	upTo := uint64(0)
	for _, u := range ch.checks {
		upTo = max(upTo, u)
	}
	return upTo > p
}

// judgeChain is invariants 1 and 4 for a chain, over the slots whose watch may have changed.
func (c *Checker) judgeChain(ch *chain) {
	key := catalog.ChainKey(ch.id)
	if ch.exists {
		switch {
		case ch.rec.Checkpoint < ch.was.Checkpoint:
			c.fail(Monotonic, key, "the checkpoint went back from %d to %d", ch.was.Checkpoint, ch.rec.Checkpoint)
		case ch.rec.State < ch.was.State:
			c.fail(Monotonic, key, "the state went back from %v to %v", ch.was.State, ch.rec.State)
		case ch.was.State == catalog.ChainSealed && ch.rec.Seal != ch.was.Seal:
			c.fail(Monotonic, key, "the seal moved from %d to %d", ch.was.Seal, ch.rec.Seal)
		case ch.was.State == catalog.ChainSealed && ch.rec.Checkpoint != ch.was.Checkpoint:
			c.fail(Monotonic, key, "a sealed chain absorbed slot %d", ch.was.Checkpoint)
		}
		ch.was = ch.rec
	}
	if ch.trimExists {
		if ch.trim.Rewritten < ch.trimWas.Rewritten || ch.trim.Trimmed < ch.trimWas.Trimmed {
			c.fail(Monotonic, catalog.TrimKey(ch.id), "a cursor went back: rewritten %d to %d, trimmed %d to %d",
				ch.trimWas.Rewritten, ch.trim.Rewritten, ch.trimWas.Trimmed, ch.trim.Trimmed)
		}
		ch.trimWas = ch.trim
	}
	f := ch.frontierNow()
	if f < ch.frontier {
		c.fail(Monotonic, key, "the settle frontier went back from %d to %d", ch.frontier, f)
	}
	ch.frontier = f
	if ch.exists && ch.trimExists && ch.trim.Rewritten > f {
		c.fail(Monotonic, catalog.TrimKey(ch.id), "rewritten is %d, beyond the settle frontier %d", ch.trim.Rewritten, f)
	}
	if ch.exists != ch.trimExists {
		c.fail(Watched, key, "of the chain and trim records one is there without the other")
	}
	switch {
	case ch.exists && ch.settles == 0:
		c.fail(Watched, key, "the chain has no settle marker")
	case ch.settles > 1:
		c.fail(Bounded, key, "the chain has %d settle markers", ch.settles)
	}
	i, _ := slices.BinarySearch(ch.slots, ch.dirtyFrom)
	for ; i < len(ch.slots) && ch.slots[i] < ch.dirtyEnd; i++ {
		if p := ch.slots[i]; !ch.watched(p) {
			c.fail(Watched, catalog.SlotKey(ch.id, p), "slot %d is unwatched: checkpoint %d (%v), trimmed %d, %d batch markers, %d trimchecks, %d settle markers",
				p, ch.rec.Checkpoint, ch.rec.State, ch.trim.Trimmed, len(ch.batches), len(ch.checks), ch.settles)
			break
		}
	}
	ch.dirtyFrom, ch.dirtyEnd = everything, 0
}
