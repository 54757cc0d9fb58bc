package main

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// elsewhere is the folder of metadata outside the data directory that held nothing before a start: what is in it when the start
// is refused, this start made.
type elsewhere struct {
	dir  string // empty: there is none, or it held something
	kept bool   // the folder itself was there
}

// metaElsewhere looks at the folder before anything is opened.
func metaElsewhere(lock *dataLock, meta string) elsewhere {
	if len(lock.held) < 2 { // beneath the data directory
		return elsewhere{}
	}
	switch files, err := os.ReadDir(meta); {
	case errors.Is(err, fs.ErrNotExist) && len(missing(meta)) == 1:
		return elsewhere{dir: meta}
	case err == nil && len(files) == 0:
		return elsewhere{dir: meta, kept: true}
	}
	return elsewhere{}
}

// claim makes sure, while the store is open, that what is in the folder is this start's alone, until the lock is given
// back: the store had no format when it was opened, so that nobody ever served from it, and no other start has the lock of
// the folder above, as each takes before it opens anything. Where one has, an empty store stays, which does no harm.
func (e elsewhere) claim(ctx context.Context, n *node) elsewhere {
	if e.dir == "" || n.store == nil {
		return elsewhere{}
	}
	fresh := n.fresh
	if !fresh {
		var err error
		if fresh, err = freshMetadata(ctx, n.store); err != nil {
			return elsewhere{}
		}
	}
	if !fresh || unix.Flock(int(n.lock.held[1].Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil {
		return elsewhere{}
	}
	return e
}

// remove removes what was claimed, once the store is closed.
func (e elsewhere) remove() error {
	switch {
	case e.dir == "":
		return nil
	case !e.kept:
		return os.RemoveAll(e.dir)
	}
	files, err := os.ReadDir(e.dir)
	for _, f := range files {
		err = errors.Join(err, os.RemoveAll(filepath.Join(e.dir, f.Name())))
	}
	return err
}
