package star

import (
	"context"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/nova-store/nova/catalog"
	"github.com/nova-store/nova/objstore/format"
)

// depart is the task that lets flights leave, one after the other: it alone gives
// out slot numbers.
func (s *Star) depart(ctx context.Context, e *epoch) {
	for {
		gen := s.kick.Generation()
		f, wait, done := s.departure(e)
		switch {
		case done:
			s.fence(e, errDrained)
			return
		case f != nil:
			s.launch(ctx, e, f)
		case wait > 0:
			lingering, cancel := s.clk.WithTimeout(ctx, wait)
			// Its end is as good as a kick.
			_ = s.kick.Wait(lingering, gen)
			cancel()
		default:
			// A ctx that ended is seen below.
			_ = s.kick.Wait(ctx, gen)
		}
		if ctx.Err() != nil {
			return
		}
	}
}

// departure takes the next flight if it may leave now, or tells how long it would linger
// (0: until a kick); done: a drain has nothing left to wait for.
//
// A flight leaves at once while none is in the air, so that a lone client never
// waits, else when it has lingered. It is held back while its slot would not be below
// the first one not known durable + W, since the settle duty seals no more than W
// slots of a dead chain; while 4 W slots wait to be absorbed; and while its PUT would
// have less than a third of the TTL before its NotAfter: the next beat kicks it.
func (s *Star) departure(e *epoch) (f *flight, wait time.Duration, done bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e.fenced != nil {
		return nil, 0, false
	}
	w := uint64(s.opts.Window)
	for len(s.queue) > 0 {
		now := s.clk.Now()
		if e.next >= e.durable+w || e.next >= e.absorbed+4*w {
			return nil, 0, false
		}
		if ttl := s.cat.Timing().SessionTTL; !s.opts.Embedded && now.Sub(e.held) >= ttl-ttl/3 {
			return nil, 0, false
		}
		if wait := s.linger(e, s.queue[0], now); wait > 0 {
			return nil, wait, false
		}
		if f := s.take(); f != nil {
			return f, 0, false
		}
	}
	return nil, 0, s.drain.IsSet() && e.next == e.absorbed
}

// linger is how long the first flight of the queue still waits for company. It does
// so while another is in the air.
//
// Those who append in a closed loop come back together: a flight that left with the
// first of them would make the others wait for its PUT. So, where the appends
// answered last, or about to be answered, were several, a flight waits for as many to
// join those that it holds already, until a tenth of the linger after they were
// answered. A lone client's are never several.
func (s *Star) linger(e *epoch, f *flight, now time.Time) time.Duration {
	if len(s.queue) > 1 || s.full(f) || s.drain.IsSet() {
		return 0
	}
	// A clock that went back must not make a wait longer.
	left := func(d time.Duration, since time.Time) time.Duration { return min(d-now.Sub(since), d) }
	if e.next > e.durable || e.landed > 1 {
		return left(s.opts.Linger, f.since)
	}
	if e.answered > 1 && f.count < e.expected {
		return left(s.opts.Linger/10, e.answeredAt)
	}
	return 0
}

// launch builds the flight's slot, numbers it and starts its PUT in a task of its own.
func (s *Star) launch(ctx context.Context, e *epoch, f *flight) {
	// Nobody else moves next.
	if err := s.build(e, f, e.next); err != nil {
		s.fail(f, fmt.Errorf("building slot %d of %s: %w", e.next, e.chain, err))
		return
	}
	s.mu.Lock()
	if e.fenced != nil {
		s.requeue(f.all())
		s.mu.Unlock()
		return
	}
	e.next++
	e.flights = append(e.flights, f)
	first := e.durable
	s.mu.Unlock()
	s.events.Departed(e.chain, f.slot, first, len(f.body)+f.bundle.length())
	// A group without a limit starts the task at once.
	_ = e.tasks.Go(ctx, "star.fly", func(ctx context.Context) error {
		s.fly(ctx, e, f)
		return nil
	})
}

// build writes the flight's slot, or its bundle and the slot that indexes it: a section for each
// stream, with its appends in their order.
func (s *Star) build(e *epoch, f *flight, slot uint64) error {
	f.slot = slot
	binary.LittleEndian.PutUint64(f.id[:8], s.clk.Rand())
	binary.LittleEndian.PutUint64(f.id[8:], s.clk.Rand())
	w := e.writer
	if f.bytes > s.opts.InlineBytes {
		if e.bundler == nil {
			e.bundler = format.NewWriter(format.KindBundle, s.opts.Codec)
		}
		w = e.bundler
	}
	w.Reset()
	w.Grow(f.bytes + f.bytes/16)
	w.SetSlot(e.chain.Star, e.chain.Epoch, slot, f.id)
	for i := range f.sections {
		sec := &f.sections[i]
		w.Begin(uint64(sec.stream), 0)
		for _, p := range sec.appends {
			for j := range p.records {
				r := &p.records[j]
				w.Add(p.timestamp(r), r.Data)
			}
			var a format.Append
			if p.expected != nil {
				a.HasExpected, a.Expected = true, *p.expected
			}
			if p.producer != nil {
				a.HasProducer, a.Producer = true, *p.producer
			}
			w.EndAppend(a)
		}
	}
	body, footer, err := w.Finish()
	if err == nil && footer.Kind == format.KindBundle {
		f.bundle = &bundle{object: catalog.BundleKey(e.chain, slot, f.id), body: body}
		body, footer, err = format.BundleIndex(footer)
	}
	f.body, f.footer, f.size = body, footer, int64(len(body))
	return err
}

// fail answers every append of a flight that never left.
func (s *Star) fail(f *flight, err error) {
	s.mu.Lock()
	woken := f.all()
	for _, p := range woken {
		s.finish(p, AppendResult{Stream: p.stream}, p.refused(err))
	}
	s.mu.Unlock()
	unpark(woken)
}

// slotKey of a flight that was numbered.
func (e *epoch) slotKey(f *flight) string { return catalog.SlotKey(e.chain, f.slot) }
