package auditor

import (
	"context"
	"fmt"

	"github.com/nova-store/nova/clock"
	"github.com/nova-store/nova/objstore"
)

// bucket is the object store as jobs use it: each request is paid before it is made,
// so that background work never starves the foreground.
type bucket struct {
	b        objstore.Bucket
	requests *clock.Limiter // requests a second
	rewrite  *clock.Limiter // bytes a second
}

func newBucket(b objstore.Bucket, clk clock.Clock, o Options) *bucket {
	return &bucket{
		b:        b,
		requests: clock.NewLimiter(clk, o.RequestRate, int(o.RequestRate)),
		rewrite:  clock.NewLimiter(clk, o.RewriteRate, max(int(o.RewriteRate), 1<<20)),
	}
}

// get reads a whole object.
func (b *bucket) get(ctx context.Context, key string) ([]byte, error) {
	if err := b.requests.Pay(ctx, 1); err != nil {
		return nil, err
	}
	body, err := b.b.Get(ctx, key, 0, -1)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", key, err)
	}
	return body, nil
}

// getRange reads n bytes of an object from offset off on, or as many as there are.
func (b *bucket) getRange(ctx context.Context, key string, off, n int64) ([]byte, error) {
	if err := b.requests.Pay(ctx, 1); err != nil {
		return nil, err
	}
	body, err := b.b.Get(ctx, key, off, n)
	if err != nil {
		return nil, fmt.Errorf("reading %d bytes of %s: %w", n, key, err)
	}
	return body, nil
}

func (b *bucket) stat(ctx context.Context, key string) (objstore.Info, error) {
	if err := b.requests.Pay(ctx, 1); err != nil {
		return objstore.Info{}, err
	}
	info, err := b.b.Stat(ctx, key)
	if err != nil {
		return info, fmt.Errorf("looking at %s: %w", key, err)
	}
	return info, nil
}

// list returns a page of the objects under a prefix, for the sweep of a retired star alone.
func (b *bucket) list(ctx context.Context, prefix, after string, limit int) ([]objstore.Info, error) {
	if err := b.requests.Pay(ctx, 1); err != nil {
		return nil, err
	}
	page, err := b.b.List(ctx, prefix, after, limit)
	if err != nil {
		return nil, fmt.Errorf("listing %s: %w", prefix, err)
	}
	return page, nil
}

// put writes an object that must not exist yet. Rewritten bytes are paid by payRewrite,
// before the announcement that starts the clock of NotAfter.
func (b *bucket) put(ctx context.Context, key string, body []byte, opt objstore.PutOptions) error {
	if err := b.requests.Pay(ctx, 1); err != nil {
		return err
	}
	opt.IfAbsent = true
	if err := b.b.Put(ctx, key, body, opt); err != nil {
		return fmt.Errorf("putting %s: %w", key, err)
	}
	return nil
}

func (b *bucket) payRewrite(ctx context.Context, n int) error {
	if err := b.rewrite.Pay(ctx, n); err != nil {
		return fmt.Errorf("rewrite budget: %w", err)
	}
	return nil
}

// delete removes up to MaxDeleteKeys objects in one request; one error for each, in order.
func (b *bucket) delete(ctx context.Context, keys []string) []error {
	if err := b.requests.Pay(ctx, 1); err != nil {
		errs := make([]error, len(keys))
		for i := range errs {
			errs[i] = err
		}
		return errs
	}
	return b.b.Delete(ctx, keys)
}
