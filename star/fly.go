package star

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nova-store/nova/clock"
	"github.com/nova-store/nova/objstore"
	"github.com/nova-store/nova/objstore/format"
)

// errForeignSlot: another's object, a seal perhaps, is in the slot.
var errForeignSlot = errors.New("another's object is in the slot")

// Backoff between tries of a PUT.
const (
	putRetryFirst = 20 * time.Millisecond
	putRetryMost  = time.Second
)

// fly puts the flight's slot, after its bundle if it has one. The slot's PUT is the commit: once it is known to have
// happened the slot is durable, and released as soon as all lower ones are.
//
// A crash before the PUT leaves nothing. After it the slot lies at or above the
// checkpoint of a chain that its settle marker watches: the settle duty absorbs it
// if all lower slots are there, else seals it away, and deletes it in the end.
//
// A slot that can't be decided within the slot deadline ends the epoch: its PUT
// may still have its effect until its NotAfter, and numbers are not used twice.
func (s *Star) fly(ctx context.Context, e *epoch, f *flight) {
	if f.bundle != nil && !s.flyBundle(ctx, e, f) {
		return
	}
	s.mu.Lock()
	begin := e.fenced == nil && ctx.Err() == nil
	f.begun = begin
	opt := objstore.PutOptions{IfAbsent: true}
	if !s.opts.Embedded {
		opt.NotAfter = e.held.Add(s.cat.Timing().SessionTTL)
	}
	s.mu.Unlock()
	if !begin {
		return
	}
	start := s.clk.Now()
	putting, cancel := s.clk.WithTimeout(ctx, s.opts.SlotDeadline)
	err := s.putSlot(putting, e, f, opt)
	cancel()
	if err != nil {
		if ctx.Err() == nil {
			s.events.Branch("star.slot.undecided")
		}
		s.fence(e, fmt.Errorf("slot %d of %s: %w", f.slot, e.chain, err))
		return
	}
	s.land(e, f)
	s.events.Landed(e.chain, f.slot, s.clk.Now().Sub(start))
}

// land notes that the slot is durable, and releases what that lets go.
func (s *Star) land(e *epoch, f *flight) {
	s.mu.Lock()
	f.landed = true
	f.body = nil
	was := e.durable
	for e.durable < e.next && e.flights[e.durable-e.absorbed].landed {
		e.landed += e.flights[e.durable-e.absorbed].count
		e.durable++
	}
	released := e.durable > was
	waiting := len(s.queue) > 0
	s.mu.Unlock()
	if !released {
		return
	}
	e.released.Raise()
	if waiting {
		s.kick.Raise()
	}
}

// putSlot puts the slot if-absent, again and again, the same bytes with the same
// NotAfter, until it is decided or ctx ends.
func (s *Star) putSlot(ctx context.Context, e *epoch, f *flight, opt objstore.PutOptions) error {
	key := e.slotKey(f)
	for delay := putRetryFirst; ; delay = min(2*delay, putRetryMost) {
		err := s.bucket.Put(ctx, key, f.body, opt)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, objstore.ErrExists):
			// On a retry this may be the first try, and even without one: the
			// bucket's own client retries.
			own, rerr := s.ownsSlot(ctx, key, f)
			switch {
			case rerr == nil && own:
				s.events.Branch("star.slot.own")
				return nil
			case rerr == nil:
				s.events.Branch("star.slot.foreign")
				return errForeignSlot
			case !retryable(rerr):
				return rerr
			}
			err = rerr
		case errors.Is(err, objstore.ErrExpired):
			// No further try can land. An earlier one yet may, where the bucket judges the time when a request begins
			// and a body is still on its way: so nothing there decides nothing. What is there now stays.
			s.events.Branch("star.slot.expired")
			own, rerr := s.ownsSlot(ctx, key, f)
			switch {
			case rerr == nil && own:
				return nil
			case rerr == nil:
				return errForeignSlot
			}
			return fmt.Errorf("%w (%w)", err, rerr)
		case !retryable(err):
			return err
		}
		s.events.Branch("star.slot.retry")
		if serr := s.clk.Sleep(ctx, clock.Jitter(s.clk, delay)); serr != nil {
			return fmt.Errorf("undecided: %w (%w)", err, serr)
		}
	}
}

// retryable tells whether the bucket may answer the same call otherwise later. An unknown outcome comes first: whatever
// else its error wraps, a put that was not there when somebody looked may be there at the next try.
func retryable(err error) bool {
	if errors.Is(err, objstore.ErrUnknown) {
		return true
	}
	for _, final := range []error{objstore.ErrNotFound, objstore.ErrBadKey, objstore.ErrTooLarge, format.ErrCorrupt, format.ErrVersion} {
		if errors.Is(err, final) {
			return false
		}
	}
	return true
}

// ownsSlot reads back whose object is in the slot, told by the flight's id in its footer. The id is 64 random bits, the
// footer carries the CRC32C of itself and of each block, and the size is compared: no other flight's object passes, and one
// of this flight that was damaged in the bucket is found by whoever reads it, as it would be had the answer not been lost.
func (s *Star) ownsSlot(ctx context.Context, key string, f *flight) (bool, error) {
	size, footer, err := s.readFooter(ctx, key)
	if err != nil {
		return false, err
	}
	return size == f.size && footer.Kind == format.KindSlot && footer.Flight == f.id, nil
}

// holds tells whether an object is body, byte by byte. One that differs is read once more: the damage may have been
// done on the way.
func (s *Star) holds(ctx context.Context, key string, body []byte) (bool, error) {
	for try := 1; ; try++ {
		got, err := s.bucket.Get(ctx, key, 0, -1)
		if err != nil {
			return false, fmt.Errorf("reading %s back: %w", key, err)
		}
		if same := bytes.Equal(got, body); same || try == 2 {
			return same, nil
		}
	}
}

// readFooter reads an object's footer. One that is corrupt is read once more: the
// damage may have been done on the way.
func (s *Star) readFooter(ctx context.Context, key string) (size int64, f format.Footer, err error) {
	size, f, err = s.readFooterOnce(ctx, key)
	if errors.Is(err, format.ErrCorrupt) {
		size, f, err = s.readFooterOnce(ctx, key)
	}
	return size, f, err
}

// readFooterOnce reads the object's size, its last bytes, and those before them
// where the footer needs more.
func (s *Star) readFooterOnce(ctx context.Context, key string) (size int64, f format.Footer, err error) {
	info, err := s.bucket.Stat(ctx, key)
	if err != nil {
		return 0, format.Footer{}, fmt.Errorf("size of %s: %w", key, err)
	}
	for need := min(info.Size, format.TailLength); ; {
		tail, err := s.bucket.Get(ctx, key, info.Size-need, need)
		if err != nil {
			return 0, format.Footer{}, fmt.Errorf("footer of %s: %w", key, err)
		}
		if int64(len(tail)) != need {
			return 0, format.Footer{}, &format.CorruptError{Object: key, Offset: info.Size - need + int64(len(tail)), Reason: "the object is shorter than its size"}
		}
		footer, more, err := format.ParseTail(info.Size, tail)
		if err != nil {
			return 0, format.Footer{}, format.InObject(err, key, 0)
		}
		if more <= need {
			return info.Size, footer, nil
		}
		need = more
	}
}
