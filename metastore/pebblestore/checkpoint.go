package pebblestore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"

	"github.com/cockroachdb/pebble/v2"
)

// checkpointMark stands between the store's name and a number in the name of a checkpoint's folder.
const checkpointMark = ".checkpoint-"

// Checkpoint makes a copy of the store as it is now in a folder beside it, hands that to f, and removes it
// when f has returned. The copy is a store that Open opens: every commit that was answered before the call is in it, each
// commit is in it whole or not at all, and no session key is. It shares the tables of the store by hard links, so
// that it takes little space at first; the longer it stands, the more of what it shares is only its own.
//
// Commits and reads go on meanwhile. Close waits for f. A checkpoint that a crash left behind is removed by the next Open.
func (s *Store) Checkpoint(ctx context.Context, f func(dir string) error) (err error) {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	v, _, err := s.views.acquire(nil) // Close waits for it
	if err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	defer s.views.release(v)
	dir := s.dir + checkpointMark + strconv.FormatUint(s.checkpoints.Add(1), 10)
	defer func() {
		if rerr := s.opts.FS.RemoveAll(dir); rerr != nil {
			err = errors.Join(err, fmt.Errorf("removing checkpoint %s: %w", dir, rerr))
		}
	}()
	if err := s.db.Checkpoint(dir, pebble.WithFlushedWAL()); err != nil {
		return fmt.Errorf("checkpoint %s: %w", dir, err)
	}
	return f(dir)
}

// removeCheckpoints removes the checkpoints that a crash left behind. The store's lock is held: nobody makes one.
func (s *Store) removeCheckpoints() error {
	parent, base := s.opts.FS.PathDir(s.dir), s.opts.FS.PathBase(s.dir)
	names, err := s.opts.FS.List(parent)
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // the folder above was made or found: only a file system in memory says so
		return fmt.Errorf("looking for old checkpoints: %w", err)
	}
	for _, name := range names {
		number, ok := strings.CutPrefix(name, base+checkpointMark)
		if _, err := strconv.ParseUint(number, 10, 64); !ok || err != nil {
			continue
		}
		if err := s.opts.FS.RemoveAll(s.opts.FS.PathJoin(parent, name)); err != nil {
			return fmt.Errorf("removing an old checkpoint: %w", err)
		}
		s.logger.Info("removed a checkpoint that a crash left behind", "checkpoint", name)
	}
	return nil
}
