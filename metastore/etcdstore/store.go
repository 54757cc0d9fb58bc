// Package etcdstore is the metadata store that many nodes share: metastore.Store on an
// etcd cluster of version 3.5 or later.
//
// # Keys and versions
//
// A key of Nova is a prefix and the key in etcd. Its version is etcd's ModRevision, which is the
// store-wide revision of the transaction that wrote it and is never given again.
//
// # Commits
//
// A commit is one transaction, sent once. Whatever leaves open whether it happened is
// metastore.ErrUnknown: a time-out, a lost connection, a member that stops. It may still happen then, after
// linearizable reads that showed it absent; etcd was seen to do so whenever a leader was slow. What
// is refused before it is proposed, or by applying it, is told apart (errors.go).
//
// The client must not send a transaction twice by itself, for a conflict of the second try with the first
// would look like somebody else's. It does so where a member answers with a cancelled or an expired context, as one
// that stops may, unless it is told to try once only, which [NewClient] does. Reads, which may be repeated, are
// repeated here.
//
// # Reads
//
// All reads are linearizable. A read of several keys or ranges is one read-only transaction, at one
// revision. A page of more than MaxOps records is read in parts, all at the revision of the first; where
// that is compacted meanwhile the page begins anew.
//
// A transaction that only checks conditions reads a key besides: etcd answers one without any operation
// from what its member happens to know, which may be stale.
//
// # Sessions
//
// A session is a lease, whose id is the session's. Whoever holds it keeps it alive: nothing here does so in the
// background, so that a node that hangs loses it.
package etcdstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/nova-store/nova/metastore"
)

// Defaults of Options, and what the server must allow for them.
const (
	// DefaultMaxOps is etcd's own default of --max-txn-ops. It bounds the compares of a transaction,
	// and by itself its operations.
	DefaultMaxOps = 128
	// DefaultMaxBytes leaves a third of etcd's default of --max-request-bytes (1.5 MiB) to prefixes,
	// versions and framing.
	DefaultMaxBytes = 1 << 20
	// DefaultCallTimeout bounds one call.
	DefaultCallTimeout = 5 * time.Second
	// MaxPrefix bounds the length of a prefix: with it, framing and prefixes of 2 × DefaultMaxOps keys stay below
	// a third of a MiB.
	MaxPrefix = 255
)

// Options configure a store. The zero value is the default.
type Options struct {
	// MaxOps bounds a batch's conditions, by itself its operations, and the keys and ranges of one read.
	MaxOps int
	// MaxBytes bounds the sum of the lengths of a batch's keys, those of conditions included, and values.
	MaxBytes int
	// CallTimeout bounds a call: a commit is then unknown, a read unavailable. A read, a keep-alive and the
	// like are tried at another member after half of it, or of what the caller's context leaves.
	CallTimeout time.Duration
}

// Store is a keyspace below a prefix of an etcd cluster. Its methods are safe for concurrent use.
type Store struct {
	client *clientv3.Client
	leases pb.LeaseClient
	prefix string
	end    string // the first key above the prefix
	opts   Options
	closed atomic.Bool
}

var _ metastore.Store = (*Store)(nil)

// New returns the store whose keys begin with prefix, on a client that [NewClient] made or one like it; Close closes the client. It
// does no I/O. No prefix of another use of the cluster may begin with this one.
func New(client *clientv3.Client, prefix string, opts Options) (*Store, error) {
	end := ""
	if len(prefix) <= MaxPrefix && prefix != "" {
		end = metastore.PrefixEnd(prefix)
	}
	if end == "" {
		return nil, fmt.Errorf("etcd: prefix %q: it must have 1 to %d bytes, not all 0xff", prefix, MaxPrefix)
	}
	if opts.MaxOps == 0 {
		opts.MaxOps = DefaultMaxOps
	}
	if opts.MaxBytes == 0 {
		opts.MaxBytes = DefaultMaxBytes
	}
	if opts.CallTimeout == 0 {
		opts.CallTimeout = DefaultCallTimeout
	}
	return &Store{client: client, leases: clientv3.RetryLeaseClient(client), prefix: prefix, end: end, opts: opts}, nil
}

// Limits returns what bounds a batch.
func (s *Store) Limits() metastore.Limits {
	return metastore.Limits{MaxOps: s.opts.MaxOps, MaxBytes: s.opts.MaxBytes}
}

// Close closes the connections. Sessions go on until their TTL has passed; close them before. Later calls fail with
// metastore.ErrClosed. Closing again is fine.
func (s *Store) Close() error {
	if s.closed.Swap(true) {
		return nil
	}
	if err := s.client.Close(); err != nil && !errors.Is(err, context.Canceled) {
		return fmt.Errorf("closing the etcd client: %w", err)
	}
	return nil
}

// begin refuses a call whose context has ended, or of a closed store.
func (s *Store) begin(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if s.closed.Load() {
		return metastore.ErrClosed
	}
	return nil
}

func (s *Store) key(key string) string { return s.prefix + key }

// bounds returns a range of Nova's keys as one of etcd's. It is empty where end is not above start.
func (s *Store) bounds(r metastore.Range) (start, end string) {
	if r.End == "" {
		return s.key(r.Start), s.end
	}
	return s.key(r.Start), s.key(r.End)
}

func (s *Store) own(key []byte) string { return strings.TrimPrefix(string(key), s.prefix) }
