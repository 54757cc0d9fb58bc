package differential

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/nova-store/nova/clock"
	"github.com/nova-store/nova/metastore"
	"github.com/nova-store/nova/metastore/pebblestore"
	"github.com/nova-store/nova/objstore"
	"github.com/nova-store/nova/objstore/dirbucket"
	"github.com/nova-store/nova/sim"
)

// simulated are the dependencies of the world itself.
type simulated struct{}

func (simulated) open(inc *sim.Incarnation) (metastore.Store, objstore.Bucket, error) {
	return inc.Store(), inc.Bucket(), nil
}

func (simulated) ended(bool) error { return nil }

// genuine are Pebble on a file system in memory that loses what was not synced when the process crashes, and
// a directory.
type genuine struct {
	fs       *vfs.MemFS
	dir      string
	maxOps   int
	unsynced int
	rng      *rand.Rand
	store    *pebblestore.Store
	bucket   *dirbucket.Bucket
	crashes  int
}

func (g *genuine) open(inc *sim.Incarnation) (metastore.Store, objstore.Bucket, error) {
	var err error
	opts := pebblestore.Options{FS: g.fs, MaxOps: g.maxOps, CacheBytes: 1 << 20, MinFreeBytes: -1}
	if g.store, err = pebblestore.Open("store", opts); err != nil {
		return nil, nil, err
	}
	if g.bucket, err = dirbucket.Open(g.dir, dirbucket.Options{}); err != nil {
		return nil, nil, err
	}
	p := pace{inc.Clock()}
	return &pacedStore{p, g.store}, &pacedBucket{p, g.bucket}, nil
}

// ended closes what the process had open: after a crash it is a clone of the file system, made before, that goes on.
func (g *genuine) ended(crashed bool) error {
	if g.store == nil {
		return nil
	}
	next := g.fs
	if crashed {
		g.crashes++
		next = g.fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: g.unsynced, RNG: g.rng})
	}
	err := errors.Join(g.store.Close(), g.bucket.Close())
	g.fs, g.store, g.bucket = next, nil, nil
	return err
}

// pace makes each call of a real dependency two waits of the world, before it and after it, so that others go on meanwhile
// and the process may die on either side of its effect.
type pace struct{ clk clock.Clock }

func (p pace) before(ctx context.Context) error {
	return p.clk.Sleep(ctx, time.Duration(p.clk.Rand()%uint64(2*time.Millisecond)))
}

func (p pace) after() {
	_ = p.clk.Sleep(context.Background(), time.Duration(p.clk.Rand()%uint64(2*time.Millisecond)))
}

// paced makes a call.
func paced[T any](ctx context.Context, p pace, call func() (T, error)) (T, error) {
	if err := p.before(ctx); err != nil {
		var none T
		return none, err
	}
	v, err := call()
	p.after()
	return v, err
}

type pacedStore struct {
	pace
	s metastore.Store
}

func (s *pacedStore) Limits() metastore.Limits { return s.s.Limits() }

func (s *pacedStore) Get(ctx context.Context, keys ...string) ([]metastore.Record, error) {
	return paced(ctx, s.pace, func() ([]metastore.Record, error) { return s.s.Get(ctx, keys...) })
}

func (s *pacedStore) Scan(ctx context.Context, r metastore.Range, limit int) (metastore.Page, error) {
	return paced(ctx, s.pace, func() (metastore.Page, error) { return s.s.Scan(ctx, r, limit) })
}

func (s *pacedStore) Peek(ctx context.Context, rs []metastore.Range) ([]metastore.Record, error) {
	return paced(ctx, s.pace, func() ([]metastore.Record, error) { return s.s.Peek(ctx, rs) })
}

func (s *pacedStore) Commit(ctx context.Context, b metastore.Batch) (metastore.Version, error) {
	return paced(ctx, s.pace, func() (metastore.Version, error) { return s.s.Commit(ctx, b) })
}

func (s *pacedStore) OpenSession(ctx context.Context, ttl time.Duration) (metastore.Session, error) {
	return paced(ctx, s.pace, func() (metastore.Session, error) {
		x, err := s.s.OpenSession(ctx, ttl)
		if err != nil {
			return nil, err
		}
		return &pacedSession{s.pace, x}, nil
	})
}

type pacedSession struct {
	pace
	metastore.Session
}

func (s *pacedSession) KeepAlive(ctx context.Context) error {
	_, err := paced(ctx, s.pace, func() (bool, error) { return true, s.Session.KeepAlive(ctx) })
	return err
}

func (s *pacedSession) Close(ctx context.Context) error {
	_, err := paced(ctx, s.pace, func() (bool, error) { return true, s.Session.Close(ctx) })
	return err
}

type pacedBucket struct {
	pace
	b objstore.Bucket
}

func (b *pacedBucket) Put(ctx context.Context, key string, body []byte, opt objstore.PutOptions) error {
	_, err := paced(ctx, b.pace, func() (bool, error) { return true, b.b.Put(ctx, key, body, opt) })
	return err
}

func (b *pacedBucket) Get(ctx context.Context, key string, off, n int64) ([]byte, error) {
	return paced(ctx, b.pace, func() ([]byte, error) { return b.b.Get(ctx, key, off, n) })
}

func (b *pacedBucket) Stat(ctx context.Context, key string) (objstore.Info, error) {
	return paced(ctx, b.pace, func() (objstore.Info, error) { return b.b.Stat(ctx, key) })
}

func (b *pacedBucket) Delete(ctx context.Context, keys []string) []error {
	errs, err := paced(ctx, b.pace, func() ([]error, error) { return b.b.Delete(ctx, keys), nil })
	if err != nil {
		errs = make([]error, len(keys))
		for i := range errs {
			errs[i] = err
		}
	}
	return errs
}

func (b *pacedBucket) List(ctx context.Context, prefix, after string, limit int) ([]objstore.Info, error) {
	return paced(ctx, b.pace, func() ([]objstore.Info, error) { return b.b.List(ctx, prefix, after, limit) })
}
