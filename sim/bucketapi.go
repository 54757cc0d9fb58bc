package sim

import (
	"context"
	"fmt"

	"github.com/nova-store/nova/objstore"
)

// nodeBucket is the bucket as one incarnation sees it. In the embedded world it is
// a directory: a put or delete is not interrupted by its context, and returns only
// once its effect is settled.
type nodeBucket struct{ inc *Incarnation }

var _ objstore.Bucket = (*nodeBucket)(nil)

// send draws what goes wrong for everything but a put's and a delete's outcome.
func (b *nodeBucket) send(ctx context.Context, c *call, extra int64) *call {
	w := b.inc.node.w
	f := &w.faults
	switch {
	case c.refuse != nil:
	case w.isCut(b.inc, c.op):
		c.refuse, extra = w.lost(c.op), extra+w.outageDelay()
		c.mask, c.late = nil, 0
	case w.fault.Chance(f.BucketThrottle):
		c.refuse, c.late = objstore.ErrThrottled, 0
		w.Mark("fault/throttle")
	case !c.write && w.fault.Chance(f.BucketReadError):
		c.refuse = ErrUnreachable
		w.Mark("fault/bucket-read-error")
	}
	if c.write && w.cfg.Embedded {
		ctx = context.Background()
	}
	return w.send(ctx, c, f.BucketLatency, extra)
}

// Put writes an object.
func (b *nodeBucket) Put(ctx context.Context, key string, body []byte, opt objstore.PutOptions) error {
	c, err := b.inc.begin(ctx, OpBucketPut, true)
	if err != nil {
		return err
	}
	w := b.inc.node.w
	if !w.cfg.Embedded && opt.NotAfter.IsZero() {
		w.Finding("put-horizon", key, "a put without NotAfter into a shared bucket")
	}
	c.key, c.body, c.put, c.keys = key, body, opt, append(c.keys, key)
	f := &w.faults
	switch {
	case w.fault.Chance(f.PutUnknownNoEffect):
		c.refuse = objstore.ErrUnknown
		w.Mark("fault/put-unknown-no-effect")
	case w.fault.Chance(f.PutUnknownEffect):
		c.mask = objstore.ErrUnknown
		w.Mark("fault/put-unknown-effect")
	case !w.cfg.Embedded && w.fault.Chance(f.PutUnknownLate):
		c.late = w.putLateness(opt)
		w.Mark("fault/put-unknown-late")
	}
	if !w.cfg.Embedded {
		// A request is given up after a time of its own, and the caller's context has not ended: whoever takes this
		// for the caller's deadline is wrong.
		c.also = context.DeadlineExceeded
	}
	c = b.send(ctx, c, 0)
	err = c.err
	w.free(c)
	return err
}

// putLateness draws when a late put has its effect: mostly before its NotAfter, and
// often just before it, since that is when it hurts.
func (w *World) putLateness(opt objstore.PutOptions) int64 {
	late := 1 + int64(w.fault.Between(0, w.faults.PutLateMax))
	left := opt.NotAfter.UnixNano() - w.bucket.clock()
	if opt.NotAfter.IsZero() || left <= 0 {
		return late
	}
	switch w.fault.N(4) {
	case 0:
		return max(1, left-int64(w.fault.Between(0, duration(left/16))))
	case 1:
		return late
	default:
		return min(late, left)
	}
}

// Get reads a range of an object.
func (b *nodeBucket) Get(ctx context.Context, key string, off, n int64) ([]byte, error) {
	if off < 0 {
		return nil, &callError{op: OpBucketGet, key: key, err: fmt.Errorf("offset %d is negative", off)}
	}
	c, err := b.inc.begin(ctx, OpBucketGet, false)
	if err != nil {
		return nil, err
	}
	c.key, c.off, c.n, c.keys = key, off, n, append(c.keys, key)
	c = b.send(ctx, c, 0)
	data, err := c.data, c.err
	b.inc.node.w.free(c)
	return data, err
}

// Stat returns an object's size.
func (b *nodeBucket) Stat(ctx context.Context, key string) (objstore.Info, error) {
	c, err := b.inc.begin(ctx, OpBucketStat, false)
	if err != nil {
		return objstore.Info{}, err
	}
	c.key, c.keys = key, append(c.keys, key)
	c = b.send(ctx, c, 0)
	info, err := objstore.Info{Key: key, Size: c.size}, c.err
	b.inc.node.w.free(c)
	if err != nil {
		return objstore.Info{}, err
	}
	return info, nil
}

// Delete removes objects.
func (b *nodeBucket) Delete(ctx context.Context, keys []string) []error {
	if len(keys) == 0 {
		return nil
	}
	c, err := b.inc.begin(ctx, OpBucketDelete, true)
	if err != nil {
		errs := make([]error, len(keys))
		for i := range errs {
			errs[i] = err
		}
		return errs
	}
	w := b.inc.node.w
	c.names, c.keys = keys, append(c.keys, keys...)
	if w.fault.Chance(w.faults.DeleteUnknown) {
		w.Mark("fault/delete-unknown")
		if w.fault.Chance(0.5) {
			c.refuse = objstore.ErrUnknown
		} else {
			c.mask = objstore.ErrUnknown
		}
	}
	c = b.send(ctx, c, 0)
	errs := c.errs
	w.free(c)
	return errs
}

// List returns objects in key order.
func (b *nodeBucket) List(ctx context.Context, prefix, after string, limit int) ([]objstore.Info, error) {
	c, err := b.inc.begin(ctx, OpBucketList, false)
	if err != nil {
		return nil, err
	}
	c.key, c.after, c.limit, c.keys = prefix, after, max(limit, 0), append(c.keys, prefix)
	c = b.send(ctx, c, 0)
	infos, err := c.infos, c.err
	b.inc.node.w.free(c)
	return infos, err
}
