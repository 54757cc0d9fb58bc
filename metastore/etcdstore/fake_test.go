package etcdstore

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
)

// fake is a member that answers as a test tells it to. What real ones do, the tests with the build tag etcd say.
type fake struct {
	pb.UnimplementedKVServer
	pb.UnimplementedLeaseServer

	mu     sync.Mutex
	txns   []*pb.TxnRequest
	ranges []*pb.RangeRequest
	leader []string // of each call the metadata that asks for a leader
	renews int

	txn   func(n int) (*pb.TxnResponse, error)
	read  func(n int, r *pb.RangeRequest) (*pb.RangeResponse, error)
	renew func(n int) (*pb.LeaseKeepAliveResponse, error)
	grant func(r *pb.LeaseGrantRequest) (*pb.LeaseGrantResponse, error)
	end   func(r *pb.LeaseRevokeRequest) (*pb.LeaseRevokeResponse, error)
}

// called notes a call, whichever the lock is held for.
func (f *fake) called(ctx context.Context) {
	md, _ := metadata.FromIncomingContext(ctx)
	f.leader = append(f.leader, md.Get("hasleader")...)
}

func (f *fake) Txn(ctx context.Context, r *pb.TxnRequest) (*pb.TxnResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.called(ctx)
	f.txns = append(f.txns, r)
	return f.txn(len(f.txns))
}

func (f *fake) Range(ctx context.Context, r *pb.RangeRequest) (*pb.RangeResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.called(ctx)
	f.ranges = append(f.ranges, r)
	return f.read(len(f.ranges), r)
}

func (f *fake) LeaseKeepAlive(stream pb.Lease_LeaseKeepAliveServer) error {
	if _, err := stream.Recv(); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.called(stream.Context())
	f.renews++
	resp, err := f.renew(f.renews)
	if err != nil {
		return err
	}
	return stream.Send(resp)
}

func (f *fake) LeaseGrant(ctx context.Context, r *pb.LeaseGrantRequest) (*pb.LeaseGrantResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.called(ctx)
	return f.grant(r)
}

func (f *fake) LeaseRevoke(ctx context.Context, r *pb.LeaseRevokeRequest) (*pb.LeaseRevokeResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.called(ctx)
	return f.end(r)
}

// serve returns a store that knows this member alone.
func (f *fake) serve(t *testing.T, opts Options) *Store {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	srv := grpc.NewServer()
	pb.RegisterKVServer(srv, f)
	pb.RegisterLeaseServer(srv, f)
	served := make(chan error, 1)
	go func() { served <- srv.Serve(l) }()
	t.Cleanup(func() {
		srv.Stop()
		require.NoError(t, <-served)
	})
	client, err := NewClient(ClientConfig{Endpoints: []string{l.Addr().String()}})
	require.NoError(t, err)
	if opts.CallTimeout == 0 {
		opts.CallTimeout = 30 * time.Second // the machine may be slow
	}
	s, err := New(client, "p/", opts)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}
