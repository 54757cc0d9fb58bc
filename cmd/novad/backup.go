package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/nova-store/nova/api"
	"github.com/nova-store/nova/backup"
	"github.com/nova-store/nova/catalog"
	"github.com/nova-store/nova/metastore/pebblestore"
)

// backup is what the interface's backup does, until stopping ends: a shutdown does not wait for it.
func (n *node) backup(stopping context.Context) func(context.Context, io.Writer) error {
	return func(ctx context.Context, w io.Writer) error {
		store, ok := n.store.(*pebblestore.Store)
		if !ok {
			return fmt.Errorf("%w: its metadata is in etcd, which all its nodes share: take it from there, with etcdctl snapshot save", api.ErrNoBackup)
		}
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(stopping, cancel)()
		// Before the checkpoint: what is deleted from then on it may still name.
		created := time.Now().UTC()
		return store.Checkpoint(ctx, func(dir string) error {
			return backup.Write(ctx, w, dir, backup.Header{Created: created, WholeUntil: created.Add(wholeFor(n.cat.Timing())), Program: version()})
		})
	}
}

// wholeFor is for how long nothing is deleted that metadata names now: docs/backup.md.
func wholeFor(t catalog.Timing) time.Duration { return min(t.ReapGrace, t.TrimGrace) }

// backupCmd makes a backup of a running server's metadata.
type backupCmd struct {
	serverFlag
	To     string `arg:"" name:"file" help:"File to write, which must not exist; or a folder, in which it gets a name by the time, and which is made if it ends in / and is not there."`
	Output string `help:"How to tell the result: text or json." enum:"text,json" default:"text" env:"-"`
}

// Help is shown by novad backup --help.
func (backupCmd) Help() string {
	return `Copies the metadata of a running server, as it is at one moment, to a file that novad restore takes. Objects are not in it: they
stay in the bucket, and a backup is whole as long as the bucket has what the metadata of that moment names. The time that
is printed is until when it has by itself; docs/backup.md tells how to keep them longer.

The file is there only once it is complete, checked, and on disk. Metadata in etcd is backed up by etcdctl snapshot save.`
}

// backedUp is the output as JSON.
type backedUp struct {
	File  string `json:"file"`
	Bytes int64  `json:"bytes"`
	backup.Header
}

// Run writes the file.
func (c *backupCmd) Run(p *process) error {
	path := c.To
	if path != "" && os.IsPathSeparator(path[len(path)-1]) { // a folder, whether it is there or not
		if err := os.MkdirAll(path, 0o750); err != nil {
			return usagef("%v", err)
		}
	}
	switch info, err := os.Stat(path); {
	case err == nil && info.IsDir():
		path = filepath.Join(path, "nova-"+time.Now().UTC().Format("20060102T150405.000Z")+".tar")
	case err == nil:
		return usagef("%s exists: choose another name, or give a folder", path)
	}
	client, err := c.client()
	if err != nil {
		return err
	}
	defer client.Close()
	h, size, err := writeWhole(path, func(w io.Writer) (backup.Header, error) { return client.Backup(p.ctx, w) })
	if err != nil {
		return err
	}
	if c.Output == "json" {
		return printJSON(p.stdout, backedUp{path, size, h})
	}
	return printLine(p.stdout, fmt.Sprintf("%s: %d bytes, metadata as of %s; by itself the bucket has all that it names until %s",
		path, size, h.Created.Format(time.RFC3339), h.WholeUntil.Format(time.RFC3339)))
}

// writeWhole makes a file of what write writes: under another name at first, synced, then renamed. After an error there is none.
func writeWhole(path string, write func(io.Writer) (backup.Header, error)) (h backup.Header, size int64, err error) {
	dir := filepath.Dir(path)
	f, err := os.CreateTemp(dir, "."+filepath.Base(path)+"-*.partial")
	if err != nil {
		return h, 0, fmt.Errorf("writing a backup: %w", err)
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name()) // of no use to anybody; the error says what happened
		}
	}()
	h, err = write(f)
	if err == nil {
		err = f.Sync()
	}
	if err == nil {
		size, err = f.Seek(0, io.SeekEnd)
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return h, 0, err
	}
	// A link, unlike a rename, does not take the place of a file that came meanwhile.
	if err = os.Link(f.Name(), path); err != nil {
		return h, 0, fmt.Errorf("writing a backup: %w", err)
	}
	if err = os.Remove(f.Name()); err == nil {
		err = syncDir(dir)
	}
	return h, size, err
}

// syncDir makes the names in a folder durable.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
