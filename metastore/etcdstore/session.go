package etcdstore

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/nova-store/nova/metastore"
)

// OpenSession starts a session: a lease of ttl, in whole seconds and not below what the cluster
// grants at least (2 s by default). A lost answer leaves a lease that nobody uses and that ends by itself.
func (s *Store) OpenSession(ctx context.Context, ttl time.Duration) (metastore.Session, error) {
	if err := s.begin(ctx); err != nil {
		return nil, fmt.Errorf("open session: %w", err)
	}
	seconds := max(int64((ttl+time.Second-1)/time.Second), 1)
	var lease *clientv3.LeaseGrantResponse
	err := s.try(ctx, func(ctx context.Context) (err error) {
		lease, err = s.client.Grant(ctx, seconds)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("open session: %w", readError(ctx, err))
	}
	return &session{s: s, lease: lease.ID, ttl: time.Duration(lease.TTL) * time.Second}, nil
}

type session struct {
	s     *Store
	lease clientv3.LeaseID
	ttl   time.Duration
	// closed: the lease's end was confirmed. A member may confirm it before the leader has applied it, which until
	// then would still renew the lease.
	closed atomic.Bool
}

// ID is the lease's.
func (ss *session) ID() metastore.SessionID { return metastore.SessionID(ss.lease) }

// TTL is what the cluster granted. A change of the leader begins it anew, so that a session may last longer.
func (ss *session) TTL() time.Duration { return ss.ttl }

// KeepAlive renews the lease.
func (ss *session) KeepAlive(ctx context.Context) error {
	if err := ss.s.begin(ctx); err != nil {
		return fmt.Errorf("keep alive: %w", err)
	}
	if ss.closed.Load() {
		return fmt.Errorf("keep alive: %w: it was closed", metastore.ErrSessionGone)
	}
	if err := ss.s.try(ctx, ss.renew); err != nil {
		return fmt.Errorf("keep alive: %w", readError(ctx, err))
	}
	return nil
}

// renew asks once. The client's own KeepAliveOnce asks again and again, without a pause, while there is no connection.
func (ss *session) renew(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := ss.s.leases.LeaseKeepAlive(ctx)
	if err != nil {
		return clientv3.ContextError(ctx, err)
	}
	if err := stream.Send(&pb.LeaseKeepAliveRequest{ID: int64(ss.lease)}); err != nil {
		return clientv3.ContextError(ctx, err)
	}
	resp, err := stream.Recv()
	err = clientv3.ContextError(ctx, err)
	switch {
	case errors.Is(err, rpctypes.ErrLeaseNotFound), err == nil && resp.TTL <= 0:
		return fmt.Errorf("%w: lease %x has ended", metastore.ErrSessionGone, int64(ss.lease))
	}
	return err
}

// Close ends the lease, and with it its keys.
func (ss *session) Close(ctx context.Context) error {
	if err := ss.s.begin(ctx); err != nil {
		return fmt.Errorf("close session: %w", err)
	}
	err := ss.s.try(ctx, func(ctx context.Context) error {
		_, err := ss.s.client.Revoke(ctx, ss.lease)
		if errors.Is(err, rpctypes.ErrLeaseNotFound) {
			return nil
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("close session: %w", readError(ctx, err))
	}
	ss.closed.Store(true)
	return nil
}
