package check

import (
	"strings"

	"github.com/nova-store/nova/catalog"
	"github.com/nova-store/nova/metastore"
	"github.com/nova-store/nova/objstore/format"
	"github.com/nova-store/nova/sim"
)

// object is one key of the bucket, existing or not, and what names it.
type object struct {
	key                       string
	exists, touched           bool
	body                      []byte
	footer                    format.Footer
	sections                  [][]record // of each section, decoded when first needed
	refs, intents, reaps, gcs int
	spans                     int    // that name it
	held                      uint64 // records that they hold
	live                      uint64 // bytes that they take
	heldBefore, unnamed       uint64 // held after the commit before; records that spans held, and hold no more
	intentGone                bool   // in the commit at hand
	gcMarker                  string // standing, the newest
	gcRecord                  string // what gc/{object} names
	chain                     *chain // of a slot or a bundle
	slot                      uint64
	kind                      objectKind
}

// objectKind is what an object's key says that it is.
type objectKind uint8

const (
	unknownKind objectKind = iota
	slotKind
	bundleKind
	settledKind
	probeKind
)

// records returns how many records the object's sections have.
func (o *object) records() (n uint64) {
	for i := range o.footer.Sections {
		n += uint64(o.footer.Sections[i].Records)
	}
	return n
}

func (c *Checker) object(key string) *object {
	o, ok := c.objects[key]
	if !ok {
		o = &object{key: key}
		c.classify(o)
		c.objects[key] = o
	}
	return o
}

// classify reads an object's key.
func (c *Checker) classify(o *object) {
	first, rest, _ := strings.Cut(o.key, "/")
	switch first {
	case "probe":
		o.kind = probeKind
	case "settled":
		if rest != "" && !strings.Contains(rest, "/") {
			o.kind = settledKind
		}
	case "slot":
		if id, slot, err := catalog.ParseSlotKey(o.key); err == nil {
			o.kind, o.slot, o.chain = slotKind, slot, c.chain(id)
		}
	case "bundle":
		if id, slot, ok := parseBundle(rest); ok {
			o.kind, o.slot, o.chain = bundleKind, slot, c.chain(id)
		}
	}
}

// parseBundle reads {star}/{epoch}/{slot}-{flight id}.
func parseBundle(rest string) (id catalog.ChainID, slot uint64, ok bool) {
	star, rest, ok1 := strings.Cut(rest, "/")
	epoch, rest, ok2 := strings.Cut(rest, "/")
	at, flight, ok3 := strings.Cut(rest, "-")
	if !ok1 || !ok2 || !ok3 || len(epoch) != 16 || len(at) != 16 || flight == "" || strings.Contains(flight, "/") {
		return catalog.ChainID{}, 0, false
	}
	return catalog.ChainID{Star: star, Epoch: parseHex(epoch)}, parseHex(at), true
}

// intentChanged takes a change of an object's intent: a bundle's names the slot that may
// yet name it, and nobody gives the bundle up while that may happen.
func (c *Checker) intentChanged(o *object, old, now metastore.Record) {
	n := delta(old, now)
	o.intents += n
	o.intentGone = o.intentGone || n < 0
	if !now.Exists() {
		return
	}
	v, err := catalog.DecodeIntent(now.Value)
	if err != nil {
		return
	}
	var of catalog.ChainID
	if o.kind == bundleKind {
		of = o.chain.id
	}
	switch {
	case v.Chain != of || v.Slot != o.slot:
		c.fail(Watched, o.key, "its intent says that it belongs to slot %d of %s", v.Slot, v.Chain)
	case v.Condemned && o.kind == bundleKind && c.mayAbsorb(o.chain, o.slot):
		c.fail(Lost, o.key, "condemned while slot %d of %s, which names it, may yet be absorbed", o.slot, o.chain.id)
	}
}

// gcChanged and gcRecordChanged take changes of an object's gc marker and of gc/{object}.
func (c *Checker) gcChanged(o *object, key string, n int) {
	o.gcs += n
	switch {
	case n > 0:
		o.gcMarker = key
	case n < 0 && o.gcMarker == key:
		o.gcMarker = ""
	}
}

func (c *Checker) gcRecordChanged(key string, now metastore.Record) {
	o := c.touchObject(strings.ReplaceAll(key[len("gc/"):], "!", "/"))
	o.gcRecord = ""
	if !now.Exists() {
		return
	}
	g, err := catalog.DecodeGCRecord(now.Value)
	if err != nil {
		c.fail(Bounded, key, "unreadable: %v", err)
	}
	o.gcRecord = g.Marker
}

// nothing tells whether the object is not there and nothing says a word about it.
func (o *object) nothing() bool {
	return !o.exists && o.refs == 0 && o.intents == 0 && o.reaps == 0 && o.gcs == 0 && o.gcRecord == "" && o.spans == 0
}

func (c *Checker) touchObject(key string) *object {
	o := c.object(key)
	if !o.touched {
		o.touched = true
		c.touchedObjects = append(c.touchedObjects, o)
	}
	return o
}

// bucket takes a change of the bucket.
func (c *Checker) bucket(e *sim.BucketEffect) {
	o := c.touchObject(e.Key)
	switch {
	case e.Delete:
		c.deleted(o)
	default:
		c.put(o, e.Body)
	}
	c.judge()
}

func (c *Checker) put(o *object, body []byte) {
	if o.exists && o.kind != probeKind {
		c.fail(Lost, o.key, "an object was overwritten")
		return
	}
	o.exists = true
	if o.kind == settledKind {
		c.rewritten += uint64(len(body))
	}
	switch o.kind {
	case probeKind:
		return
	case unknownKind:
		c.fail(Bounded, o.key, "an object outside the keyspace")
		return
	}
	f, err := format.Parse(body)
	if err != nil {
		c.fail(Dangling, o.key, "an object was put that does not parse: %v", err)
		return
	}
	o.body, o.footer, o.sections = body, f, make([][]record, len(f.Sections))
	if o.chain != nil && (f.Star != o.chain.id.Star || f.Epoch != o.chain.id.Epoch || f.Slot != o.slot) {
		c.fail(Dangling, o.key, "the object says it is slot %d of %s~%x", f.Slot, f.Star, f.Epoch)
	}
	if o.kind == slotKind {
		o.chain.bounded(c, o)
		o.chain.addSlot(o.slot)
		c.touchChain(o.chain.id).dirty(o.slot, o.slot+1)
	}
}

func (c *Checker) deleted(o *object) {
	if !o.exists {
		return
	}
	if o.spans > 0 {
		c.fail(Dangling, o.key, "deleted while %d spans name it", o.spans)
	}
	if o.kind == slotKind {
		ch := o.chain
		if ch.exists && ch.rec.State != catalog.ChainSealed && o.slot >= ch.rec.Checkpoint {
			c.fail(Lost, o.key, "slot deleted at or above the checkpoint %d of a chain that is %v", ch.rec.Checkpoint, ch.rec.State)
		}
		ch.removeSlot(o.slot)
	}
	o.exists, o.body, o.sections, o.footer = false, nil, nil, format.Footer{}
	if o.nothing() && !o.touched {
		delete(c.objects, o.key)
	}
}

// judgeObject is invariant 1 for what is no slot, and that refs are the spans'.
func (c *Checker) judgeObject(o *object) {
	if o.kind == slotKind {
		if o.nothing() {
			delete(c.objects, o.key)
		}
		return
	}
	if o.refs != o.spans {
		c.fail(Dangling, o.key, "%d refs, but %d spans", o.refs, o.spans)
	}
	switch {
	case o.gcs > 1:
		c.fail(Bounded, o.key, "the object has %d gc markers", o.gcs)
	case o.gcMarker != o.gcRecord:
		c.fail(Bounded, o.key, "its gc marker is %q, and gc/ names %q", o.gcMarker, o.gcRecord)
	}
	if o.exists && o.kind != probeKind && o.refs+o.intents+o.reaps+o.gcs == 0 {
		c.fail(Watched, o.key, "the object has no ref, no intent, no reap-check and no gc marker")
	}
	// What was never named is announced by no kill: whoever takes the intent away arms the
	// reap-check, or these bytes stay for as long as their neighbours do. What was named and is no more, a kill
	// announced; that reap-check may have been judged by now.
	o.unnamed += o.heldBefore - min(o.held, o.heldBefore)
	o.heldBefore = o.held
	if named := o.held + o.unnamed; o.intentGone && o.exists && o.refs > 0 && o.reaps+o.gcs == 0 && named < o.records() {
		c.fail(Watched, o.key, "its intent is gone, %d of its %d records were never named, and no reap-check stands", o.records()-named, o.records())
	}
	o.intentGone = false
	if o.nothing() {
		delete(c.objects, o.key)
	}
}

// records returns the records of a section, decoding them when first needed.
func (c *Checker) records(o *object, section int) []record {
	if o.sections[section] != nil {
		return o.sections[section]
	}
	s := &o.footer.Sections[section]
	ids := make([]record, 0, s.Records)
	err := c.decoder.Records(o.body[s.Offset:s.Offset+s.Length], s.Stream, func(_ uint32, r format.Record) error {
		id, index, count, ok := parsePayload(r.Data)
		if !ok {
			id, index, count = 0, 0, 0
		}
		ids = append(ids, record{recordID{id, index, count}, r.Timestamp, uint32(len(r.Data))})
		return nil
	})
	if err != nil {
		c.fail(Dangling, o.key, "section %d does not decode: %v", section, err)
	}
	o.sections[section] = ids
	return ids
}

// held returns the records that a span of the object holds.
func (c *Checker) held(key string, id catalog.StreamID, s *catalog.Span) ([]record, bool) {
	o := c.object(s.Object)
	if !o.exists {
		c.fail(Dangling, s.Object, "%s names an object that does not exist", key)
		return nil, false
	}
	for i := range o.footer.Sections {
		sec := &o.footer.Sections[i]
		if catalog.StreamID(sec.Stream) != id || s.Offset < sec.Offset || s.Offset+s.Length > sec.Offset+sec.Length {
			continue
		}
		off, length := sec.Range(s.Ordinal, uint32(s.Count))
		if off != s.Offset || length != s.Length || uint64(s.Ordinal)+s.Count > uint64(sec.Records) {
			break
		}
		if o.kind == settledKind && sec.FirstOffset+uint64(s.Ordinal) != s.First {
			break
		}
		ids := c.records(o, i)
		if len(ids) < int(uint64(s.Ordinal)+s.Count) {
			return nil, false
		}
		return ids[s.Ordinal : uint64(s.Ordinal)+s.Count], true
	}
	c.fail(Dangling, s.Object, "%s names bytes %d+%d, which are not its records", key, s.Offset, s.Length)
	return nil, false
}
