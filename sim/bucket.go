package sim

import (
	"fmt"
	"slices"
	"strings"

	"github.com/nova-store/nova/metastore"
	"github.com/nova-store/nova/objstore"
)

// bucket is the bucket that all nodes share. Each call has its effect at one
// moment between its issue and its answer, or, where the contract allows it,
// later.
type bucket struct {
	w      *World
	tab    table[*object]
	bytes  int64
	gone   []goneObject // lately, in order of time
	effect BucketEffect // reused
}

type object struct {
	body []byte
	at   int64 // when it was put
}

// goneObject is one that a lagging listing may still show.
type goneObject struct {
	info objstore.Info
	at   int64
}

// BucketEffect is one change of the bucket as it happens.
type BucketEffect struct {
	// Delete tells a delete from a put.
	Delete bool
	Key    string
	Size   int64
	// Body holds the bytes of the object that was put or deleted. It must not be
	// changed, but may be kept.
	Body []byte
	// Replaced holds the bytes of an object that the put took the place of, and
	// HasReplaced tells that there was one.
	Replaced    []byte
	HasReplaced bool
	// Inc and Step tell who asked for it.
	Inc  *Incarnation
	Step int
	// Late tells that the caller had its answer, or was dead, before.
	Late bool
}

func (b *bucket) init(w *World) { b.w = w }

// perform does what the call asks and tells whether anything has changed.
func (b *bucket) perform(c *call) bool {
	switch c.op {
	case OpBucketPut, OpBucketGet, OpBucketStat:
		if len(b.w.pending) > 0 && c.op != OpBucketPut {
			b.w.lookedAt(c.key, "")
		}
		if err := objstore.CheckKey(c.key); err != nil {
			c.fail(err, nil)
			return false
		}
	}
	switch c.op {
	case OpBucketPut:
		return b.put(c)
	case OpBucketDelete:
		return b.deleteAll(c)
	case OpBucketGet:
		b.get(c)
	case OpBucketStat:
		if o, ok := b.tab.get(c.key); ok {
			c.size = int64(len(o.body))
		} else {
			c.fail(objstore.ErrNotFound, nil)
		}
	case OpBucketList:
		b.list(c)
	}
	return false
}

// clock is what the bucket's clock shows.
func (b *bucket) clock() int64 { return b.w.now + int64(b.w.cfg.BucketSkew) }

func (b *bucket) put(c *call) bool {
	w := b.w
	if len(c.body) > objstore.MaxObjectBytes {
		c.fail(objstore.ErrTooLarge, nil)
		return false
	}
	if !c.put.NotAfter.IsZero() {
		most := c.put.NotAfter.UnixNano()
		expired := b.clock() > most
		if expired != (w.now > most) {
			w.Mark("bucket/clock-off")
		}
		if expired {
			w.Mark("bucket/put-expired")
			c.fail(objstore.ErrExpired, nil)
			return false
		}
	}
	old, exists := b.tab.get(c.key)
	if exists && c.put.IfAbsent {
		c.fail(objstore.ErrExists, nil)
		return false
	}
	body := c.body
	if !c.owned {
		body = slices.Clone(body)
	}
	w.hash = fold(w.hash, hashBytes(body))
	e := &b.effect
	*e = BucketEffect{Key: c.key, Size: int64(len(body)), Body: body, Inc: c.inc, Step: c.step, Late: c.t == nil}
	if exists {
		e.Replaced, e.HasReplaced = old.body, true
		b.bytes -= int64(len(old.body))
		old.body, old.at = body, w.now
	} else {
		b.tab.add(c.key, &object{body: body, at: w.now})
	}
	b.bytes += int64(len(body))
	b.tell(e)
	return true
}

func (b *bucket) tell(e *BucketEffect) {
	for _, f := range b.w.onBucket {
		f(e)
	}
}

// deleteAll removes the keys of the call, each with a fate of its own.
func (b *bucket) deleteAll(c *call) bool {
	w := b.w
	if len(c.names) > objstore.MaxDeleteKeys {
		c.fail(fmt.Errorf("%d keys exceed the %d of one delete", len(c.names), objstore.MaxDeleteKeys), nil)
		return false
	}
	if w.cfg.Embedded {
		b.finishPuts(c.names)
	}
	c.errs = make([]error, len(c.names))
	changed := false
	for i, key := range c.names {
		if err := objstore.CheckKey(key); err != nil {
			c.errs[i] = &callError{op: c.op, key: key, err: err}
			continue
		}
		if c.spared != nil && c.spared[i] {
			c.errs[i] = &callError{op: c.op, key: key, err: objstore.ErrUnknown} // which nobody is told
			continue
		}
		if c.partial != nil && i >= *c.partial {
			c.errs[i] = &callError{op: c.op, key: key, err: objstore.ErrThrottled}
			continue
		}
		if w.fault.Chance(w.faults.DeletePartial) {
			w.Mark("fault/delete-partial")
			switch w.fault.N(3) {
			case 0:
				c.errs[i] = &callError{op: c.op, key: key, err: objstore.ErrThrottled}
				continue
			case 1:
				c.errs[i] = &callError{op: c.op, key: key, err: objstore.ErrUnknown}
				continue
			default:
				c.errs[i] = &callError{op: c.op, key: key, err: objstore.ErrUnknown}
			}
		}
		changed = b.remove(c, key) || changed
	}
	return changed
}

func (b *bucket) remove(c *call, key string) bool {
	w := b.w
	o, ok := b.tab.get(key)
	if !ok {
		return false
	}
	b.tab.remove(key)
	b.bytes -= int64(len(o.body))
	if w.faults.ListLag > 0 && !w.cfg.Embedded {
		b.gone = append(b.gone, goneObject{objstore.Info{Key: key, Size: int64(len(o.body))}, w.now})
	}
	e := &b.effect
	*e = BucketEffect{Delete: true, Key: key, Size: int64(len(o.body)), Body: o.body, Inc: c.inc, Step: c.step, Late: c.t == nil}
	b.tell(e)
	return true
}

// finishPuts gives puts of these keys that are under way their effect now: a
// delete on a directory waits for them.
func (b *bucket) finishPuts(keys []string) {
	w := b.w
	for _, n := range w.nodes {
		if n.inc == nil {
			continue
		}
		for k := n.inc.living.first; k != nil; k = k.next {
			if c := k.of.call; c != nil && c.op == OpBucketPut && !c.done && slices.Contains(keys, c.key) {
				outer := w.effectOf
				w.unsend(c)
				w.effect(c)
				w.effectOf = outer
			}
		}
	}
}

func (b *bucket) get(c *call) {
	w := b.w
	o, ok := b.tab.get(c.key)
	if !ok || c.missing {
		c.fail(objstore.ErrNotFound, nil)
		return
	}
	size := int64(len(o.body))
	from := min(c.off, size)
	to := size
	if c.n >= 0 && c.n < size-from {
		to = from + c.n
	}
	// A copy: whoever reads may decode in place.
	c.data = append(make([]byte, 0, to-from), o.body[from:to]...)
	if len(c.data) == 0 {
		return
	}
	if c.corrupt {
		c.data[len(c.data)/2] ^= 1
	}
	if w.fault.Chance(w.faults.CorruptRead) {
		w.Mark("fault/corrupt-read")
		c.data[w.fault.N(len(c.data))] ^= byte(1 << w.fault.N(8))
	}
	if w.fault.Chance(w.faults.TruncateRead) {
		w.Mark("fault/truncate-read")
		c.data = c.data[:w.fault.N(len(c.data))]
	}
}

// list shows each key whose last change is not older than the lag as it is now
// or as it was before.
func (b *bucket) list(c *call) {
	w := b.w
	since := w.now - int64(w.faults.ListLag)
	lag := w.faults.ListLag > 0 && !w.cfg.Embedded
	start := max(c.key, c.after)
	b.tab.ascend(start, metastore.PrefixEnd(c.key), func(key string, o *object) bool {
		if len(c.infos) == c.limit {
			return false
		}
		if key <= c.after && c.after != "" {
			return true
		}
		if lag && o.at > since && w.fault.Chance(0.5) {
			w.Mark("fault/list-lag")
			return true
		}
		c.infos = append(c.infos, objstore.Info{Key: key, Size: int64(len(o.body))})
		return true
	})
	if !lag {
		return
	}
	b.gone = slices.DeleteFunc(b.gone, func(g goneObject) bool { return g.at <= since })
	for _, g := range b.gone {
		key := g.info.Key
		if _, exists := b.tab.get(key); exists || !strings.HasPrefix(key, c.key) || key <= c.after || w.fault.Chance(0.5) {
			continue
		}
		w.Mark("fault/list-lag")
		i, _ := slices.BinarySearchFunc(c.infos, key, func(x objstore.Info, key string) int { return strings.Compare(x.Key, key) })
		c.infos = slices.Insert(c.infos, i, g.info)
	}
	// A page that is full ends where the keys known to be complete end.
	c.infos = c.infos[:min(len(c.infos), c.limit)]
}

// BucketView looks at the bucket as it is now, without a step.
type BucketView struct{ b *bucket }

// BucketView returns a view of the bucket.
func (w *World) BucketView() BucketView { return BucketView{&w.bucket} }

// Get returns an object's bytes, which must not be changed, and whether there is
// one of that key.
func (v BucketView) Get(key string) ([]byte, bool) {
	o, ok := v.b.tab.get(key)
	if !ok {
		return nil, false
	}
	return o.body, true
}

// Has tells whether there is an object of that key.
func (v BucketView) Has(key string) bool {
	_, ok := v.b.tab.get(key)
	return ok
}

// Scan calls f for the objects whose keys begin with prefix, in order, until it
// returns false. The bucket must not change meanwhile.
func (v BucketView) Scan(prefix string, f func(key string, body []byte) bool) {
	end := ""
	if prefix != "" {
		end = metastore.PrefixEnd(prefix)
	}
	v.b.tab.ascend(prefix, end, func(k string, o *object) bool { return f(k, o.body) })
}

// Len returns how many objects there are, Bytes how large they are together.
func (v BucketView) Len() int     { return v.b.tab.len() }
func (v BucketView) Bytes() int64 { return v.b.bytes }
