package catalog_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/nova-store/nova/metastore"
	"github.com/nova-store/nova/metastore/storetest"
)

// memStore is the store's contract in as few lines as it takes: what is rebuilt thousands
// of times runs on it. It passes the same suite as the real ones. For one goroutine.
type memStore struct {
	recs   map[string]mirrored
	keys   []string // sorted
	last   metastore.Version
	open   map[metastore.SessionID]bool
	limits metastore.Limits
}

func newMemStore(maxOps int) *memStore {
	return &memStore{recs: map[string]mirrored{}, open: map[metastore.SessionID]bool{}, limits: metastore.Limits{MaxOps: maxOps, MaxBytes: 1 << 20}}
}

func (s *memStore) Limits() metastore.Limits { return s.limits }

func (s *memStore) check(ctx context.Context, n int) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if n > s.limits.MaxOps {
		return fmt.Errorf("%w: %d", metastore.ErrTooLarge, n)
	}
	return nil
}

func (s *memStore) Get(ctx context.Context, keys ...string) ([]metastore.Record, error) {
	if err := s.check(ctx, len(keys)); err != nil {
		return nil, err
	}
	out := make([]metastore.Record, len(keys))
	for i, key := range keys {
		out[i] = s.recs[key].Record
		out[i].Key = key
	}
	return out, nil
}

func (s *memStore) Scan(ctx context.Context, r metastore.Range, limit int) (metastore.Page, error) {
	var p metastore.Page
	if err := s.check(ctx, 0); err != nil {
		return p, err
	}
	at, _ := slices.BinarySearch(s.keys, r.Start)
	for _, key := range s.keys[at:] {
		if r.End != "" && key >= r.End {
			break
		}
		if len(p.Records) == limit {
			p.More = true
			break
		}
		p.Records = append(p.Records, s.recs[key].Record)
	}
	return p, nil
}

func (s *memStore) Peek(ctx context.Context, rs []metastore.Range) ([]metastore.Record, error) {
	if err := s.check(ctx, len(rs)); err != nil {
		return nil, err
	}
	out := make([]metastore.Record, len(rs))
	for i, r := range rs {
		p, err := s.Scan(ctx, r, 1)
		if err != nil {
			return nil, err
		}
		if len(p.Records) > 0 {
			out[i] = p.Records[0]
		}
	}
	return out, nil
}

func (s *memStore) Commit(ctx context.Context, b metastore.Batch) (metastore.Version, error) {
	if err := s.check(ctx, max(len(b.Conds), len(b.Ops))); err != nil {
		return 0, err
	}
	size, seen := 0, map[string]bool{}
	for _, c := range b.Conds {
		size += len(c.Key)
	}
	for _, op := range b.Ops {
		size += len(op.Key) + len(op.Value)
		if seen[op.Key] {
			return 0, fmt.Errorf("%w: %s", metastore.ErrDuplicateKey, op.Key)
		}
		seen[op.Key] = true
	}
	if size > s.limits.MaxBytes {
		return 0, fmt.Errorf("%w: %d bytes", metastore.ErrTooLarge, size)
	}
	for _, op := range b.Ops {
		if op.Session != 0 && !s.open[op.Session] {
			return 0, fmt.Errorf("%w: %d", metastore.ErrSessionGone, op.Session)
		}
	}
	for _, c := range b.Conds {
		v := s.recs[c.Key].Version
		holds := v != 0
		switch c.Kind {
		case metastore.CondVersion:
			holds = v == c.Version && v != 0
		case metastore.CondAbsent:
			holds = v == 0
		}
		if !holds {
			return 0, fmt.Errorf("%w: %s", metastore.ErrConflict, c.Key)
		}
	}
	if len(b.Ops) == 0 {
		return s.last, nil
	}
	s.last++
	for _, op := range b.Ops {
		if op.Delete {
			s.remove(op.Key)
			continue
		}
		if at, ok := slices.BinarySearch(s.keys, op.Key); !ok {
			s.keys = slices.Insert(s.keys, at, op.Key)
		}
		s.recs[op.Key] = mirrored{metastore.Record{Key: op.Key, Value: op.Value, Version: s.last}, op.Session}
	}
	return s.last, nil
}

func (s *memStore) remove(key string) {
	if at, ok := slices.BinarySearch(s.keys, key); ok {
		s.keys = slices.Delete(s.keys, at, at+1)
		delete(s.recs, key)
	}
}

func (s *memStore) OpenSession(ctx context.Context, ttl time.Duration) (metastore.Session, error) {
	if err := s.check(ctx, 0); err != nil {
		return nil, err
	}
	s.last++
	id := metastore.SessionID(s.last)
	s.open[id] = true
	return &memSession{s, id, ttl}, nil
}

type memSession struct {
	s   *memStore
	id  metastore.SessionID
	ttl time.Duration
}

func (m *memSession) ID() metastore.SessionID { return m.id }
func (m *memSession) TTL() time.Duration      { return m.ttl }

func (m *memSession) KeepAlive(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if !m.s.open[m.id] {
		return metastore.ErrSessionGone
	}
	return nil
}

func (m *memSession) Close(context.Context) error {
	delete(m.s.open, m.id)
	for key, r := range m.s.recs {
		if r.session == m.id {
			m.s.remove(key)
		}
	}
	return nil
}

func TestMemStoreConforms(t *testing.T) {
	storetest.Run(t, storetest.Harness{
		Open:        func(*testing.T) metastore.Store { return newMemStore(128) },
		Do:          func(t *testing.T, _ metastore.Store, f func(context.Context)) { f(t.Context()) },
		SmallLimits: func(*testing.T) metastore.Store { return newMemStore(8) },
	})
}
