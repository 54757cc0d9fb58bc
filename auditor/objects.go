package auditor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nova-store/nova/catalog"
	"github.com/nova-store/nova/clock"
	"github.com/nova-store/nova/objstore"
	"github.com/nova-store/nova/objstore/format"
)

const (
	// reads is how often an object that looks corrupt is read before it counts as damaged: the
	// damage may have been on the way.
	reads = 3
	// tries bounds the tries of one request whose outcome is not known or that was throttled.
	tries      = 6
	firstPause = 100 * time.Millisecond
	mostPause  = 5 * time.Second
)

// pause waits before a request is tried again: longer each time, with jitter.
func (a *Auditor) pause(ctx context.Context, try int) error {
	return a.clk.Sleep(ctx, clock.Jitter(a.clk, min(firstPause<<min(try, 10), mostPause)))
}

// readObject reads an object and verifies it whole. An error that wraps
// format.ErrCorrupt says that it looked corrupt on every one of several reads: never a time-out,
// never another version of the format.
func (a *Auditor) readObject(ctx context.Context, key string) (body []byte, f format.Footer, err error) {
	for read := 1; ; read++ {
		body, err = a.bucket.get(ctx, key)
		if err != nil {
			return nil, f, err
		}
		f, err = format.Parse(body)
		if err == nil {
			return body, f, nil
		}
		err = format.InObject(err, key, 0)
		if !errors.Is(err, format.ErrCorrupt) || read == reads {
			return nil, f, err
		}
		if perr := a.pause(ctx, read); perr != nil {
			return nil, f, perr
		}
	}
}

// holds tells whether an object is body, byte by byte. One that differs is read again, since the damage may have been
// on the way.
func (a *Auditor) holds(ctx context.Context, key string, body []byte) (bool, error) {
	for read := 1; ; read++ {
		got, err := a.bucket.get(ctx, key)
		if err != nil || bytes.Equal(got, body) {
			return err == nil, err
		}
		if read == reads {
			return false, nil
		}
		if err := a.pause(ctx, read); err != nil {
			return false, err
		}
	}
}

// readSlot is readObject of a chain's slot or seal: the object's own coordinate must be the key's.
func (a *Auditor) readSlot(ctx context.Context, c catalog.ChainID, slot uint64) (body []byte, f format.Footer, err error) {
	key := catalog.SlotKey(c, slot)
	body, f, err = a.readObject(ctx, key)
	if err == nil && (f.Kind != format.KindSlot && f.Kind != format.KindSeal || f.Star != c.Star || f.Epoch != c.Epoch || f.Slot != slot) {
		err = &format.CorruptError{Object: key, Reason: fmt.Sprintf("it is the %v of %s~%x at %d", f.Kind, f.Star, f.Epoch, f.Slot)}
	}
	return body, f, err
}

// deleteSlots deletes the slots [from, to) of a chain, as many in a request as go, and
// tells below which slot all deletions are confirmed. done, if not nil, is called
// after every request with that slot.
func (a *Auditor) deleteSlots(ctx context.Context, c catalog.ChainID, from, to uint64, done func(upTo uint64) error) error {
	keys := make([]string, 0, min(to-from, objstore.MaxDeleteKeys))
	for from < to {
		keys = keys[:0]
		for s := from; s < to && len(keys) < objstore.MaxDeleteKeys; s++ {
			keys = append(keys, catalog.SlotKey(c, s))
		}
		var failed error
		for _, err := range a.bucket.delete(ctx, keys) {
			if err != nil {
				failed = fmt.Errorf("deleting %s: %w", catalog.SlotKey(c, from), err)
				break
			}
			from++
		}
		if done != nil {
			if err := done(from); err != nil {
				return errors.Join(err, failed)
			}
		}
		if failed != nil {
			return failed
		}
	}
	return nil
}
