package check

import (
	"strings"

	"github.com/cespare/xxhash/v2"

	"github.com/nova-store/nova/catalog"
	"github.com/nova-store/nova/metastore"
)

// index holds, of each entry of a second index that the commit at hand made or took
// away, by how much there are too many (above 0) or too few. Markers owe entries, entries
// pay: after every commit the two are even, so that the map is empty between commits and its
// cost that of the change alone. Entries are told by a hash of what they say.
type index struct {
	balance map[uint64]int
	sample  string // a key that the commit at hand touched, for the report
}

func newIndex() index { return index{balance: make(map[uint64]int)} }

func (x *index) add(hash uint64, n int, key string) {
	v := x.balance[hash] + n
	if v == 0 {
		delete(x.balance, hash)
		return
	}
	x.balance[hash], x.sample = v, key
}

const (
	mixID    = 0x9e3779b97f4a7c15
	mixOrder = 0xc2b2ae3d27d4eb4f
)

// pendingHash tells a pending entry: of the stream, and of the marker queue, shard and tail.
func pendingHash(id catalog.StreamID, queue, shard, tail string) uint64 {
	return xxhash.Sum64String(tail) + uint64(id)*mixID + xxhash.Sum64String(queue)*3 + xxhash.Sum64String(shard)*5
}

// owe takes what a marker due/{queue}/{shard}/{tail} says of the streams that it concerns:
// n is 1 where it appears, -1 where it goes.
func (x *index) owe(key string, streams []catalog.StreamID, n int) {
	queue, rest, _ := strings.Cut(key[len("due/"):], "/")
	shard, tail, _ := strings.Cut(rest, "/")
	for _, id := range streams {
		x.add(pendingHash(id, queue, shard, tail), -n, key)
	}
}

// pendingChanged takes a change of pending/{id}/{queue}~{shard}~{tail}.
func (c *Checker) pendingChanged(key string, old, now metastore.Record) {
	at := len("pending/") + 16
	if len(key) < at+1 {
		c.fail(Bounded, key, "unreadable")
		return
	}
	queue, rest, _ := strings.Cut(key[at+1:], "~")
	shard, tail, _ := strings.Cut(rest, "~")
	c.index.add(pendingHash(catalog.StreamID(parseHex(key[len("pending/"):at])), queue, shard, tail), delta(old, now), key)
}

// scheduleHash tells a schedule entry: of a batch marker and its ready time.
func scheduleHash(shard, coordinate string, ready uint64) uint64 {
	return xxhash.Sum64String(coordinate) + ready*mixOrder + xxhash.Sum64String(shard)*5 + 1
}

// scheduleChanged takes a change of schedule/denorm/{shard}/{ready}~{coordinate}.
func (c *Checker) scheduleChanged(key string, old, now metastore.Record) {
	at := len("schedule/denorm/00/")
	if len(key) < at+17 {
		c.fail(Bounded, key, "unreadable")
		return
	}
	c.index.add(scheduleHash(key[at-3:at-1], key[at+17:], parseHex(key[at:at+16])), delta(old, now), key)
}

// oweSchedule takes what a batch marker says of its schedule entry.
func (x *index) oweSchedule(key string, ready int64, n int) {
	at := len("due/denorm/00/")
	x.add(scheduleHash(key[at-3:at-1], key[at:], uint64(ready)), -n, key)
}

// attribution takes the streams that a change of a reap or gc marker concerns.
func (c *Checker) attribution(q catalog.Queue, key string, old, now metastore.Record) {
	streams := func(r metastore.Record) []catalog.StreamID {
		if q == catalog.Reap {
			return catalog.DecodeReapMarker(r.Value).Streams
		}
		return catalog.DecodeGCMarker(r.Value).Streams
	}
	if old.Exists() {
		c.index.owe(key, streams(old), -1)
	}
	if now.Exists() {
		s := streams(now)
		c.index.owe(key, s, 1)
		if len(s) > catalog.MaxAttributed {
			c.fail(Bounded, key, "the marker is attributed to %d streams", len(s))
		}
	}
}

// judgeIndex is that each marker has its entries and each entry its marker.
func (c *Checker) judgeIndex() {
	if len(c.index.balance) == 0 {
		return
	}
	many, few := 0, 0
	for _, n := range c.index.balance {
		if n > 0 {
			many += n
		} else {
			few -= n
		}
	}
	c.fail(Convergence, c.index.sample, "of pending/ and schedule/ the commit leaves %d entries that no marker owes, and owes %d that are not there", many, few)
	clear(c.index.balance)
}
