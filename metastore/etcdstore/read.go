package etcdstore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/nova-store/nova/metastore"
)

// pageRestarts bounds how often a page begins anew since its revision was compacted. Compactions are
// minutes apart, so that a second one within a page says that something is wrong.
const pageRestarts = 3

// Waits between the tries of one read.
const (
	retryFirst = 20 * time.Millisecond
	retryMost  = 500 * time.Millisecond
)

// Get reads keys at one revision.
func (s *Store) Get(ctx context.Context, keys ...string) ([]metastore.Record, error) {
	ops := make([]clientv3.Op, len(keys))
	for i, key := range keys {
		ops[i] = clientv3.OpGet(s.key(key))
	}
	found, err := s.readAll(ctx, ops)
	if err != nil {
		return nil, fmt.Errorf("get: %w", err)
	}
	recs := make([]metastore.Record, len(keys))
	for i, key := range keys {
		recs[i].Key = key
		if len(found[i]) > 0 {
			recs[i].Value, recs[i].Version = found[i][0].Value, metastore.Version(found[i][0].ModRevision)
		}
	}
	return recs, nil
}

// Peek reads the first record of each range, all at one revision.
func (s *Store) Peek(ctx context.Context, rs []metastore.Range) ([]metastore.Record, error) {
	recs := make([]metastore.Record, len(rs))
	var ops []clientv3.Op
	var at []int // of each of ops in recs
	for i, r := range rs {
		if start, end := s.bounds(r); start < end {
			ops = append(ops, clientv3.OpGet(start, clientv3.WithRange(end), clientv3.WithLimit(1)))
			at = append(at, i)
		}
	}
	if len(rs) > s.opts.MaxOps {
		return nil, fmt.Errorf("peek: %w: %d ranges, the limit is %d", metastore.ErrTooLarge, len(rs), s.opts.MaxOps)
	}
	found, err := s.readAll(ctx, ops)
	if err != nil {
		return nil, fmt.Errorf("peek: %w", err)
	}
	for j, i := range at {
		if len(found[j]) > 0 {
			recs[i] = s.record(found[j][0])
		}
	}
	return recs, nil
}

// readAll makes reads at one revision and returns what each found.
func (s *Store) readAll(ctx context.Context, ops []clientv3.Op) ([][]*mvccpb.KeyValue, error) {
	if err := s.begin(ctx); err != nil {
		return nil, err
	}
	if len(ops) > s.opts.MaxOps {
		return nil, fmt.Errorf("%w: %d keys, the limit is %d", metastore.ErrTooLarge, len(ops), s.opts.MaxOps)
	}
	found := make([][]*mvccpb.KeyValue, len(ops))
	if len(ops) == 0 {
		return found, nil
	}
	err := s.try(ctx, func(ctx context.Context) error {
		if len(ops) == 1 {
			// Cheaper for the server than a transaction of one.
			resp, err := s.client.Do(ctx, ops[0])
			if err == nil {
				found[0] = resp.Get().Kvs
			}
			return err
		}
		resp, err := s.client.Txn(ctx).Then(ops...).Commit()
		if err != nil {
			return err
		}
		for i, r := range resp.Responses {
			found[i] = r.GetResponseRange().Kvs
		}
		return nil
	})
	if err != nil {
		return nil, readError(ctx, err)
	}
	return found, nil
}

// Scan reads the first records of a range, limit (≥ 1) at most.
func (s *Store) Scan(ctx context.Context, r metastore.Range, limit int) (metastore.Page, error) {
	if err := s.begin(ctx); err != nil {
		return metastore.Page{}, fmt.Errorf("scan: %w", err)
	}
	if limit < 1 {
		return metastore.Page{}, fmt.Errorf("scan: limit %d is less than 1", limit)
	}
	start, end := s.bounds(r)
	if start >= end {
		return metastore.Page{}, nil
	}
	for restarts := 0; ; restarts++ {
		page, err := s.page(ctx, start, end, limit)
		switch {
		case err == nil:
			return page, nil
		case errors.Is(err, rpctypes.ErrCompacted) && restarts < pageRestarts:
			continue
		}
		return metastore.Page{}, fmt.Errorf("scan: %w", readError(ctx, err))
	}
}

// page reads a page in parts of MaxOps records, so that no answer is larger than MaxOps values, all at the
// revision of the first part.
func (s *Store) page(ctx context.Context, start, end string, limit int) (metastore.Page, error) {
	var page metastore.Page
	var rev int64 // 0: the newest
	for {
		var resp *clientv3.GetResponse
		err := s.try(ctx, func(ctx context.Context) (err error) {
			part := min(limit-len(page.Records), s.opts.MaxOps)
			resp, err = s.client.Get(ctx, start, clientv3.WithRange(end), clientv3.WithLimit(int64(part)), clientv3.WithRev(rev))
			return err
		})
		if err != nil {
			return metastore.Page{}, err
		}
		for _, kv := range resp.Kvs {
			page.Records = append(page.Records, s.record(kv))
		}
		page.More = resp.More
		if !resp.More || len(page.Records) >= limit || len(resp.Kvs) == 0 {
			return page, nil
		}
		if rev == 0 {
			rev = resp.Header.Revision
		}
		start = string(resp.Kvs[len(resp.Kvs)-1].Key) + "\x00"
	}
}

func (s *Store) record(kv *mvccpb.KeyValue) metastore.Record {
	return metastore.Record{Key: s.own(kv.Key), Value: kv.Value, Version: metastore.Version(kv.ModRevision)}
}

// try makes a call that may be repeated until it is answered, for CallTimeout at most. A try that hangs is
// given up after half of the time, since the next one goes to another member.
func (s *Store) try(ctx context.Context, call func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(clientv3.WithRequireLeader(ctx), s.opts.CallTimeout)
	defer cancel()
	deadline, _ := ctx.Deadline()
	half := time.Until(deadline) / 2
	for wait := retryFirst; ; wait = min(2*wait, retryMost) {
		err := func() error {
			ctx, cancel := context.WithTimeout(ctx, half)
			defer cancel()
			return call(ctx)
		}()
		if err == nil || hopeless(err) || ctx.Err() != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(wait/2 + rand.N(wait/2)):
		}
	}
}
