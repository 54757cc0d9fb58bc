package star

import (
	"context"
	"errors"
	"fmt"

	"github.com/nova-store/nova/clock"
	"github.com/nova-store/nova/metastore"
	"github.com/nova-store/nova/objstore"
)

// bundle is the object that holds the records of a flight too large for its slot. Of its
// flight's task, but for what the absorber reads once the slot is durable.
type bundle struct {
	object string
	body   []byte            // until it is durable
	intent metastore.Version // that announced it
}

// length is 0 of a flight without a bundle.
func (b *bundle) length() int {
	if b == nil {
		return 0
	}
	return len(b.body)
}

// flyBundle announces and puts the flight's bundle, and returns whether its slot may be put now.
//
// A crash before the intent leaves nothing; after it, with the bundle or without, an intent that the orphan duty
// judges once the chain can't absorb the slot any more (catalog/bundle.go has the whole
// argument). No slot names the bundle before it is durable: whoever absorbs the slot finds it.
//
// A bundle that can't be stored within the slot deadline ends the epoch, since its slot's number is
// given: the slots behind it can't be released. Of its flight nothing can ever be absorbed,
// so that its appends are answered with a definite failure. Where the epoch ended
// for another reason meanwhile, they go back to the queue, and their next try has a
// bundle of its own, under the next epoch and another flight's id.
//
// The star never has to give a bundle up as a late publisher does: its PUT can't land after the
// orphan duty judged it. That is after birth + orphan grace, and no PUT lands after birth + horizon. With a horizon of
// 0 the chain is alive until every PUT call of the epoch has returned.
func (s *Star) flyBundle(ctx context.Context, e *epoch, f *flight) bool {
	s.mu.Lock()
	begin := e.fenced == nil && ctx.Err() == nil
	s.mu.Unlock()
	if !begin {
		return false
	}
	putting, cancel := s.clk.WithTimeout(ctx, s.opts.SlotDeadline)
	defer cancel()
	err := s.putBundle(putting, f.bundle)
	if err == nil {
		return true
	}
	err = fmt.Errorf("bundle of slot %d of %s: %w", f.slot, e.chain, err)
	if ctx.Err() == nil {
		s.events.Branch("star.bundle.failed")
		s.mu.Lock()
		f.failed = fmt.Errorf("%w: nothing was appended: %w", ErrNotReady, err)
		s.mu.Unlock()
	}
	s.fence(e, err)
	return false
}

// putBundle announces the bundle and puts it, each again and again until it is done or ctx ends.
func (s *Star) putBundle(ctx context.Context, b *bundle) error {
	delay := putRetryFirst
	pause := func(err error) error {
		s.events.Branch("star.bundle.retry")
		if serr := s.clk.Sleep(ctx, clock.Jitter(s.clk, delay)); serr != nil {
			return fmt.Errorf("%w (%w)", err, serr)
		}
		delay = min(2*delay, putRetryMost)
		return nil
	}
	armed, err := s.cat.ArmIntent(ctx, b.object)
	for ; err != nil; armed, err = s.cat.ArmIntent(ctx, b.object) {
		// One whose outcome stayed unknown is not tried again: a twin of it may stand.
		if !errors.Is(err, metastore.ErrUnavailable) || errors.Is(err, metastore.ErrUnknown) {
			return err
		}
		if err := pause(err); err != nil {
			return err
		}
	}
	b.intent = armed.Version
	opt := objstore.PutOptions{IfAbsent: true, NotAfter: armed.NotAfter}
	for {
		err := s.bucket.Put(ctx, b.object, b.body, opt)
		if errors.Is(err, objstore.ErrExists) || errors.Is(err, objstore.ErrExpired) {
			// It may be the first try's. The key is of this flight alone, but the slot is about to vouch for the
			// records inside: the bytes decide.
			s.events.Branch("star.bundle.there")
			same, serr := s.holds(ctx, b.object, b.body)
			switch {
			case serr == nil && same:
				err = nil
			case serr == nil:
				return fmt.Errorf("%s is another object: %w", b.object, err)
			case !retryable(serr) || errors.Is(err, objstore.ErrExpired):
				return fmt.Errorf("%w (%w)", err, serr)
			}
		}
		switch {
		case err == nil:
			b.body = nil
			return nil
		case !retryable(err):
			return err
		}
		if err := pause(err); err != nil {
			return err
		}
	}
}
