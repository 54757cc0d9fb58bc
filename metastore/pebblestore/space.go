package pebblestore

import (
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// need is what a commit wants to do to the disk, the greedier the larger.
type need uint8

const (
	spaceForNothing need = iota
	spaceForDeletes
	spaceForPuts
)

// spaceGuard keeps the store away from a full disk, on which Pebble's log, and with
// it the process, would end. It knows the free space as of its last look, so
// the reserve must be larger than what anybody writes to the disk in between.
type spaceGuard struct {
	fs      vfs.FS
	dir     string
	reserve int64
	now     func() time.Time

	looked  time.Time
	written int
	free    uint64
	known   bool
}

const (
	lookEvery      = time.Second
	lookEveryBytes = 8 << 20
)

// check returns a FullError if too little is free. Deletes are what frees space in
// the end, so they go on down to a quarter of the reserve, and with them every commit that does not grow.
func (g *spaceGuard) check(n need, bytes int) error {
	if g.reserve < 0 || n == spaceForNothing {
		return nil
	}
	now := g.now()
	if g.written += bytes; g.looked.IsZero() || now.Sub(g.looked) >= lookEvery || g.written >= lookEveryBytes {
		usage, err := g.fs.GetDiskUsage(g.dir)
		g.looked, g.written = now, 0
		g.free, g.known = usage.AvailBytes, err == nil
	}
	reserve := uint64(g.reserve)
	if n == spaceForDeletes {
		reserve /= 4
	}
	if g.known && g.free < reserve {
		return &FullError{Dir: g.dir, Free: g.free, Reserve: reserve}
	}
	return nil
}
