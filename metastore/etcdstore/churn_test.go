//go:build etcd

package etcdstore_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/nova-store/nova/metastore"
	"github.com/nova-store/nova/metastore/etcdstore"
	"github.com/nova-store/nova/metastore/etcdstore/etcdtest"
)

// TestNothingIsLostWhileMembersFail: workers increment one counter by commits that they repeat until definite, each leaving a
// record of its own, while the leader moves, members are killed and started again, and one stands still. In the end the
// counter is the number of increments that were acknowledged, each of which was counted once; no read ever went
// back; a session that was kept alive lived on.
func TestNothingIsLostWhileMembersFail(t *testing.T) {
	const workers = 6
	cluster := etcdtest.Start(t)
	o := &opener{cluster: cluster}
	s := o.open(t, etcdstore.Options{CallTimeout: 2 * time.Second})
	ctx, stop := context.WithCancel(t.Context())
	defer stop()

	// Longer than an election, and than what is left of a TTL when a leader dies.
	sess, err := s.OpenSession(ctx, 30*time.Second)
	require.NoError(t, err)
	_, err = s.Commit(ctx, metastore.Batch{Ops: []metastore.Op{metastore.Put("counter", make([]byte, 8)), metastore.PutUnder(sess.ID(), "alive", nil)}})
	require.NoError(t, err)

	var wg sync.WaitGroup
	var acknowledged, unknown atomic.Int64
	errs := make([]error, workers+2)
	for i := range workers {
		wg.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				lost, err := incrementOnce(t.Context(), s, fmt.Sprintf("done/%d/%06d", i, n))
				if err != nil {
					errs[i] = err
					return
				}
				acknowledged.Add(1)
				unknown.Add(lost)
			}
		})
	}
	wg.Go(func() {
		var last metastore.Version
		for ctx.Err() == nil {
			recs, err := s.Get(ctx, "counter")
			switch {
			case err != nil && !errors.Is(err, metastore.ErrUnavailable) && ctx.Err() == nil:
				errs[workers] = err
				return
			case err == nil && recs[0].Version < last:
				errs[workers] = fmt.Errorf("a read went back from %d to %d", last, recs[0].Version)
				return
			case err == nil:
				last = recs[0].Version
			}
		}
	})
	wg.Go(func() {
		for ctx.Err() == nil {
			if err := sess.KeepAlive(ctx); errors.Is(err, metastore.ErrSessionGone) {
				errs[workers+1] = err
				return
			}
			pause(ctx, 2*time.Second)
		}
	})

	progress := func(by int64) {
		t.Helper()
		from := acknowledged.Load()
		require.Eventually(t, func() bool { return acknowledged.Load() >= from+by }, time.Minute, 20*time.Millisecond)
	}
	progress(50)
	for range 2 {
		require.NoError(t, cluster.MoveLeader(ctx, t))
		progress(50)
		leader := cluster.Leader(t)
		leader.Kill()
		progress(50)
		cluster.StartMember(t, leader)
		progress(50)
		paused := cluster.Leader(t)
		require.NoError(t, paused.Pause())
		progress(20)
		require.NoError(t, paused.Resume())
		progress(50)
	}
	stop()
	wg.Wait()
	for _, err := range errs {
		require.NoError(t, err)
	}
	recs, err := s.Get(t.Context(), "counter", "alive")
	require.NoError(t, err)
	require.EqualValues(t, acknowledged.Load(), binary.BigEndian.Uint64(recs[0].Value))
	require.True(t, recs[1].Exists(), "its session was kept alive")
	page, err := s.Scan(t.Context(), metastore.Prefix("done/"), 1<<20)
	require.NoError(t, err)
	require.Len(t, page.Records, int(acknowledged.Load()))
	t.Logf("%d increments acknowledged, %d answers lost on the way", acknowledged.Load(), unknown.Load())
}

// incrementOnce adds one to the counter and puts a record named by the nonce, in one commit, which it repeats while its outcome is
// unknown. A conflict after a lost answer is its own twin's if the record is there.
func incrementOnce(ctx context.Context, s metastore.Store, nonce string) (lost int64, err error) {
	maybe := false
	for {
		recs, err := s.Get(ctx, "counter", nonce)
		switch {
		case errors.Is(err, metastore.ErrUnavailable):
			continue
		case err != nil:
			return lost, err
		case recs[1].Exists() && !maybe:
			return lost, errors.New("a twin landed, and no answer was lost")
		case recs[1].Exists():
			return lost, nil
		}
		b := metastore.Batch{
			Conds: []metastore.Cond{metastore.At("counter", recs[0].Version)},
			Ops: []metastore.Op{
				metastore.Put("counter", binary.BigEndian.AppendUint64(nil, binary.BigEndian.Uint64(recs[0].Value)+1)),
				metastore.Put(nonce, nil),
			},
		}
		for {
			_, err = s.Commit(ctx, b)
			if !errors.Is(err, metastore.ErrUnknown) && !errors.Is(err, metastore.ErrUnavailable) {
				break
			}
			if errors.Is(err, metastore.ErrUnknown) {
				maybe = true
				lost++
			}
			pause(ctx, 10*time.Millisecond)
		}
		switch {
		case err == nil:
			return lost, nil
		case !errors.Is(err, metastore.ErrConflict):
			return lost, err
		}
	}
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// A session that nobody keeps alive ends by itself, and takes its keys with it.
func TestASessionEndsByItself(t *testing.T) {
	o := &opener{cluster: etcdtest.Start(t)}
	s := o.open(t, etcdstore.Options{})
	sess, err := s.OpenSession(t.Context(), time.Second)
	require.NoError(t, err)
	require.GreaterOrEqual(t, sess.TTL(), time.Second)
	_, err = s.Commit(t.Context(), metastore.Batch{Ops: []metastore.Op{metastore.PutUnder(sess.ID(), "k", nil)}})
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		recs, err := s.Get(t.Context(), "k")
		return err == nil && !recs[0].Exists()
	}, 30*time.Second, 50*time.Millisecond)
	require.ErrorIs(t, sess.KeepAlive(t.Context()), metastore.ErrSessionGone)
	_, err = s.Commit(t.Context(), metastore.Batch{Ops: []metastore.Op{metastore.PutUnder(sess.ID(), "k", nil)}})
	require.ErrorIs(t, err, metastore.ErrSessionGone)
}

// Without a majority calls fail instead of hanging, and go on once it is back.
func TestNoMajority(t *testing.T) {
	cluster := etcdtest.Start(t)
	o := &opener{cluster: cluster}
	s := o.open(t, etcdstore.Options{CallTimeout: time.Second})
	require.NoError(t, s.Probe(t.Context(), discard))
	for _, m := range cluster.Members[1:] {
		m.Kill()
	}
	_, err := s.Commit(t.Context(), metastore.Batch{Conds: []metastore.Cond{metastore.Absent("k")}, Ops: []metastore.Op{metastore.Put("k", nil)}})
	require.True(t, errors.Is(err, metastore.ErrUnknown) || errors.Is(err, metastore.ErrUnavailable), "%v", err)
	_, err = s.Get(t.Context(), "k")
	require.ErrorIs(t, err, metastore.ErrUnavailable)
	for _, m := range cluster.Members[1:] {
		cluster.StartMember(t, m)
	}
	require.Eventually(t, func() bool {
		_, err := s.Get(t.Context(), "k")
		return err == nil
	}, time.Minute, 50*time.Millisecond)
}

// The probe refuses clusters that Nova's commits would be too much for, or that want another user, and says what to do.
func TestProbeRefuses(t *testing.T) {
	probe := func(c *etcdtest.Cluster, name, password string) error {
		client, err := etcdstore.NewClient(etcdstore.ClientConfig{Endpoints: c.Endpoints(), Username: name, Password: password})
		if err != nil {
			return err
		}
		s, err := etcdstore.New(client, "nova/", etcdstore.Options{})
		require.NoError(t, err)
		defer s.Close()
		return s.Probe(t.Context(), discard)
	}
	few := etcdtest.Start(t, "--max-txn-ops=64")
	require.ErrorContains(t, probe(few, "", ""), "--max-txn-ops=128")
	small := etcdtest.Start(t, "--max-request-bytes=524288")
	require.ErrorContains(t, probe(small, "", ""), "--max-request-bytes=1572864")

	// With users.
	guarded := few
	admin := guarded.Client(t)
	ctx := t.Context()
	_, err := admin.UserAdd(ctx, "root", "secret-of-root")
	require.NoError(t, err)
	_, err = admin.UserGrantRole(ctx, "root", "root")
	require.NoError(t, err)
	_, err = admin.UserAdd(ctx, "nova", "secret-of-nova")
	require.NoError(t, err)
	_, err = admin.RoleAdd(ctx, "nova")
	require.NoError(t, err)
	_, err = admin.RoleGrantPermission(ctx, "nova", "other/", clientv3.GetPrefixRangeEnd("other/"), clientv3.PermissionType(clientv3.PermReadWrite))
	require.NoError(t, err)
	_, err = admin.UserGrantRole(ctx, "nova", "nova")
	require.NoError(t, err)
	_, err = admin.AuthEnable(ctx)
	require.NoError(t, err)

	open := func(name, password, prefix string) error {
		client, err := etcdstore.NewClient(etcdstore.ClientConfig{Endpoints: guarded.Endpoints(), Username: name, Password: password})
		if err != nil {
			return err
		}
		s, err := etcdstore.New(client, prefix, etcdstore.Options{MaxOps: 64})
		require.NoError(t, err)
		defer s.Close()
		if err := s.Probe(ctx, discard); err != nil {
			return err
		}
		sess, err := s.OpenSession(ctx, time.Minute)
		if err != nil {
			return err
		}
		if _, err := s.Commit(ctx, metastore.Batch{Ops: []metastore.Op{metastore.PutUnder(sess.ID(), "k", []byte("v"))}}); err != nil {
			return err
		}
		return errors.Join(sess.KeepAlive(ctx), sess.Close(ctx))
	}
	require.ErrorContains(t, open("", "", "other/"), "this cluster wants to know who asks")
	require.Error(t, open("nova", "wrong", "other/"))
	require.ErrorContains(t, open("nova", "secret-of-nova", "nova/"), `all keys that begin with "nova/"`)
	require.NoError(t, open("nova", "secret-of-nova", "other/"))
}
