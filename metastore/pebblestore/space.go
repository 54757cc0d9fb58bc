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
	every   int // bytes that commits may write between two looks
	now     func() time.Time

	looked  time.Time
	written int
	free    uint64
	known   bool
}

// lookEvery bounds the age of a look.
const lookEvery = time.Second

// What the store may write between a look that let a commit pass and the next one, at most: the most that memtables and looks are set to.
const (
	memTableBytes  = 16 << 20 // some seconds of a busy store; larger would only make starts slower
	lookEveryBytes = 8 << 20
	// leastMemTable is Pebble's own first size. A reserve for which it is too large is [LeastReserve] or less.
	leastMemTable = 256 << 10
)

// LeastReserve is the smallest MinFreeBytes that is worth anything: deletions go on down to a quarter of it, and a memtable flushed
// then, with what is written until the next look, must still fit.
const LeastReserve = 16 * leastMemTable

// steps are the size of a memtable and the bytes between two looks for a reserve: together less than half of the quarter that nobody
// may write into, since a table is on the disk besides the log that it replaces.
func steps(reserve int64) (memTable, every int) {
	if reserve < 0 {
		return memTableBytes, lookEveryBytes
	}
	return int(min(max(reserve/16, leastMemTable), memTableBytes)), int(min(max(reserve/32, 1), lookEveryBytes))
}

// check returns a FullError if too little is free. Deletes are what frees space in
// the end, so they go on down to a quarter of the reserve, and with them every commit that does not grow.
func (g *spaceGuard) check(n need, bytes int) error {
	if g.reserve < 0 || n == spaceForNothing {
		return nil
	}
	now := g.now()
	if g.written += bytes; g.looked.IsZero() || now.Sub(g.looked) >= lookEvery || g.written >= g.every {
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
