package etcdstore

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/nova-store/nova/metastore"
)

// numbered answers a read out of keys p/0 … p/9, at the revision asked for or else rev.
func numbered(rev int64, r *pb.RangeRequest) *pb.RangeResponse {
	if r.Revision > 0 {
		rev = r.Revision
	}
	resp := &pb.RangeResponse{Header: &pb.ResponseHeader{Revision: rev}}
	for i := range 10 {
		key := fmt.Sprintf("p/%d", i)
		switch {
		case key < string(r.Key) || key >= string(r.RangeEnd):
		case int64(len(resp.Kvs)) == r.Limit:
			resp.More = true
		default:
			resp.Kvs = append(resp.Kvs, &mvccpb.KeyValue{Key: []byte(key), ModRevision: rev})
		}
	}
	return resp
}

// TestAPageIsReadAtOneRevision: also in parts, and from its beginning where that revision is compacted meanwhile.
func TestAPageIsReadAtOneRevision(t *testing.T) {
	compactions := 1
	f := &fake{}
	f.read = func(n int, r *pb.RangeRequest) (*pb.RangeResponse, error) {
		if r.Revision > 0 && string(r.Key) > "p/4" && compactions > 0 {
			compactions--
			return nil, rpctypes.ErrGRPCCompacted
		}
		// The store moves on all the time.
		return numbered(100+int64(n), r), nil
	}
	s := f.serve(t, Options{MaxOps: 3})
	page, err := s.Scan(t.Context(), metastore.Range{}, 8)
	require.NoError(t, err)
	require.Len(t, page.Records, 8)
	require.True(t, page.More)
	for i, rec := range page.Records {
		require.Equal(t, fmt.Sprint(i), rec.Key)
		require.Equal(t, page.Records[0].Version, rec.Version)
	}
	var asked []string
	for _, r := range f.ranges {
		require.False(t, r.Serializable)
		asked = append(asked, fmt.Sprintf("%q %d %d", r.Key, r.Limit, r.Revision))
	}
	require.Equal(t, []string{
		`"p/" 3 0`, `"p/2\x00" 3 101`, `"p/5\x00" 2 101`, // compacted
		`"p/" 3 0`, `"p/2\x00" 3 104`, `"p/5\x00" 2 104`,
	}, asked)

	compactions = 100
	_, err = s.Scan(t.Context(), metastore.Range{}, 8)
	require.ErrorIs(t, err, metastore.ErrUnavailable)
	require.Equal(t, 100-1-pageRestarts, compactions)
}

func TestReadsAreTriedAgain(t *testing.T) {
	f := &fake{}
	f.read = func(n int, r *pb.RangeRequest) (*pb.RangeResponse, error) {
		switch n {
		case 1:
			return nil, rpctypes.ErrGRPCNoLeader
		case 2:
			return nil, status.Error(codes.Unavailable, "transport is closing")
		}
		return numbered(9, r), nil
	}
	s := f.serve(t, Options{})
	recs, err := s.Peek(t.Context(), []metastore.Range{{Start: "4"}, {Start: "3", End: "2"}})
	require.NoError(t, err)
	require.Equal(t, []metastore.Record{{Key: "4", Version: 9}, {}}, recs)
	require.Len(t, f.ranges, 3)

	f.read = func(int, *pb.RangeRequest) (*pb.RangeResponse, error) { return nil, rpctypes.ErrGRPCPermissionDenied }
	_, err = s.Get(t.Context(), "a")
	require.ErrorIs(t, err, metastore.ErrUnavailable)
	require.Len(t, f.ranges, 4, "it would be answered alike")
}

func TestAReadThatIsNotAnswered(t *testing.T) {
	hang := make(chan struct{})
	f := &fake{read: func(int, *pb.RangeRequest) (*pb.RangeResponse, error) {
		<-hang
		return nil, rpctypes.ErrGRPCStopped
	}}
	s := f.serve(t, Options{CallTimeout: 50 * time.Millisecond})
	_, err := s.Get(t.Context(), "a")
	require.ErrorIs(t, err, metastore.ErrUnavailable)
	require.NotErrorIs(t, err, context.DeadlineExceeded, "the caller's context has not ended")
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	_, err = s.Get(ctx, "a")
	require.ErrorIs(t, err, context.DeadlineExceeded)
	close(hang)
}

func TestSessionsAreLeases(t *testing.T) {
	f := &fake{
		grant: func(r *pb.LeaseGrantRequest) (*pb.LeaseGrantResponse, error) {
			return &pb.LeaseGrantResponse{ID: 77, TTL: max(r.TTL, 2)}, nil
		},
		renew: func(n int) (*pb.LeaseKeepAliveResponse, error) {
			switch n {
			case 1:
				return nil, status.Error(codes.Unavailable, "transport is closing")
			case 2:
				return &pb.LeaseKeepAliveResponse{ID: 77, TTL: 2}, nil
			}
			return &pb.LeaseKeepAliveResponse{ID: 77}, nil
		},
		end: func(*pb.LeaseRevokeRequest) (*pb.LeaseRevokeResponse, error) {
			return nil, rpctypes.ErrGRPCLeaseNotFound
		},
	}
	s := f.serve(t, Options{})
	for asked, want := range map[time.Duration]time.Duration{time.Millisecond: 2 * time.Second, 2100 * time.Millisecond: 3 * time.Second} {
		sess, err := s.OpenSession(t.Context(), asked)
		require.NoError(t, err)
		require.Equal(t, want, sess.TTL())
		require.Equal(t, metastore.SessionID(77), sess.ID())
	}
	sess, err := s.OpenSession(t.Context(), time.Second)
	require.NoError(t, err)
	require.NoError(t, sess.KeepAlive(t.Context()))
	require.Equal(t, 2, f.renews)
	require.ErrorIs(t, sess.KeepAlive(t.Context()), metastore.ErrSessionGone)
	require.NoError(t, sess.Close(t.Context()), "it has ended")

	// The leader may not have applied yet what another member has confirmed.
	f.renew = func(int) (*pb.LeaseKeepAliveResponse, error) { return &pb.LeaseKeepAliveResponse{ID: 77, TTL: 2}, nil }
	f.end = func(*pb.LeaseRevokeRequest) (*pb.LeaseRevokeResponse, error) { return &pb.LeaseRevokeResponse{}, nil }
	sess, err = s.OpenSession(t.Context(), time.Second)
	require.NoError(t, err)
	require.NoError(t, sess.KeepAlive(t.Context()))
	require.NoError(t, sess.Close(t.Context()))
	require.ErrorIs(t, sess.KeepAlive(t.Context()), metastore.ErrSessionGone)
}

// TestAKeepAliveDoesNotSpin: while no member answers, few tries a second are made.
func TestAKeepAliveDoesNotSpin(t *testing.T) {
	f := &fake{renew: func(int) (*pb.LeaseKeepAliveResponse, error) {
		return nil, status.Error(codes.Unavailable, "transport is closing")
	}}
	s := f.serve(t, Options{CallTimeout: 300 * time.Millisecond})
	err := (&session{s: s, lease: 7}).KeepAlive(t.Context())
	require.ErrorIs(t, err, metastore.ErrUnavailable)
	require.LessOrEqual(t, f.renews, 20)
}
