package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nova-store/nova/backup"
	"github.com/nova-store/nova/catalog"
	"github.com/nova-store/nova/clock"
	"github.com/nova-store/nova/metastore"
	"github.com/nova-store/nova/metastore/etcdstore"
	"github.com/nova-store/nova/metastore/pebblestore"
	"github.com/nova-store/nova/objstore/dirbucket"
)

// restoreCmd makes a data directory's metadata from a backup.
type restoreCmd struct {
	File          string `arg:"" optional:"" help:"The backup."`
	Data          string `help:"Data directory of the node, which must not run: its bucket/ stays, its meta/ must not be there, or be empty." placeholder:"DIR"`
	Metastore     string `help:"Where the node's metadata lives, if not in meta/ of it: pebble:DIR; with --begin-timeline etcd://HOST,HOST/PREFIX." placeholder:"WHERE" env:"-"`
	BeginTimeline bool   `help:"Instead of a backup: make metadata in etcd, which etcd's own snapshot was restored to, ready for nodes to be started on." env:"-"`
	Output        string `help:"How to tell the result: text or json." enum:"text,json" default:"text" env:"-"`

	etcdFlags
}

// Help is shown by novad restore --help.
func (restoreCmd) Help() string {
	return `The metadata becomes what it was at the backup. What was done since is undone: what was appended since is gone, and
what was trimmed or deleted since is there again, as far as the bucket still has it. New stream ids and objects get
names that nothing since the backup can have. Metadata that is there already is never touched: move it aside first.

A restore that was cut anywhere has changed nothing, and is begun anew. Afterwards run novad verify --data-dir DIR, which
tells what the bucket lacks, with --list also what is left of the time since. See docs/backup.md.

Metadata in etcd is restored by etcd's own tools, and then, before any node is started, made ready with
novad restore --metastore etcd://HOST,HOST/PREFIX --begin-timeline. See docs/etcd.md.`
}

// restored is the output as JSON.
type restored struct {
	Data string `json:"data"`
	backup.Header
}

// Run restores.
func (c *restoreCmd) Run(p *process) error {
	etcd := strings.HasPrefix(c.Metastore, etcdstore.Scheme)
	switch {
	case c.BeginTimeline && !etcd:
		return usagef("--begin-timeline is for metadata in etcd, --metastore=etcd://HOST,HOST/PREFIX: in Pebble a restore does it by itself")
	case c.BeginTimeline && c.File != "":
		return usagef("--begin-timeline takes no backup: etcdutl has restored etcd's snapshot before")
	case c.BeginTimeline:
		return c.shared(p)
	case etcd:
		return usagef("--metastore=%s: metadata in etcd is restored by etcdutl snapshot restore, and then made ready with --begin-timeline", c.Metastore)
	case c.etcdFlags.given():
		return usagef("flags of etcd (--etcd-…) need --metastore=etcd://… and --begin-timeline")
	case c.File == "" || c.Data == "":
		return usagef("a backup and --data are needed: novad restore FILE --data DIR")
	}
	at, err := (&storageFlags{Metastore: c.Metastore}).storage(false, "")
	if err != nil {
		return err
	}
	at = at.under(c.Data)
	r, err := newRestoration(c.File, c.Data, at.meta, at.dir)
	if err != nil {
		return err
	}
	h, err := r.run(p.ctx)
	if err = errors.Join(err, r.close()); err != nil {
		return err
	}
	if c.Output == "json" {
		return printJSON(p.stdout, restored{c.Data, h})
	}
	elsewhere := ""
	if c.Metastore != "" {
		elsewhere = " --metastore " + c.Metastore
	}
	text := fmt.Sprintf("restored the metadata of %s, as of %s, to %s", c.Data, h.Created.Format(time.RFC3339), at.meta)
	if time.Now().After(h.WholeUntil) {
		text += fmt.Sprintf("; what was deleted since %s the bucket may lack: see novad verify --data-dir %s%s", h.WholeUntil.Format(time.RFC3339), c.Data, elsewhere)
	}
	return printLine(p.stdout, text)
}

// shared begins a time line of its own in a store that nodes share, which was restored by other means.
func (c *restoreCmd) shared(p *process) (err error) {
	at, err := c.config(c.Metastore)
	if err != nil {
		return err
	}
	store, err := at.open(p.ctx, slog.New(slog.DiscardHandler))
	if err != nil {
		return &usageError{err}
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	if err := beginTimeline(p.ctx, store); err != nil {
		return err
	}
	if c.Output == "json" {
		return printJSON(p.stdout, map[string]string{"metastore": c.Metastore})
	}
	return printLine(p.stdout, fmt.Sprintf("%s has a time line of its own: start its nodes", c.Metastore))
}

// beginTimeline makes a restored store ready to serve from, while no node runs on it: one that did would hold a chain or an id of the
// time line that ends here. Run twice, or on a store that was not restored, it leaves a gap in the numbers and nothing else. Cut off, it
// leaves the store as it was, or one that no node starts on until it is repeated.
func beginTimeline(ctx context.Context, store metastore.Store) error {
	cat := catalog.New(store, clock.NewReal(), catalog.DefaultTiming(false), nil)
	running, err := whoRuns(ctx, cat)
	switch {
	case err != nil:
		return err
	case len(running) > 0:
		return usagef("--begin-timeline: %s run, or did until a moment ago: stop every node first", strings.Join(running, ", "))
	}
	err = cat.BeginTimeline(ctx)
	if errors.Is(err, catalog.ErrStarLive) || errors.Is(err, catalog.ErrCorruptValue) {
		return &usageError{err}
	}
	return err
}

// restoration is a restore under way. Each of its steps may be the last one; the next restoration begins anew:
//
//  1. clear removes what an earlier one left in {meta}.restoring.
//  2. unpack unpacks the backup there, whole and synced, or fails. Nobody looks there but a restoration.
//  3. raise opens the store there, in which a time line of its own begins (catalog.BeginTimeline), and closes it.
//  4. install renames it to meta, where there is nothing, and syncs the folder. Before that, a start refuses a bucket with
//     objects and no metadata; after it the restore is done.
type restoration struct {
	file, meta, staging string
	lock                *dataLock
	bucket              *dirbucket.Bucket // held, so that no node runs on it; nil: it is not there, or elsewhere
}

// newRestoration refuses what can't be restored to, and locks it.
func newRestoration(file, data, meta, bucket string) (r *restoration, err error) {
	meta = filepath.Clean(meta)
	r = &restoration{file: file, meta: meta, staging: meta + ".restoring"}
	if info, err := os.Stat(file); err != nil {
		return nil, usagef("%w", err)
	} else if !info.Mode().IsRegular() {
		return nil, usagef("%s is no file", file)
	}
	switch r.lock, err = lockData(data, meta, false); {
	case errors.Is(err, errHeld):
		return nil, usagef("a node runs on it, or another restore to %s is under way (%w)", meta, err)
	case err != nil:
		return nil, usagef("%w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.close())
		}
	}()
	switch files, err := os.ReadDir(meta); {
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return r, usagef("%w", err)
	case len(files) == 1 && files[0].Name() == "lost+found":
		return r, r.mounted()
	case len(files) > 0:
		return r, usagef("%s holds metadata, which a restore never touches: stop the node, move it aside (mv %s %s.old), and restore again", meta, meta, meta)
	}
	if _, err := os.Stat(bucket); bucket != "" && err == nil {
		var held *dirbucket.LockedError
		switch r.bucket, err = dirbucket.Open(bucket, dirbucket.Options{}); {
		case errors.As(err, &held):
			return r, usagef("bucket %s is in use by a running node: stop it first", bucket)
		case err != nil:
			return r, &usageError{err}
		}
	}
	// An empty folder is no metadata. It makes room now, since one that can't, a mount point, must be told of before all the work.
	switch err := os.Remove(meta); {
	case errors.Is(err, unix.EBUSY):
		return r, r.mounted()
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return r, usagef("%w", err)
	}
	return r, nil
}

// mounted refuses metadata that is a volume of its own: nothing can be put in its place in one step.
func (r *restoration) mounted() error {
	return usagef("%s is a mount point, which a restore can't be put in the place of: mount the volume at %s, or let the metadata live in a folder of it (--metastore pebble:%s, here and for novad serve)",
		r.meta, filepath.Dir(r.meta), filepath.Join(r.meta, "pebble"))
}

func (r *restoration) close() error {
	var errs []error
	if r.bucket != nil {
		errs = append(errs, r.bucket.Close())
	}
	return errors.Join(append(errs, r.lock.release())...)
}

func (r *restoration) run(ctx context.Context) (h backup.Header, err error) {
	if err := r.clear(); err != nil {
		return h, err
	}
	h, err = r.unpack()
	if err == nil {
		err = r.raise(ctx)
	}
	if err == nil {
		err = r.install()
	}
	if err != nil {
		return h, errors.Join(err, r.clear())
	}
	return h, nil
}

func (r *restoration) clear() error {
	if err := os.RemoveAll(r.staging); err != nil {
		return fmt.Errorf("restore: %w", err)
	}
	return nil
}

func (r *restoration) unpack() (backup.Header, error) {
	f, err := os.Open(r.file)
	if err != nil {
		return backup.Header{}, fmt.Errorf("restore: %w", err)
	}
	defer f.Close() // only read
	info, err := f.Stat()
	if err != nil {
		return backup.Header{}, fmt.Errorf("restore: %w", err)
	}
	if err := os.Mkdir(r.staging, 0o755); err != nil {
		return backup.Header{}, fmt.Errorf("restore: %w", err)
	}
	h, err := backup.Unpack(f, r.staging, info.Size())
	switch {
	case errors.Is(err, backup.ErrDamaged), errors.Is(err, backup.ErrVersion):
		return h, usagef("%s: %w", r.file, err)
	case err != nil:
		return h, fmt.Errorf("restoring %s: %w", r.file, err)
	}
	return h, nil
}

func (r *restoration) raise(ctx context.Context) (err error) {
	log := slog.New(slog.DiscardHandler)
	var failed error
	store, err := pebblestore.Open(r.staging, pebblestore.Options{Logger: log, MinFreeBytes: -1, Fatal: func(err error) { failed = err }})
	if err != nil {
		return usagef("%s: %w", r.file, err)
	}
	cat := catalog.New(store, clock.NewReal(), catalog.DefaultTiming(true), nil)
	err = cat.BeginTimeline(ctx)
	err = errors.Join(err, store.Close(), failed)
	switch {
	case errors.Is(err, catalog.ErrCorruptValue):
		return usagef("%s: %w", r.file, err)
	case err != nil:
		return fmt.Errorf("restoring %s: %w", r.file, err)
	}
	return nil
}

func (r *restoration) install() error {
	if err := os.Rename(r.staging, r.meta); err != nil {
		return fmt.Errorf("restore: %w", err)
	}
	if err := syncDir(filepath.Dir(r.meta)); err != nil {
		return fmt.Errorf("restored, but perhaps not yet durable: %w", err)
	}
	return nil
}
