package pebblestore

import (
	"strings"

	"github.com/cockroachdb/pebble/v2"

	"github.com/nova-store/nova/metastore"
)

// shortener keeps tombstones short on disk, where gaps are not known yet: at a start, and to whoever comes from
// the very front of a queue. A queue's front is where deletes pile up; a
// range delete of the emptied piece takes the place of its many tombstones as soon as the
// memtable is flushed, and until then spares a reader the older levels. The gaps learn of it too.
//
// After every so many deletes below one prefix it looks, in the newest state, which keys stand next to
// the lowest that was deleted, and deletes the range between them. Nothing is in there, so that
// nothing changes but the tombstones. It is staged before anything else of the group under way, and what the group puts into
// the range is newer.
//
// It belongs to the committer's goroutine. All of it is memory alone, and forgotten when too many prefixes are at work.
type shortener struct {
	every  int // deletes below a prefix
	pieces int // range deletes since the last flush
	by     map[string]*emptied
	due    []string
}

// emptied is what was deleted below a prefix since the last look.
type emptied struct {
	deletes int
	lowest  string
	upTo    string // where the last range delete ended
}

const (
	// shortenEvery deletes below one prefix are worth a look; a read from the front then steps over fewer.
	shortenEvery = 1024
	// flushEvery range deletes the memtable is flushed, in the background.
	flushEvery = 64
	// maxEmptied bounds the prefixes remembered.
	maxEmptied = 4096
)

func newShortener() shortener {
	return shortener{every: shortenEvery, by: make(map[string]*emptied)}
}

// deleted notes the delete of a durable key.
func (x *shortener) deleted(key string) {
	i := strings.LastIndexByte(key, '/')
	if i < 0 {
		return
	}
	prefix := key[:i+1]
	e := x.by[prefix]
	if e == nil {
		if len(x.by) >= maxEmptied {
			clear(x.by)
			x.due = x.due[:0]
		}
		e = &emptied{}
		x.by[prefix] = e
	}
	if e.deletes == 0 || key < e.lowest {
		e.lowest = key
	}
	if e.deletes++; e.deletes == x.every {
		x.due = append(x.due, prefix)
	}
}

// shorten stages the range deletes that are due. The batch under way is empty. A look that fails is
// left for the next time: reads tell of such failures.
func (c *committer) shorten() {
	x := &c.short
	if len(x.due) == 0 || c.space.check(spaceForDeletes, 0) != nil {
		return
	}
	for _, prefix := range x.due {
		e := x.by[prefix]
		start, end, ok := c.emptyAround(prefix, e.lowest)
		if !ok {
			*e = emptied{upTo: e.upTo}
			continue
		}
		// No group is under way: the newest view shows just this state.
		c.s.views.learn(c.s.views.newest(), start, end)
		if e.upTo > start && e.upTo <= end && e.lowest >= e.upTo {
			start = e.upTo // the piece below is deleted by range already
		}
		*e = emptied{upTo: end}
		if start >= end {
			continue
		}
		_ = c.staging().DeleteRange(appendKey(nil, start), appendKey(nil, end), nil)
		x.pieces++
	}
	x.due = x.due[:0]
}

// emptyAround returns the range around key, below prefix, in which no durable key stands. ok is false where
// key itself stands again.
func (c *committer) emptyAround(prefix, key string) (start, end string, ok bool) {
	limit := metastore.PrefixEnd(prefix)
	it, err := c.s.db.NewIter(&pebble.IterOptions{LowerBound: appendKey(nil, prefix), UpperBound: appendKey(nil, limit)})
	if err != nil {
		return "", "", false
	}
	start, end = prefix, limit
	at := appendKey(nil, key)
	if it.SeekLT(at) {
		start = after(string(it.Key()[1:]))
	}
	if it.SeekGE(at) {
		end = string(it.Key()[1:])
	}
	err = it.Error()
	if cerr := it.Close(); err == nil {
		err = cerr
	}
	return start, end, err == nil && end > key
}

// flushShortened flushes the memtable once enough was deleted by range, so that the tombstones that lie
// in it go too.
func (s *Store) flushShortened() {
	x := &s.committer.short
	if x.pieces < flushEvery {
		return
	}
	x.pieces = 0
	if _, err := s.db.AsyncFlush(); err != nil {
		s.logger.Warn("the memtable was not flushed; reads of emptied ranges take longer", "err", err)
	}
}
