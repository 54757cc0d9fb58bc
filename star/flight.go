package star

import (
	"fmt"
	"time"

	"github.com/nova-store/nova/catalog"
	"github.com/nova-store/nova/clock"
	"github.com/nova-store/nova/objstore/format"
)

// pending is an append that was taken and not answered yet.
type pending struct {
	stream   catalog.StreamID
	records  []Record
	stamp    int64 // of records without a timestamp
	bytes    int   // of payload
	weight   int64 // bytes with bookkeeping
	expected *uint64
	producer *format.Producer
	parker   clock.Parker // of the caller, who waits for done

	// Guarded by Star.mu.
	order   uint64 // its place among all appends, kept by every try
	taken   bool   // its flight has left the queue
	retried bool   // a slot of an abandoned epoch may hold it
	left    bool   // its caller is gone
	done    bool
	result  AppendResult
	err     error
}

// recordWeight is what a record costs beside its payload: its slice header here and
// its framing in the flight.
const recordWeight = 48

// refused is why this try came to nothing; of an append that was tried before, that leaves
// the earlier try's outcome open.
func (p *pending) refused(why error) error {
	if p.retried {
		return fmt.Errorf("%w: an earlier try may be absorbed later; now: %w", ErrOutcomeUnknown, why)
	}
	return why
}

// timestamp of a record of p.
func (p *pending) timestamp(r *Record) int64 {
	if r.Timestamp == 0 {
		return p.stamp
	}
	return r.Timestamp
}

// flight is a group of appends on its way into one slot. It gathers in the queue,
// is built and numbered when it leaves, and lives until its slot is absorbed or
// its epoch abandoned.
type flight struct {
	sections []section
	at       map[catalog.StreamID]int
	count    int // appends
	conds    int // of them conditional
	bytes    int // of payload
	weight   int64
	since    time.Time // when its first append came

	slot   uint64
	id     [16]byte
	body   []byte // until it landed
	size   int64
	footer format.Footer
	bundle *bundle // of the records of a flight too large for its slot; nil: they are in it
	// Guarded by Star.mu.
	begun  bool  // the first PUT call of the slot may have been made
	landed bool  // known durable
	failed error // why its slot was never put: nothing of it can be absorbed
}

// section is a flight's appends to one stream, in their order.
type section struct {
	stream  catalog.StreamID
	appends []*pending
}

// join puts an append at the end of the queue: into the last flight, or into a new one
// where that would exceed the bytes of a flight or the operations of one commit. So
// every flight but the last is full. It returns whether a flight may leave for it. s.mu is held.
func (s *Star) join(p *pending) bool {
	var f *flight
	if n := len(s.queue); n > 0 {
		f = s.queue[n-1]
	}
	if f == nil || !s.fits(f, p) {
		f = &flight{at: make(map[catalog.StreamID]int), since: s.clk.Now()}
		s.queue = append(s.queue, f)
	}
	i, ok := f.at[p.stream]
	if !ok {
		i = len(f.sections)
		f.at[p.stream] = i
		f.sections = append(f.sections, section{stream: p.stream})
	}
	f.sections[i].appends = append(f.sections[i].appends, p)
	f.count++
	f.conds += p.conditional()
	f.bytes += p.bytes
	f.weight += p.weight
	return len(s.queue) > 1 || f.count == 1 || s.full(f) || s.epoch != nil && f.count == s.epoch.expected
}

func (s *Star) fits(f *flight, p *pending) bool {
	streams := len(f.sections)
	if _, ok := f.at[p.stream]; !ok {
		streams++
	}
	cost := &s.inline
	if f.bytes+p.bytes > s.opts.InlineBytes {
		cost = &s.bundled
	}
	return cost.of(streams, f.conds+p.conditional()) <= cost.most && f.weight+p.weight <= int64(s.opts.FlightBytes)
}

// conditional is 1 where the append may be turned down for what it says, else 0.
func (p *pending) conditional() int {
	if p.expected != nil || p.producer != nil {
		return 1
	}
	return 0
}

// flightCost says what a flight's absorb costs, in operations, and the most that one commit holds.
type flightCost struct{ most, stream, conditional int }

func costOf(cat *catalog.Catalog, bundled bool) (c flightCost) {
	c.stream, c.most = cat.FlightCost(true, false, bundled)
	c.conditional, _ = cat.FlightCost(false, true, bundled)
	return c
}

func (c *flightCost) of(streams, conditional int) int {
	return streams*c.stream + conditional*c.conditional
}

func (s *Star) full(f *flight) bool { return f.weight >= int64(s.opts.FlightBytes) }

// take removes the first flight from the queue, without the appends whose callers
// are gone. It is nil if none is left in it. s.mu is held.
func (s *Star) take() *flight {
	f := s.queue[0]
	s.queue[0] = nil
	s.queue = s.queue[1:]
	kept := f.sections[:0]
	f.count, f.bytes = 0, 0
	for _, sec := range f.sections {
		appends := sec.appends[:0]
		for _, p := range sec.appends {
			if !p.left {
				p.taken = true
				f.count++
				f.bytes += p.bytes
				appends = append(appends, p)
			}
		}
		if len(appends) > 0 {
			kept = append(kept, section{sec.stream, appends})
		}
	}
	if f.sections = kept; len(kept) == 0 {
		return nil
	}
	return f
}

// unqueue empties the queue and returns its appends whose callers wait. s.mu is held.
func (s *Star) unqueue() []*pending {
	var all []*pending
	for len(s.queue) > 0 {
		if f := s.take(); f != nil {
			all = append(all, f.all()...)
		}
	}
	return all
}

func (f *flight) all() []*pending {
	var all []*pending
	for i := range f.sections {
		all = append(all, f.sections[i].appends...)
	}
	return all
}

// finish answers an append, and returns it to be woken once s.mu, which is held,
// is free.
func (s *Star) finish(p *pending, result AppendResult, err error) *pending {
	p.result, p.err, p.done = result, err, true
	p.records = nil
	s.pending -= p.weight
	return p
}

func unpark(ps []*pending) {
	for _, p := range ps {
		p.parker.Unpark()
	}
}
