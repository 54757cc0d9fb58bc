package main

import (
	"errors"
	"math"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/nova-store/nova/metastore/pebblestore"
	"github.com/nova-store/nova/objstore"
)

// The steps of the reserve are a half of one another: appends keep all of it, rewrites half, the store a quarter, below which it
// takes deletions only; these down to a quarter of that, which is more than the store writes between two looks.
const (
	storeShare     = 4
	minDiskReserve = storeShare * pebblestore.LeastReserve
)

// newRoom watches the disks that folders are on: the fullest one counts. Without a folder there is nothing to keep.
func newRoom(folders []string, reserve int64) *objstore.Room {
	return objstore.NewRoom(reserve, time.Now, func() (int64, error) {
		least := int64(math.MaxInt64)
		var errs []error
		for _, dir := range folders {
			disk, err := vfs.Default.GetDiskUsage(dir)
			least, errs = min(least, int64(disk.AvailBytes)), append(errs, err)
		}
		return least, errors.Join(errs...)
	})
}
