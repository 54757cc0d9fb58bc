package etcdstore

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/nova-store/nova/metastore"
)

var someBatch = metastore.Batch{
	Conds: []metastore.Cond{metastore.At("a", 7), metastore.Absent("b"), metastore.Exists("c")},
	Ops:   []metastore.Op{metastore.Put("a", []byte("1")), metastore.PutUnder(5, "s", []byte("2")), metastore.Delete("c")},
}

// TestWhatACommitsErrorMeans: whatever is not known to have had no effect is unknown, and nothing is sent twice.
func TestWhatACommitsErrorMeans(t *testing.T) {
	for _, test := range []struct {
		name   string
		answer error
		want   error
	}{
		{"a lost connection", status.Error(codes.Unavailable, "transport is closing"), metastore.ErrUnknown},
		{"the server's time-out", rpctypes.ErrGRPCTimeout, metastore.ErrUnknown},
		{"a leader that failed", rpctypes.ErrGRPCTimeoutDueToLeaderFail, metastore.ErrUnknown},
		{"a member that stops", rpctypes.ErrGRPCStopped, metastore.ErrUnknown},
		{"a dropped proposal", status.Error(codes.Unknown, "raft proposal dropped"), metastore.ErrUnknown},
		// The client itself would send these again, and the second try meet the first.
		{"a cancelled context of the member", status.Error(codes.Canceled, "context canceled"), metastore.ErrUnknown},
		{"an expired context of the member", status.Error(codes.DeadlineExceeded, "context deadline exceeded"), metastore.ErrUnknown},
		{"no leader", rpctypes.ErrGRPCNoLeader, metastore.ErrUnavailable},
		{"too much under way", rpctypes.ErrTooManyRequests, metastore.ErrUnavailable},
		{"a full quota, after it was applied perhaps", rpctypes.ErrGRPCNoSpace, metastore.ErrUnknown},
		{"no permission", rpctypes.ErrGRPCPermissionDenied, metastore.ErrUnavailable},
		{"a dead lease", rpctypes.ErrGRPCLeaseNotFound, metastore.ErrSessionGone},
		{"too large after all", rpctypes.ErrGRPCRequestTooLarge, metastore.ErrTooLarge},
		{"too many after all", rpctypes.ErrGRPCTooManyOps, metastore.ErrTooLarge},
		{"twice after all", rpctypes.ErrGRPCDuplicateKey, metastore.ErrDuplicateKey},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := &fake{txn: func(int) (*pb.TxnResponse, error) { return nil, test.answer }}
			_, err := f.serve(t, Options{}).Commit(t.Context(), someBatch)
			require.ErrorIs(t, err, test.want)
			for _, other := range []error{metastore.ErrUnknown, metastore.ErrUnavailable, metastore.ErrSessionGone, context.Canceled, context.DeadlineExceeded} {
				if other != test.want {
					require.NotErrorIs(t, err, other)
				}
			}
			require.Len(t, f.txns, 1)
		})
	}
}

func TestACommitThatIsNotAnsweredIsUnknown(t *testing.T) {
	hang := make(chan struct{})
	f := &fake{txn: func(int) (*pb.TxnResponse, error) {
		<-hang
		return nil, rpctypes.ErrGRPCStopped
	}}
	s := f.serve(t, Options{CallTimeout: 50 * time.Millisecond})
	_, err := s.Commit(t.Context(), someBatch)
	require.ErrorIs(t, err, metastore.ErrUnknown)
	require.NotErrorIs(t, err, context.DeadlineExceeded, "the caller's context has not ended")
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	<-ctx.Done()
	_, err = s.Commit(ctx, someBatch)
	require.ErrorIs(t, err, context.DeadlineExceeded, "nothing was sent")
	require.NotErrorIs(t, err, metastore.ErrUnknown)
	close(hang)
}

func TestAnExpiredTokenIsRenewedOnce(t *testing.T) {
	f := &fake{txn: func(n int) (*pb.TxnResponse, error) {
		if n == 1 {
			return nil, rpctypes.ErrGRPCInvalidAuthToken
		}
		return &pb.TxnResponse{Header: &pb.ResponseHeader{Revision: 9}, Succeeded: true}, nil
	}}
	s := f.serve(t, Options{})
	v, err := s.Commit(t.Context(), someBatch)
	require.NoError(t, err)
	require.Equal(t, metastore.Version(9), v)
	f.txn = func(int) (*pb.TxnResponse, error) { return nil, rpctypes.ErrGRPCInvalidAuthToken }
	_, err = s.Commit(t.Context(), someBatch)
	require.ErrorIs(t, err, metastore.ErrUnavailable)
	require.Len(t, f.txns, 4)
}

func TestATransaction(t *testing.T) {
	f := &fake{txn: func(int) (*pb.TxnResponse, error) {
		return &pb.TxnResponse{Header: &pb.ResponseHeader{Revision: 9}, Succeeded: true}, nil
	}}
	s := f.serve(t, Options{})
	v, err := s.Commit(t.Context(), someBatch)
	require.NoError(t, err)
	require.Equal(t, metastore.Version(9), v)
	require.Equal(t, []string{"true"}, f.leader, "a member without a leader refuses at once")
	sent := f.txns[0]
	require.Len(t, sent.Compare, 3)
	for i, want := range []struct {
		key    string
		result pb.Compare_CompareResult
		rev    int64
	}{{"p/a", pb.Compare_EQUAL, 7}, {"p/b", pb.Compare_EQUAL, 0}, {"p/c", pb.Compare_GREATER, 0}} {
		c := sent.Compare[i]
		require.Equal(t, want.key, string(c.Key))
		require.Equal(t, pb.Compare_MOD, c.Target)
		require.Equal(t, want.result, c.Result)
		require.Equal(t, want.rev, c.GetModRevision())
	}
	require.Empty(t, sent.Failure)
	require.Len(t, sent.Success, 3)
	require.Zero(t, sent.Success[0].GetRequestPut().Lease)
	require.Equal(t, int64(5), sent.Success[1].GetRequestPut().Lease)
	require.Equal(t, "p/c", string(sent.Success[2].GetRequestDeleteRange().Key))

	// One that only checks must not be taken for one that may be answered from stale state.
	v, err = s.Commit(t.Context(), metastore.Batch{Conds: someBatch.Conds})
	require.NoError(t, err)
	require.Zero(t, v)
	require.Len(t, f.txns[1].Success, 1)
	require.False(t, f.txns[1].Success[0].GetRequestRange().Serializable)

	f.txn = func(int) (*pb.TxnResponse, error) {
		return &pb.TxnResponse{Header: &pb.ResponseHeader{Revision: 9}}, nil
	}
	_, err = s.Commit(t.Context(), someBatch)
	require.ErrorIs(t, err, metastore.ErrConflict)
}

// TestRefusedUnsent: what breaks a limit is not sent at all.
func TestRefusedUnsent(t *testing.T) {
	s := (&fake{}).serve(t, Options{MaxOps: 2, MaxBytes: 10})
	for _, test := range []struct {
		batch metastore.Batch
		want  error
	}{
		{metastore.Batch{Ops: []metastore.Op{metastore.Delete("a"), metastore.Delete("b"), metastore.Delete("c")}}, metastore.ErrTooLarge},
		{metastore.Batch{Conds: []metastore.Cond{metastore.Absent("a"), metastore.Absent("a"), metastore.Absent("a")}}, metastore.ErrTooLarge},
		{metastore.Batch{Conds: []metastore.Cond{metastore.Absent(strings.Repeat("k", 6))}, Ops: []metastore.Op{metastore.Put("a", []byte("1234"))}}, metastore.ErrTooLarge},
		{metastore.Batch{Ops: []metastore.Op{metastore.Put("a", nil), metastore.Delete("a")}}, metastore.ErrDuplicateKey},
		{metastore.Batch{Ops: []metastore.Op{metastore.PutUnder(1<<63, "a", nil)}}, metastore.ErrSessionGone},
	} {
		_, err := s.Commit(t.Context(), test.batch)
		require.ErrorIs(t, err, test.want)
	}
	require.NoError(t, s.Close())
	_, err := s.Commit(t.Context(), someBatch)
	require.ErrorIs(t, err, metastore.ErrClosed)
}
