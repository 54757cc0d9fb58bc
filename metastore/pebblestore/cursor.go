package pebblestore

import (
	"bytes"
	"fmt"

	"github.com/cockroachdb/pebble/v2"
	"github.com/tidwall/btree"

	"github.com/nova-store/nova/metastore"
)

// cursor walks ranges of a view in key order, Pebble's keys and the session keys
// merged. No key is in both.
type cursor struct {
	s *Store
	v *view

	pebble  *pebble.Iterator
	session btree.MapIter[string, sessionKey]

	end       string // of the range; "" is no bound
	limit     []byte // end, as Pebble's key
	buf       []byte
	inPebble  bool // pebble stands on a key of the range
	inSession bool // session does
}

func (s *Store) newCursor(v *view) (*cursor, error) {
	it, err := v.snap.NewIter(&pebble.IterOptions{
		LowerBound: []byte{userPrefix},
		UpperBound: []byte{userEnd},
	})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", metastore.ErrUnavailable, err)
	}
	return &cursor{s: s, v: v, pebble: it, session: v.sessionKeys.Iter()}, nil
}

// seek moves to the first record of r, and tells whether there is one. In Pebble there is none
// before from.
func (c *cursor) seek(r metastore.Range, from string) bool {
	c.inPebble, c.inSession = false, false
	if r.End != "" && r.End <= r.Start {
		return false
	}
	c.end = r.End
	c.settleSession(c.session.Seek(r.Start))
	if r.End == "" {
		c.limit = append(c.limit[:0], userEnd)
	} else if from >= r.End {
		return c.valid()
	} else {
		c.limit = appendKey(c.limit[:0], r.End)
	}
	c.buf = appendKey(c.buf[:0], from)
	// With the limit Pebble stops there, instead of looking beyond for a key that is not deleted.
	before := c.steps()
	c.settlePebble(c.pebble.SeekGEWithLimit(c.buf, c.limit))
	if steps := c.steps() - before; steps >= c.s.views.learnSteps && c.pebble.Error() == nil {
		c.learn(from)
	}
	return c.valid()
}

// steps counts the keys, deleted ones included, that Pebble has stepped over.
func (c *cursor) steps() int {
	stats := c.pebble.Stats()
	return stats.ForwardStepCount[pebble.InternalIterCall]
}

// learn remembers what lies between from and where the seek ended.
func (c *cursor) learn(from string) {
	switch {
	case c.inPebble:
		c.s.views.learn(c.v, from, string(c.pebble.Key()[1:]))
	case c.end != "":
		c.s.views.learn(c.v, from, c.end)
	}
}

func (c *cursor) next() bool {
	if c.onPebble() {
		c.settlePebble(c.pebble.NextWithLimit(c.limit))
	} else {
		c.settleSession(c.session.Next())
	}
	return c.valid()
}

// settlePebble: Pebble may or may not honour the limit.
func (c *cursor) settlePebble(state pebble.IterValidityState) {
	c.inPebble = state == pebble.IterValid && bytes.Compare(c.pebble.Key(), c.limit) < 0
}

func (c *cursor) settleSession(found bool) {
	c.inSession = found && (c.end == "" || c.session.Key() < c.end)
}

func (c *cursor) valid() bool { return c.inPebble || c.inSession }

// onPebble tells which of the two holds the cursor's record.
func (c *cursor) onPebble() bool {
	return c.inPebble && (!c.inSession || string(c.pebble.Key()[1:]) < c.session.Key())
}

// record returns the record at the cursor, which is valid.
func (c *cursor) record() (metastore.Record, error) {
	if !c.onPebble() {
		k := c.session.Value()
		return k.record(c.session.Key()), nil
	}
	key := string(c.pebble.Key()[1:])
	stored, err := c.pebble.ValueAndErr()
	if err != nil {
		return metastore.Record{}, fmt.Errorf("%w: reading %q: %w", metastore.ErrUnavailable, key, err)
	}
	version, value, err := decodeValue(key, stored)
	return metastore.Record{Key: key, Value: bytes.Clone(value), Version: version}, err
}

// err is why the walk ended early, if it did.
func (c *cursor) err() error {
	if err := c.pebble.Error(); err != nil {
		return fmt.Errorf("%w: %w", metastore.ErrUnavailable, err)
	}
	return nil
}

func (c *cursor) close() { _ = c.pebble.Close() }
