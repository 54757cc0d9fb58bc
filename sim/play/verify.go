package play

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nova-store/nova/catalog"
	"github.com/nova-store/nova/clock"
	"github.com/nova-store/nova/metastore"
	"github.com/nova-store/nova/objstore"
	"github.com/nova-store/nova/sim"
	"github.com/nova-store/nova/verify"
)

// Verified is the finding of a world in which the operator's check finds something amiss.
const Verified = "verify"

// verify runs the operator's check, with the listing, over the world as it stands between two steps: there is
// nothing to find at any moment, since what it checks holds at every instant. It takes no step, and no time of the world.
func (g *game) verify() {
	if g.w.Found() != nil {
		return
	}
	g.w.Mark("verify/run")
	cat := catalog.New(stillStore{g.w.StoreView()}, stillClock{}, catalog.DefaultTiming(false), nil)
	rep, err := verify.Run(context.Background(), cat, stillBucket{g.w.BucketView()}, stillClock{}, verify.Options{List: true})
	switch {
	case err != nil:
		g.w.Finding(Verified, "", fmt.Sprintf("the check did not finish: %v", err))
	case rep.Amiss > 0:
		f := rep.Findings[0]
		g.w.Finding(Verified, f.Key, fmt.Sprintf("%s: %s (%d findings)", f.Kind, f.Detail, rep.Amiss))
	case rep.Restless > 0:
		g.w.Finding(Verified, "", "records kept changing in a world that stands still")
	}
}

// errStill is what a write gets: the world stands still.
var errStill = errors.New("the world stands still")

// stillStore reads the world's store without a step.
type stillStore struct{ v sim.StoreView }

func (s stillStore) Get(_ context.Context, keys ...string) ([]metastore.Record, error) {
	out := make([]metastore.Record, len(keys))
	for i, key := range keys {
		out[i] = s.v.Get(key)
	}
	return out, nil
}

func (s stillStore) Scan(_ context.Context, r metastore.Range, limit int) (page metastore.Page, err error) {
	s.v.Scan(r, func(rec metastore.Record) bool {
		if page.More = len(page.Records) == limit; page.More {
			return false
		}
		page.Records = append(page.Records, rec)
		return true
	})
	return page, nil
}

func (s stillStore) Peek(_ context.Context, rs []metastore.Range) ([]metastore.Record, error) {
	out := make([]metastore.Record, len(rs))
	for i, r := range rs {
		out[i] = s.v.First(r)
	}
	return out, nil
}

func (stillStore) Commit(context.Context, metastore.Batch) (metastore.Version, error) {
	return 0, errStill
}

func (stillStore) OpenSession(context.Context, time.Duration) (metastore.Session, error) {
	return nil, errStill
}

func (stillStore) Limits() metastore.Limits { return metastore.Limits{MaxOps: 128, MaxBytes: 1 << 20} }

// stillBucket reads the world's bucket without a step.
type stillBucket struct{ v sim.BucketView }

func (b stillBucket) Put(context.Context, string, []byte, objstore.PutOptions) error { return errStill }

func (b stillBucket) Get(_ context.Context, key string, off, n int64) ([]byte, error) {
	body, ok := b.v.Get(key)
	if !ok {
		return nil, fmt.Errorf("%s: %w", key, objstore.ErrNotFound)
	}
	body = body[min(off, int64(len(body))):]
	if n >= 0 {
		body = body[:min(n, int64(len(body)))]
	}
	return body, nil
}

func (b stillBucket) Stat(_ context.Context, key string) (objstore.Info, error) {
	body, ok := b.v.Get(key)
	if !ok {
		return objstore.Info{}, fmt.Errorf("%s: %w", key, objstore.ErrNotFound)
	}
	return objstore.Info{Key: key, Size: int64(len(body))}, nil
}

func (b stillBucket) Delete(_ context.Context, keys []string) []error {
	errs := make([]error, len(keys))
	for i := range errs {
		errs[i] = errStill
	}
	return errs
}

func (b stillBucket) List(_ context.Context, prefix, after string, limit int) (out []objstore.Info, err error) {
	b.v.Scan(prefix, func(key string, body []byte) bool {
		if key > after {
			out = append(out, objstore.Info{Key: key, Size: int64(len(body))})
		}
		return len(out) < limit
	})
	return out, nil
}

// stillClock is a clock on which no time passes, and which runs each task to its end where it is started: nothing that
// the check's tasks wait for is ever held by another.
type stillClock struct{}

func (stillClock) Now() time.Time { return time.Unix(0, 0) }
func (stillClock) Rand() uint64   { return 1 }

func (stillClock) Sleep(ctx context.Context, _ time.Duration) error { return ctx.Err() }

func (stillClock) WithCancel(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithCancel(ctx)
}

func (c stillClock) WithTimeout(ctx context.Context, _ time.Duration) (context.Context, context.CancelFunc) {
	return c.WithCancel(ctx)
}

func (stillClock) Go(ctx context.Context, _ string, f func(ctx context.Context)) { f(ctx) }

func (stillClock) NewParker() clock.Parker { return stillParker{} }

type stillParker struct{}

func (stillParker) Park(context.Context) error { return errStill }
func (stillParker) Unpark()                    {}
