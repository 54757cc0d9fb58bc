package catalog

import "slices"

// Values of markers. A value that does not decode is not a reason to discard its
// marker, which may be an object's last watcher: the readers then fall back to
// the most careful defaults, as each Decode documents.

// MaxAttributed bounds the streams that a marker is attributed to by name.
const MaxAttributed = 8

// Attribution says which streams a marker concerns, for the pending-work view.
type Attribution struct {
	Streams []StreamID // at most MaxAttributed
	Shared  bool       // more than those
}

// add merges one stream and tells whether that changed anything.
func (a *Attribution) add(id StreamID) bool {
	switch {
	case slices.Contains(a.Streams, id):
		return false
	case len(a.Streams) < MaxAttributed:
		a.Streams = append(slices.Clip(a.Streams), id)
		return true
	case !a.Shared:
		a.Shared = true
		return true
	}
	return false
}

func (a Attribution) encode(e *encoder) {
	e.bool(a.Shared)
	e.uint(uint64(len(a.Streams)))
	for _, s := range a.Streams {
		e.uint(uint64(s))
	}
}

func decodeAttribution(d *decoder) Attribution {
	a := Attribution{Shared: d.bool()}
	for n := d.count(); n > 0 && !d.bad; n-- {
		a.Streams = append(a.Streams, StreamID(d.uint()))
	}
	return a
}

// SlotItem is a batch marker's inventory of one slot and stream: the offsets that
// absorb gave to the slot's records of that stream, as one range.
type SlotItem struct {
	Slot   uint64
	Stream StreamID
	First  uint64
	Count  uint64
}

// Batch is the marker of a batch of slots; its first slot is in its key.
type Batch struct {
	End       uint64 // first slot past the batch
	Ready     int64
	Bytes     uint64 // object bytes of its slots
	Damaged   bool   // only the inventory of damaged slots is left
	Inventory []SlotItem
	Attribution
}

// Encode renders the marker's value.
func (v Batch) Encode() []byte {
	e := newEncoder(32 + 20*len(v.Inventory))
	e.uint(v.End)
	e.int(v.Ready)
	e.uint(v.Bytes)
	e.bool(v.Damaged)
	v.Attribution.encode(e)
	e.uint(uint64(len(v.Inventory)))
	for _, it := range v.Inventory {
		e.uint(it.Slot)
		e.uint(uint64(it.Stream))
		e.uint(it.First)
		e.uint(it.Count)
	}
	return e.b
}

// DecodeBatch reads a Batch. Without its value a batch can't be settled; it then
// stands, and holds its chain's frontier, until an operator looks.
func DecodeBatch(b []byte) (Batch, error) {
	d := newDecoder(b)
	v := Batch{End: d.uint(), Ready: d.int(), Bytes: d.uint(), Damaged: d.bool(), Attribution: decodeAttribution(d)}
	for n := d.count(); n > 0 && !d.bad; n-- {
		v.Inventory = append(v.Inventory, SlotItem{d.uint(), StreamID(d.uint()), d.uint(), d.uint()})
	}
	return v, d.done("batch marker")
}

// SettleMarker is the value of a settle marker.
type SettleMarker struct {
	Delay int64 // ms of the last re-arm, from which the next backs off
}

func (v SettleMarker) encode() []byte {
	e := newEncoder(10)
	e.int(v.Delay)
	return e.b
}

// DecodeSettleMarker reads a SettleMarker; unreadable means no delay yet.
func DecodeSettleMarker(b []byte) SettleMarker {
	d := newDecoder(b)
	v := SettleMarker{Delay: d.int()}
	if d.done("") != nil {
		return SettleMarker{}
	}
	return v
}

// SweepMarker is the value of a settle marker whose subject is a star.
type SweepMarker struct {
	Delay int64 // ms of the last re-arm, from which the next backs off
	Empty int64 // when the star was first seen without a chain; 0: not yet
}

func (v SweepMarker) encode() []byte {
	e := newEncoder(20)
	e.int(v.Delay)
	e.int(v.Empty)
	return e.b
}

// DecodeSweepMarker reads a SweepMarker; unreadable means no delay yet, and not seen without a chain.
func DecodeSweepMarker(b []byte) SweepMarker {
	d := newDecoder(b)
	v := SweepMarker{Delay: d.int(), Empty: d.int()}
	if d.done("") != nil {
		return SweepMarker{}
	}
	return v
}

// TrimCheckMarker is the value of a trimcheck marker.
type TrimCheckMarker struct {
	UpTo uint64 // it stands until the chain is trimmed up to here
	// Bytes of the objects of the batches whose completion armed it, for the accounts; 0: not known.
	Bytes uint64
}

func (v TrimCheckMarker) encode() []byte {
	e := newEncoder(20)
	e.uint(v.UpTo)
	e.uint(v.Bytes)
	return e.b
}

// DecodeTrimCheckMarker reads a TrimCheckMarker; the caller of an unreadable one
// takes the chain's checkpoint, the largest value that it can have had.
func DecodeTrimCheckMarker(b []byte) (TrimCheckMarker, error) {
	d := newDecoder(b)
	v := TrimCheckMarker{UpTo: d.uint(), Bytes: d.since()}
	return v, d.done("trimcheck marker")
}

// ReapMarker is the value of a reap-check.
type ReapMarker struct {
	Delay int64 // ms of the last re-arm while an intent stood
	Attribution
	Size uint64 // of the object, in bytes, for the accounts; 0: not known
}

func (v ReapMarker) encode() []byte {
	e := newEncoder(32)
	e.int(v.Delay)
	v.Attribution.encode(e)
	e.uint(v.Size)
	return e.b
}

// DecodeReapMarker reads a ReapMarker; unreadable means shared by unknown streams.
func DecodeReapMarker(b []byte) ReapMarker {
	d := newDecoder(b)
	v := ReapMarker{Delay: d.int(), Attribution: decodeAttribution(d), Size: d.since()}
	if d.done("") != nil {
		return ReapMarker{Attribution: Attribution{Shared: true}}
	}
	return v
}

// GCMarker is the value of a gc marker.
type GCMarker struct{ Attribution }

func (v GCMarker) encode() []byte {
	e := newEncoder(32)
	v.Attribution.encode(e)
	return e.b
}

// DecodeGCMarker reads a GCMarker; unreadable means shared by unknown streams.
func DecodeGCMarker(b []byte) GCMarker {
	d := newDecoder(b)
	v := GCMarker{decodeAttribution(d)}
	if d.done("") != nil {
		return GCMarker{Attribution{Shared: true}}
	}
	return v
}

// GCRecord is the value of gc/{object}.
type GCRecord struct{ Marker string } // the key of the object's gc marker

func (v GCRecord) encode() []byte {
	e := newEncoder(4 + len(v.Marker))
	e.string(v.Marker)
	return e.b
}

// DecodeGCRecord reads a GCRecord.
func DecodeGCRecord(b []byte) (GCRecord, error) {
	d := newDecoder(b)
	v := GCRecord{d.string()}
	return v, d.done("gc record")
}

// Intent is the value of an orphan intent.
type Intent struct {
	Birth     int64
	Condemned bool
	Nonce     uint64  // of its publisher
	Chain     ChainID // of a bundle: the slot that may yet name it
	Slot      uint64
}

func (v Intent) encode() []byte {
	e := newEncoder(32 + len(v.Chain.Star))
	e.int(v.Birth)
	e.bool(v.Condemned)
	e.uint(v.Nonce)
	e.string(v.Chain.Star)
	e.uint(v.Chain.Epoch)
	e.uint(v.Slot)
	return e.b
}

// DecodeIntent reads an Intent. The orphan duty leaves an unreadable one standing.
func DecodeIntent(b []byte) (Intent, error) {
	d := newDecoder(b)
	v := Intent{Birth: d.int(), Condemned: d.bool(), Nonce: d.uint(), Chain: ChainID{d.string(), d.uint()}, Slot: d.uint()}
	return v, d.done("intent")
}

// RetentionMarker is the value of a retention marker; it needs no more than its key.
type RetentionMarker struct{}

func (RetentionMarker) encode() []byte { return newEncoder(0).b }

// TeardownMarker is the value of a teardown marker.
type TeardownMarker struct {
	Deleted int64 // when the stream was deleted
	Ready   int64 // when its teardown was first due: its age counts from here, however often it is re-armed
}

func (v TeardownMarker) encode() []byte {
	e := newEncoder(20)
	e.int(v.Deleted)
	e.int(v.Ready)
	return e.b
}

// DecodeTeardownMarker reads a TeardownMarker. The caller of an unreadable one takes the
// time in the marker's key, the only one that is left, and the stream's record for the rest.
func DecodeTeardownMarker(b []byte) (TeardownMarker, error) {
	d := newDecoder(b)
	v := TeardownMarker{Deleted: d.int(), Ready: d.int()}
	return v, d.done("teardown marker")
}
