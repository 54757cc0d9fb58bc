// Package metastore defines the ordered, transactional key-value store that holds
// all of Nova's metadata, as small as catalog, star and auditor need it.
//
// Implementations: pebblestore (embedded, the default) and the simulator's. The
// contract below is what storetest checks on every one of them. It says in
// particular what is not promised.
//
// # Consistency
//
// Strict serializability: commits take effect one at a time, in an order that
// agrees with real time, and a read sees every commit answered before it began.
// A read never shows what a crash could take back.
//
// # Revisions
//
// Every successful commit that writes anything gets a new store-wide revision,
// larger than all before it, also across restarts. A key's Version is the revision of the
// commit that wrote it. So a version never repeats, not even after a delete. (A commit that
// does nothing but delete keys that are absent writes nothing: it may be given the revision of the last one.)
//
// # Unknown outcomes
//
// ErrUnknown means: it happened, or it did not, or it may still happen later,
// after reads that showed it absent. So a read never settles an unknown commit.
// The caller repeats the very same commit until the answer is definite. That
// settles it only if the commit changes a key that it is conditional on: then
// success means that a late twin can no longer land, and conflict means that
// someone's commit did, perhaps one's own, which a nonce in a value tells.
package metastore

import (
	"context"
	"errors"
	"time"
)

var (
	// ErrConflict: a condition failed; nothing happened.
	ErrConflict = errors.New("metastore: condition failed")
	// ErrUnknown: the commit happened, or not, or may still happen later.
	ErrUnknown = errors.New("metastore: outcome unknown")
	// ErrUnavailable: a read could not be answered, or a commit was refused for now
	// and nothing happened (a disk that is almost full): try again.
	ErrUnavailable = errors.New("metastore: unavailable")
	// ErrSessionGone: the session ended or was never kept alive; nothing happened.
	ErrSessionGone = errors.New("metastore: session gone")
	// ErrTooLarge: the batch exceeds Limits; nothing happened.
	ErrTooLarge = errors.New("metastore: batch too large")
	// ErrDuplicateKey: a key appears twice among a batch's operations; nothing happened.
	ErrDuplicateKey = errors.New("metastore: key written twice in one batch")
	// ErrClosed: the store was closed.
	ErrClosed = errors.New("metastore: closed")
)

// Version is the revision of the commit that wrote a key. 0 means absent.
type Version uint64

// Record is one key with its value and version. Version 0 means that the key is
// absent. Value must not be modified by whoever got it.
type Record struct {
	Key     string
	Value   []byte
	Version Version
}

// Exists tells whether the key was there.
func (r Record) Exists() bool { return r.Version != 0 }

// CondKind is what a condition demands.
type CondKind uint8

const (
	// CondVersion: the key is at exactly Cond.Version, which is not 0.
	CondVersion CondKind = iota
	// CondAbsent: the key is absent.
	CondAbsent
	// CondExists: the key exists, at any version.
	CondExists
)

// Cond is a condition of a commit. A key may appear in several conditions.
type Cond struct {
	Kind    CondKind
	Key     string
	Version Version
}

// At returns the condition that key is still as read: at version v, or absent if
// v is 0.
func At(key string, v Version) Cond {
	if v == 0 {
		return Cond{Kind: CondAbsent, Key: key}
	}
	return Cond{Kind: CondVersion, Key: key, Version: v}
}

// Absent returns the condition that key is absent.
func Absent(key string) Cond { return Cond{Kind: CondAbsent, Key: key} }

// Exists returns the condition that key exists.
func Exists(key string) Cond { return Cond{Kind: CondExists, Key: key} }

// SessionID names a session. 0 is no session.
type SessionID uint64

// Op is a put or a delete of one key. A put under a session vanishes with that
// session. A put of a key that exists rebinds it: to the new session, or to none,
// and the old session's end then leaves it alone. Deleting an absent key is fine.
type Op struct {
	Key     string
	Value   []byte
	Delete  bool
	Session SessionID
}

// Put returns the operation that writes key.
func Put(key string, value []byte) Op { return Op{Key: key, Value: value} }

// PutUnder returns the operation that writes key under a session.
func PutUnder(s SessionID, key string, value []byte) Op {
	return Op{Key: key, Value: value, Session: s}
}

// Delete returns the operation that removes key.
func Delete(key string) Op { return Op{Key: key, Delete: true} }

// Batch is an atomic commit: if every condition holds, every operation happens.
// The store does not keep or change the slices after Commit returned; the caller
// must not change them before, nor the values ever.
type Batch struct {
	Conds []Cond
	Ops   []Op
}

// Range is the half-open key range [Start, End). An empty End is no upper bound.
type Range struct{ Start, End string }

// PrefixEnd returns the smallest key above every key that begins with prefix, for
// use as Range.End. The prefix must not be empty.
func PrefixEnd(prefix string) string {
	b := []byte(prefix)
	for i := len(b) - 1; i >= 0; i-- {
		if b[i] < 0xff {
			b[i]++
			return string(b[:i+1])
		}
	}
	return ""
}

// Prefix returns the range of all keys that begin with prefix.
func Prefix(prefix string) Range { return Range{Start: prefix, End: PrefixEnd(prefix)} }

// Page is a part of a range, in key order. More tells that the range went on
// beyond the last record when it was read. A page is read at one revision;
// pages of one walk may be at different ones.
type Page struct {
	Records []Record
	More    bool
}

// Limits bound one batch.
type Limits struct {
	// MaxOps bounds the conditions of a batch, and by itself its operations.
	MaxOps int
	// MaxBytes bounds the sum of the keys and values of a batch.
	MaxBytes int
}

// Store is the metadata store.
//
// Reads fail with ErrUnavailable (wrapped) or the context's error. Commit fails with the
// errors of this package, wrapped; a context that ends during a commit gives
// ErrUnknown unless nothing was sent.
type Store interface {
	// Get reads any number of keys (≤ Limits.MaxOps) at one revision. The result has one record
	// for each key, in order; an absent key has Version 0.
	Get(ctx context.Context, keys ...string) ([]Record, error)

	// Scan reads the first records of a range, limit (≥ 1) at most.
	Scan(ctx context.Context, r Range, limit int) (Page, error)

	// Peek reads the first record of each range (≤ Limits.MaxOps ranges), all at one revision. The
	// result has one record for each range; of an empty range Version is 0.
	Peek(ctx context.Context, rs []Range) ([]Record, error)

	// Commit applies the batch if all its conditions hold and returns its
	// revision; an empty list of operations only checks the conditions and returns 0.
	Commit(ctx context.Context, b Batch) (Version, error)

	// OpenSession starts a session that ends when it is not kept alive for ttl.
	// A store may grant a longer ttl. A store whose processes cannot outlive it
	// may end sessions only by Close and with the process.
	OpenSession(ctx context.Context, ttl time.Duration) (Session, error)

	// Limits returns what bounds a batch. It is constant.
	Limits() Limits
}

// Session holds keys that vanish with it.
type Session interface {
	// ID is what puts name to bind a key. It is never 0 and never reused.
	ID() SessionID

	// KeepAlive renews the session for another TTL. ErrSessionGone (wrapped) is final.
	// Any other error leaves it as it was: try again before the TTL ends.
	KeepAlive(ctx context.Context) error

	// TTL is what the store granted.
	TTL() time.Duration

	// Close ends the session and removes its keys. Closing it again is fine.
	Close(ctx context.Context) error
}
