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

	"github.com/alecthomas/kong"

	"github.com/nova-store/nova/metastore"
	"github.com/nova-store/nova/metastore/etcdstore"
	"github.com/nova-store/nova/metastore/pebblestore"
	"github.com/nova-store/nova/objstore"
	"github.com/nova-store/nova/objstore/dirbucket"
	"github.com/nova-store/nova/objstore/s3bucket"
)

// storageFlags are the flags of serve that say where metadata and objects live.
type storageFlags struct {
	Metastore string `help:"Where metadata lives: pebble:DIR, for one process alone (meta/ of the data directory), or etcd://HOST,HOST/PREFIX, for many nodes." placeholder:"WHERE"`
	Bucket    string `help:"Where objects live: dir:PATH (bucket/ of the data directory), or s3://BUCKET/PREFIX." placeholder:"WHERE"`

	etcdFlags
	s3Flags
}

// storageConfig is what they come to.
type storageConfig struct {
	etcd *etcdConfig // nil: Pebble
	meta string      // folder of Pebble
	dir  string      // folder of the bucket; empty with s3
	s3   *s3Config   // nil: a folder
}

// embedded: nothing but this process writes, and nothing of it outlives it. Only then is there no put horizon.
func (s storageConfig) embedded() bool { return s.etcd == nil && s.s3 == nil }

// longestUpload is how long after it began a put may still take effect: catalog.Timing counts it.
func (s storageConfig) longestUpload() time.Duration {
	if s.s3 == nil {
		return 0
	}
	return s.s3.longestUpload
}

// where names the metastore.
func (s storageConfig) where() string {
	if s.etcd != nil {
		return s.etcd.address
	}
	return "metadata in " + s.meta
}

// objects names the bucket.
func (s storageConfig) objects() string {
	if s.s3 != nil {
		return "bucket " + s3bucket.Scheme + s.s3.options.Bucket + "/" + s.s3.options.Prefix
	}
	return "bucket " + s.dir
}

// under puts what has no folder of its own beneath the data directory.
func (s storageConfig) under(data string) storageConfig {
	if s.etcd == nil && s.meta == "" {
		s.meta = filepath.Join(data, "meta")
	}
	if s.s3 == nil && s.dir == "" {
		s.dir = filepath.Join(data, "bucket")
	}
	return s
}

// apart refuses folders of which one lies in the other: a listing of the bucket would take the store's files for objects that no
// record names, which an operator removes, and who moves the metadata aside would take the objects along.
func (s storageConfig) apart() error {
	if s.meta == "" || s.dir == "" {
		return nil
	}
	meta, err := resolved(s.meta)
	if err != nil {
		return err
	}
	bucket, err := resolved(s.dir)
	if err != nil {
		return err
	}
	if within(meta, bucket) || within(bucket, meta) {
		return usagef("%s and %s lie in one another: give the metadata and the objects a folder each", s.where(), s.objects())
	}
	return nil
}

// resolved is a folder's path without symbolic links, as far as it is there.
func resolved(dir string) (string, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	real, err := filepath.EvalSymlinks(dir)
	if errors.Is(err, fs.ErrNotExist) && filepath.Dir(dir) != dir {
		real, err = resolved(filepath.Dir(dir))
		real = filepath.Join(real, filepath.Base(dir))
	}
	return real, err
}

// within says whether a resolved path is that folder, or beneath it.
func within(path, folder string) bool {
	rel, err := filepath.Rel(folder, path)
	return err == nil && filepath.IsLocal(rel)
}

// storage refuses storage that cannot work, before anything is opened.
func (f *storageFlags) storage(auditOnly bool, star string) (storageConfig, error) {
	var s storageConfig
	var err error
	switch dir, pebble := strings.CutPrefix(f.Metastore, "pebble:"); {
	case strings.HasPrefix(f.Metastore, etcdstore.Scheme):
		if s.etcd, err = f.etcdFlags.config(f.Metastore); err != nil {
			return s, err
		}
	case f.Metastore == "":
	case !pebble || dir == "":
		return s, usagef("--metastore=%s: it must be pebble:DIR or etcd://HOST,HOST/PREFIX", f.Metastore)
	default:
		s.meta = dir
	}
	if s.etcd == nil && f.etcdFlags.given() {
		return s, usagef("flags of etcd (--etcd-…) need --metastore=etcd://…")
	}
	if err := s.bucketAt(f.Bucket, &f.s3Flags); err != nil {
		return s, err
	}
	if s.s3 == nil && f.s3Flags.given() {
		return s, usagef("flags of S3 (--s3-…) need --bucket=s3://…")
	}
	switch {
	case s.etcd != nil && s.s3 == nil:
		return s, usagef("--metastore=%s needs a bucket that nodes share and that refuses late writes: give --bucket=s3://…, since a directory can do neither", f.Metastore)
	case auditOnly && s.etcd == nil:
		return s, usagef("--audit-only: metadata in Pebble is for one process alone, so that this auditor would have nothing to audit; give --metastore=etcd://…, or run both roles in one node")
	case s.etcd != nil && !auditOnly && star == defaultStar:
		return s, usagef("--star=%s is every node's default, and stars that share a metastore need names of their own: choose another", star)
	}
	return s, nil
}

// bucketAt takes the flag --bucket.
func (s *storageConfig) bucketAt(flag string, f *s3Flags) (err error) {
	switch dir, local := strings.CutPrefix(flag, "dir:"); {
	case strings.HasPrefix(flag, s3bucket.Scheme):
		s.s3, err = f.config(flag)
		return err
	case flag == "":
	case !local || dir == "":
		return usagef("--bucket=%s: it must be dir:PATH or s3://BUCKET/PREFIX", flag)
	default:
		s.dir = dir
	}
	return nil
}

// openBucket opens the bucket. What cannot go on ends in fatal.
func (s storageConfig) openBucket(ctx context.Context, skew time.Duration, log *slog.Logger, fatal func(error)) (closingBucket, error) {
	if s.s3 != nil {
		return s.s3.open(ctx, skew, log)
	}
	return dirbucket.Open(s.dir, dirbucket.Options{Logger: log, OnFail: fatal})
}

// defaultStar is the name of a star that is alone.
const defaultStar = "nova"

// byStorage is a duration whose default depends on where metadata and objects live.
type byStorage struct {
	time.Duration
	given bool
}

// Decode reads a flag's value.
func (d *byStorage) Decode(ctx *kong.DecodeContext) error {
	token, err := ctx.Scan.PopValue("duration")
	if err != nil {
		return err
	}
	if d.Duration, err = time.ParseDuration(fmt.Sprint(token.Value)); err != nil {
		return fmt.Errorf("%q is not a duration like 30s or 2m", token.Value)
	}
	d.given = true
	return nil
}

func (d *byStorage) orElse(otherwise time.Duration) {
	if !d.given {
		d.Duration = otherwise
	}
}

// closingStore and closingBucket are what this process opened and closes.
type closingStore interface {
	metastore.Store
	Close() error
}

type closingBucket interface {
	objstore.Bucket
	Close() error
}

// openStorage opens metastore and bucket. What it opened before an error is closed by close.
func (n *node) openStorage(ctx context.Context, cfg *nodeConfig) error {
	fatal := func(err error) {
		cfg.Logger.Error("storage failed, the process ends", "error", err)
		os.Exit(exitFailure)
	}
	s := cfg.Storage
	var local []string // folders on disks that may fill
	if s.etcd != nil {
		store, err := s.etcd.open(ctx, cfg.Logger)
		if err != nil {
			return err
		}
		n.store = store
	} else {
		if s.dir != "" {
			if err := checkMetadata(cfg.Dir, s.meta, s.dir); err != nil {
				return err
			}
		}
		store, err := pebblestore.Open(s.meta, pebblestore.Options{Logger: cfg.Logger, Fatal: fatal, MinFreeBytes: cfg.DiskReserve / storeShare})
		if err != nil {
			return err
		}
		n.store = store
		if s.dir != "" {
			if err := checkBucket(ctx, store, cfg.Dir, s.dir); err != nil {
				return err
			}
		}
		local = append(local, s.meta)
	}
	bucket, err := s.openBucket(ctx, cfg.Timing.MaxClockSkew, cfg.Logger, fatal)
	if err != nil {
		return err
	}
	n.bucket = bucket
	if s.dir != "" {
		local = append(local, s.dir)
	}
	room := newRoom(local, cfg.DiskReserve)
	cfg.Star.Room, cfg.Auditor.Room = room, room
	return nil
}
