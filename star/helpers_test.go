package star_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/nova-store/nova/catalog"
	"github.com/nova-store/nova/clock"
	"github.com/nova-store/nova/metastore"
	"github.com/nova-store/nova/objstore"
	"github.com/nova-store/nova/objstore/format"
	"github.com/nova-store/nova/sim"
	"github.com/nova-store/nova/star"
)

// rig is one process that runs a star in a simulated world.
type rig struct {
	t      *testing.T
	w      *sim.World
	inc    *sim.Incarnation
	clk    clock.Clock
	cat    *catalog.Catalog
	store  *store
	bucket *bucket
	star   *star.Star
	events *recorder
	err    error // of Run
	over   bool
}

func newWorld(t *testing.T, cfg sim.Config) *sim.World {
	w := sim.New(cfg)
	t.Cleanup(w.Close)
	return w
}

// newRig boots a star on the node and waits until it is ready.
func newRig(t *testing.T, w *sim.World, node string, change func(*star.Options)) *rig {
	r := bootRig(t, w, node, change)
	r.until(func() bool { return r.star.Ready() == nil })
	return r
}

func bootRig(t *testing.T, w *sim.World, node string, change func(*star.Options)) *rig {
	inc := w.Node(node).Start(nil)
	r := &rig{t: t, w: w, inc: inc, clk: inc.Clock(), events: &recorder{branches: map[string]int{}}}
	r.store = &store{Store: inc.Store()}
	r.bucket = &bucket{Bucket: inc.Bucket()}
	timing := catalog.DefaultTiming(w.Embedded())
	timing.SettleOwedBytes = 1 << 20
	r.cat = catalog.New(r.store, inc.Clock(), timing, r.events.Branch)
	opts := star.Options{Name: "a", Address: node, Codec: format.Stored(), Events: r.events, Embedded: w.Embedded()}
	if change != nil {
		change(&opts)
	}
	s, err := star.New(r.cat, r.bucket, inc.Clock(), opts)
	require.NoError(t, err)
	r.star = s
	inc.Go("star", func(ctx context.Context) {
		r.err = s.Run(ctx)
		r.over = true
	})
	return r
}

// until runs the world until that holds, an hour at most.
func (r *rig) until(f func() bool) {
	r.t.Helper()
	res := r.w.RunUntil(f, time.Hour)
	if res.Finding != nil {
		r.t.Fatal(res.Finding.Report())
	}
	require.Equal(r.t, sim.Reached, res.Reason)
}

// run lets the process do something, and waits for it.
func (r *rig) run(f func(ctx context.Context)) {
	r.t.Helper()
	done := r.start(f)
	r.until(func() bool { return *done })
}

func (r *rig) start(f func(ctx context.Context)) *bool {
	done := new(bool)
	r.inc.Go("test", func(ctx context.Context) {
		f(ctx)
		*done = true
	})
	return done
}

// answer is what an append came to.
type answer struct {
	done bool
	res  star.AppendResult
	err  error
}

func (r *rig) begin(req star.AppendRequest) *answer {
	a := &answer{}
	r.inc.Go("append", func(ctx context.Context) {
		a.res, a.err = r.star.Append(ctx, req)
		a.done = true
	})
	return a
}

func (r *rig) wait(as ...*answer) {
	r.t.Helper()
	r.until(func() bool { return !slices.ContainsFunc(as, func(a *answer) bool { return !a.done }) })
}

func (r *rig) append(req star.AppendRequest) (star.AppendResult, error) {
	r.t.Helper()
	a := r.begin(req)
	r.wait(a)
	return a.res, a.err
}

func (r *rig) mustAppend(name string, data ...string) star.AppendResult {
	r.t.Helper()
	res, err := r.append(star.AppendRequest{Name: name, Records: records(data...)})
	require.NoError(r.t, err)
	require.True(r.t, res.OffsetsKnown)
	return res
}

func (r *rig) read(req star.ReadRequest) (res star.ReadResult, err error) {
	r.t.Helper()
	r.run(func(ctx context.Context) { res, err = r.star.Read(ctx, req) })
	return res, err
}

// all reads a stream from its first readable record to its end.
func (r *rig) all(name string) []string {
	r.t.Helper()
	var out []string
	at := uint64(0)
	for {
		res, err := r.read(star.ReadRequest{Name: name, From: at})
		require.NoError(r.t, err)
		require.Equal(r.t, at, res.First)
		require.Equal(r.t, at+uint64(len(res.Records)), res.Next)
		out = append(out, texts(res.Records)...)
		if at = res.Next; at == res.End {
			return out
		}
		require.NotEmpty(r.t, res.Records)
	}
}

func (r *rig) create(names ...string) (id catalog.StreamID) {
	r.t.Helper()
	r.run(func(ctx context.Context) {
		for _, name := range names {
			v, _, err := r.cat.CreateStream(ctx, name, catalog.Policy{})
			require.NoError(r.t, err)
			id = v.ID
		}
	})
	return id
}

func (r *rig) slot(slot uint64) string {
	chain, _, ok := r.star.Chain()
	require.True(r.t, ok)
	return catalog.SlotKey(chain, slot)
}

// holdPuts makes puts of slots wait, until the returned function is called. held tells
// how many do.
func (r *rig) holdPuts() (release func(), held *int) {
	gate := clock.NewEvent(r.clk)
	held = new(int)
	r.bucket.put = func(ctx context.Context, key string, put func() error) error {
		*held++
		err := gate.Wait(ctx)
		*held--
		if err != nil {
			return fmt.Errorf("%w: %w", objstore.ErrUnknown, err)
		}
		return put()
	}
	return func() { r.bucket.put = nil; gate.Set() }, held
}

// holdAbsorbs does the same to absorbs.
func (r *rig) holdAbsorbs() (release func(), held *int) {
	gate := clock.NewEvent(r.clk)
	held = new(int)
	r.store.commit = func(ctx context.Context, b metastore.Batch, commit func() (metastore.Version, error)) (metastore.Version, error) {
		if isAbsorb(b) {
			*held++
			err := gate.Wait(ctx)
			*held--
			if err != nil {
				return 0, fmt.Errorf("%w: %w", metastore.ErrUnknown, err)
			}
		}
		return commit()
	}
	return func() { r.store.commit = nil; gate.Set() }, held
}

func isAbsorb(b metastore.Batch) bool {
	return slices.ContainsFunc(b.Ops, func(op metastore.Op) bool { return strings.HasPrefix(op.Key, "due/denorm/") && !op.Delete }) &&
		slices.ContainsFunc(b.Ops, func(op metastore.Op) bool { return strings.HasPrefix(op.Key, "chain/") })
}

func records(data ...string) []star.Record {
	out := make([]star.Record, len(data))
	for i, d := range data {
		out[i] = star.Record{Timestamp: int64(i + 1), Data: []byte(d)}
	}
	return out
}

func texts(rs []star.Record) []string {
	var out []string
	for _, r := range rs {
		out = append(out, string(r.Data))
	}
	return out
}

func ptr[T any](v T) *T { return &v }

// encodeStream writes a stream's record in the
// keyspace's own encoding.
func encodeStream(v catalog.Stream) []byte {
	b := binary.AppendUvarint([]byte{1}, uint64(len(v.Name)))
	b = append(b, v.Name...)
	b = binary.AppendUvarint(b, uint64(v.State))
	b = binary.AppendVarint(b, v.Created)
	b = binary.AppendVarint(b, v.Deleted)
	b = binary.AppendUvarint(b, v.Nonce)
	b = binary.AppendVarint(b, v.Policy.MaxAgeMS)
	return binary.AppendUvarint(b, v.Policy.MaxBytes)
}

// store and bucket let a test come between a star and its dependencies.
type store struct {
	metastore.Store
	commit func(ctx context.Context, b metastore.Batch, commit func() (metastore.Version, error)) (metastore.Version, error)
	get    func(keys []string)
	scan   func(ctx context.Context, r metastore.Range) // before it
	fail   bool                                         // a get is answered with an outage
}

func (s *store) Scan(ctx context.Context, r metastore.Range, limit int) (metastore.Page, error) {
	if s.scan != nil {
		s.scan(ctx, r)
	}
	return s.Store.Scan(ctx, r, limit)
}

func (s *store) Get(ctx context.Context, keys ...string) ([]metastore.Record, error) {
	if s.get != nil {
		if s.get(keys); s.fail {
			return nil, metastore.ErrUnavailable
		}
	}
	return s.Store.Get(ctx, keys...)
}

func (s *store) Commit(ctx context.Context, b metastore.Batch) (metastore.Version, error) {
	f := s.commit
	if f == nil {
		return s.Store.Commit(ctx, b)
	}
	return f(ctx, b, func() (metastore.Version, error) { return s.Store.Commit(ctx, b) })
}

type bucket struct {
	objstore.Bucket
	put func(ctx context.Context, key string, put func() error) error
	get func(ctx context.Context, key string, off, n int64, get func() ([]byte, error)) ([]byte, error)
}

func (b *bucket) Put(ctx context.Context, key string, body []byte, opt objstore.PutOptions) error {
	f := b.put
	if f == nil {
		return b.Bucket.Put(ctx, key, body, opt)
	}
	return f(ctx, key, func() error { return b.Bucket.Put(ctx, key, body, opt) })
}

func (b *bucket) Get(ctx context.Context, key string, off, n int64) ([]byte, error) {
	f := b.get
	if f == nil {
		return b.Bucket.Get(ctx, key, off, n)
	}
	return f(ctx, key, off, n, func() ([]byte, error) { return b.Bucket.Get(ctx, key, off, n) })
}

// recorder keeps what a star tells.
type recorder struct {
	mu       sync.Mutex
	minted   []catalog.ChainID
	fenced   []error
	ahead    uint64 // most that a slot departed beyond the first not known durable
	departed int
	absorbed []int // slots of each absorb
	branches map[string]int
}

func (r *recorder) locked(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f()
}

func (r *recorder) Minted(c catalog.ChainID) { r.locked(func() { r.minted = append(r.minted, c) }) }
func (r *recorder) Fenced(_ catalog.ChainID, reason error) {
	r.locked(func() { r.fenced = append(r.fenced, reason) })
}
func (r *recorder) Departed(_ catalog.ChainID, slot, first uint64, _ int) {
	r.locked(func() { r.ahead, r.departed = max(r.ahead, slot-first), r.departed+1 })
}
func (r *recorder) Landed(catalog.ChainID, uint64, time.Duration) {}
func (r *recorder) Absorbed(_ catalog.ChainID, slots int, _ uint64) {
	r.locked(func() { r.absorbed = append(r.absorbed, slots) })
}
func (r *recorder) Appended(int, int, time.Duration, error) {}
func (r *recorder) Read(int, int, time.Duration, error)     {}
func (r *recorder) Branch(name string)                      { r.locked(func() { r.branches[name]++ }) }
