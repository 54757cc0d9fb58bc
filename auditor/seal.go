package auditor

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/nova-store/nova/catalog"
	"github.com/nova-store/nova/objstore"
	"github.com/nova-store/nova/objstore/format"
)

// absorbSlots bounds the slots that wait for one call of absorb; only their footers are held.
const absorbSlots = 64

// sealing is one run over a fenced chain: steps 4 to 7 of settle.
type sealing struct {
	a       *Auditor
	j       *Job
	fence   catalog.Fence
	pending []catalog.SlotIn // consecutive, from the checkpoint on
	damaged bool             // the absorb has ended
}

// slotFate is what a look at a slot found or made.
type slotFate uint8

const (
	slotHolds   slotFate = iota // a flight's slot
	slotSealed                  // a seal, put now or by an earlier run
	slotDamaged                 // neither, in every one of several reads
)

func (s *sealing) run(ctx context.Context) (catalog.ChainAt, error) {
	slot := s.fence.Chain.Chain.Checkpoint
	for ; ; slot++ {
		fate, in, err := s.look(ctx, slot)
		if err != nil {
			return catalog.ChainAt{}, err
		}
		if fate == slotSealed {
			break
		}
		if fate == slotDamaged || s.damaged {
			continue
		}
		if s.pending = append(s.pending, in); len(s.pending) == absorbSlots {
			if err := s.absorb(ctx); err != nil {
				return catalog.ChainAt{}, err
			}
		}
	}
	if err := s.absorbAll(ctx); err != nil {
		return catalog.ChainAt{}, err
	}
	if err := s.announce(ctx, slot); err != nil {
		return catalog.ChainAt{}, err
	}
	end := slot + max(s.fence.Chain.Chain.Window, 1)
	for p := slot + 1; p < end; p++ {
		if err := s.seal(ctx, p); err != nil {
			return catalog.ChainAt{}, err
		}
	}
	return s.a.cat.SealChain(ctx, s.fence.Chain, slot, end)
}

func (s *sealing) absorbAll(ctx context.Context) error {
	for len(s.pending) > 0 {
		if err := s.absorb(ctx); err != nil {
			return err
		}
	}
	return nil
}

// announce notes, before the seal of a slot is put, that it and the W−1 after it may be.
func (s *sealing) announce(ctx context.Context, slot uint64) error {
	at, err := s.a.cat.AnnounceSeals(ctx, s.fence.Chain, slot+max(s.fence.Chain.Chain.Window, 1))
	if err == nil {
		s.fence.Chain = at
	}
	return err
}

// look tells what a slot holds; an empty one is sealed. What it finds stays: objects
// are put if-absent, and nobody deletes one at or above the checkpoint.
func (s *sealing) look(ctx context.Context, slot uint64) (slotFate, catalog.SlotIn, error) {
	id := s.fence.Chain.ID
	for try := 1; ; try++ {
		body, f, err := s.a.readSlot(ctx, id, slot)
		switch {
		case err == nil && f.Kind == format.KindSeal:
			return slotSealed, catalog.SlotIn{}, nil
		case err == nil:
			if f.Bundled && !s.damaged {
				err = s.verifyBundle(ctx, slot, body, &f)
			}
			if isCorrupt(err) {
				return s.damage(slot, err)
			}
			return slotHolds, catalog.SlotIn{Slot: slot, Size: int64(len(body)), Footer: &f}, err
		case isCorrupt(err):
			return s.damage(slot, err)
		case !errors.Is(err, objstore.ErrNotFound):
			if !errors.Is(err, objstore.ErrThrottled) || try == tries {
				return 0, catalog.SlotIn{}, err
			}
		default:
			later, err := s.later(ctx, slot)
			if err != nil {
				return 0, catalog.SlotIn{}, err
			}
			if later != 0 {
				if try < reads {
					break // look again
				}
				return s.damage(slot, fmt.Errorf("it is missing, though slot %d is there: it was durable once", later))
			}
			// First what is known to lie below: where reading it took so long that the seal comes too late, the
			// next run begins behind it.
			if err := s.absorbAll(ctx); err != nil {
				return 0, catalog.SlotIn{}, err
			}
			if err := s.announce(ctx, slot); err != nil {
				return 0, catalog.SlotIn{}, err
			}
			err = s.put(ctx, slot)
			switch {
			case err == nil:
				return slotSealed, catalog.SlotIn{}, nil
			case !again(err) && !errors.Is(err, objstore.ErrExists) || try == tries:
				return 0, catalog.SlotIn{}, err
			}
			// Something is there now, a late flight perhaps, or this very seal: look.
		}
		if err := s.a.pause(ctx, try); err != nil {
			return 0, catalog.SlotIn{}, err
		}
	}
}

// damage ends the absorb: nothing from the slot on was acknowledged, and nothing from there on is
// absorbed.
func (s *sealing) damage(slot uint64, why error) (slotFate, catalog.SlotIn, error) {
	if !s.damaged {
		s.damaged = true
		key := catalog.SlotKey(s.fence.Chain.ID, slot)
		s.a.log.Warn("a dead chain's slot is damaged: nothing from there on was acknowledged, and nothing from there on is absorbed",
			"object", key, "error", why)
		s.j.emit(Event{Action: SlotDamaged, Chain: s.fence.Chain.ID, Object: key, From: slot, To: slot + 1})
	}
	return slotDamaged, catalog.SlotIn{}, nil
}

// verifyBundle reads the bundle of a slot whole, as slots are read, before anything comes to name it. It was
// durable before its slot was put, and nobody deletes it while the slot may be absorbed (catalog/bundle.go): one that
// is missing, corrupt, or not what the slot indexes, in every one of several reads, is damage, of
// the same kind as the slot's own.
func (s *sealing) verifyBundle(ctx context.Context, slot uint64, index []byte, f *format.Footer) error {
	key := catalog.BundleKey(s.fence.Chain.ID, slot, f.Flight)
	for read := 1; ; read++ {
		_, footer, err := s.a.readObject(ctx, key)
		switch {
		case err == nil:
			want, _, err := format.BundleIndex(footer)
			if err != nil || !bytes.Equal(want, index) {
				return &format.CorruptError{Object: key, Reason: fmt.Sprintf("it is not the bundle that slot %d indexes", slot)}
			}
			return nil
		case !errors.Is(err, objstore.ErrNotFound):
			return err
		case read == reads:
			return &format.CorruptError{Object: key, Reason: fmt.Sprintf("it is missing, though slot %d is there", slot)}
		}
		if err := s.a.pause(ctx, read); err != nil {
			return err
		}
	}
}

// later returns a slot that is there and could not be if slot had never been durable, or 0.
//
// Slots being PUT are below the first not known durable + W, and that is the first gap at the
// latest. So nothing at or beyond slot + W says that slot is such a gap; and where it was
// durable and got lost, the star may have gone on for any length. It then left no gap up to its own first slot not
// known durable, so that one of the next W is there, or else its last PUTs all lie below slot + W, in the
// window that is sealed and goes with the chain.
func (s *sealing) later(ctx context.Context, slot uint64) (uint64, error) {
	w := max(s.fence.Chain.Chain.Window, 1)
	for at, try := slot+w, 1; at < slot+2*w; {
		_, err := s.a.bucket.stat(ctx, catalog.SlotKey(s.fence.Chain.ID, at))
		switch {
		case err == nil:
			return at, nil
		case errors.Is(err, objstore.ErrNotFound):
			at, try = at+1, 1
			continue
		case !errors.Is(err, objstore.ErrThrottled) || try == tries:
			return 0, err
		}
		if err := s.a.pause(ctx, try); err != nil {
			return 0, err
		}
		try++
	}
	return 0, nil
}

// seal fills a slot of the window: with a seal, or it is full already. What is there
// does not matter.
func (s *sealing) seal(ctx context.Context, slot uint64) error {
	for try := 1; ; try++ {
		err := s.put(ctx, slot)
		switch {
		case err == nil || errors.Is(err, objstore.ErrExists):
			return nil
		case !again(err) || try == tries:
			return err
		}
		if err := s.a.pause(ctx, try); err != nil {
			return err
		}
	}
}

// put puts a seal if-absent, unless this run is past the time given to its seals: a
// run that slept may wake when the chain is retired, and its seal would be watched by nobody.
func (s *sealing) put(ctx context.Context, slot uint64) error {
	if s.a.late(s.fence.NotAfter) {
		return errLate
	}
	id := s.fence.Chain.ID
	return s.a.bucket.put(ctx, catalog.SlotKey(id, slot), format.Seal(id.Star, id.Epoch, slot), objstore.PutOptions{NotAfter: s.fence.NotAfter})
}

// again tells whether a put may be tried again, to find out what became of it.
func again(err error) bool {
	return errors.Is(err, objstore.ErrUnknown) || errors.Is(err, objstore.ErrThrottled)
}

// absorb absorbs as many of the pending slots as one commit holds.
func (s *sealing) absorb(ctx context.Context) error {
	out, err := s.a.cat.Absorb(ctx, catalog.AbsorbRequest{Chain: s.fence.Chain.ID, Slots: s.pending, Fence: &s.fence})
	if errors.Is(err, catalog.ErrFenced) {
		return fmt.Errorf("another run took over: %w (%w)", catalog.ErrMoved, err)
	}
	if errors.Is(err, catalog.ErrIntentLost) {
		// Its bundle may be gone at any moment, and what lies behind it waits for its verdicts.
		slot := s.pending[0].Slot
		s.pending = nil
		_, _, err = s.damage(slot, err)
		return err
	}
	if err != nil {
		return err
	}
	from := s.pending[0].Slot
	s.j.emit(Event{Action: SlotsAbsorbed, Chain: s.fence.Chain.ID, From: from, To: from + uint64(out.Slots), Count: out.Slots})
	s.fence.Chain = out.Chain
	s.pending = s.pending[out.Slots:]
	return nil
}
