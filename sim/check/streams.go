package check

import (
	"time"

	"github.com/nova-store/nova/catalog"
	"github.com/nova-store/nova/metastore"
)

// stream is a stream's catalog, and what each offset holds for ever.
type stream struct {
	id      catalog.StreamID
	touched bool
	rec     catalog.Stream
	has     records // that are there
	gone    bool    // all three were there, and are gone for ever
	head    catalog.Head
	mark    catalog.Mark
	// What offsets hold, from base on; see forget.
	base    uint64
	content []record
	sums    []sums
	below   sums // up to base
	byFirst map[uint64]uint64
	byLast  map[uint64]span
	edges   []edge // of the spans that changed

	was        catalog.Stream // as the commit before left it, with its watermark
	watchWas   uint64
	watchBytes uint64
	trims      []*TrimAsk // that clients have asked for, and were neither refused nor acknowledged, nor below one that was
	trimmedTo  uint64     // the farthest that was acknowledged
	floor      uint64     // offsets below had expired on every clock when a policy was replaced
	ceil       uint64     // likewise, on some clock
	retentions []string
	teardowns  int

	activeSince time.Time // it was made, or its deletion was undone
	deletedAt   time.Time // by the clock of whoever deleted it
	deleteFrom  time.Time // when the first of those asked who have asked since it is active; zero: nobody
	deletes     int       // clients that ask for its deletion at this moment

	asks []*PolicyAsk // under way, or of unknown outcome
	born catalog.Policy

	// Offsets below leaving are forgotten once the first leavingSince reads are judged.
	leaving, leavingSince uint64
	forgotten             int    // appends
	forgottenHash         uint64 // of their ids
}

// next returns how many offsets have been absorbed.
func (s *stream) next() uint64 { return s.base + uint64(len(s.content)) }

// upTo returns the sums of the records below an offset, which must not lie below base.
func (s *stream) upTo(at uint64) sums {
	if at == s.base {
		return s.below
	}
	return s.sums[at-s.base-1]
}

// records tells which of a stream's three records are there.
type records uint8

const (
	streamRecord records = 1 << iota
	headRecord
	markRecord
	allRecords = streamRecord | headRecord | markRecord
)

// active tells whether the stream may be appended to and read.
func (s *stream) active() bool { return s.has == allRecords && s.rec.State == catalog.StreamActive }

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
		c.nameChanged(key, now)
		return
	}
	bit := markRecord
	switch kind {
	case "stream":
		bit = streamRecord
	case "head":
		bit = headRecord
	}
	s := c.touchStream(catalog.StreamID(parseHex(key[len(kind)+1:])))
	if !now.Exists() {
		s.has &^= bit
		return
	}
	s.has |= bit
	if s.gone {
		c.fail(Lost, key, "a record of a stream that was torn down appears again")
	}
	var err error
	switch kind {
	case "stream":
		s.rec, err = catalog.DecodeStream(now.Value)
	case "head":
		var h catalog.Head
		if h, err = catalog.DecodeHead(now.Value); h.Next < s.head.Next || h.Bytes < s.head.Bytes || h.EvictedUpTo < s.head.EvictedUpTo {
			c.fail(Monotonic, key, "the head went back from %d to %d", s.head.Next, h.Next)
		}
		if len(h.Producers) > catalog.MaxProducers {
			c.fail(Bounded, key, "the head remembers %d producers", len(h.Producers))
		}
		s.head = h
	case "mark":
		s.mark, err = catalog.DecodeMark(now.Value)
	}
	if err != nil {
		c.fail(Bounded, key, "unreadable: %v", err)
	}
}

func (c *Checker) nameChanged(key string, now metastore.Record) {
	name := key[len(catalog.NamePrefix):]
	if id, ok := c.names[name]; ok {
		c.touchStream(id)
		delete(c.names, name)
	}
	if !now.Exists() {
		return
	}
	id, err := catalog.DecodeID(now.Value)
	if err != nil {
		c.fail(Bounded, key, "unreadable: %v", err)
	}
	c.names[name] = id
	c.touchStream(id)
	for _, a := range c.creating {
		if a.name == name {
			a.ids = append(a.ids, id)
		}
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
		o.live -= uint64(v.Length)
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
	o.live += uint64(v.Length)
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
	before, first, end := s.upTo(v.First), s.upTo(v.First+1), s.upTo(v.Last()+1)
	if v.Bytes != end.bytes-before.bytes || v.BytePos != end.bytes || v.MaxTimestamp != end.maxTimestamp || v.FirstTimestamp != first.maxTimestamp {
		c.fail(Dangling, key, "the span says %d bytes up to %d and times %d to %d; its records have %d up to %d and %d to %d", v.Bytes, v.BytePos,
			v.FirstTimestamp, v.MaxTimestamp, end.bytes-before.bytes, end.bytes, first.maxTimestamp, end.maxTimestamp)
	}
}

// holds compares what a span holds with what its offsets hold for ever, and takes
// new offsets in.
func (c *Checker) holds(key string, s *stream, first uint64, ids []record) bool {
	for i, r := range ids {
		at := first + uint64(i)
		switch {
		case at < s.base:
			c.fail(Lost, key, "offset %d is there again; it was trimmed, and its span was gone", at)
			return false
		case at < s.next():
			if held := s.content[at-s.base]; held != r {
				c.fail(Lost, key, "offset %d held record %d of append %d and now holds record %d of append %d",
					at, held.index, held.id, r.index, r.id)
				return false
			}
			continue
		case at > s.next():
			c.fail(Lost, key, "offset %d appears before %d", at, s.next())
			return false
		}
		k := c.known[r.id]
		place := uint64(0)
		if k != nil {
			place = k.place(s.id)
		}
		switch {
		case k == nil || int(r.count) != k.records:
			c.fail(Lost, key, "offset %d holds a record of append %d, which nobody sent", at, r.id)
			return false
		case k.stream != s.rec.Name:
			c.fail(Lost, key, "offset %d of stream %q holds a record of append %d, which was sent to %q", at, s.rec.Name, r.id, k.stream)
			return false
		case r.index == 0 && place != 0:
			c.fail(Lost, key, "append %d appears at offset %d and again at %d", r.id, place-1, at)
			return false
		case r.index == 0 && k.at != 0 && !k.repeated:
			c.fail(Lost, key, "append %d, which was sent once, appears in a second stream of that name", r.id)
			return false
		case r.index == 0:
			k.appears(s.id, at)
		case place+uint64(r.index) != at+1:
			c.fail(Lost, key, "record %d of append %d appears at offset %d, its first at %d", r.index, r.id, at, int64(place)-1)
			return false
		}
		sum := sums{uint64(r.size), r.timestamp}
		if at > 0 {
			before := s.upTo(at)
			sum = sums{before.bytes + uint64(r.size), max(before.maxTimestamp, r.timestamp)}
		}
		s.content, s.sums = append(s.content, r), append(s.sums, sum)
	}
	return true
}

// judgeStream is what must hold of a stream after a commit that touched it.
func (c *Checker) judgeStream(s *stream) {
	c.judgeLife(s)
	if s.has == allRecords {
		c.judgePolicy(s)
		c.judgeMark(s)
		c.judgeTiles(s)
	}
	s.edges = s.edges[:0]
	s.was = s.rec
	c.forget(s)
}

// judgeTiles is that the spans tile the stream without a gap, from the watermark to the
// next offset, and that no append is there in part. A deleted stream may yet come back; of one that
// is torn down spans go in any order.
func (c *Checker) judgeTiles(s *stream) {
	if s.rec.State == catalog.StreamTearing {
		return
	}
	if s.head.Next != s.next() {
		c.fail(Lost, catalog.HeadKey(s.id), "the next offset is %d, the catalog holds %d", s.head.Next, s.next())
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
	if n := len(s.content); n > 0 && s.content[n-1].index+1 != s.content[n-1].count {
		c.fail(Lost, catalog.HeadKey(s.id), "append %d is there in part", s.content[n-1].id)
	}
}
