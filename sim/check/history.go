package check

import (
	"slices"

	"github.com/nova-store/nova/catalog"
)

// known is an append that a client has sent.
type known struct {
	stream   string
	records  int
	repeated bool
	// at is the offset of its first record + 1, in the stream where it appeared first. One that a client sends again
	// until it is definite may be there in each stream that has had the name.
	in   catalog.StreamID
	at   uint64
	also map[catalog.StreamID]uint64 // the same in further ones

	final     bool // will appear nowhere else
	forgotten bool // its offset is, in one of them
}

// place returns the offset + 1 at which it is in a stream, 0 if it is not there.
func (k *known) place(id catalog.StreamID) uint64 {
	if k.in == id {
		return k.at
	}
	return k.also[id]
}

// appears notes where it is in a stream.
func (k *known) appears(id catalog.StreamID, at uint64) {
	switch {
	case k.at == 0:
		k.in, k.at = id, at+1
	case k.also == nil:
		k.also = map[catalog.StreamID]uint64{id: at + 1}
	default:
		k.also[id] = at + 1
	}
}

// Sending notes that a client is about to send an append of so many records, and whether it
// will send it again.
func (c *Checker) Sending(id uint64, stream string, records int, repeated bool) {
	c.known[id] = &known{stream: stream, records: records, repeated: repeated}
}

// Acknowledged judges an answer: the append is at these offsets, now and for ever.
// An answer without offsets (an old duplicate) says only that it is there.
func (c *Checker) Acknowledged(id uint64, stream catalog.StreamID, first, last uint64, offsetsKnown bool) {
	k := c.known[id]
	key := catalog.HeadKey(stream)
	switch {
	case k == nil:
		c.fail(Lost, key, "append %d was acknowledged, but never sent", id)
	case c.stream(stream).rec.Name != k.stream:
		c.fail(Lost, key, "append %d to %q was acknowledged by another stream", id, k.stream)
	case k.place(stream) == 0:
		c.fail(Lost, key, "append %d was acknowledged before it was absorbed", id)
	case !offsetsKnown:
	case k.place(stream)-1 != first || last != first+uint64(k.records)-1:
		c.fail(Lost, key, "append %d was acknowledged at %d to %d and is at %d", id, first, last, k.place(stream)-1)
	}
}

// Refused judges an answer that says that the append is not there and never will be.
func (c *Checker) Refused(id uint64, stream string) {
	if k := c.known[id]; k != nil && k.at != 0 {
		c.fail(Lost, stream, "append %d was refused and is at offset %d", id, k.at-1)
	}
	delete(c.known, id) // should it appear later, nobody has sent it
}

// Stream returns the id that a name leads to at this moment; 0: none.
func (c *Checker) Stream(name string) catalog.StreamID { return c.names[name] }

// Name returns the name that a stream has, or had.
func (c *Checker) Name(id catalog.StreamID) string { return c.stream(id).rec.Name }

// Next returns how many offsets of the stream have been absorbed: a read that begins
// now must see at least these.
func (c *Checker) Next(stream string) uint64 {
	id, ok := c.names[stream]
	if !ok {
		return 0
	}
	return c.stream(id).next()
}

// Spans returns how many spans the stream's catalog has.
func (c *Checker) Spans(stream string) int {
	id, ok := c.names[stream]
	if !ok {
		return 0
	}
	return len(c.stream(id).byLast)
}

// Settled returns the offset up to which the stream's records, from the first readable one on, lie in settled objects.
func (c *Checker) Settled(stream string) uint64 {
	id, ok := c.names[stream]
	if !ok {
		return 0
	}
	s := c.stream(id)
	at := s.mark.Watermark
	if _, ok := s.byFirst[at]; !ok && len(s.byLast) > 0 {
		at = s.byLast[s.lowest()].first
	}
	for {
		last, ok := s.byFirst[at]
		if !ok || c.object(s.byLast[last].object).kind != settledKind {
			return at
		}
		at = last + 1
	}
}

// Objects returns how many objects of a kind (slot, bundle, settled) are in the bucket.
func (c *Checker) Objects(kind string) int {
	n := 0
	for _, o := range c.objects {
		switch {
		case !o.exists:
		case kind == "slot" && o.kind == slotKind, kind == "bundle" && o.kind == bundleKind, kind == "settled" && o.kind == settledKind:
			n++
		}
	}
	return n
}

// Markers returns how many markers of a queue stand.
func (c *Checker) Markers(q catalog.Queue) int {
	n := 0
	if q == catalog.Denorm {
		for _, ch := range c.chains {
			n += len(ch.batches)
		}
		return n
	}
	for _, queue := range c.due {
		if queue == q {
			n++
		}
	}
	return n
}

// Rewritten returns how many bytes of settled objects have been put, in percent of the payload that was appended.
func (c *Checker) Rewritten() int {
	appended := uint64(0)
	for _, s := range c.streams {
		appended += s.head.Bytes
	}
	return int(100 * c.rewritten / max(appended, 1))
}

// Armed returns how many markers have been armed so far, but for settle's, which live chains keep.
func (c *Checker) Armed() int { return c.armed }

// LastArmed returns the last of them.
func (c *Checker) LastArmed() string { return c.lastArmed }

// Remains returns how many records there are of streams that have had a name.
func (c *Checker) Remains(name string) int {
	n := 0
	for _, s := range c.streams {
		if s.rec.Name == name && s.has != 0 {
			n += len(s.byLast) + 3
		}
	}
	return n
}

// Tearing tells whether a stream that has had the name is being torn down.
func (c *Checker) Tearing(name string) bool {
	for _, s := range c.streams {
		if s.rec.Name == name && s.has != 0 && s.rec.State == catalog.StreamTearing {
			return true
		}
	}
	return false
}

// Deleting notes that a client is about to ask for a stream's deletion.
func (c *Checker) Deleting(id catalog.StreamID) {
	s := c.stream(id)
	if s.deletes++; s.deleteFrom.IsZero() {
		s.deleteFrom = c.w.Time()
	}
}

// Deleted judges an answer: the stream is deleted, for good unless that is undone.
func (c *Checker) Deleted(id catalog.StreamID) {
	s := c.stream(id)
	s.deletes = max(s.deletes-1, 0)
	if s.active() {
		c.fail(Lost, catalog.StreamKey(id), "its deletion was acknowledged, and it is active")
	}
}

// Undeleted judges an answer: the stream's deletion was undone, and nobody has deleted it since.
func (c *Checker) Undeleted(id catalog.StreamID) {
	if s := c.stream(id); !s.active() || c.names[s.rec.Name] != id {
		c.fail(Lost, catalog.StreamKey(id), "the undoing of its deletion was acknowledged, and it is not there")
	}
}

// Readable returns the stream's first readable offset, by its watermark and its policy.
func (c *Checker) Readable(stream string) uint64 {
	id, ok := c.names[stream]
	if !ok {
		return 0
	}
	s := c.stream(id)
	return max(s.mark.Watermark, s.kept(s.rec.Policy, s.head.Bytes, c.w.Time().UnixMilli()))
}

// Reading is what a read that begins now must not be given, and what it must.
type Reading struct {
	ID catalog.StreamID // that the name leads to; 0: none
	// Next is how many offsets have been absorbed.
	Next   uint64
	floor  uint64
	policy catalog.Policy
	number uint64 // of all reads
}

// Reading notes what the stream holds as a read of it begins: records that had been trimmed
// by then, or had expired on every clock, must not be served. Judged must be called once the read was judged: until then
// nothing is forgotten that it may be given.
func (c *Checker) Reading(name string) Reading {
	c.began++
	c.reads = append(c.reads, c.began)
	id, ok := c.names[name]
	if !ok {
		return Reading{number: c.began}
	}
	s := c.stream(id)
	r := Reading{ID: id, Next: s.next(), floor: max(s.mark.Watermark, s.floor), policy: s.rec.Policy, number: c.began}
	if r.policy != (catalog.Policy{}) {
		r.floor = max(r.floor, s.kept(r.policy, s.head.Bytes, c.w.Time().Add(-c.timing.MaxClockSkew).UnixMilli()))
	}
	return r
}

// Judged ends what began with Reading.
func (c *Checker) Judged(r Reading) {
	if i, ok := slices.BinarySearch(c.reads, r.number); ok {
		c.reads = slices.Delete(c.reads, i, i+1)
	}
}

// Read judges what a reader was given from an offset on: what those offsets hold, in
// order, without a gap, and nothing that was not to be read any more when it began.
func (c *Checker) Read(r Reading, stream catalog.StreamID, first uint64, payloads [][]byte) {
	s := c.stream(stream)
	key := catalog.HeadKey(stream)
	if r.ID == stream && len(payloads) > 0 && first < r.floor {
		c.fail(Lost, key, "a reader was given offset %d, and those below %d had been trimmed or had expired when it began", first, r.floor)
	}
	for i, p := range payloads {
		at := first + uint64(i)
		id, index, count, ok := parsePayload(p)
		switch {
		case !ok:
			c.fail(Lost, key, "a reader was given wrong bytes at offset %d", at)
			return
		case at >= s.next():
			c.fail(Lost, key, "a reader was given offset %d before it was absorbed", at)
			return
		case at < s.base:
			// Nothing is forgotten that a read may be given which began while it was there.
			c.fail(Lost, key, "a reader was given offset %d, which had been trimmed or had expired, and its span was gone, when it began", at)
			return
		case s.content[at-s.base].recordID != recordID{id, index, count}:
			held := s.content[at-s.base]
			c.fail(Lost, key, "a reader was given record %d of append %d at offset %d, which holds record %d of append %d",
				index, id, at, held.index, held.id)
			return
		}
	}
}

// Since returns the first offset at which a stream's largest timestamp has reached a time, of those that are not
// forgotten; its next offset if none has.
func (c *Checker) Since(stream catalog.StreamID, ms int64) uint64 {
	s := c.stream(stream)
	n, _ := slices.BinarySearchFunc(s.sums, ms, func(r sums, ms int64) int {
		if r.maxTimestamp < ms {
			return -1
		}
		return 1
	})
	return s.base + uint64(n)
}

// BeganAt judges where a read began that asked for what is readable from an offset on: there, or where what
// was trimmed or expired ends. Records that came while it was under way it may have passed by, had it found none before.
func (c *Checker) BeganAt(r Reading, stream catalog.StreamID, want, first uint64) {
	if r.ID != stream {
		return
	}
	s := c.stream(stream)
	least, most := max(min(want, r.Next), r.floor), max(want, c.readableMost(r, s))
	if first < least || first > most {
		c.fail(Lost, catalog.HeadKey(stream), "a read of what is readable from offset %d on began at %d; it is %d to %d", want, first, least, most)
	}
}

// readableMost is the largest offset that any clock may take for the first readable one by now.
func (c *Checker) readableMost(r Reading, s *stream) uint64 {
	now := c.w.Time().Add(c.timing.MaxClockSkew).UnixMilli()
	return max(s.mark.Watermark, s.ceil, s.kept(s.rec.Policy, s.head.Bytes, now), s.kept(r.policy, s.head.Bytes, now))
}

// ToldTrimmed judges an answer that says from which offset on a stream can be read: what lies
// below was trimmed, or has expired on some clock by now.
func (c *Checker) ToldTrimmed(r Reading, stream catalog.StreamID, from, first uint64) {
	s := c.stream(stream)
	most := c.readableMost(r, s)
	if first <= from || first > most {
		c.fail(Lost, catalog.HeadKey(stream), "a read from %d is told that %d is the first readable offset; %d is", from, first, most)
	}
}

// Logical is a stream's logical state.
type Logical struct {
	Forgotten int      // the first so many appends, which are gone,
	Hash      uint64   // and what their ids come to, in order
	Appends   []uint64 // the others, in order
	Watermark uint64
	Policy    catalog.Policy
}

// Equal tells whether two states are the same, however much of them is forgotten.
func (l Logical) Equal(m Logical) bool {
	if l.Forgotten > m.Forgotten {
		l, m = m, l
	}
	for l.Forgotten < m.Forgotten && len(l.Appends) > 0 {
		l.Forgotten, l.Hash, l.Appends = l.Forgotten+1, foldID(l.Hash, l.Appends[0]), l.Appends[1:]
	}
	return l.Forgotten == m.Forgotten && l.Hash == m.Hash && slices.Equal(l.Appends, m.Appends) && l.Watermark == m.Watermark && l.Policy == m.Policy
}

// Subject returns what the keys of the records about the stream of that name hold, or "" if there is none.
func (c *Checker) Subject(name string) string {
	id, ok := c.names[name]
	if !ok {
		return ""
	}
	return id.String()
}

// State returns the logical state of the streams that are there, by name. Its watermark is the
// first readable offset: where policy is, the auditor's own is as far as spans happen to end.
func (c *Checker) State() map[string]Logical {
	out := make(map[string]Logical, len(c.names))
	for name, id := range c.names {
		s := c.stream(id)
		l := Logical{Forgotten: s.forgotten, Hash: s.forgottenHash, Watermark: c.Readable(name), Policy: s.rec.Policy}
		for _, r := range s.content {
			if r.index == 0 {
				l.Appends = append(l.Appends, r.id)
			}
		}
		out[name] = l
	}
	return out
}
