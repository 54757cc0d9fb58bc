package main

import (
	"errors"
	"path/filepath"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/nova-store/nova/objstore"
)

// The steps of the reserve are a half of one another from a quarter on: appends keep all of it, rewrites a quarter, the
// store an eighth, below which it takes deletions only; these down to a quarter of that.
const (
	storeShare     = 8
	minDiskReserve = 1 << 20
)

// newRoom watches the disk, or the two disks, that the data directory is on: the fuller one counts.
func newRoom(dir string, reserve int64) *objstore.Room {
	return objstore.NewRoom(reserve, time.Now, func() (int64, error) {
		meta, err1 := vfs.Default.GetDiskUsage(filepath.Join(dir, "meta"))
		bucket, err2 := vfs.Default.GetDiskUsage(filepath.Join(dir, "bucket"))
		return int64(min(meta.AvailBytes, bucket.AvailBytes)), errors.Join(err1, err2)
	})
}
