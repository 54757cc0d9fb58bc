package sim_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/nova-store/nova/metastore"
	"github.com/nova-store/nova/objstore"
	"github.com/nova-store/nova/sim"
)

// outcomes counts the errors of a call that is made n times, each on a key of its own.
func outcomes(t *testing.T, cfg sim.Config, n int, call func(ctx context.Context, l *lab, i int) error) (*lab, map[error]int) {
	l := newLab(t, cfg)
	count := map[error]int{}
	l.do(t, 1, func(ctx context.Context, _ int) {
		for i := range n {
			err := call(ctx, l, i)
			for errors.Unwrap(err) != nil {
				err = errors.Unwrap(err)
			}
			count[err]++
		}
	})
	return l, count
}

func TestUnknownCommits(t *testing.T) {
	const n = 1000
	commit := func(ctx context.Context, l *lab, i int) error {
		_, err := l.inc.Store().Commit(ctx, metastore.Batch{
			Conds: []metastore.Cond{metastore.Absent(fmt.Sprint(i))},
			Ops:   []metastore.Op{metastore.Put(fmt.Sprint(i), nil)},
		})
		return err
	}
	for name, c := range map[string]struct {
		f             sim.Faults
		atOnce, later int
	}{
		"no effect": {sim.Faults{CommitUnknownNoEffect: 1}, 0, 0},
		"effect":    {sim.Faults{CommitUnknownEffect: 1}, n, 0},
		"late":      {sim.Faults{CommitUnknownLate: 1, CommitLateMax: time.Hour}, 0, n},
	} {
		t.Run(name, func(t *testing.T) {
			l, got := outcomes(t, sim.Config{Faults: c.f}, n, commit)
			require.Equal(t, map[error]int{metastore.ErrUnknown: n}, got)
			require.Equal(t, c.atOnce, l.w.StoreView().Len())
			l.inc.Kill()
			idle(t, l.w)
			require.Equal(t, c.atOnce+c.later, l.w.StoreView().Len(), "also after the caller's death")
		})
	}
}

// TestLateCommitIsJudgedLate: its conditions are, when it lands.
func TestLateCommitIsJudgedLate(t *testing.T) {
	l := newLab(t, sim.Config{Faults: sim.Faults{CommitUnknownLate: 1, CommitLateMax: time.Hour}})
	b := metastore.Batch{Conds: []metastore.Cond{metastore.Absent("k")}, Ops: []metastore.Op{metastore.Put("k", []byte("late"))}}
	var late int
	l.w.OnCommit(func(m *sim.Commit) {
		if m.Late {
			late++
		}
	})
	l.do(t, 1, func(ctx context.Context, _ int) {
		_, err := l.inc.Store().Commit(ctx, b)
		require.ErrorIs(t, err, metastore.ErrUnknown)
		recs, err := l.inc.Store().Get(ctx, "k")
		require.NoError(t, err)
		require.False(t, recs[0].Exists())
		l.w.SetFaults(sim.Faults{})
		_, err = l.inc.Store().Commit(ctx, put("k", "twin"))
		require.NoError(t, err)
	})
	idle(t, l.w)
	require.Zero(t, late)
	require.Equal(t, "twin", string(l.w.StoreView().Get("k").Value))
}

// TestEmbeddedDeathSettlesLateCommits: nothing lands after the process is gone.
func TestEmbeddedDeathSettlesLateCommits(t *testing.T) {
	l, got := outcomes(t, sim.Config{Embedded: true, Faults: sim.Faults{CommitUnknownLate: 1, CommitLateMax: time.Hour}}, 100,
		func(ctx context.Context, l *lab, i int) error {
			_, err := l.inc.Store().Commit(ctx, put(fmt.Sprint(i), ""))
			return err
		})
	require.Equal(t, 100, got[metastore.ErrUnknown])
	l.inc.Kill()
	n := l.w.StoreView().Len()
	require.Greater(t, n, 20)
	require.Less(t, n, 80)
	idle(t, l.w)
	require.Equal(t, n, l.w.StoreView().Len())
}

func TestConcurrentCommitsOvertake(t *testing.T) {
	l := newLab(t, sim.Config{Faults: sim.Faults{CommitSlow: 0.5, CommitSlowMax: time.Second}})
	var order []string
	l.w.OnCommit(func(m *sim.Commit) { order = append(order, m.Changes[0].New.Key) })
	l.do(t, 8, func(ctx context.Context, i int) { _, _ = l.inc.Store().Commit(ctx, put(fmt.Sprint(i), "")) })
	require.Len(t, order, 8)
	require.False(t, slices.IsSorted(order), "%v", order)
}

func TestUnknownPuts(t *testing.T) {
	const n = 400
	putObject := func(ctx context.Context, l *lab, i int) error {
		return l.inc.Bucket().Put(ctx, fmt.Sprintf("o/%03d", i), nil, inTime(l.inc))
	}
	for _, embedded := range []bool{false, true} {
		late := sim.Faults{PutUnknownLate: 1, PutLateMax: 2 * time.Hour}
		l, got := outcomes(t, sim.Config{Embedded: embedded, Faults: late}, n, putObject)
		if embedded {
			require.Equal(t, map[error]int{nil: n}, got, "no effect stays open")
			continue
		}
		require.Equal(t, map[error]int{objstore.ErrUnknown: n}, got)
		require.Zero(t, l.w.BucketView().Len())
		issued := l.w.Time()
		var last time.Time
		l.w.OnBucket(func(e *sim.BucketEffect) {
			require.True(t, e.Late)
			last = l.w.Time()
		})
		l.inc.Kill()
		idle(t, l.w)
		require.Greater(t, l.w.BucketView().Len(), n/2)
		require.Less(t, l.w.BucketView().Len(), n, "some came past their NotAfter")
		require.NotZero(t, l.w.Marks()["bucket/put-expired"])
		require.False(t, last.After(issued.Add(time.Hour)))
	}
	for _, mode := range []struct {
		f sim.Faults
		n int
	}{{sim.Faults{PutUnknownNoEffect: 1}, 0}, {sim.Faults{PutUnknownEffect: 1}, n}} {
		l, got := outcomes(t, sim.Config{Embedded: true, Faults: mode.f}, n, putObject)
		require.Equal(t, map[error]int{objstore.ErrUnknown: n}, got)
		require.Equal(t, mode.n, l.w.BucketView().Len())
	}
}

func TestPutPastItsNotAfter(t *testing.T) {
	// It is issued in time, and reaches the bucket too late.
	_, got := outcomes(t, sim.Config{Faults: sim.Faults{BucketLatency: sim.Latency{Base: time.Minute}}}, 3,
		func(ctx context.Context, l *lab, i int) error {
			opt := objstore.PutOptions{NotAfter: l.w.Time().Add(59*time.Second + time.Duration(i)*time.Second)}
			return l.inc.Bucket().Put(ctx, "o", nil, opt)
		})
	require.Equal(t, map[error]int{objstore.ErrExpired: 1, nil: 2}, got)
}

// The bucket judges by its own clock what comes too late.
func TestBucketClock(t *testing.T) {
	for skew, late := range map[time.Duration]int{-1500 * time.Millisecond: 1, 0: 3, 1500 * time.Millisecond: 4} {
		l, got := outcomes(t, sim.Config{BucketSkew: skew, Faults: sim.Faults{BucketLatency: sim.Latency{Base: time.Minute}}}, 6,
			func(ctx context.Context, l *lab, i int) error {
				opt := objstore.PutOptions{NotAfter: l.w.Time().Add(58*time.Second - 500*time.Millisecond + time.Duration(i)*time.Second)}
				return l.inc.Bucket().Put(ctx, "o", nil, opt)
			})
		require.Equal(t, map[error]int{objstore.ErrExpired: late, nil: 6 - late}, got, skew)
		require.Equal(t, skew != 0, l.w.Marks()["bucket/clock-off"] > 0)
	}
}

func TestBucketFaults(t *testing.T) {
	const n = 300
	seed := func(l *lab, ctx context.Context) {
		f := l.w.Faults()
		l.w.SetFaults(sim.Faults{})
		_ = l.inc.Bucket().Put(ctx, "o", []byte("0123456789"), inTime(l.inc))
		l.w.SetFaults(f)
	}
	t.Run("throttle", func(t *testing.T) {
		l, got := outcomes(t, sim.Config{Faults: sim.Faults{BucketThrottle: 0.5}}, n, func(ctx context.Context, l *lab, i int) error {
			return l.inc.Bucket().Put(ctx, fmt.Sprint("o/", i), nil, inTime(l.inc))
		})
		require.Greater(t, got[objstore.ErrThrottled], 100)
		require.Equal(t, n, got[nil]+got[objstore.ErrThrottled])
		require.Equal(t, got[nil], l.w.BucketView().Len())
	})
	t.Run("read error", func(t *testing.T) {
		_, got := outcomes(t, sim.Config{Faults: sim.Faults{BucketReadError: 0.5}}, n, func(ctx context.Context, l *lab, i int) error {
			_, err := l.inc.Bucket().Stat(ctx, "o")
			return err
		})
		require.Greater(t, got[sim.ErrUnreachable], 100)
		require.Greater(t, got[objstore.ErrNotFound], 100)
	})
	t.Run("corrupted and truncated", func(t *testing.T) {
		wrong, short := 0, 0
		l, _ := outcomes(t, sim.Config{Faults: sim.Faults{CorruptRead: 0.3, TruncateRead: 0.3}}, n, func(ctx context.Context, l *lab, i int) error {
			seed(l, ctx)
			body, err := l.inc.Bucket().Get(ctx, "o", 0, -1)
			if len(body) < 10 {
				short++
			} else if string(body) != "0123456789" {
				wrong++
			}
			return err
		})
		require.Greater(t, wrong, 30)
		require.Greater(t, short, 30)
		body, _ := l.w.BucketView().Get("o")
		require.Equal(t, "0123456789", string(body), "the object itself is good")
	})
	t.Run("partial delete", func(t *testing.T) {
		gone, kept := 0, 0
		l, _ := outcomes(t, sim.Config{Faults: sim.Faults{DeletePartial: 0.5, DeleteUnknown: 0.2}}, n, func(ctx context.Context, l *lab, i int) error {
			seed(l, ctx)
			errs := l.inc.Bucket().Delete(ctx, []string{"absent", "o"})
			require.Len(t, errs, 2)
			switch has := l.w.BucketView().Has("o"); {
			case errs[1] == nil:
				require.False(t, has)
			case has:
				kept++
			default:
				gone++
			}
			return nil
		})
		require.Greater(t, gone, 30)
		require.Greater(t, kept, 30)
		require.NotNil(t, l)
	})
	t.Run("listing lag", func(t *testing.T) {
		stale := 0
		_, _ = outcomes(t, sim.Config{Faults: sim.Faults{ListLag: time.Minute}}, n, func(ctx context.Context, l *lab, i int) error {
			b, key := l.inc.Bucket(), fmt.Sprintf("o/%03d", i)
			_ = b.Put(ctx, key, nil, inTime(l.inc))
			infos, err := b.List(ctx, key, "", 10)
			require.NoError(t, err)
			fresh := len(infos) == 1
			_ = l.inc.Clock().Sleep(ctx, time.Minute)
			infos, _ = b.List(ctx, key, "", 10)
			require.Len(t, infos, 1, "no lag lasts longer")
			_ = b.Delete(ctx, []string{key})
			infos, _ = b.List(ctx, key, "", 10)
			if !fresh && len(infos) == 1 {
				stale++
			}
			_ = l.inc.Clock().Sleep(ctx, time.Minute)
			infos, _ = b.List(ctx, key, "", 10)
			require.Empty(t, infos)
			return nil
		})
		require.Greater(t, stale, 30)
	})
}

// TestEmbeddedDeleteWaitsForPut: never the other way round, whatever the latencies.
func TestEmbeddedDeleteWaitsForPut(t *testing.T) {
	for seed := range uint64(30) {
		l := newLab(t, sim.Config{Seed: seed, Embedded: true, Faults: sim.Faults{BucketLatency: sim.Latency{Base: time.Millisecond, Jitter: time.Second}}})
		l.do(t, 2, func(ctx context.Context, i int) {
			if i == 0 {
				require.NoError(t, l.inc.Bucket().Put(ctx, "o", nil, objstore.PutOptions{}))
				return
			}
			for l.w.Steps() == 0 {
				_ = l.inc.Clock().Sleep(ctx, 0)
			}
			_ = l.inc.Clock().Sleep(ctx, time.Millisecond)
			require.NoError(t, l.inc.Bucket().Delete(ctx, []string{"o"})[0])
			require.False(t, l.w.BucketView().Has("o"))
		})
		require.False(t, l.w.BucketView().Has("o"))
	}
}

func TestSessionsEnd(t *testing.T) {
	ends := func(cfg sim.Config) (at []time.Duration) {
		for seed := range uint64(40) {
			cfg.Seed = seed
			l := newLab(t, cfg)
			l.w.OnCommit(func(m *sim.Commit) {
				if m.Session != 0 {
					require.Len(t, m.Changes, 1)
					at = append(at, l.w.Elapsed())
				}
			})
			l.do(t, 1, func(ctx context.Context, _ int) {
				sess, err := l.inc.Store().OpenSession(ctx, 10*time.Second)
				require.NoError(t, err)
				_, err = l.inc.Store().Commit(ctx, metastore.Batch{Ops: []metastore.Op{metastore.PutUnder(sess.ID(), "s", nil)}})
				require.NoError(t, err)
				require.Equal(t, sess.ID(), l.w.StoreView().Session("s"))
			})
			l.inc.Kill()
			idle(t, l.w)
			require.Zero(t, l.w.StoreView().Len())
		}
		return at
	}
	for _, at := range ends(sim.Config{}) {
		require.Equal(t, 10*time.Second, at)
	}
	for _, at := range ends(sim.Config{Embedded: true}) {
		require.Zero(t, at, "with the process")
	}
	early, late := 0, 0
	for _, at := range ends(sim.Config{Faults: sim.Faults{SessionLate: 0.5, SessionLateMax: time.Minute, SessionEarly: 0.3}}) {
		require.LessOrEqual(t, at, 70*time.Second)
		switch {
		case at < 10*time.Second:
			early++
		case at > 10*time.Second:
			late++
		}
	}
	require.Greater(t, early, 3)
	require.Greater(t, late, 3)
}

func TestEmbeddedSessionsOutliveTheirTTL(t *testing.T) {
	l := newLab(t, sim.Config{Embedded: true})
	l.do(t, 1, func(ctx context.Context, _ int) {
		sess, err := l.inc.Store().OpenSession(ctx, time.Second)
		require.NoError(t, err)
		require.NoError(t, l.inc.Clock().Sleep(ctx, time.Minute))
		require.NoError(t, sess.KeepAlive(ctx))
		require.NoError(t, sess.Close(ctx))
		require.ErrorIs(t, sess.KeepAlive(ctx), metastore.ErrSessionGone)
	})
}

func TestPartition(t *testing.T) {
	l := newLab(t, sim.Config{Faults: sim.Faults{StoreLatency: sim.Latency{Base: time.Second}}})
	n := l.inc.Node()
	l.do(t, 1, func(ctx context.Context, _ int) {
		st := l.inc.Store()
		n.Partition(true, true, false)
		_, err := st.Commit(ctx, put("k", "v"))
		require.ErrorIs(t, err, metastore.ErrUnknown)
		_, err = st.Get(ctx, "k")
		require.ErrorIs(t, err, metastore.ErrUnavailable)
		_, err = st.OpenSession(ctx, time.Second)
		require.ErrorIs(t, err, metastore.ErrUnavailable)
		_, err = l.inc.Bucket().List(ctx, "", "", 1)
		require.ErrorIs(t, err, sim.ErrUnreachable)
		require.ErrorIs(t, l.inc.Bucket().Delete(ctx, []string{"o"})[0], objstore.ErrUnknown)
		require.False(t, l.w.StoreView().Get("k").Exists())

		// Cut off after it was sent: it takes effect, the answer is lost.
		n.Partition(false, false, false)
		l.w.At(1500*time.Millisecond, func() { n.Partition(true, false, false) })
		_, err = st.Commit(ctx, put("k", "v"))
		require.ErrorIs(t, err, metastore.ErrUnknown)
		require.True(t, l.w.StoreView().Get("k").Exists())

		l.w.StopFaults()
		_, err = st.Commit(ctx, put("k", "v"))
		require.NoError(t, err)
		l.w.SetOutage(true, false)
		_, err = st.Get(ctx, "k")
		require.ErrorIs(t, err, metastore.ErrUnavailable)
	})
}

func TestScanShort(t *testing.T) {
	l := newLab(t, sim.Config{Faults: sim.Faults{ScanShort: 0.5}})
	l.do(t, 1, func(ctx context.Context, _ int) {
		for i := range 20 {
			_, _ = l.inc.Store().Commit(ctx, put(fmt.Sprintf("k/%02d", i), ""))
		}
		pages, seen := 0, 0
		for r := metastore.Prefix("k/"); ; pages++ {
			page, err := l.inc.Store().Scan(ctx, r, 10)
			require.NoError(t, err)
			require.NotEmpty(t, page.Records)
			seen += len(page.Records)
			if !page.More {
				break
			}
			r.Start = page.Records[len(page.Records)-1].Key + "\x00"
		}
		require.Equal(t, 20, seen)
		require.Greater(t, pages, 2)
	})
}
