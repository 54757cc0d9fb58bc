package check

import (
	"slices"

	"github.com/nova-store/nova/catalog"
	"github.com/nova-store/nova/metastore"
)

// known is an append that a client has sent.
type known struct {
	stream  string
	records int
	at      uint64 // offset of its first record + 1, once absorbed
}

// stream is a stream's catalog, and what each offset holds for ever.
type stream struct {
	id       catalog.StreamID
	touched  bool
	rec      catalog.Stream
	exists   bool
	head     catalog.Head
	mark     catalog.Mark
	content  []record // by offset
	sums     []sums   // by offset
	byFirst  map[uint64]uint64
	byLast   map[uint64]span
	edges    []edge // of the spans that changed
	watchWas uint64
}

type span struct {
	first  uint64
	object string
}

// edge is where a span begins, or one past where it ends, and the key of the record
// by which it came to be looked at.
type edge struct {
	at  uint64
	key string
}

// sums are what a stream's records come to, up to an offset.
type sums struct {
	bytes        uint64
	maxTimestamp int64
}

func (c *Checker) stream(id catalog.StreamID) *stream {
	s, ok := c.streams[id]
	if !ok {
		s = &stream{id: id, byFirst: make(map[uint64]uint64), byLast: make(map[uint64]span)}
		c.streams[id] = s
	}
	return s
}

func (c *Checker) touchStream(id catalog.StreamID) *stream {
	s := c.stream(id)
	if !s.touched {
		s.touched = true
		c.touchedStreams = append(c.touchedStreams, s)
	}
	return s
}

func (c *Checker) streamChanged(kind, key string, _, now metastore.Record) {
	if kind == "name" {
		name := key[len(catalog.NamePrefix):]
		if !now.Exists() {
			delete(c.names, name)
			return
		}
		id, err := catalog.DecodeID(now.Value)
		if err != nil {
			c.fail(Bounded, key, "unreadable: %v", err)
		}
		c.names[name] = id
		return
	}
	s := c.touchStream(catalog.StreamID(parseHex(key[len(kind)+1:])))
	if !now.Exists() {
		s.exists = false
		return
	}
	var err error
	switch kind {
	case "stream":
		s.exists = true
		s.rec, err = catalog.DecodeStream(now.Value)
	case "head":
		var h catalog.Head
		if h, err = catalog.DecodeHead(now.Value); h.Next < s.head.Next || h.Bytes < s.head.Bytes || h.EvictedUpTo < s.head.EvictedUpTo {
			c.fail(Monotonic, key, "the head went back from %d to %d", s.head.Next, h.Next)
		}
		s.head = h
	case "mark":
		if s.mark, err = catalog.DecodeMark(now.Value); s.mark.Watermark < s.watchWas {
			c.fail(Monotonic, key, "the watermark went back from %d to %d", s.watchWas, s.mark.Watermark)
		}
		s.watchWas = s.mark.Watermark
	}
	if err != nil {
		c.fail(Bounded, key, "unreadable: %v", err)
	}
}

// spanChanged takes a change of a span: the new one must hold, at its offsets,
// what those offsets have always held.
func (c *Checker) spanChanged(key string, old, now metastore.Record) {
	id, _, err := catalog.ParseSpanKey(key)
	if err != nil {
		c.fail(Bounded, key, "unreadable: %v", err)
		return
	}
	s := c.touchStream(id)
	if old.Exists() {
		v, _ := catalog.DecodeSpan(old.Value)
		delete(s.byFirst, v.First)
		delete(s.byLast, v.Last())
		s.edges = append(s.edges, edge{v.First, key}, edge{v.Last() + 1, key})
		o := c.touchObject(v.Object)
		o.spans--
		o.held -= v.Count
	}
	if !now.Exists() {
		return
	}
	v, err := catalog.DecodeSpan(now.Value)
	if err != nil {
		c.fail(Bounded, key, "unreadable: %v", err)
		return
	}
	s.byFirst[v.First] = v.Last()
	s.byLast[v.Last()] = span{v.First, v.Object}
	s.edges = append(s.edges, edge{v.First, key}, edge{v.Last() + 1, key})
	o := c.touchObject(v.Object)
	o.spans++
	o.held += v.Count
	ids, ok := c.held(key, id, &v)
	if !ok {
		return
	}
	if c.holds(key, s, v.First, ids) {
		c.sums(key, s, &v)
	}
}

// sums compares what a span says of its records, from which retention and seeks by time
// are told, with the records.
func (c *Checker) sums(key string, s *stream, v *catalog.Span) {
	before := sums{}
	if v.First > 0 {
		before = s.sums[v.First-1]
	}
	end := s.sums[v.Last()]
	if v.Bytes != end.bytes-before.bytes || v.BytePos != end.bytes || v.MaxTimestamp != end.maxTimestamp || v.FirstTimestamp != s.content[v.First].timestamp {
		c.fail(Dangling, key, "the span says %d bytes up to %d and times %d to %d; its records have %d up to %d and %d to %d", v.Bytes, v.BytePos,
			v.FirstTimestamp, v.MaxTimestamp, end.bytes-before.bytes, end.bytes, s.content[v.First].timestamp, end.maxTimestamp)
	}
}

// holds compares what a span holds with what its offsets hold for ever, and takes
// new offsets in.
func (c *Checker) holds(key string, s *stream, first uint64, ids []record) bool {
	for i, r := range ids {
		at := first + uint64(i)
		switch {
		case at < uint64(len(s.content)):
			if s.content[at] != r {
				c.fail(Lost, key, "offset %d held record %d of append %d and now holds record %d of append %d",
					at, s.content[at].index, s.content[at].id, r.index, r.id)
				return false
			}
			continue
		case at > uint64(len(s.content)):
			c.fail(Lost, key, "offset %d appears before %d", at, len(s.content))
			return false
		}
		k := c.known[r.id]
		switch {
		case k == nil || int(r.count) != k.records:
			c.fail(Lost, key, "offset %d holds a record of append %d, which nobody sent", at, r.id)
			return false
		case k.stream != s.rec.Name:
			c.fail(Lost, key, "offset %d of stream %q holds a record of append %d, which was sent to %q", at, s.rec.Name, r.id, k.stream)
			return false
		case r.index == 0 && k.at != 0:
			c.fail(Lost, key, "append %d appears at offset %d and again at %d", r.id, k.at-1, at)
			return false
		case r.index == 0:
			k.at = at + 1
		case k.at+uint64(r.index) != at+1:
			c.fail(Lost, key, "record %d of append %d appears at offset %d, its first at %d", r.index, r.id, at, int64(k.at)-1)
			return false
		}
		sum := sums{uint64(r.size), r.timestamp}
		if at > 0 {
			sum = sums{s.sums[at-1].bytes + uint64(r.size), max(s.sums[at-1].maxTimestamp, r.timestamp)}
		}
		s.content, s.sums = append(s.content, r), append(s.sums, sum)
	}
	return true
}

// judgeStream is that the spans tile the stream without a gap, from the watermark to
// the next offset, and that no append is there in part.
func (c *Checker) judgeStream(s *stream) {
	if !s.exists || s.rec.State != catalog.StreamActive {
		s.edges = s.edges[:0]
		return
	}
	if s.head.Next != uint64(len(s.content)) {
		c.fail(Lost, catalog.HeadKey(s.id), "the next offset is %d, the catalog holds %d", s.head.Next, len(s.content))
	}
	if s.mark.Watermark > s.head.Next {
		c.fail(Lost, catalog.MarkKey(s.id), "the watermark %d is beyond the next offset %d", s.mark.Watermark, s.head.Next)
	}
	s.edges = append(s.edges, edge{s.head.Next, catalog.HeadKey(s.id)})
	for _, edge := range s.edges {
		e := edge.at
		if e <= s.mark.Watermark {
			continue
		}
		// Every edge above the watermark has a span that ends there and, but for the end, one that begins.
		_, ends := s.byLast[e-1]
		_, begins := s.byFirst[e]
		if ends != begins && e != s.head.Next || e == s.head.Next && (!ends || begins) {
			c.fail(Lost, edge.key, "a gap in the catalog of stream %q at offset %d", s.rec.Name, e)
			break
		}
	}
	s.edges = s.edges[:0]
	if n := len(s.content); n > 0 && s.content[n-1].index+1 != s.content[n-1].count {
		c.fail(Lost, catalog.HeadKey(s.id), "append %d is there in part", s.content[n-1].id)
	}
}

// Sending notes that a client is about to send an append of so many records.
func (c *Checker) Sending(id uint64, stream string, records int) {
	c.known[id] = &known{stream: stream, records: records}
}

// Acknowledged judges an answer: the append is at these offsets, now and for ever.
// An answer without offsets (an old duplicate) says only that it is there.
func (c *Checker) Acknowledged(id uint64, stream catalog.StreamID, first, last uint64, offsetsKnown bool) {
	k := c.known[id]
	key := catalog.HeadKey(stream)
	switch {
	case k == nil:
		c.fail(Lost, key, "append %d was acknowledged, but never sent", id)
	case k.at == 0:
		c.fail(Lost, key, "append %d was acknowledged before it was absorbed", id)
	case c.names[k.stream] != stream:
		c.fail(Lost, key, "append %d to %q was acknowledged by another stream", id, k.stream)
	case !offsetsKnown:
	case k.at-1 != first || last != first+uint64(k.records)-1:
		c.fail(Lost, key, "append %d was acknowledged at %d to %d and is at %d", id, first, last, k.at-1)
	}
}

// Refused judges an answer that says that the append is not there and never will be.
func (c *Checker) Refused(id uint64, stream string) {
	if k := c.known[id]; k != nil && k.at != 0 {
		c.fail(Lost, stream, "append %d was refused and is at offset %d", id, k.at-1)
	}
	delete(c.known, id) // should it appear later, nobody has sent it
}

// Next returns how many offsets of the stream have been absorbed: a read that begins
// now must see at least these.
func (c *Checker) Next(stream string) uint64 {
	id, ok := c.names[stream]
	if !ok {
		return 0
	}
	return uint64(len(c.stream(id).content))
}

// Watermark returns the stream's first readable offset.
func (c *Checker) Watermark(stream string) uint64 {
	id, ok := c.names[stream]
	if !ok {
		return 0
	}
	return c.stream(id).mark.Watermark
}

// Read judges what a reader was given from an offset on: what those offsets hold, in
// order, without a gap.
func (c *Checker) Read(stream catalog.StreamID, first uint64, payloads [][]byte) {
	s := c.stream(stream)
	key := catalog.HeadKey(stream)
	for i, p := range payloads {
		at := first + uint64(i)
		id, index, count, ok := parsePayload(p)
		switch {
		case !ok:
			c.fail(Lost, key, "a reader was given wrong bytes at offset %d", at)
			return
		case at >= uint64(len(s.content)):
			c.fail(Lost, key, "a reader was given offset %d before it was absorbed", at)
			return
		case s.content[at].recordID != recordID{id, index, count}:
			c.fail(Lost, key, "a reader was given record %d of append %d at offset %d, which holds record %d of append %d",
				index, id, at, s.content[at].index, s.content[at].id)
			return
		}
	}
}

// Logical is a stream's logical state.
type Logical struct {
	Appends   []uint64 // in order
	Watermark uint64
	Policy    catalog.Policy
}

// Equal tells whether two states are the same.
func (l Logical) Equal(m Logical) bool {
	return slices.Equal(l.Appends, m.Appends) && l.Watermark == m.Watermark && l.Policy == m.Policy
}

// State returns the logical state of the streams that are there, by name.
func (c *Checker) State() map[string]Logical {
	out := make(map[string]Logical, len(c.names))
	for name, id := range c.names {
		s := c.stream(id)
		l := Logical{Watermark: s.mark.Watermark, Policy: s.rec.Policy}
		for _, r := range s.content {
			if r.index == 0 {
				l.Appends = append(l.Appends, r.id)
			}
		}
		out[name] = l
	}
	return out
}
