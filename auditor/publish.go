package auditor

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/oklog/ulid/v2"

	"github.com/nova-store/nova/catalog"
	"github.com/nova-store/nova/objstore"
)

// newObject names a settled object: a ULID, whose time and entropy are the clock's.
func (a *Auditor) newObject() (string, error) {
	var id ulid.ULID
	if err := id.SetTime(uint64(a.clk.Now().UnixMilli())); err != nil {
		return "", fmt.Errorf("naming an object: %w", err)
	}
	var entropy [16]byte
	binary.BigEndian.PutUint64(entropy[:], a.clk.Rand())
	binary.BigEndian.PutUint64(entropy[8:], a.clk.Rand())
	if err := id.SetEntropy(entropy[:10]); err != nil {
		return "", fmt.Errorf("naming an object: %w", err)
	}
	return catalog.SettledKey(id.String()), nil
}

// publish makes an object visible: intent, PUT, swaps, resolve of the intent; steps 5 to 8 of
// denorm, whose comment says what a crash leaves. Where it fails, what it made is the
// intent's, and the orphan duty's.
func (r *rewriter) publish(ctx context.Context, body []byte, runs []catalog.Run, spans int) error {
	cat := r.a.cat
	object, err := r.a.newObject()
	if err != nil {
		return err
	}
	// The intent is busy until this has returned: where a PUT has no NotAfter, since it
	// can't outlive this process, the orphan duty of this process must not judge it meanwhile.
	due, err := catalog.ParseDue(catalog.IntentKey(object))
	if err != nil {
		return err
	}
	r.a.pool.occupy(busyKey(due))
	defer r.a.pool.vacate(busyKey(due))
	// Where the bucket has no room for it nothing is announced, and the marker stands for later.
	release, err := r.a.opts.Room.Hold(int64(len(body)))
	if err != nil {
		return fmt.Errorf("an object of %d bytes: %w", len(body), err)
	}
	defer release()
	// Paid first: the announcement starts the clock of NotAfter.
	if err := r.a.bucket.payRewrite(ctx, len(body)); err != nil {
		return err
	}
	armed, err := cat.ArmIntent(ctx, object)
	if err != nil {
		return err
	}
	if err := r.putObject(ctx, armed, body); err != nil {
		return err
	}
	out, err := cat.Swap(ctx, catalog.Publish{Object: object, Size: int64(len(body)), Intent: armed.Version}, runs)
	if errors.Is(err, catalog.ErrIntentLost) {
		// Too slow: the orphan duty has condemned it, and may have looked for the object before
		// it was there. It looks again.
		r.j.emit(Event{Action: ObjectGivenUp, Chain: r.chain, Object: object})
		return errors.Join(err, cat.GiveUp(ctx, object))
	}
	if err != nil {
		return err
	}
	r.j.emit(Event{Action: Settled, Chain: r.chain, Object: object, Count: out.Placed, Bytes: int64(len(body))})
	if out.Parted {
		for _, run := range runs {
			first, end := run.Old[0].Span.First, run.Old[len(run.Old)-1].Span.Last()+1
			if err := cat.MergeRange(ctx, run.Stream, object, first, end); err != nil {
				return err
			}
		}
	}
	if out.Placed == 0 {
		return nil // every range is owned elsewhere: the intent stands for the orphan duty
	}
	err = cat.ResolveIntent(ctx, object, armed.Version, out.Placed == spans)
	if errors.Is(err, catalog.ErrMoved) || errors.Is(err, catalog.ErrIntentLost) {
		// All refs were killed since, each with its reap-check, and the intent stands for the orphan duty; or
		// that has resolved or condemned it, and finds the refs.
		return nil
	}
	return err
}

// putObject puts a new object and finds out what became of it. The key is of this
// publish alone; that what is there is its object is nevertheless found by comparing the bytes, since records are about to
// be known by it alone, and a store that cuts a body short or mixes two up is found out here for one read.
func (r *rewriter) putObject(ctx context.Context, armed catalog.Armed, body []byte) error {
	opt := objstore.PutOptions{NotAfter: armed.NotAfter}
	for try := 1; ; try++ {
		if r.a.late(armed.NotAfter) {
			return fmt.Errorf("putting %s: %w", armed.Object, objstore.ErrExpired)
		}
		err := r.a.bucket.put(ctx, armed.Object, body, opt)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, objstore.ErrThrottled):
		case errors.Is(err, objstore.ErrUnknown), errors.Is(err, objstore.ErrExists):
			same, serr := r.a.holds(ctx, armed.Object, body)
			switch {
			case serr == nil && same:
				return nil
			case serr == nil:
				return fmt.Errorf("putting %s: another object is there", armed.Object)
			}
			if errors.Is(err, objstore.ErrExists) {
				return errors.Join(err, serr)
			}
			// Not there, or not known: it may land yet. Once more, with the same bytes.
		default:
			return err
		}
		if try == tries {
			return err
		}
		if err := r.a.pause(ctx, try); err != nil {
			return err
		}
	}
}
