package pebblestore

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"github.com/nova-store/nova/metastore"
)

// Get reads keys at one revision.
func (s *Store) Get(ctx context.Context, keys ...string) ([]metastore.Record, error) {
	if err := s.checkRead(ctx, len(keys)); err != nil {
		return nil, fmt.Errorf("get: %w", err)
	}
	v, _, err := s.views.acquire(nil)
	if err != nil {
		return nil, fmt.Errorf("get: %w", err)
	}
	defer s.views.release(v)
	recs := make([]metastore.Record, len(keys))
	var buf []byte
	for i, key := range keys {
		if k, found := v.sessionKeys.Get(key); found {
			recs[i] = k.record(key)
			continue
		}
		buf = appendKey(buf[:0], key)
		if recs[i], err = v.snap.record(key, buf); err != nil {
			return nil, fmt.Errorf("get: %w", err)
		}
	}
	return recs, nil
}

func (s *snapshot) record(key string, pebbleKey []byte) (metastore.Record, error) {
	stored, closer, err := s.Get(pebbleKey)
	if errors.Is(err, pebble.ErrNotFound) {
		return metastore.Record{Key: key}, nil
	}
	if err != nil {
		return metastore.Record{}, fmt.Errorf("%w: reading %q: %w", metastore.ErrUnavailable, key, err)
	}
	version, value, err := decodeValue(key, stored)
	rec := metastore.Record{Key: key, Value: bytes.Clone(value), Version: version}
	return rec, errors.Join(err, closer.Close())
}

func (k *sessionKey) record(key string) metastore.Record {
	return metastore.Record{Key: key, Value: k.value, Version: k.version}
}

// Scan reads the first records of a range, limit (≥ 1) at most.
func (s *Store) Scan(ctx context.Context, r metastore.Range, limit int) (metastore.Page, error) {
	if err := s.checkRead(ctx, 0); err != nil {
		return metastore.Page{}, fmt.Errorf("scan: %w", err)
	}
	if limit < 1 {
		return metastore.Page{}, fmt.Errorf("scan: limit %d is less than 1", limit)
	}
	v, from, err := s.views.acquire(nil, r)
	if err != nil {
		return metastore.Page{}, fmt.Errorf("scan: %w", err)
	}
	defer s.views.release(v)
	c, err := s.newCursor(v)
	if err != nil {
		return metastore.Page{}, fmt.Errorf("scan: %w", err)
	}
	defer c.close()
	var page metastore.Page
	for ok := c.seek(r, from[0]); ok; ok = c.next() {
		if len(page.Records) == limit {
			page.More = true
			break
		}
		rec, err := c.record()
		if err != nil {
			return metastore.Page{}, fmt.Errorf("scan: %w", err)
		}
		page.Records = append(page.Records, rec)
	}
	if err := c.err(); err != nil {
		return metastore.Page{}, fmt.Errorf("scan: %w", err)
	}
	return page, nil
}

// Peek reads the first record of each range, all at one revision.
func (s *Store) Peek(ctx context.Context, rs []metastore.Range) ([]metastore.Record, error) {
	if err := s.checkRead(ctx, len(rs)); err != nil {
		return nil, fmt.Errorf("peek: %w", err)
	}
	v, from, err := s.views.acquire(make([]string, 0, len(rs)), rs...)
	if err != nil {
		return nil, fmt.Errorf("peek: %w", err)
	}
	defer s.views.release(v)
	c, err := s.newCursor(v)
	if err != nil {
		return nil, fmt.Errorf("peek: %w", err)
	}
	defer c.close()
	recs := make([]metastore.Record, len(rs))
	for i, r := range rs {
		if c.seek(r, from[i]) {
			if recs[i], err = c.record(); err != nil {
				return nil, fmt.Errorf("peek: %w", err)
			}
		}
		if err := c.err(); err != nil {
			return nil, fmt.Errorf("peek: %w", err)
		}
	}
	return recs, nil
}

// checkRead refuses a read whose context has ended, or of more than MaxOps keys or ranges.
func (s *Store) checkRead(ctx context.Context, n int) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if n > s.opts.MaxOps {
		return fmt.Errorf("%w: %d keys or ranges, the limit is %d", metastore.ErrTooLarge, n, s.opts.MaxOps)
	}
	return nil
}
