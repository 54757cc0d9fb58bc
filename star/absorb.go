package star

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/nova-store/nova/catalog"
	"github.com/nova-store/nova/clock"
)

// Backoff between absorbs while the store is unavailable.
const (
	absorbRetryFirst = 20 * time.Millisecond
	absorbRetryMost  = time.Second
)

// absorb is the task that commits released slots, in order, as many at once as one
// commit holds, and answers their appends: after the commit and never before it.
//
// A crash before the commit leaves released slots, which the settle duty absorbs just
// as this task would have, since verdicts depend on the store's records alone. After it
// the records are visible, whether their producers were told or not.
//
// When the chain is not this star's to absorb any more, its slots may have been
// absorbed by the settle duty, with other offsets than the ones this task would have
// given: nothing is acknowledged, and the epoch is abandoned.
func (s *Star) absorb(ctx context.Context, e *epoch) {
	delay := absorbRetryFirst
	for {
		gen := e.released.Generation()
		s.mu.Lock()
		flights := slices.Clone(e.flights[:e.durable-e.absorbed])
		s.mu.Unlock()
		if len(flights) == 0 {
			if e.released.Wait(ctx, gen) != nil {
				return
			}
			continue
		}
		in := make([]catalog.SlotIn, len(flights))
		for i, f := range flights {
			in[i] = catalog.SlotIn{Slot: f.slot, Size: f.size, Footer: &f.footer}
			if f.bundle != nil {
				in[i].Intent = f.bundle.intent
			}
		}
		out, err := s.cat.Absorb(ctx, catalog.AbsorbRequest{Chain: e.chain, Slots: in, Cache: e.cache})
		switch {
		case err == nil:
			delay = absorbRetryFirst
			s.absorbed(e, flights[:out.Slots], &out)
		case ctx.Err() != nil:
			return
		case transient(err):
			// If a lost try landed after all, the next one finds the checkpoint moved.
			s.events.Branch("star.absorb.retry")
			s.log.Warn("absorb failed, trying again", "chain", e.chain.String(), "slot", flights[0].slot, "error", err)
			if s.clk.Sleep(ctx, clock.Jitter(s.clk, delay)) != nil {
				return
			}
			delay = min(2*delay, absorbRetryMost)
		default:
			s.events.Branch("star.absorb.fenced")
			s.fence(e, err)
			return
		}
	}
}

// absorbed answers the appends of slots that were absorbed.
func (s *Star) absorbed(e *epoch, flights []*flight, out *catalog.Absorbed) {
	n := 0
	for i, f := range flights {
		for j := range f.sections {
			sec := &f.sections[j]
			n += len(sec.appends)
			for k, p := range sec.appends {
				if v := out.Verdicts[i][j][k]; v.Code == catalog.Accepted {
					s.window.add(p, v.First)
					s.follows.advanced(p.stream, v.Last+1)
				}
			}
		}
	}
	woken := make([]*pending, 0, n)
	now := s.clk.Now()
	s.mu.Lock()
	for i, f := range flights {
		for j := range f.sections {
			for k, p := range f.sections[j].appends {
				result, err := outcome(p, out.Verdicts[i][j][k])
				woken = append(woken, s.finish(p, result, err))
			}
		}
		e.landed -= f.count
		e.flights[i] = nil
	}
	e.flights = e.flights[len(flights):]
	e.absorbed += uint64(len(flights))
	e.answered, e.expected, e.answeredAt = n, n, now
	if len(s.queue) > 0 {
		e.expected += s.queue[0].count
	}
	checkpoint := e.absorbed
	s.mu.Unlock()
	s.events.Absorbed(e.chain, len(flights), checkpoint)
	unpark(woken)
	s.kick.Raise()
	e.grew.Raise()
	if out.Owed > s.cat.Timing().SettleOwedBytes {
		e.owes.Raise()
	}
}

// outcome turns a verdict into an answer.
//
// Of an append that was tried before, a rejection is only final where the earlier
// slot must meet the same one whenever it is absorbed: a next offset does not go back, though it
// may yet come to the one expected; a producer that is not at its first append is known as fenced, or not
// at all. A deleted stream may come back, and a gap may be closed.
func outcome(p *pending, v catalog.Verdict) (AppendResult, error) {
	r := AppendResult{Stream: p.stream}
	switch v.Code {
	case catalog.Accepted:
		r.First, r.Last, r.OffsetsKnown = v.First, v.Last, true
		return r, nil
	case catalog.Duplicate:
		r.First, r.Last, r.OffsetsKnown, r.Duplicate = v.First, v.Last, true, true
		return r, nil
	case catalog.DuplicateUnknown:
		r.Duplicate = true
		return r, nil
	case catalog.WrongOffset:
		err := &WrongOffsetError{Stream: p.stream, Expected: *p.expected, Next: v.Next}
		if *p.expected < v.Next {
			return r, err
		}
		return r, p.refused(err)
	case catalog.ProducerFenced:
		err := fmt.Errorf("%w: producer %q, epoch %d", ErrProducerFenced, p.producer.ID, p.producer.Epoch)
		if p.producer.Seq > 0 {
			return r, err
		}
		return r, p.refused(err)
	case catalog.ProducerLost:
		return r, fmt.Errorf("%w: producer %q", ErrProducerLost, p.producer.ID)
	case catalog.ProducerGap:
		return r, p.refused(&ProducerGapError{Producer: p.producer.ID, Seq: p.producer.Seq, Next: v.Next})
	case catalog.Unreadable:
		// It may be repaired, and an earlier slot be judged then.
		return r, p.refused(fmt.Errorf("%s or %s: %w", catalog.StreamKey(p.stream), catalog.HeadKey(p.stream), catalog.ErrCorruptValue))
	case catalog.NoStream:
		return r, p.refused(fmt.Errorf("%w: id %v", catalog.ErrNoStream, p.stream))
	}
	return r, fmt.Errorf("verdict %v: %w", v.Code, ErrOutcomeUnknown)
}
