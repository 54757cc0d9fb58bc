//go:build etcd

package etcdstore_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/nova-store/nova/metastore"
	"github.com/nova-store/nova/metastore/etcdstore"
	"github.com/nova-store/nova/metastore/etcdstore/etcdtest"
	"github.com/nova-store/nova/metastore/storetest"
)

var discard = slog.New(slog.DiscardHandler)

// opener opens keyspaces of a cluster, each another.
type opener struct {
	cluster *etcdtest.Cluster
	opened  atomic.Int64
}

// shaky is a store whose next transaction may lose its answer.
type shaky struct {
	*etcdstore.Store
	client *clientv3.Client

	mu    sync.Mutex
	armed bool
	mode  storetest.UnknownMode
	late  []func()
}

func (o *opener) open(t *testing.T, opts etcdstore.Options) *shaky {
	s := &shaky{}
	client, err := etcdstore.NewClient(etcdstore.ClientConfig{
		Endpoints: o.cluster.Endpoints(), DialOptions: []grpc.DialOption{grpc.WithChainUnaryInterceptor(s.intercept)},
	})
	require.NoError(t, err)
	s.client = client
	s.Store, err = etcdstore.New(client, fmt.Sprintf("test/%d/", o.opened.Add(1)), opts)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// intercept is between the client and the wire.
func (s *shaky) intercept(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	txn, isTxn := req.(*pb.TxnRequest)
	s.mu.Lock()
	hit := s.armed && isTxn && len(txn.Success) > 0 && txn.Success[0].GetRequestRange() == nil
	mode := s.mode
	if hit {
		s.armed = false
	}
	s.mu.Unlock()
	if !hit {
		return invoke(ctx, method, req, reply, cc, opts...)
	}
	switch mode {
	case storetest.UnknownEffect:
		if err := invoke(ctx, method, req, reply, cc, opts...); err != nil {
			return err
		}
	case storetest.UnknownLateEffect:
		late := context.WithoutCancel(ctx)
		s.mu.Lock()
		s.late = append(s.late, func() {
			_ = invoke(late, method, req, &pb.TxnResponse{}, cc, opts...) // nobody waits for the answer
		})
		s.mu.Unlock()
	}
	return status.Error(codes.Unavailable, "connection reset by the test")
}

// TestConformance runs the suite against a cluster of three.
func TestConformance(t *testing.T) {
	o := &opener{cluster: etcdtest.Start(t)}
	storetest.Run(t, storetest.Harness{
		Open: func(t *testing.T) metastore.Store { return o.open(t, etcdstore.Options{}) },
		Do:   func(t *testing.T, _ metastore.Store, f func(ctx context.Context)) { f(t.Context()) },
		Parallel: func(t *testing.T, _ metastore.Store, n int, f func(ctx context.Context, i int)) {
			var wg sync.WaitGroup
			for i := range n {
				wg.Go(func() { f(t.Context(), i) })
			}
			wg.Wait()
		},
		SmallLimits: func(t *testing.T) metastore.Store { return o.open(t, etcdstore.Options{MaxOps: 8}) },
		// What the end of a lease's time does, the leader's revocation, is this.
		ExpireSession: func(t *testing.T, store metastore.Store, session metastore.Session) {
			client, lease := store.(*shaky).client, clientv3.LeaseID(session.ID())
			_, err := client.Revoke(t.Context(), lease)
			require.NoError(t, err)
			// Unlike the end of its time, this may be confirmed before the leader has applied it.
			require.Eventually(t, func() bool {
				left, err := client.TimeToLive(t.Context(), lease)
				return err == nil && left.TTL < 0
			}, 10*time.Second, time.Millisecond)
		},
		InjectUnknown: func(store metastore.Store, mode storetest.UnknownMode) {
			s := store.(*shaky)
			s.mu.Lock()
			defer s.mu.Unlock()
			s.armed, s.mode = true, mode
		},
		LandLate: func(_ *testing.T, store metastore.Store) {
			s := store.(*shaky)
			s.mu.Lock()
			late := s.late
			s.late = nil
			s.mu.Unlock()
			for _, land := range late {
				land()
			}
		},
	})
}
