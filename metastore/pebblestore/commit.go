package pebblestore

import (
	"context"
	"fmt"

	"github.com/nova-store/nova/metastore"
)

// Commit applies the batch if all its conditions hold, durably, and returns its
// revision, which is 0 for a batch without operations. Besides the errors of
// metastore.Store it may fail with a FullError.
func (s *Store) Commit(ctx context.Context, b metastore.Batch) (metastore.Version, error) {
	bytes, err := s.check(b)
	if err != nil {
		return 0, fmt.Errorf("commit: %w", err)
	}
	r := request{kind: requestCommit, batch: b, bytes: bytes}
	if err := s.call(ctx, &r); err != nil {
		return 0, fmt.Errorf("commit: %w", err)
	}
	return r.version, nil
}

// check refuses what no state of the store could make acceptable, and returns the
// batch's size in bytes.
func (s *Store) check(b metastore.Batch) (int, error) {
	if n := len(b.Conds); n > s.opts.MaxOps {
		return 0, fmt.Errorf("%w: %d conditions, the limit is %d", metastore.ErrTooLarge, n, s.opts.MaxOps)
	}
	if n := len(b.Ops); n > s.opts.MaxOps {
		return 0, fmt.Errorf("%w: %d operations, the limit is %d", metastore.ErrTooLarge, n, s.opts.MaxOps)
	}
	bytes := 0
	for i := range b.Conds {
		bytes += len(b.Conds[i].Key)
	}
	for i := range b.Ops {
		bytes += len(b.Ops[i].Key) + len(b.Ops[i].Value)
	}
	if bytes > s.opts.MaxBytes {
		return 0, fmt.Errorf("%w: %d bytes, the limit is %d", metastore.ErrTooLarge, bytes, s.opts.MaxBytes)
	}
	if key, found := duplicate(b.Ops); found {
		return 0, fmt.Errorf("%w: %q", metastore.ErrDuplicateKey, key)
	}
	return bytes, nil
}

// duplicate returns a key that appears twice.
func duplicate(ops []metastore.Op) (string, bool) {
	const few = 12 // up to here comparing all pairs is cheaper than a map
	if len(ops) <= few {
		for i := range ops {
			for j := range i {
				if ops[i].Key == ops[j].Key {
					return ops[i].Key, true
				}
			}
		}
		return "", false
	}
	seen := make(map[string]struct{}, len(ops))
	for i := range ops {
		seen[ops[i].Key] = struct{}{}
		if len(seen) <= i {
			return ops[i].Key, true
		}
	}
	return "", false
}
