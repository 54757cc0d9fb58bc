package storetest

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"testing"

	"github.com/nova-store/nova/metastore"
)

// testParallelIncrements: counters incremented by conditional commits lose
// nothing and count nothing twice, whether durable or a session's.
func testParallelIncrements(t *testing.T, h Harness) {
	const workers, rounds = 8, 25
	e := newEnv(t, h, h.Open(t))
	sess := e.openSession()
	errs := make([]error, workers)
	versions := make([][]metastore.Version, workers)
	h.Parallel(t, e.s, workers, func(ctx context.Context, i int) {
		for range rounds {
			v, err := increment(ctx, e.s, sess.ID())
			if err != nil {
				errs[i] = err
				return
			}
			versions[i] = append(versions[i], v)
		}
	})
	seen := make(map[metastore.Version]bool)
	var largest metastore.Version
	for i := range workers {
		e.require.NoError(errs[i])
		var last metastore.Version
		for _, v := range versions[i] {
			e.require.False(seen[v], "two commits with revision %d", v)
			e.require.Greater(v, last, "later commits have larger revisions")
			seen[v], last = true, v
		}
		largest = max(largest, last)
	}
	for _, rec := range e.get("counter/durable", "counter/session") {
		e.require.EqualValues(workers*rounds, binary.BigEndian.Uint64(rec.Value), rec.Key)
		e.require.Equal(largest, rec.Version)
	}
}

// increment adds one to both counters in one commit, and tries until it is done.
func increment(ctx context.Context, s metastore.Store, sess metastore.SessionID) (metastore.Version, error) {
	for {
		recs, err := s.Get(ctx, "counter/durable", "counter/session")
		if err != nil {
			return 0, err
		}
		var b metastore.Batch
		for i, rec := range recs {
			var count uint64
			if rec.Exists() {
				count = binary.BigEndian.Uint64(rec.Value)
			}
			op := metastore.Put(rec.Key, binary.BigEndian.AppendUint64(nil, count+1))
			if i == 1 {
				op.Session = sess
			}
			b.Conds = append(b.Conds, metastore.At(rec.Key, rec.Version))
			b.Ops = append(b.Ops, op)
		}
		v, err := s.Commit(ctx, b)
		if !errors.Is(err, metastore.ErrConflict) {
			return v, err
		}
	}
}

// testParallelReads: while one task rewrites a set of keys in one commit after the other, every
// read shows all of them at one revision, never an older one than the
// reader saw before, and a commit's writer sees it at once.
func testParallelReads(t *testing.T, h Harness) {
	const commits = 60
	e := newEnv(t, h, h.Open(t))
	sess := e.openSession()
	keys := []string{"set/a", "set/b", "set/c"}
	write := func(ctx context.Context, i int) (metastore.Version, error) {
		value := []byte(fmt.Sprint(i))
		// The middle key moves between the session and the durable keys.
		b := metastore.Op{Key: keys[1], Value: value}
		if i%2 == 0 {
			b.Session = sess.ID()
		}
		return e.s.Commit(ctx, metastore.Batch{Ops: ops(metastore.Put(keys[0], value), b, metastore.Put(keys[2], value))})
	}
	first := metastore.Version(0)
	e.do(func(ctx context.Context) {
		first, _ = write(ctx, 0)
	})
	e.require.NotZero(first)

	errs := make([]error, 4)
	h.Parallel(t, e.s, len(errs), func(ctx context.Context, i int) {
		errs[i] = func() error {
			last := first
			for n := 1; n <= commits; n++ {
				var recs []metastore.Record
				var err error
				switch i {
				case 0:
					v, err := write(ctx, n)
					if err != nil {
						return err
					}
					recs, err := e.s.Get(ctx, keys[1])
					if err != nil {
						return err
					}
					if recs[0].Version != v {
						return fmt.Errorf("after commit %d Get shows %d", v, recs[0].Version)
					}
					continue
				case 1:
					recs, err = e.s.Get(ctx, keys...)
				case 2:
					var page metastore.Page
					page, err = e.s.Scan(ctx, metastore.Prefix("set/"), 10)
					recs = page.Records
				case 3:
					recs, err = e.s.Peek(ctx, []metastore.Range{
						metastore.Prefix("set/"), {Start: "set/b"}, {Start: "set/c", End: "set/d"},
					})
				}
				if err != nil {
					return err
				}
				if len(recs) != len(keys) {
					return fmt.Errorf("%d records", len(recs))
				}
				for j, rec := range recs {
					if rec.Key != keys[j] || rec.Version != recs[0].Version || string(rec.Value) != string(recs[0].Value) {
						return fmt.Errorf("not at one revision: %v", recs)
					}
				}
				if recs[0].Version < last {
					return fmt.Errorf("went back from %d to %d", last, recs[0].Version)
				}
				last = recs[0].Version
			}
			return nil
		}()
	})
	for i, err := range errs {
		e.require.NoError(err, "task %d", i)
	}
}
