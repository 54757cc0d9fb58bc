// Package pebblestore is the embedded metadata store: metastore.Store on Pebble,
// inside the process that uses it.
//
// # Durable before visible
//
// Pebble shows a batch to readers before its log is synced. This store does not:
// readers see a view, which is a Pebble snapshot and the session keys that go with
// it, and a view is only put in place once everything in it is synced. A single goroutine, the
// committer, takes the waiting commits as a group, judges each in turn
// against the newest state, earlier members of its group included, applies the group
// as one Pebble batch with one sync, puts the view of it in place, and only then answers
// all members, conflicts included, since they too tell what is in the store.
//
// (Judging the next group during the sync was tried: it splits the callers into
// two halves that take turns, and made 64 of them slower.)
//
// A crash leaves a prefix of the groups, each whole or not at all, and with it
// every group of which anything was answered or read. What it may take back was
// seen by no one.
//
// If a write or sync of the log fails, nobody knows what the disk holds. The store
// then ends the process (Options.Fatal); it never guesses.
//
// # Revisions
//
// The revision counts commits in memory. On disk there is only a ceiling, raised in the very
// batch whose revisions would pass it, so that it is durable before any
// of them is seen. The next start goes on above the ceiling, and so never repeats
// a revision, not even one that only session keys carried. Session ids are drawn
// from the same counter.
//
// # Sessions
//
// A session's keys never touch Pebble: they live in memory, die with the process,
// and obey the same committer and views. Since no process can outlive its store,
// sessions do not expire: they end by Close and with the process.
package pebblestore

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/nova-store/nova/metastore"
)

// Defaults of Options.
const (
	DefaultMaxOps       = 1024
	DefaultMaxBytes     = 16 << 20
	DefaultCacheBytes   = 64 << 20
	DefaultMinFreeBytes = 256 << 20
)

// Options configure a store. The zero value is the default.
type Options struct {
	// FS is the file system that holds the store. nil is the operating system's.
	FS vfs.FS

	// Logger gets what Pebble and the store have to say. nil discards it.
	Logger *slog.Logger

	// MaxOps bounds a batch's conditions, and by itself its operations, and the keys
	// and ranges of one read. 0 is DefaultMaxOps.
	MaxOps int

	// MaxBytes bounds the sum of the lengths of a batch's keys, those of conditions
	// included, and values. 0 is DefaultMaxBytes.
	MaxBytes int

	// CacheBytes is the size of the cache of blocks read from disk. 0 is DefaultCacheBytes.
	CacheBytes int64

	// MinFreeBytes is the reserve of free disk space. Below it, commits that leave
	// more durable keys than they found are refused with a FullError, and below a quarter of it all that
	// write some, because a full disk would end the process. In between the auditor's work goes on: what deletes
	// spans, resolves markers and moves cursors gives space back. Free space is looked at once
	// a second or every 8 MiB written, whichever comes first, and more often with a reserve below 256 MiB, with which memtables
	// are smaller, too. Below LeastReserve a flush may still fill the disk. 0 is
	// DefaultMinFreeBytes, a negative number switches it off, as does a file system
	// that does not tell.
	MinFreeBytes int64

	// Fatal is called once, from any goroutine, when the log can no longer be trusted. It
	// must not call the store. It should not return; where it does, the store answers
	// nothing but errors from then on. nil logs the error and ends the process
	// with status 1.
	Fatal func(error)
}

// Store is a metadata store in one directory. All its methods are safe for
// concurrent use.
type Store struct {
	dir    string
	opts   Options
	logger *slog.Logger

	lock *pebble.Lock
	db   *pebble.DB

	queue     queue
	committer committer
	done      chan struct{} // closed at the committer's end

	views       views
	checkpoints atomic.Uint64 // numbers them
	closing     sync.Once
	closed      error

	failOnce sync.Once
	failure  atomic.Pointer[error]
}

var _ metastore.Store = (*Store)(nil)

// Open opens the store in dir, which is created if missing. It fails with a
// LockedError while another process, or another Store of this one, has the
// directory open, and with a FormatError if what is in there was not written by
// this format of this package.
func Open(dir string, opts Options) (*Store, error) {
	if opts.FS == nil {
		opts.FS = vfs.Default
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	if opts.MaxOps == 0 {
		opts.MaxOps = DefaultMaxOps
	}
	if opts.MaxBytes == 0 {
		opts.MaxBytes = DefaultMaxBytes
	}
	if opts.CacheBytes == 0 {
		opts.CacheBytes = DefaultCacheBytes
	}
	if opts.MinFreeBytes == 0 {
		opts.MinFreeBytes = DefaultMinFreeBytes
	}
	if opts.Fatal == nil {
		logger := opts.Logger
		opts.Fatal = func(err error) {
			logger.Error("metadata store failed, the process ends", "err", err)
			os.Exit(1)
		}
	}
	s := &Store{
		dir:    dir,
		opts:   opts,
		logger: opts.Logger.With("store", dir),
		done:   make(chan struct{}),
	}
	s.queue.wake = make(chan struct{}, 1)
	ceiling, err := s.openDB()
	if err != nil {
		return nil, fmt.Errorf("opening metadata store %s: %w", dir, err)
	}
	s.committer.init(s, ceiling)
	s.views.learnSteps = learnSteps
	s.views.install(&view{snap: newSnapshot(s.db), sessionKeys: s.committer.keys.Copy()}, nil)
	go s.runCommitter()
	return s, nil
}

// Close ends the store, and all sessions with it. Commits that have not begun are
// answered with ErrClosed, those under way are finished. Later calls fail
// with ErrClosed. Closing again is fine.
func (s *Store) Close() error {
	s.closing.Do(func() { s.closed = s.close() })
	return s.closed
}

func (s *Store) close() error {
	s.queue.close(metastore.ErrClosed)
	<-s.done
	s.views.close(metastore.ErrClosed)
	if err := s.failed(); err != nil {
		// Pebble's own state is undefined now. Its files are left as a crash would leave them.
		return fmt.Errorf("closing metadata store %s: %w", s.dir, err)
	}
	if err := errors.Join(s.db.Close(), s.lock.Close()); err != nil {
		return fmt.Errorf("closing metadata store %s: %w", s.dir, err)
	}
	return nil
}

// Limits returns what bounds a batch.
func (s *Store) Limits() metastore.Limits {
	return metastore.Limits{MaxOps: s.opts.MaxOps, MaxBytes: s.opts.MaxBytes}
}

// fail ends the process. Where Options.Fatal returns, in tests, no later call is
// answered with anything but an error: the unsynced state in Pebble stays unseen.
func (s *Store) fail(err error) {
	s.failOnce.Do(func() {
		err = fmt.Errorf("%w: %w", metastore.ErrClosed, err)
		s.failure.Store(&err)
		s.queue.close(err)
		s.views.refuse(err)
		s.opts.Fatal(err)
	})
}

func (s *Store) failed() error {
	if err := s.failure.Load(); err != nil {
		return *err
	}
	return nil
}
