// Package check watches a simulated world and says what does not hold.
//
// It is a model of its own: it reads the keys and values that the production code
// writes and the objects in the bucket, and never calls catalog's transitions, nor
// decides by what the code under test believes. Every change of the store and of the bucket
// is checked in the moment in which it happens, which is after every step, since
// nothing else changes them. A check touches only what the change touched, so that
// its cost stays flat in a long run, and what cannot be told any more is forgotten, so that its size does.
//
// The invariants are those of docs/invariants.md; a finding names the one that broke.
package check

import (
	"fmt"
	"strings"

	"github.com/nova-store/nova/catalog"
	"github.com/nova-store/nova/metastore"
	"github.com/nova-store/nova/objstore/format"
	"github.com/nova-store/nova/sim"
)

// Names of the invariants.
const (
	Watched     = "1-watched"
	Dangling    = "2-no-dangling"
	Lost        = "3-nothing-lost"
	Monotonic   = "4-monotonic"
	Seats       = "5-seats"
	Bounded     = "7-bounded"
	Convergence = "8-convergence"
	Cost        = "9-cost"
)

// Checker observes one world.
type Checker struct {
	w        *sim.World
	objects  map[string]*object
	chains   map[catalog.ChainID]*chain
	streams  map[catalog.StreamID]*stream
	names    map[string]catalog.StreamID
	known    map[uint64]*known
	creating []*CreateAsk

	decoder   *format.Decoder
	due       map[string]catalog.Queue // standing markers of the queues that must drain
	armed     int                      // markers so far, but for those of settle, which live chains keep
	lastArmed string                   // of them
	rewritten uint64                   // bytes of settled objects that were put, ever
	index     index
	retired   map[string]bool // stars, registered; true: retired
	timing    catalog.Timing
	gcBytes   int64 // dead bytes of an object, and their share of it, from which on any node rewrites it; 0: not known
	gcRatio   float64
	began     uint64   // reads
	reads     []uint64 // those that are not judged, in order

	// What the change at hand touched.
	touchedObjects []*object
	touchedChains  []*chain
	touchedStreams []*stream
}

// New returns a checker that observes the world from now on, which must be empty.
func New(w *sim.World) *Checker {
	c := &Checker{
		w:       w,
		objects: make(map[string]*object),
		chains:  make(map[catalog.ChainID]*chain),
		streams: make(map[catalog.StreamID]*stream),
		names:   make(map[string]catalog.StreamID),
		known:   make(map[uint64]*known),
		due:     make(map[string]catalog.Queue),
		decoder: format.NewDecoder(),
		index:   newIndex(),
		retired: make(map[string]bool),
	}
	w.OnCommit(c.commit)
	w.OnBucket(c.bucket)
	w.OnStep(c.step)
	return c
}

// Assume tells what the nodes are configured with: how far clocks may be off, and
// which waits are owed. All nodes must be alike in that, see [Alike].
func (c *Checker) Assume(t catalog.Timing) { c.timing = t }

// Alike tells whether what the checker assumes of a node's timing is the same of both. Everything else may differ from
// node to node.
func Alike(a, b catalog.Timing) bool {
	return a.MaxClockSkew == b.MaxClockSkew && a.UndeleteWindow == b.UndeleteWindow
}

// AssumeGC tells from how many dead bytes of an object on, and from what share of it on, a node rewrites it. Of several nodes
// the one that lets most be is owed no more.
func (c *Checker) AssumeGC(bytes int64, ratio float64) {
	c.gcBytes, c.gcRatio = max(c.gcBytes, bytes), max(c.gcRatio, ratio)
}

func (c *Checker) fail(invariant, object, text string, args ...any) {
	c.w.Finding(invariant, object, fmt.Sprintf(text, args...))
}

// commit takes a change of the store: first all of it, then what it touched is judged.
func (c *Checker) commit(m *sim.Commit) {
	for i := range m.Changes {
		ch := &m.Changes[i]
		key := ch.New.Key
		if key == "" {
			key = ch.Old.Key
		}
		c.change(key, ch.Old, ch.New)
	}
	c.judge()
}

func (c *Checker) judge() {
	for _, s := range c.touchedStreams {
		s.touched = false
		c.judgeStream(s)
	}
	for _, ch := range c.touchedChains {
		ch.touched = false
		c.judgeChain(ch)
	}
	for _, o := range c.touchedObjects {
		o.touched = false
		c.judgeObject(o)
	}
	c.judgeIndex()
	c.touchedStreams, c.touchedChains, c.touchedObjects = c.touchedStreams[:0], c.touchedChains[:0], c.touchedObjects[:0]
}

// change sorts one changed key to its subject.
func (c *Checker) change(key string, old, now metastore.Record) {
	switch head, _, _ := strings.Cut(key, "/"); head {
	case "span":
		c.spanChanged(key, old, now)
	case "ref":
		object, _, _, err := catalog.ParseRefKey(key)
		if err != nil {
			c.fail(Bounded, key, "unreadable ref key: %v", err)
			return
		}
		c.touchObject(object).refs += delta(old, now)
	case "due":
		c.dueChanged(key, old, now)
	case "chain":
		c.chainChanged(key, old, now)
	case "trim":
		c.trimChanged(key, old, now)
	case "head", "stream", "mark", "name":
		c.streamChanged(head, key, old, now)
	case "pending":
		c.pendingChanged(key, old, now)
	case "schedule":
		c.scheduleChanged(key, old, now)
	case "gc":
		c.gcRecordChanged(key, now)
	case "cluster":
		c.clusterChanged(key, now)
	case "auditor", "ids":
	default:
		c.fail(Bounded, key, "a key outside the keyspace")
	}
}

// dueChanged takes a change of a marker.
func (c *Checker) dueChanged(key string, old, now metastore.Record) {
	if strings.HasPrefix(key, "due/denorm/") {
		c.batchChanged(key, old, now)
		return
	}
	d, err := catalog.ParseDue(key)
	n := delta(old, now)
	switch {
	case n > 0:
		c.due[key] = d.Queue
		if d.Queue != catalog.Settle {
			c.armed++
			c.lastArmed = key
		}
	case n < 0:
		delete(c.due, key)
	}
	if err != nil {
		return // garbage that a client planted: it must go
	}
	switch d.Queue {
	case catalog.Orphan:
		c.intentChanged(c.touchObject(d.Object()), old, now)
	case catalog.Reap:
		c.touchObject(d.Object()).reaps += n
		c.attribution(d.Queue, key, old, now)
	case catalog.GC:
		c.gcChanged(c.touchObject(d.Object()), key, n)
		c.attribution(d.Queue, key, old, now)
	case catalog.Teardown, catalog.Retention:
		c.streamMarkerChanged(&d, n)
	case catalog.Settle:
		if id, err := catalog.ParseChainSubject(d.Subject); err == nil {
			ch := c.touchChain(id)
			ch.settles += n
			if n < 0 {
				ch.dirty(0, everything)
			}
		}
	case catalog.TrimCheck:
		c.trimCheckChanged(d, old, now)
	}
}

// step judges what a step asks for: invariant 7 bounds what may be scanned.
func (c *Checker) step(s *sim.StepInfo) {
	switch s.Op {
	case sim.OpBucketList:
		c.listed(s)
	case sim.OpScan:
		if s.Limit > pageMost {
			c.fail(Bounded, s.Keys[0], "a page of %d records", s.Limit)
		}
		for _, r := range s.Ranges {
			c.scanned(r, s)
		}
	}
}

// listed is that nothing is listed but what a retired star left, once all its chains are gone.
func (c *Checker) listed(s *sim.StepInfo) {
	for _, prefix := range []string{"slot/", "bundle/"} {
		star, ok := strings.CutPrefix(s.Keys[0], prefix)
		if !ok || !strings.HasSuffix(star, "/") || strings.Count(star, "/") != 1 {
			continue
		}
		star = strings.TrimSuffix(star, "/")
		switch left := c.chainsOf(star); {
		case !c.retired[star]:
			c.fail(Bounded, s.Keys[0], "a bucket listing by %s of a star that is not retired", s.TaskName)
		case left > 0:
			c.fail(Bounded, s.Keys[0], "a bucket listing by %s of a star that has %d chains left", s.TaskName, left)
		}
		return
	}
	c.fail(Bounded, s.Keys[0], "a bucket listing by %s", s.TaskName)
}

// clusterChanged takes a change of a star's registration.
func (c *Checker) clusterChanged(key string, now metastore.Record) {
	star, ok := strings.CutPrefix(key, catalog.StarsPrefix)
	if !ok {
		return
	}
	v, err := catalog.DecodeStar(now.Value)
	switch was := c.retired[star]; {
	case !now.Exists():
		c.fail(Monotonic, key, "a registration is gone")
	case err != nil:
		c.fail(Bounded, key, "unreadable: %v", err)
	case was && !v.Retired:
		c.fail(Monotonic, key, "a retired star is active again")
	}
	c.retired[star] = v.Retired
}

// pageMost bounds one page of a scan.
const pageMost = 1024

// scannable are the prefixes of which a range may be scanned, and how many further
// segments must be fixed.
var scannable = []struct {
	prefix   string
	segments int
}{
	{"due/", 2},      // a shard of a queue
	{"schedule/", 2}, // likewise
	{"ref/", 1},      // of an object
	{"span/", 1},     // of a stream
	{"trim/", 1},     // of a star
	{"chain/", 1},    // of a star
	{"pending/", 1},  // of a stream
	{"cluster/", 1},  // the rosters
}

func (c *Checker) scanned(r metastore.Range, s *sim.StepInfo) {
	for _, k := range scannable {
		rest, ok := strings.CutPrefix(r.Start, k.prefix)
		if !ok {
			continue
		}
		fixed := len(k.prefix)
		for range k.segments {
			i := strings.IndexByte(rest, '/')
			if i < 0 {
				c.fail(Bounded, r.Start, "a scan of all of %s by %s", k.prefix, s.TaskName)
				return
			}
			fixed += i + 1
			rest = rest[i+1:]
		}
		if end := metastore.PrefixEnd(r.Start[:fixed]); r.End == "" || r.End > end {
			c.fail(Bounded, r.Start, "a scan beyond %s by %s", r.Start[:fixed], s.TaskName)
		}
		return
	}
	c.fail(Bounded, r.Start, "a scan of what is no queue, by %s", s.TaskName)
}
