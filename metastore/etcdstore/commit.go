package etcdstore

import (
	"context"
	"fmt"
	"math"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/nova-store/nova/metastore"
)

// Commit applies the batch if all its conditions hold and returns its revision.
func (s *Store) Commit(ctx context.Context, b metastore.Batch) (metastore.Version, error) {
	if err := s.begin(ctx); err != nil {
		return 0, fmt.Errorf("commit: %w", err)
	}
	if err := s.check(b); err != nil {
		return 0, fmt.Errorf("commit: %w", err)
	}
	if len(b.Ops) == 0 && len(b.Conds) == 0 {
		return 0, nil
	}
	compares, ops := s.transaction(b)
	for renewed := false; ; renewed = true {
		resp, err := s.send(ctx, compares, ops)
		switch {
		case err != nil && staleToken(err) && !renewed:
			// It was refused before it was looked at.
			continue
		case err != nil:
			return 0, fmt.Errorf("commit: %w", commitError(ctx, err))
		case !resp.Succeeded:
			return 0, fmt.Errorf("commit: %w", metastore.ErrConflict)
		case len(b.Ops) == 0:
			return 0, nil
		}
		return metastore.Version(resp.Header.Revision), nil
	}
}

func (s *Store) send(ctx context.Context, compares []clientv3.Cmp, ops []clientv3.Op) (*clientv3.TxnResponse, error) {
	ctx, cancel := context.WithTimeout(clientv3.WithRequireLeader(ctx), s.opts.CallTimeout)
	defer cancel()
	return s.client.Txn(ctx).If(compares...).Then(ops...).Commit()
}

// transaction returns the batch in etcd's terms.
func (s *Store) transaction(b metastore.Batch) ([]clientv3.Cmp, []clientv3.Op) {
	compares := make([]clientv3.Cmp, len(b.Conds))
	for i, c := range b.Conds {
		// The ModRevision of an absent key is 0, and 0 alone.
		rev := clientv3.ModRevision(s.key(c.Key))
		switch c.Kind {
		case metastore.CondVersion:
			compares[i] = clientv3.Compare(rev, "=", int64(c.Version))
		case metastore.CondAbsent:
			compares[i] = clientv3.Compare(rev, "=", 0)
		case metastore.CondExists:
			compares[i] = clientv3.Compare(rev, ">", 0)
		}
	}
	if len(b.Ops) == 0 {
		// Without any operation it would count as serializable.
		return compares, []clientv3.Op{clientv3.OpGet(s.key(b.Conds[0].Key), clientv3.WithCountOnly())}
	}
	ops := make([]clientv3.Op, len(b.Ops))
	for i, op := range b.Ops {
		switch {
		case op.Delete:
			ops[i] = clientv3.OpDelete(s.key(op.Key))
		case op.Session != 0:
			ops[i] = clientv3.OpPut(s.key(op.Key), string(op.Value), clientv3.WithLease(clientv3.LeaseID(op.Session)))
		default:
			ops[i] = clientv3.OpPut(s.key(op.Key), string(op.Value))
		}
	}
	return compares, ops
}

// check refuses what etcd would refuse, before it is sent.
func (s *Store) check(b metastore.Batch) error {
	if len(b.Conds) > s.opts.MaxOps || len(b.Ops) > s.opts.MaxOps {
		return fmt.Errorf("%w: %d conditions and %d operations, the limit of each is %d", metastore.ErrTooLarge, len(b.Conds), len(b.Ops), s.opts.MaxOps)
	}
	bytes := 0
	for i := range b.Conds {
		bytes += len(b.Conds[i].Key)
	}
	keys := make(map[string]struct{}, len(b.Ops))
	for i := range b.Ops {
		op := &b.Ops[i]
		bytes += len(op.Key) + len(op.Value)
		keys[op.Key] = struct{}{}
		if len(keys) != i+1 {
			return fmt.Errorf("%w: %q", metastore.ErrDuplicateKey, op.Key)
		}
		if op.Session > math.MaxInt64 {
			return fmt.Errorf("%w: %d was never opened", metastore.ErrSessionGone, op.Session)
		}
	}
	if bytes > s.opts.MaxBytes {
		return fmt.Errorf("%w: %d bytes, the limit is %d", metastore.ErrTooLarge, bytes, s.opts.MaxBytes)
	}
	return nil
}
