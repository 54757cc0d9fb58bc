package catalog_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/cespare/xxhash/v2"

	"github.com/nova-store/nova/catalog"
	"github.com/nova-store/nova/objstore/format"
)

// The checker reads the raw keys by rules of its own, from design's table, and
// judges them by what must hold. It never asks the catalog what is right.

// keyspace is the records, sorted by what they are.
type keyspace struct {
	chains     map[catalog.ChainID]catalog.Chain
	trims      map[catalog.ChainID]catalog.Trim
	batches    map[catalog.ChainID]map[uint64]catalog.Batch
	trimChecks map[catalog.ChainID][]uint64
	settles    map[catalog.ChainID][]string
	sweeps     map[string]int // star → standing settle markers of its own
	stars      map[string]catalog.Star
	heads      map[catalog.StreamID]catalog.Head
	marks      map[catalog.StreamID]catalog.Mark
	streams    map[catalog.StreamID]catalog.Stream
	names      map[string]catalog.StreamID
	spans      map[catalog.StreamID][]catalog.Span // in order of their last offsets
	refs       map[string]map[string]bool          // object → stream~last
	intents    map[string]catalog.Intent
	reaps      map[string]int      // object → standing reap-checks
	gcs        map[string][]string // object → standing gc markers
	gcRecords  map[string]string   // object → what gc/{object} names
	retentions map[catalog.StreamID][]string
	teardowns  map[catalog.StreamID]int
	schedule   map[string]bool
	pending    map[string]bool
	wantSched  map[string]bool
	wantPend   map[string]bool
}

func hexNumber(s string) uint64 {
	n, err := strconv.ParseUint(s, 16, 64)
	if err != nil || len(s) != 16 || strings.ToLower(s) != s {
		panic(fmt.Sprintf("%q is not a number of a key", s))
	}
	return n
}

func hexChain(star, epoch string) catalog.ChainID {
	return catalog.ChainID{Star: star, Epoch: hexNumber(epoch)}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// read sorts the mirror. It panics at a key that is not of the design's table.
func (s *faultStore) read() *keyspace {
	k := &keyspace{
		chains: map[catalog.ChainID]catalog.Chain{}, trims: map[catalog.ChainID]catalog.Trim{},
		batches:    map[catalog.ChainID]map[uint64]catalog.Batch{},
		trimChecks: map[catalog.ChainID][]uint64{}, settles: map[catalog.ChainID][]string{},
		sweeps: map[string]int{}, stars: map[string]catalog.Star{},
		heads: map[catalog.StreamID]catalog.Head{}, marks: map[catalog.StreamID]catalog.Mark{},
		streams: map[catalog.StreamID]catalog.Stream{}, names: map[string]catalog.StreamID{},
		spans: map[catalog.StreamID][]catalog.Span{}, refs: map[string]map[string]bool{},
		intents: map[string]catalog.Intent{}, reaps: map[string]int{}, gcs: map[string][]string{}, gcRecords: map[string]string{},
		retentions: map[catalog.StreamID][]string{}, teardowns: map[catalog.StreamID]int{},
		schedule: map[string]bool{}, pending: map[string]bool{}, wantSched: map[string]bool{}, wantPend: map[string]bool{},
	}
	for key, r := range s.mirror {
		p := strings.Split(key, "/")
		switch p[0] {
		case "cluster":
			if p[1] == "stars" {
				k.stars[p[2]] = must(catalog.DecodeStar(r.Value))
			}
		case "auditor", "ids":
		case "chain":
			if len(p) == 3 {
				k.chains[hexChain(p[1], p[2])] = must(catalog.DecodeChain(r.Value))
			}
		case "trim":
			k.trims[hexChain(p[1], p[2])] = must(catalog.DecodeTrim(r.Value))
		case "name":
			k.names[p[1]] = must(catalog.DecodeID(r.Value))
		case "stream":
			k.streams[catalog.StreamID(hexNumber(p[1]))] = must(catalog.DecodeStream(r.Value))
		case "head":
			k.heads[catalog.StreamID(hexNumber(p[1]))] = must(catalog.DecodeHead(r.Value))
		case "mark":
			k.marks[catalog.StreamID(hexNumber(p[1]))] = must(catalog.DecodeMark(r.Value))
		case "span":
			id := catalog.StreamID(hexNumber(p[1]))
			span := must(catalog.DecodeSpan(r.Value))
			if span.First+span.Count-1 != hexNumber(p[2]) {
				panic(key + " does not hold its last offset")
			}
			k.spans[id] = append(k.spans[id], span)
		case "ref":
			object, f := strings.ReplaceAll(p[1], "!", "/"), strings.Split(p[2], "~")
			if k.refs[object] == nil {
				k.refs[object] = map[string]bool{}
			}
			hexNumber(f[0])
			hexNumber(f[1])
			must(catalog.DecodeRef(r.Value))
			k.refs[object][p[2]] = true
		case "gc":
			k.gcRecords[strings.ReplaceAll(p[1], "!", "/")] = must(catalog.DecodeGCRecord(r.Value)).Marker
		case "due":
			k.readDue(key, p, r.Value)
		case "schedule":
			k.schedule[key] = true
		case "pending":
			k.pending[key] = true
		default:
			panic("a key of no kind: " + key)
		}
	}
	for _, spans := range k.spans {
		slices.SortFunc(spans, func(a, b catalog.Span) int { return int(int64(a.First - b.First)) })
	}
	return k
}

// readDue sorts one marker, and notes the index entries that must stand with it.
func (k *keyspace) readDue(key string, p []string, value []byte) {
	inShard := func(subject string) {
		if p[2] != fmt.Sprintf("%02x", xxhash.Sum64String(subject)%64) {
			panic(key + " is in a shard not its own")
		}
	}
	pend := func(a catalog.Attribution) {
		for _, id := range a.Streams {
			k.wantPend[fmt.Sprintf("pending/%016x/%s~%s~%s", uint64(id), p[1], p[2], p[3])] = true
		}
	}
	f := strings.Split(p[3], "~")
	switch catalog.Queue(p[1]) {
	case catalog.Denorm:
		c, first := hexChain(f[0], f[1]), hexNumber(f[2])
		inShard(f[0] + "~" + f[1])
		b := must(catalog.DecodeBatch(value))
		if k.batches[c] == nil {
			k.batches[c] = map[uint64]catalog.Batch{}
		}
		k.batches[c][first] = b
		k.wantSched[fmt.Sprintf("schedule/denorm/%s/%016x~%s", p[2], uint64(b.Ready), p[3])] = true
		pend(b.Attribution)
	case catalog.TrimCheck:
		c := hexChain(f[1], f[2])
		inShard(f[1] + "~" + f[2])
		hexNumber(f[0])
		k.trimChecks[c] = append(k.trimChecks[c], must(catalog.DecodeTrimCheckMarker(value)).UpTo)
	case catalog.Settle:
		hexNumber(f[0])
		if len(f) == 2 {
			inShard(f[1])
			k.sweeps[f[1]]++
			return
		}
		c := hexChain(f[1], f[2])
		inShard(f[1] + "~" + f[2])
		k.settles[c] = append(k.settles[c], key)
	case catalog.Retention:
		id := catalog.StreamID(hexNumber(f[1]))
		inShard(f[1])
		k.retentions[id] = append(k.retentions[id], key)
	case catalog.Teardown:
		inShard(f[1])
		hexNumber(f[0])
		must(catalog.DecodeTeardownMarker(value))
		k.teardowns[catalog.StreamID(hexNumber(f[1]))]++
	case catalog.Orphan:
		inShard(p[3])
		k.intents[strings.ReplaceAll(p[3], "!", "/")] = must(catalog.DecodeIntent(value))
	case catalog.Reap:
		inShard(f[1])
		hexNumber(f[0])
		k.reaps[strings.ReplaceAll(f[1], "!", "/")]++
		pend(catalog.DecodeReapMarker(value).Attribution)
	case catalog.GC:
		inShard(f[1])
		hexNumber(f[0])
		o := strings.ReplaceAll(f[1], "!", "/")
		k.gcs[o] = append(k.gcs[o], key)
		pend(catalog.DecodeGCMarker(value).Attribution)
	default:
		panic("a marker of no queue: " + key)
	}
}

// frontier is the chain's lowest standing batch marker, or its checkpoint.
func (k *keyspace) frontier(c catalog.ChainID) uint64 {
	f := k.chains[c].Checkpoint
	for first := range k.batches[c] {
		f = min(f, first)
	}
	return f
}

// inBatch tells whether a slot is in a standing batch marker.
func (k *keyspace) inBatch(c catalog.ChainID, slot uint64) bool {
	for first, b := range k.batches[c] {
		if slot >= first && slot < b.End {
			return true
		}
	}
	return false
}

// watched tells whether invariant 1 holds for an object that exists.
func (k *keyspace) watched(object string) bool {
	p := strings.Split(object, "/")
	if p[0] != "slot" {
		_, intent := k.intents[object]
		return intent || len(k.refs[object]) > 0 || k.reaps[object] > 0
	}
	c, slot := hexChain(p[1], p[2]), hexNumber(p[3])
	chain, ok := k.chains[c]
	if !ok {
		return false
	}
	settle := len(k.settles[c]) > 0
	if slot >= chain.Checkpoint && settle || k.inBatch(c, slot) {
		return true
	}
	if slot < k.trims[c].Trimmed {
		return false
	}
	check := slices.ContainsFunc(k.trimChecks[c], func(upTo uint64) bool { return upTo > slot })
	return check || chain.State == catalog.ChainSealed && settle
}

// check judges everything that must hold after every commit and every effect on the bucket.
func (w *world) check() {
	k := w.store.read()
	for object := range w.objects {
		if !k.watched(object) {
			w.fail("1: nobody watches %s", object)
		}
	}
	w.checkChains(k)
	w.checkStreams(k)
	for object, keys := range k.gcs {
		if len(keys) != 1 || k.gcRecords[object] != keys[0] {
			w.fail("%s has the gc markers %q, its record names %q", object, keys, k.gcRecords[object])
		}
	}
	if len(k.gcs) != len(k.gcRecords) {
		w.fail("%d objects with gc markers, %d gc records", len(k.gcs), len(k.gcRecords))
	}
	w.checkBundles(k)
	for key := range k.wantSched {
		if !k.schedule[key] {
			w.fail("a batch marker's schedule entry is missing: %s", key)
		}
	}
	for key := range k.wantPend {
		if !k.pending[key] {
			w.fail("a marker's pending entry is missing: %s", key)
		}
	}
	if len(k.schedule) != len(k.wantSched) {
		w.fail("%d schedule entries, %d batch markers", len(k.schedule), len(k.wantSched))
	}
	if len(k.pending) != len(k.wantPend) {
		w.fail("%d pending entries, %d attributions", len(k.pending), len(k.wantPend))
	}
	w.last = k
}

// checkBundles demands that a bundle whose slot may be absorbed is announced, by an intent that says so and that
// nobody condemned; and that bytes of it which nothing names are announced to the reap duty
// when its intent goes.
func (w *world) checkBundles(k *keyspace) {
	for key, o := range w.objects {
		f := &o.footer
		if f.Kind != format.KindBundle {
			continue
		}
		c := catalog.ChainID{Star: f.Star, Epoch: f.Epoch}
		chain, stands := k.chains[c]
		in, announced := k.intents[key]
		if stands && chain.State != catalog.ChainSealed && chain.Checkpoint <= f.Slot && (!announced || in.Condemned || in.Chain != c || in.Slot != f.Slot) {
			w.fail("1: %s may be absorbed yet, and its intent is %+v", key, in)
		}
		held, all := uint64(0), uint64(0)
		for _, sec := range f.Sections {
			all += uint64(sec.Records)
			for _, s := range k.spans[catalog.StreamID(sec.Stream)] {
				if s.Object == key {
					held += s.Count
				}
			}
		}
		if was := w.last != nil && w.last.intents[key] != (catalog.Intent{}); was && !announced && held > 0 && held < all && k.reaps[key] == 0 {
			w.fail("1: %d of %d records of %s are named by nothing, its intent is gone, and no reap-check stands", all-held, all, key)
		}
	}
}

func (w *world) checkChains(k *keyspace) {
	for name, star := range k.stars {
		switch want := star.Retired && !star.Swept; {
		case star.Swept && !star.Retired, want && k.sweeps[name] != 1, !want && k.sweeps[name] != 0:
			w.fail("star %s: %+v, with %d settle markers of its own", name, star, k.sweeps[name])
		case w.last != nil && (w.last.stars[name].Retired && !star.Retired || w.last.stars[name].Swept && !star.Swept):
			w.fail("4: star %s came back: %+v, was %+v", name, star, w.last.stars[name])
		}
		for c := range k.chains {
			if _, old := k.chains[c]; c.Star == name && star.Swept && old {
				w.fail("star %s is swept and has the chain %v", name, c)
			}
			if c.Star == name && star.Retired && w.last != nil {
				if _, old := w.last.chains[c]; !old {
					w.fail("star %s is retired and minted %v", name, c)
				}
			}
		}
	}
	for c := range k.batches {
		if _, ok := k.chains[c]; !ok {
			w.fail("a batch marker of %v, which is retired", c)
		}
	}
	for c, chain := range k.chains {
		t, ok := k.trims[c]
		if !ok {
			w.fail("chain %v has no trim record", c)
		}
		if keys := k.settles[c]; len(keys) != 1 || keys[0] != t.SettleKey {
			w.fail("chain %v has the settle markers %q, its trim record names %s", c, keys, t.SettleKey)
		}
		f := k.frontier(c)
		if t.Trimmed > t.Rewritten || t.Rewritten > f || f > chain.Checkpoint {
			w.fail("chain %v: trimmed %d, rewritten %d, frontier %d, checkpoint %d", c, t.Trimmed, t.Rewritten, f, chain.Checkpoint)
		}
		for first, b := range k.batches[c] {
			if b.End <= first || b.End > chain.Checkpoint {
				w.fail("chain %v: a batch of [%d, %d) at checkpoint %d", c, first, b.End, chain.Checkpoint)
			}
			for other := range k.batches[c] {
				if other > first && other < b.End {
					w.fail("chain %v: batches at %d and %d overlap", c, first, other)
				}
			}
		}
		if w.last == nil {
			continue
		}
		old, was := w.last.chains[c]
		oldTrim := w.last.trims[c]
		if was && (chain.Checkpoint < old.Checkpoint || chain.State < old.State || chain.AbsorbedBytes < old.AbsorbedBytes ||
			old.State == catalog.ChainSealed && (chain.Seal != old.Seal || chain.Checkpoint != old.Checkpoint) ||
			t.Rewritten < oldTrim.Rewritten || t.Trimmed < oldTrim.Trimmed || t.SettledBytes < oldTrim.SettledBytes ||
			f < w.last.frontier(c)) {
			w.fail("4: chain %v went back: %+v %+v, was %+v %+v", c, chain, t, old, oldTrim)
		}
		if w.retired[c] {
			w.fail("chain %v came back", c)
		}
	}
	for c := range k.trims {
		if _, ok := k.chains[c]; !ok {
			w.fail("a trim record of %v, which has no chain record", c)
		}
	}
	if w.last != nil {
		for c := range w.last.chains {
			if _, ok := k.chains[c]; !ok {
				w.retired[c] = true
			}
		}
	}
}

func (w *world) checkStreams(k *keyspace) {
	wantRefs := 0
	for id, head := range k.heads {
		if _, ok := k.streams[id]; !ok {
			w.fail("stream %v has a head alone", id)
		}
		mark, ok := k.marks[id]
		if !ok {
			w.fail("stream %v has no mark", id)
		}
		switch keys := k.retentions[id]; {
		case mark.RetentionKey == "" && len(keys) > 0, mark.RetentionKey != "" && (len(keys) != 1 || keys[0] != mark.RetentionKey):
			w.fail("stream %v has the retention markers %q, its mark names %q", id, keys, mark.RetentionKey)
		case len(keys) == 0:
			if why := k.owesRetention(id); why != "" {
				w.fail("stream %v has no retention marker, and %s", id, why)
			}
		}
		w.checkLife(k, id)
		if w.last != nil && head.Next < w.last.heads[id].Next {
			w.fail("4: the next offset of stream %v went back", id)
		}
		next := min(max(w.killed[id], mark.Watermark), head.Next)
		if k.streams[id].State == catalog.StreamTearing {
			next = head.Next
		}
		for i, s := range k.spans[id] {
			if i == 0 && s.First < next {
				next = s.First // not killed yet
			}
			if s.First != next {
				w.fail("3: stream %v: a span begins at %d where %d was expected", id, s.First, next)
			}
			next = s.First + s.Count
			if !strings.HasPrefix(s.Object, "slot/") {
				wantRefs++
				if !k.refs[s.Object][fmt.Sprintf("%016x~%016x", uint64(id), next-1)] {
					w.fail("the span of stream %v at %d has no ref at %s", id, s.First, s.Object)
				}
			} else if p := strings.Split(s.Object, "/"); !k.inBatch(hexChain(p[1], p[2]), hexNumber(p[3])) {
				w.fail("2: stream %v lies in %s, which is in no batch marker", id, s.Object)
			}
			w.checkContent(id, s)
		}
		if next != head.Next {
			w.fail("3: the spans of stream %v end at %d, its head at %d", id, next, head.Next)
		}
	}
	refs := 0
	for _, r := range k.refs {
		refs += len(r)
	}
	if refs != wantRefs {
		w.fail("%d refs for %d spans outside slots", refs, wantRefs)
	}
	active := 0
	for _, s := range k.streams {
		if s.State == catalog.StreamActive {
			active++
		}
	}
	if len(k.names) != active {
		w.fail("%d names for %d active streams", len(k.names), active)
	}
	w.checkGone(k)
}

// owesRetention tells for what, if anything, a stream's retention must be armed.
func (k *keyspace) owesRetention(id catalog.StreamID) string {
	if k.streams[id].State != catalog.StreamActive || len(k.spans[id]) == 0 {
		return ""
	}
	first, p := k.spans[id][0], k.streams[id].Policy
	switch {
	case p.MaxAgeMS > 0:
		return "its records grow old"
	case first.First+first.Count <= k.marks[id].Watermark:
		return "a span lies below its watermark"
	case p.MaxBytes > 0 && k.heads[id].Bytes >= first.BytePos+p.MaxBytes:
		return "a span is expired by size"
	}
	return ""
}

// checkLife demands that a stream only goes forward from active to deleted to tearing, with a teardown
// marker from the deletion on, and that its watermark never goes back.
func (w *world) checkLife(k *keyspace, id catalog.StreamID) {
	s := k.streams[id]
	if want := map[bool]int{true: 1}[s.State != catalog.StreamActive]; k.teardowns[id] != want {
		w.fail("stream %v is in state %v and has %d teardown markers", id, s.State, k.teardowns[id])
	}
	if w.last != nil && (s.State < w.last.streams[id].State && w.last.streams[id].State == catalog.StreamTearing || k.marks[id].Watermark < w.last.marks[id].Watermark) {
		w.fail("4: stream %v went back", id)
	}
}

// checkGone demands that a stream leaves nothing behind when its records go, and that no settle job is still
// at its records by then.
func (w *world) checkGone(k *keyspace) {
	for id := range k.spans {
		if _, ok := k.heads[id]; !ok {
			w.fail("2: spans of stream %v outlive it", id)
		}
	}
	if len(k.streams) != len(k.heads) || len(k.heads) != len(k.marks) {
		w.fail("%d streams have %d heads and %d marks", len(k.streams), len(k.heads), len(k.marks))
	}
	for id := range k.retentions {
		if _, ok := k.heads[id]; !ok {
			w.fail("a retention marker of stream %v outlives it", id)
		}
	}
	for id := range k.teardowns {
		if _, ok := k.heads[id]; !ok {
			w.fail("a teardown marker of stream %v outlives it", id)
		}
	}
	if w.last == nil {
		return
	}
	for id, head := range w.last.heads {
		if _, ok := k.heads[id]; ok {
			continue
		}
		for _, l := range head.Chains {
			if chain, ok := k.chains[l.Chain]; ok && (l.Slot >= chain.Checkpoint || k.inBatch(l.Chain, l.Slot)) {
				w.fail("stream %v is gone while slot %d of %v, its last there, is owed", id, l.Slot, l.Chain)
			}
		}
	}
}

// checkContent compares what a span names with what its offsets always held.
func (w *world) checkContent(id catalog.StreamID, s catalog.Span) {
	o := w.objects[s.Object]
	if o == nil {
		w.fail("2: the span of stream %v at %d names %s, which does not exist", id, s.First, s.Object)
		return
	}
	sec := o.section(id)
	if sec == nil || uint64(s.Ordinal)+s.Count > uint64(len(o.values[id])) {
		w.fail("2: %s does not hold the span of stream %v at %d", s.Object, id, s.First)
		return
	}
	if off, length := sec.Range(s.Ordinal, uint32(s.Count)); off != s.Offset || length != s.Length {
		w.fail("2: the span of stream %v at %d has the wrong byte range", id, s.First)
	}
	if w.log[id] == nil {
		w.log[id] = map[uint64]uint64{}
	}
	for i := range s.Count {
		v := o.values[id][uint64(s.Ordinal)+i]
		if old, ok := w.log[id][s.First+i]; ok && old != v {
			w.fail("3: offset %d of stream %v held %d and now %d", s.First+i, id, old, v)
		}
		w.log[id][s.First+i] = v
	}
}
