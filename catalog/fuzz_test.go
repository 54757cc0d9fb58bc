package catalog

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"reflect"
	"testing"

	"github.com/nova-store/nova/internal/allocation"
)

// fuzzed is a kind of value as the fuzzer has it: read, and what was read written again.
type fuzzed struct {
	name string
	read func(b []byte) (value any, again []byte, err error)
}

func fuzzedAs[T any](name string, decode func([]byte) (T, error), encode func(T) []byte) fuzzed {
	return fuzzed{name, func(b []byte) (any, []byte, error) {
		v, err := decode(b)
		if err != nil {
			return nil, nil, err
		}
		return v, encode(v), nil
	}}
}

// whole gives a decoder that has defaults instead of an error the shape of the others.
func whole[T any](decode func([]byte) T) func([]byte) (T, error) {
	return func(b []byte) (T, error) { return decode(b), nil }
}

// fuzzedValues are all kinds of records that the metastore holds. RetentionMarker is none: nobody reads it.
func fuzzedValues() []fuzzed {
	return []fuzzed{
		fuzzedAs("format", DecodeFormat, Format.encode),
		fuzzedAs("star", DecodeStar, Star.encode),
		fuzzedAs("route", DecodeRoute, Route.encode),
		fuzzedAs("node timing", DecodeNodeTiming, NodeTiming.encode),
		fuzzedAs("node stats", DecodeNodeStats, NodeStats.encode),
		fuzzedAs("lease", DecodeLease, Lease.encode),
		fuzzedAs("chain head", DecodeChainHead, ChainHead.encode),
		fuzzedAs("chain", DecodeChain, Chain.encode),
		fuzzedAs("trim", DecodeTrim, Trim.encode),
		fuzzedAs("id", DecodeID, encodeID),
		fuzzedAs("stream", DecodeStream, Stream.encode),
		fuzzedAs("head", DecodeHead, func(v Head) []byte { return v.encode() }),
		fuzzedAs("mark", DecodeMark, Mark.encode),
		fuzzedAs("span", DecodeSpan, Span.Encode),
		fuzzedAs("ref", DecodeRef, Ref.encode),
		fuzzedAs("batch marker", DecodeBatch, Batch.Encode),
		fuzzedAs("settle marker", whole(DecodeSettleMarker), SettleMarker.encode),
		fuzzedAs("sweep marker", whole(DecodeSweepMarker), SweepMarker.encode),
		fuzzedAs("trimcheck marker", DecodeTrimCheckMarker, TrimCheckMarker.encode),
		fuzzedAs("reap marker", whole(DecodeReapMarker), ReapMarker.encode),
		fuzzedAs("gc marker", whole(DecodeGCMarker), GCMarker.encode),
		fuzzedAs("gc record", DecodeGCRecord, GCRecord.encode),
		fuzzedAs("intent", DecodeIntent, Intent.encode),
		fuzzedAs("teardown marker", DecodeTeardownMarker, TeardownMarker.encode),
	}
}

// perByte bounds what decoding a value allocates for each byte of it: an element of a list takes 5 of them at
// least and 56 in memory, and the list is copied as it grows.
const perByte = 64

// FuzzValues: whatever the bytes, no reader of a value panics, takes more memory than the bytes are worth, or
// fails with another error than ErrCorruptValue. What it reads it reads again from what is written of it, and
// that is the same bytes every time.
func FuzzValues(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte{valueFormat})
	f.Add(append([]byte{valueFormat}, binary.AppendUvarint(nil, math.MaxUint64)...))
	f.Add([]byte{valueFormat, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0x0f})
	for _, b := range [][]byte{
		Format{Version: FormatVersion, Shards: Shards}.encode(),
		Star{Retired: true, Created: 5}.encode(),
		Route{Address: "127.0.0.1:8080", Epoch: 3}.encode(),
		NodeStats{Version: "v1", Started: 1, Published: 2, Workers: 3, Utilization: 999}.encode(),
		DefaultTiming(false).OfNode("a").encode(),
		Lease{Holder: "a", Deadline: 7, Nonce: 9}.encode(),
		ChainHead{Epoch: 1, Incarnation: 2, Nonce: 3}.encode(),
		Chain{State: ChainSealed, Window: 16, Checkpoint: 9, AbsorbedBytes: 4096, Seal: 9, WindowEnd: 25, SealedAt: 11}.encode(),
		Trim{Rewritten: 3, Trimmed: 2, SettledBytes: 1, SettleKey: DueKey(Settle, 3, "a")}.encode(),
		encodeID(1 << 56),
		Stream{Name: "s", State: StreamTearing, Created: 1, Deleted: 2, Nonce: 3, Policy: Policy{MaxAgeMS: 4, MaxBytes: 5}}.encode(),
		(&Head{Next: 5, Bytes: 50, MaxTimestamp: 7, Chains: []ChainLast{{ChainID{"a", 1}, 2}},
			Producers: []ProducerState{{ID: "p", Epoch: 1, Seq: 2, First: 3, Last: 4}}}).encode(),
		Mark{Watermark: 1, WatermarkBytes: 2, RetentionKey: DueKey(Retention, 1, StreamID(1).String())}.encode(),
		Mark{Watermark: 1, NextBytes: 2, ExpiredAt: 3, BytesBelow: 4}.encode(),
		Span{First: 1, Count: 1, Length: 1, Object: "slot/a/0000000000000001/0000000000000000"}.Encode(),
		Ref{Bytes: 3, ObjectSize: 4}.encode(),
		Batch{End: 4, Ready: 5, Bytes: 6, Inventory: []SlotItem{{1, 2, 3, 4}}, Attribution: Attribution{Streams: []StreamID{1}}}.Encode(),
		ReapMarker{Delay: 7, Attribution: Attribution{Streams: []StreamID{1, 2}, Shared: true}, Size: 8}.encode(),
		GCRecord{Marker: DueKey(GC, 1, "settled!x")}.encode(),
		Intent{Birth: 1, Condemned: true, Nonce: 2, Chain: ChainID{"a", 1}, Slot: 3}.encode(),
		TeardownMarker{Deleted: 1, Ready: 2}.encode(),
	} {
		f.Add(b)
	}
	kinds := fuzzedValues()
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, k := range kinds {
			var v any
			var again []byte
			var err error
			allocation.Bounded(t, perByte*len(b), func() { v, again, err = k.read(b) })
			if err != nil {
				if !errors.Is(err, ErrCorruptValue) {
					t.Fatalf("%s: an undocumented error: %v", k.name, err)
				}
				continue
			}
			if n := elements(reflect.ValueOf(v)); n > len(b) {
				t.Fatalf("%s: %d elements in %d bytes", k.name, n, len(b))
			}
			w, stable, err := k.read(again)
			if err != nil || !reflect.DeepEqual(v, w) {
				t.Fatalf("%s: %+v is written and read again as %+v, %v", k.name, v, w, err)
			}
			if !bytes.Equal(again, stable) {
				t.Fatalf("%s: the same value is written as %x and as %x", k.name, again, stable)
			}
		}
	})
}

// elements counts the list elements within a decoded value.
func elements(v reflect.Value) int {
	n := 0
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			n += elements(v.Field(i))
		}
	case reflect.Slice:
		n += v.Len()
		for i := range v.Len() {
			n += elements(v.Index(i))
		}
	}
	return n
}

// FuzzKeys: whatever the string, no reader of a key panics or fails with another error than ErrBadKey, and what
// it reads is what that very key is written from: keys have one spelling.
func FuzzKeys(f *testing.F) {
	c, id, settled := ChainID{"a", 1}, StreamID(1<<56), SettledKey("01ARZ3NDEKTSV4RRFFQ69G5FAV")
	for _, key := range []string{
		"", "/", "~", "a~", ChainKey(c), TrimKey(c), StreamKey(id), HeadKey(id), MarkKey(id), SpanKey(id, 9), RefKey(settled, id, 9),
		GCKey(settled), SlotKey(c, 1), BundleKey(c, 1, [16]byte{1}), DueKey(Teardown, 1, id.String()), DueKey(Settle, 1, c.String()),
		DueKey(Settle, 1, c.Star), DueKey(Retention, 1, id.String()), DueKey(Reap, 1, fold(settled)), DueKey(TrimCheck, 1, c.String()),
		IntentKey(settled), DueKey(GC, 1, fold(settled)), BatchKey(c, 3), ScheduleKey(c, 3, 4), c.String(), id.String(),
		PendingKey(id, BatchKey(c, 3)), PendingKey(id, DueKey(Reap, 1, fold(settled))),
		PendingsPrefix + id.String() + "/a/b~c~d",
	} {
		f.Add(key)
	}
	f.Fuzz(func(t *testing.T, key string) {
		read := func(what string, err error, again func() string) {
			switch {
			case err != nil && !errors.Is(err, ErrBadKey):
				t.Fatalf("%s of %q: an undocumented error: %v", what, key, err)
			case err == nil && again() != key:
				t.Fatalf("%s of %q is written again as %q", what, key, again())
			}
		}
		sid, err := ParseStreamID(key)
		read("stream id", err, sid.String)
		chain, err := ParseChainSubject(key)
		read("chain", err, chain.String)
		chain, err = ParseChainKey(key)
		read("chain key", err, func() string { return ChainKey(chain) })
		chain, err = ParseTrimKey(key)
		read("trim key", err, func() string { return TrimKey(chain) })
		sid, err = ParseStreamKey(HeadsPrefix, key)
		read("head key", err, func() string { return HeadKey(sid) })
		sid, last, err := ParseSpanKey(key)
		read("span key", err, func() string { return SpanKey(sid, last) })
		object, sid, last, err := ParseRefKey(key)
		read("ref key", err, func() string { return RefKey(object, sid, last) })
		object, err = ParseGCKey(key)
		read("gc key", err, func() string { return GCKey(object) })
		chain, slot, err := ParseSlotKey(key)
		read("slot", err, func() string { return SlotKey(chain, slot) })
		chain, slot, flight, err := ParseBundleKey(key)
		read("bundle", err, func() string { return BundleKey(chain, slot, flight) })
		chain, slot, err = ParseBatchKey(key)
		read("batch marker", err, func() string { return BatchKey(chain, slot) })
		sid, due, err := ParsePendingKey(key)
		read("pending key", err, func() string { return PendingKey(sid, due) })
		d, err := ParseDue(key)
		read("due key", err, func() string { return writtenDue(d) })
	})
}

// writtenDue writes a marker's key, or that of its entry in the schedule, of what was read of it; but for its
// shard, which its readers take as they find it.
func writtenDue(d Due) string {
	shard := "/" + hex2(d.Shard) + "/"
	switch d.Queue {
	case Denorm:
		return "schedule/denorm" + shard + hex16(d.Order) + "~" + d.Chain.String() + "~" + hex16(d.First)
	case Orphan:
		return "due/" + string(d.Queue) + shard + fold(d.Object())
	case Reap, GC:
		return "due/" + string(d.Queue) + shard + hex16(d.Order) + "~" + fold(d.Object())
	}
	return "due/" + string(d.Queue) + shard + hex16(d.Order) + "~" + d.Subject
}
