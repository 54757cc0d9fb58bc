package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
)

// dataLock keeps a node and a restore off one another. It is on folders, not on what is in them: the locks of the store and of the
// bucket go with their folders when somebody moves these away under a running node, and are not there where they live elsewhere.
// The system gives it back when the process ends, however it ends.
type dataLock struct {
	held []*os.File
	// made are what the taking of it made, in order: folders that were not there before.
	made []string
}

// errHeld: another process has the lock.
var errHeld = errors.New("held by another process")

// lockData takes the data directory for this process alone, and the folder that the metadata is in, if that is another: for
// this process alone too, or, with shared, for all who hold it likewise, since several nodes may have their metadata side by side. What is
// missing is made.
//
// Errors: errHeld, and those of the file system.
func lockData(dir, meta string, shared bool) (*dataLock, error) {
	l := &dataLock{}
	if err := l.take(filepath.Clean(dir), unix.LOCK_EX); err != nil {
		return nil, errors.Join(err, l.abandon())
	}
	parent := filepath.Dir(filepath.Clean(meta))
	own, err := l.held[0].Stat()
	if err != nil {
		return nil, errors.Join(err, l.abandon())
	}
	if fi, err := os.Stat(parent); err == nil && os.SameFile(own, fi) {
		return l, nil
	}
	how := unix.LOCK_EX
	if shared {
		how = unix.LOCK_SH
	}
	if err := l.take(parent, how); err != nil {
		return nil, errors.Join(err, l.abandon())
	}
	return l, nil
}

// take locks one folder. One that was removed between the opening and the locking, by a start that was refused, is taken anew.
func (l *dataLock) take(dir string, how int) error {
	for {
		if err := l.make(dir); err != nil {
			return err
		}
		f, err := os.Open(dir)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		if err := unix.Flock(int(f.Fd()), how|unix.LOCK_NB); err != nil {
			if errors.Is(err, unix.EWOULDBLOCK) {
				err = fmt.Errorf("%s: %w", dir, errHeld)
			}
			return errors.Join(err, f.Close())
		}
		mine, err := f.Stat()
		if err != nil {
			return errors.Join(err, f.Close())
		}
		if now, err := os.Stat(dir); err == nil && os.SameFile(mine, now) {
			l.held = append(l.held, f)
			return nil
		}
		if err := f.Close(); err != nil {
			return err
		}
	}
}

// make makes a folder and those above it, and notes which were missing.
func (l *dataLock) make(dir string) error {
	err := os.Mkdir(dir, 0o755)
	switch {
	case err == nil:
		l.made = append(l.made, dir)
		return nil
	case errors.Is(err, fs.ErrExist):
		return leadsNowhere(dir)
	case errors.Is(err, fs.ErrNotExist) && filepath.Dir(dir) != dir:
		if err := l.make(filepath.Dir(dir)); err != nil {
			return err
		}
		return l.make(dir)
	}
	return err
}

// leadsNowhere is an error where a folder's name is a link to nothing, as to a volume that is not mounted: it can be neither
// made nor opened, and stays so however often that is tried.
func leadsNowhere(dir string) error {
	if _, err := os.Readlink(dir); err != nil {
		return nil // no link
	}
	_, err := os.Stat(dir)
	return err
}

// release gives it back.
func (l *dataLock) release() error {
	if l == nil {
		return nil
	}
	var errs []error
	for _, f := range l.held {
		errs = append(errs, f.Close())
	}
	l.held = nil
	return errors.Join(errs...)
}

// abandon gives it back, and leaves no folder that was made for it and holds nothing.
func (l *dataLock) abandon() error {
	if l == nil {
		return nil
	}
	for _, dir := range slices.Backward(l.made) {
		_ = os.Remove(dir) // one that somebody put something into meanwhile stays
	}
	return l.release()
}
