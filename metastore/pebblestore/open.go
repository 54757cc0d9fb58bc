package pebblestore

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// Pebble's keyspace: one byte, which tells the store's own few records from the
// keys of its users, then the key.
const (
	ownPrefix  = 0x00
	userPrefix = 0x01
	userEnd    = 0x02
)

// format names what is on disk, for whoever opens it: user keys as above, with
// the version as 8 bytes, big-endian, before the value; the ceiling as 8 bytes.
const format = "nova pebblestore format 1"

// laterFormat tells whether a format is one of this package's, of a later version.
func laterFormat(found string) bool {
	number, ok := strings.CutPrefix(found, strings.TrimRight(format, "0123456789"))
	v, err := strconv.ParseUint(number, 10, 32)
	return ok && err == nil && v > 1
}

var (
	formatKey  = []byte{ownPrefix, 'f'}
	ceilingKey = []byte{ownPrefix, 'r'}
)

// openDB opens Pebble and returns the revision ceiling. On an error nothing stays open.
func (s *Store) openDB() (ceiling uint64, err error) {
	opts := s.opts
	if opts.FS == vfs.Default {
		// Pebble's lock knows a directory by its name. Under two names it would be opened
		// twice, and closing either would drop the lock of both.
		if s.dir, err = canonical(s.dir); err != nil {
			return 0, err
		}
	}
	if err := makeDir(opts.FS, s.dir); err != nil {
		return 0, err
	}
	if s.lock, err = lockDir(opts.FS, s.dir); err != nil {
		return 0, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.lock.Close())
		}
	}()
	if err := s.removeCheckpoints(); err != nil {
		return 0, err
	}
	desc, err := peek(s.dir, opts.FS)
	if err != nil {
		return 0, err
	}
	version := pebble.FormatNewest
	if desc.Exists {
		// Raising the version of an old directory is for a release to decide, deliberately.
		if version = desc.FormatMajorVersion; version > pebble.FormatNewest {
			return 0, &FormatError{s.dir, fmt.Sprintf("a Pebble store of version %d", version), fmt.Sprintf("versions up to %d", pebble.FormatNewest), true}
		}
	}
	cache := pebble.NewCache(opts.CacheBytes)
	defer cache.Unref()
	if s.db, err = pebble.Open(s.dir, s.pebbleOptions(cache, version)); err != nil {
		return 0, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.db.Close())
		}
	}()
	if err := s.checkFormat(); err != nil {
		return 0, err
	}
	return s.readCeiling()
}

// pebbleOptions: most of what this store holds is queues and counters: keys that are
// written, found at the front of a range, and deleted within minutes.
func (s *Store) pebbleOptions(cache *pebble.Cache, version pebble.FormatMajorVersion) *pebble.Options {
	memTable, _ := steps(s.opts.MinFreeBytes)
	o := &pebble.Options{
		FS:                          s.opts.FS,
		Lock:                        s.lock,
		Cache:                       cache,
		FormatMajorVersion:          version,
		Logger:                      &pebbleLogger{s},
		MemTableSize:                uint64(memTable),
		MemTableStopWritesThreshold: 4,
		L0CompactionThreshold:       2,
		L0StopWritesThreshold:       100,
		CompactionConcurrencyRange:  func() (lower, upper int) { return 1, 2 },
	}
	for i := range o.Levels {
		// Most conditions ask for a key that may not be there.
		o.Levels[i].FilterPolicy = bloom.FilterPolicy(10)
	}
	o.EventListener = &pebble.EventListener{
		BackgroundError: func(err error) { s.logger.Warn("background work of Pebble failed, it tries again", "err", err) },
		WriteStallBegin: func(info pebble.WriteStallBeginInfo) {
			s.logger.Warn("commits wait for Pebble to flush or compact", "reason", info.Reason)
		},
	}
	o.EnsureDefaults()
	return o
}

// checkFormat stamps a fresh store, and refuses any other that is not of this format.
// A crash between Pebble's making of the store and the stamp leaves an empty
// store without one, which is taken for fresh.
func (s *Store) checkFormat() error {
	value, closer, err := s.db.Get(formatKey)
	if err == nil {
		defer closer.Close()
		if string(value) != format {
			return &FormatError{s.dir, fmt.Sprintf("%q", value), fmt.Sprintf("%q", format), laterFormat(string(value))}
		}
		return nil
	}
	if !errors.Is(err, pebble.ErrNotFound) {
		return fmt.Errorf("reading the format: %w", err)
	}
	it, err := s.db.NewIter(&pebble.IterOptions{KeyTypes: pebble.IterKeyTypePointsAndRanges})
	if err != nil {
		return fmt.Errorf("reading the format: %w", err)
	}
	empty := !it.First()
	if err := it.Close(); err != nil {
		return fmt.Errorf("reading the format: %w", err)
	}
	if !empty {
		return &FormatError{s.dir, "a Pebble store of something else", fmt.Sprintf("%q", format), false}
	}
	if err := s.db.Set(formatKey, []byte(format), pebble.Sync); err != nil {
		return fmt.Errorf("writing the format: %w", err)
	}
	return s.failed()
}

// readCeiling returns the revision that no commit so far has passed.
func (s *Store) readCeiling() (uint64, error) {
	value, closer, err := s.db.Get(ceilingKey)
	if errors.Is(err, pebble.ErrNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("reading the revision: %w", err)
	}
	defer closer.Close()
	if len(value) != 8 {
		return 0, fmt.Errorf("reading the revision: %d bytes instead of 8", len(value))
	}
	return binary.BigEndian.Uint64(value), nil
}

// canonical returns the one name of a directory that may not exist yet.
func canonical(dir string) (string, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	real, err := filepath.EvalSymlinks(dir)
	if errors.Is(err, fs.ErrNotExist) && dir != filepath.Dir(dir) {
		parent, err := canonical(filepath.Dir(dir))
		return filepath.Join(parent, filepath.Base(dir)), err
	}
	return real, err
}

// makeDir creates dir and what is missing above it, and syncs the folder above each, so
// that a power cut does not take away the store's own.
func makeDir(fsys vfs.FS, dir string) error {
	var made []string
	for d := dir; ; d = fsys.PathDir(d) {
		if _, err := fsys.Stat(d); err == nil || d == fsys.PathDir(d) {
			break
		}
		made = append(made, d)
	}
	if err := fsys.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, d := range made {
		parent, err := fsys.OpenDir(fsys.PathDir(d))
		if err != nil {
			return err
		}
		if err := errors.Join(parent.Sync(), parent.Close()); err != nil {
			return fmt.Errorf("syncing %s: %w", fsys.PathDir(d), err)
		}
	}
	return nil
}

func lockDir(fsys vfs.FS, dir string) (*pebble.Lock, error) {
	lock, err := pebble.LockDirectory(dir, fsys)
	var pathErr *fs.PathError
	switch {
	case err == nil:
		return lock, nil
	case errors.As(err, &pathErr):
		// The lock file could not even be made.
		return nil, err
	default:
		return nil, &LockedError{dir, err}
	}
}

// pebbleLogger hands what Pebble logs to the store's logger.
type pebbleLogger struct{ s *Store }

func (l *pebbleLogger) Infof(format string, args ...any) {
	if l.s.logger.Enabled(context.Background(), slog.LevelDebug) {
		l.s.logger.Debug("pebble: " + fmt.Sprintf(format, args...))
	}
}

func (l *pebbleLogger) Errorf(format string, args ...any) {
	l.s.logger.Warn("pebble: " + fmt.Sprintf(format, args...))
}

// Fatalf is called when a write or sync of the log or the manifest failed.
func (l *pebbleLogger) Fatalf(format string, args ...any) {
	l.s.fail(fmt.Errorf(format, args...))
}

// Exists tells whether a directory of the operating system holds a store. It makes nothing, and takes no lock.
func Exists(dir string) (bool, error) {
	desc, err := peek(dir, vfs.Default)
	if err != nil {
		return false, err
	}
	return desc.Exists, nil
}

// peek looks for a store, and refuses one of a newer Pebble.
func peek(dir string, on vfs.FS) (*pebble.DBDesc, error) {
	desc, err := pebble.Peek(dir, on)
	switch {
	case err == nil:
		return desc, nil
	case strings.Contains(err.Error(), "unknown format major version"):
		return nil, &FormatError{dir, fmt.Sprintf("a newer Pebble's store (%v)", err), fmt.Sprintf("versions up to %d", pebble.FormatNewest), true}
	}
	return nil, fmt.Errorf("looking for an existing store: %w", err)
}
