package verify_test

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/nova-store/nova/catalog"
	"github.com/nova-store/nova/verify"
)

func TestCleanIsClean(t *testing.T) {
	w := newWorld(t)
	w.catalog(time.Hour)
	nothing := w.verify(verify.Options{List: true})
	require.Empty(t, nothing.Findings, "an empty keyspace")
	report, err := json.Marshal(nothing)
	require.NoError(t, err)
	require.Contains(t, string(report), `"findings":[]`, "a list also where nothing is amiss")
	w.fill()
	for _, page := range []int{1, 3, 0} {
		rep := w.verify(verify.Options{List: true, PageSize: page})
		require.Empty(t, rep.Findings)
		require.Zero(t, rep.Amiss)
		require.Zero(t, rep.Restless)
		require.Equal(t, 5, rep.Streams)
		require.Equal(t, 2, rep.Chains)
		require.Equal(t, uint64(60+3*9+3*8), rep.Records)
		require.Equal(t, len(w.keys(catalog.SpansPrefix)), rep.Spans)
		require.Equal(t, len(w.keys(catalog.RefsPrefix)), rep.Refs)
		require.Equal(t, len(w.keys(catalog.PendingsPrefix)), rep.Pending)
		require.Equal(t, len(w.objects("")), rep.Listed)
		for _, q := range rep.Queues {
			require.Equal(t, len(w.keys(catalog.QueuePrefix(q.Queue))), q.Markers, q.Queue)
		}
	}
}

// What the metadata records is what is in the bucket, key by key and byte by byte, but for what waits to be deleted or to be recorded.
func TestRecorded(t *testing.T) {
	w := newWorld(t)
	w.fill()
	recorded := map[string]int64{}
	w.verify(verify.Options{Recorded: func(r verify.Recorded) {
		size, twice := recorded[r.Key]
		require.True(t, !twice || size == r.Size, "%s of %d and of %d bytes", r.Key, size, r.Size)
		recorded[r.Key] = r.Size
	}})
	var waiting []string
	for _, key := range w.objects("") {
		info, err := w.bucket.Stat(context.Background(), key)
		require.NoError(t, err)
		size, ok := recorded[key]
		if !ok {
			waiting = append(waiting, key)
			continue
		}
		require.Equal(t, info.Size, size, key)
		delete(recorded, key)
	}
	require.Empty(t, recorded, "and nothing that is not there")
	for _, key := range waiting {
		require.Empty(t, w.keys(catalog.RefPrefix(key)), key)
		require.NotContains(t, key, "slot/")
	}

	// Slots beyond an open chain's checkpoint: none behind the first missing one and the window.
	var open catalog.ChainID
	var c catalog.Chain
	for _, key := range w.keys(catalog.ChainsPrefix) {
		id, err := catalog.ParseChainKey(key)
		if err != nil {
			continue // it holds a star's newest epoch
		}
		d, err := catalog.DecodeChain(w.value(key))
		require.NoError(t, err)
		if d.State == catalog.ChainOpen {
			open, c = id, d
		}
	}
	_, slot := w.slotOf("s0")
	for _, ahead := range []uint64{0, 1, c.Window + 1, c.Window + 2} {
		w.copy(slot, catalog.SlotKey(open, c.Checkpoint+ahead))
	}
	var ahead []string
	w.verify(verify.Options{Recorded: func(r verify.Recorded) {
		if id, at, err := catalog.ParseSlotKey(r.Key); err == nil && id == open && at >= c.Checkpoint {
			ahead = append(ahead, r.Key)
		}
	}})
	require.Equal(t, []string{catalog.SlotKey(open, c.Checkpoint), catalog.SlotKey(open, c.Checkpoint+1), catalog.SlotKey(open, c.Checkpoint+c.Window+1)}, ahead)

	w.replace(slot, func(b []byte) []byte { return b[:len(b)-1] })
	var sizes []int64
	w.verify(verify.Options{Recorded: func(r verify.Recorded) {
		if r.Key == slot {
			sizes = append(sizes, r.Size)
		}
	}})
	require.Equal(t, []int64{verify.UnknownSize}, sizes)
}

// damage is one kind of it: what it does, and what is to be found.
type damage struct {
	name string
	do   func(w *world) (key string) // whose key the finding has
	kind verify.Kind
	list bool
	also []verify.Kind // what necessarily comes with it
}

func damages() []damage {
	edit := func(w *world, s catalog.SpanAt, change func(*catalog.Span)) string {
		change(&s.Span)
		w.put(s.Key(), s.Span.Encode())
		return s.Key()
	}
	delFirst := func(prefix, text string) func(w *world) string {
		return func(w *world) string {
			key := w.key(prefix, text)
			w.del(key)
			return key
		}
	}
	garble := func(prefix, text string) func(w *world) string {
		return func(w *world) string {
			key := w.key(prefix, text)
			w.put(key, []byte{1, 0xff})
			return key
		}
	}
	flip := func(w *world, object string, at func(n int) int) {
		w.replace(object, func(b []byte) []byte { b[at(len(b))] ^= 0x40; return b })
	}
	return []damage{
		{name: "no format", kind: verify.WrongFormat, do: delFirst(catalog.FormatKey, "")},
		{name: "a time line that was cut off", kind: verify.TimelineCutOff, do: func(w *world) string {
			w.put(catalog.RestoredKey, append([]byte{2}, make([]byte, 2)...))
			return catalog.RestoredKey
		}},
		{name: "a key of no kind", kind: verify.BadRecord, do: func(w *world) string { w.put("zebra/1", []byte{1}); return "zebra/1" }},
		{name: "a queue of no kind", kind: verify.BadRecord, do: func(w *world) string { w.put("due/mystery/00/x", []byte{1}); return "due/mystery/00/x" }},
		{name: "a star's registration is gone", kind: verify.ChainIncomplete, do: func(w *world) string { w.del(catalog.StarKey("a")); return catalog.ChainHeadKey("a") }},
		{name: "a star's newest epoch is gone", kind: verify.ChainIncomplete, do: func(w *world) string { w.del(catalog.ChainHeadKey("a")); return catalog.StarKey("a") }},
		{name: "a stream is garbled", kind: verify.BadRecord, do: garble(catalog.StreamsPrefix, "")},
		{name: "a head is garbled", kind: verify.BadRecord, do: garble(catalog.HeadsPrefix, "")},
		{name: "a mark is garbled", kind: verify.BadRecord, do: garble(catalog.MarksPrefix, "")},
		{name: "a span is garbled", kind: verify.BadRecord, do: func(w *world) string {
			s, _ := w.slotOf("s0")
			w.put(s.Key(), []byte{1, 2})
			return s.Key()
		}},
		{name: "a batch marker is garbled", kind: verify.BadRecord, do: garble(catalog.QueuePrefix(catalog.Denorm), "")},
		{name: "a settle marker is garbled", kind: verify.BadRecord, do: func(w *world) string {
			key := w.key(catalog.QueuePrefix(catalog.Settle), "0000000000000002")
			w.put(key, []byte{9})
			return key
		}},
		{name: "a reap-check is garbled", kind: verify.BadRecord, do: garble(catalog.QueuePrefix(catalog.Reap), "")},
		{name: "an intent is garbled", kind: verify.BadRecord, do: garble(catalog.QueuePrefix(catalog.Orphan), "")},
		{name: "a name is gone", kind: verify.NameMismatch, do: func(w *world) string {
			s, _ := w.slotOf("s0")
			w.del(catalog.NameKey("s0"))
			return catalog.StreamKey(s.Stream)
		}},
		{name: "a name leads nowhere", kind: verify.NameMismatch, do: func(w *world) string {
			w.put(catalog.NameKey("ghost"), []byte{1, 99})
			return catalog.NameKey("ghost")
		}},
		{name: "a head is gone", kind: verify.StreamIncomplete, do: func(w *world) string {
			s, _ := w.slotOf("s0")
			w.del(catalog.HeadKey(s.Stream))
			return catalog.StreamKey(s.Stream)
		}},
		{name: "an id counter is gone", kind: verify.StreamIncomplete, do: func(w *world) string {
			s, _ := w.slotOf("s0")
			w.del(catalog.IDsKey(s.Stream.Shard()))
			return catalog.StreamKey(s.Stream)
		}},
		{name: "a head without a stream", kind: verify.StreamIncomplete, do: func(w *world) string {
			s, _ := w.slotOf("s0")
			key := catalog.HeadKey(s.Stream + 1000)
			w.put(key, w.value(catalog.HeadKey(s.Stream)))
			return key
		}},
		{name: "the first span is gone", kind: verify.SpanGap, also: []verify.Kind{verify.RefStray}, do: func(w *world) string {
			s, _ := w.settledOf("s0")
			w.del(s.Key())
			return catalog.StreamKey(s.Stream)
		}},
		{name: "the last span is gone", kind: verify.SpanGap, do: func(w *world) string {
			s, _ := w.slotOf("s1")
			w.del(w.keys(catalog.SpanPrefix(s.Stream))[len(w.keys(catalog.SpanPrefix(s.Stream)))-1])
			return catalog.StreamKey(s.Stream)
		}},
		{name: "a span in the middle is gone", kind: verify.SpanGap, do: func(w *world) string {
			s, _ := w.slotOf("s1")
			w.del(s.Key())
			return catalog.StreamKey(s.Stream)
		}},
		{name: "spans overlap", kind: verify.SpanOverlap, also: []verify.Kind{verify.SpanUnwatched}, do: func(w *world) string {
			s, _ := w.slotOf("s1")
			return edit(w, s, func(s *catalog.Span) { s.First--; s.Count++ })
		}},
		{name: "byte positions do not follow", kind: verify.SpanAccount, do: func(w *world) string {
			s, _ := w.slotOf("s1")
			edit(w, s, func(s *catalog.Span) { s.BytePos-- })
			return s.Key()
		}},
		{name: "a span beyond the end", kind: verify.SpanStray, also: []verify.Kind{verify.SpanUnwatched}, do: func(w *world) string {
			s, _ := w.slotOf("s1")
			s.Span.First += 1000
			w.put(s.Key(), s.Span.Encode())
			return s.Key()
		}},
		{name: "a span of no stream", kind: verify.SpanStray, also: []verify.Kind{verify.SpanUnwatched}, do: func(w *world) string {
			s, _ := w.slotOf("s1")
			s.Stream += 1 << 40
			w.put(s.Key(), s.Span.Encode())
			return s.Key()
		}},
		{name: "a span without its ref", kind: verify.RefMissing, do: func(w *world) string {
			s, object := w.settledOf("s0")
			w.del(catalog.RefKey(object, s.Stream, s.Span.Last()))
			return s.Key()
		}},
		{name: "a ref without its span", kind: verify.RefStray, do: func(w *world) string {
			s, object := w.settledOf("s0")
			key := catalog.RefKey(object, s.Stream, s.Span.Last()+500)
			w.put(key, w.value(catalog.RefKey(object, s.Stream, s.Span.Last())))
			return key
		}},
		{name: "a ref of other sizes", kind: verify.RefMismatch, do: func(w *world) string {
			s, object := w.settledOf("s0")
			key := catalog.RefKey(object, s.Stream, s.Span.Last())
			w.put(key, []byte{1, 3, 4})
			return key
		}},
		{name: "a ref of another object's size behind one that is right", kind: verify.RefMismatch, do: func(w *world) string {
			_, object := w.settledOf("s0")
			refs := w.keys(catalog.RefPrefix(object))
			key := refs[len(refs)-1]
			require.Greater(w.t, len(refs), 1)
			ref, err := catalog.DecodeRef(w.value(key))
			require.NoError(w.t, err)
			w.put(key, binary.AppendUvarint(binary.AppendUvarint([]byte{1}, ref.Bytes), ref.ObjectSize+1))
			return key
		}},
		{name: "a settled object is gone", kind: verify.ObjectMissing, do: func(w *world) string {
			_, object := w.settledOf("s0")
			w.remove(object)
			return object
		}},
		{name: "a slot is gone", kind: verify.ObjectMissing, do: func(w *world) string {
			_, object := w.slotOf("s0")
			w.remove(object)
			return object
		}},
		{name: "a flipped bit in a settled object's records", kind: verify.ObjectCorrupt, do: func(w *world) string {
			s, object := w.settledOf("s0")
			flip(w, object, func(int) int { return int(s.Span.Offset) + 60 })
			return object
		}},
		{name: "a flipped bit in a settled object's footer", kind: verify.ObjectCorrupt, do: func(w *world) string {
			_, object := w.settledOf("s0")
			flip(w, object, func(n int) int { return n - 20 })
			return object
		}},
		{name: "a flipped bit in a slot", kind: verify.ObjectCorrupt, do: func(w *world) string {
			s, object := w.slotOf("s0")
			flip(w, object, func(int) int { return int(s.Span.Offset) + 60 })
			return object
		}},
		{name: "a flipped bit in a slot's header", kind: verify.ObjectCorrupt, do: func(w *world) string {
			_, object := w.slotOf("s0")
			flip(w, object, func(int) int { return 2 })
			return object
		}},
		{name: "a truncated object", kind: verify.ObjectCorrupt, do: func(w *world) string {
			_, object := w.settledOf("s0")
			w.replace(object, func(b []byte) []byte { return b[:len(b)/2] })
			return object
		}},
		{name: "a span names another stream's bytes", kind: verify.ObjectCorrupt, also: []verify.Kind{verify.RefMismatch}, do: func(w *world) string {
			s, object := w.settledOf("s0")
			o, other := w.settledOf("s1")
			require.Equal(w.t, object, other, "they are packed together")
			edit(w, s, func(s *catalog.Span) { s.Offset, s.Length = o.Span.Offset, o.Span.Length })
			return object
		}},
		{name: "a span counts other bytes than there are", kind: verify.ObjectMismatch, also: []verify.Kind{verify.SpanAccount}, do: func(w *world) string {
			s, object := w.slotOf("s0")
			edit(w, s, func(s *catalog.Span) { s.Bytes++ })
			return object
		}},
		{name: "a slot of another coordinate", kind: verify.ObjectMismatch, also: []verify.Kind{verify.ObjectCorrupt}, do: func(w *world) string {
			slots := w.objects("slot/a/0000000000000002/")
			body, err := w.bucket.Get(context.Background(), slots[1], 0, -1)
			require.NoError(w.t, err)
			w.replace(slots[0], func([]byte) []byte { return body })
			return slots[0]
		}},
		{name: "a chain without its trim record", kind: verify.ChainIncomplete, do: func(w *world) string {
			w.del(w.key(catalog.TrimsPrefix, "a/0000000000000002"))
			return w.key(catalog.ChainsPrefix, "a/0000000000000002")
		}, also: []verify.Kind{verify.MarkerStray}},
		{name: "a trim record without its chain", kind: verify.ChainIncomplete, do: func(w *world) string {
			w.del(w.key(catalog.ChainsPrefix, "a/0000000000000002"))
			return w.key(catalog.TrimsPrefix, "a/0000000000000002")
		}, also: []verify.Kind{verify.MarkerStray}},
		{name: "a chain without its settle marker", kind: verify.MarkerMissing, do: func(w *world) string {
			w.del(w.key(catalog.QueuePrefix(catalog.Settle), "0000000000000002"))
			return w.key(catalog.TrimsPrefix, "a/0000000000000002")
		}},
		{name: "a second settle marker", kind: verify.MarkerStray, do: func(w *world) string {
			old := w.key(catalog.QueuePrefix(catalog.Settle), "0000000000000002")
			d, err := catalog.ParseDue(old)
			require.NoError(w.t, err)
			key := catalog.DueKey(catalog.Settle, d.Order+5, d.Subject)
			w.put(key, w.value(old))
			return key
		}},
		{name: "a marker in another shard", kind: verify.MarkerMisplaced, do: func(w *world) string {
			old := w.key(catalog.QueuePrefix(catalog.Reap), "")
			d, err := catalog.ParseDue(old)
			require.NoError(w.t, err)
			key := strings.Replace(old, catalog.ShardRange(catalog.Reap, d.Shard).Start, catalog.ShardRange(catalog.Reap, (d.Shard+1)%64).Start, 1)
			w.put(key, w.value(old))
			return key
		}},
		{name: "a mark without its retention marker", kind: verify.MarkerMissing, do: func(w *world) string {
			key := w.key(catalog.QueuePrefix(catalog.Retention), "")
			d, err := catalog.ParseDue(key)
			require.NoError(w.t, err)
			w.del(key)
			return catalog.MarksPrefix + d.Subject
		}},
		{name: "a second retention marker", kind: verify.MarkerStray, do: func(w *world) string {
			d, err := catalog.ParseDue(w.key(catalog.QueuePrefix(catalog.Retention), ""))
			require.NoError(w.t, err)
			key := catalog.DueKey(catalog.Retention, d.Order+7, d.Subject)
			w.put(key, []byte{1})
			return key
		}},
		{name: "a teardown marker of an active stream", kind: verify.MarkerStray, do: func(w *world) string {
			s, _ := w.slotOf("s0")
			key := catalog.DueKey(catalog.Teardown, 5, s.Stream.String())
			w.put(key, []byte{1, 0})
			return key
		}},
		{name: "a batch marker is gone", kind: verify.SpanUnwatched, also: []verify.Kind{verify.MarkerStray, verify.SlotUnwatched}, do: func(w *world) string {
			s, slot := w.slotOf("s0")
			c, n, err := catalog.ParseSlotKey(slot)
			require.NoError(w.t, err)
			w.del(catalog.BatchKey(c, n))
			return s.Key()
		}},
		{name: "an inventory that misses a stream", kind: verify.SpanUnwatched, do: func(w *world) string {
			s, slot := w.slotOf("s0")
			c, n, err := catalog.ParseSlotKey(slot)
			require.NoError(w.t, err)
			b, err := catalog.DecodeBatch(w.value(catalog.BatchKey(c, n)))
			require.NoError(w.t, err)
			for i := range b.Inventory {
				if b.Inventory[i].Stream == s.Stream {
					b.Inventory[i].Stream++
				}
			}
			w.put(catalog.BatchKey(c, n), b.Encode())
			return s.Key()
		}},
		{name: "a batch beyond the checkpoint", kind: verify.CursorOrder, do: func(w *world) string {
			keys := w.keys(catalog.QueuePrefix(catalog.Denorm))
			key := keys[len(keys)-1]
			b, err := catalog.DecodeBatch(w.value(key))
			require.NoError(w.t, err)
			b.End += 100
			w.put(key, b.Encode())
			return key
		}},
		{name: "batches that overlap", kind: verify.CursorOrder, do: func(w *world) string {
			keys := w.keys(catalog.QueuePrefix(catalog.Denorm))
			b, err := catalog.DecodeBatch(w.value(keys[0]))
			require.NoError(w.t, err)
			b.End++
			w.put(keys[0], b.Encode())
			return keys[1]
		}},
		{name: "a batch without its schedule entry", kind: verify.IndexMissing, do: func(w *world) string {
			key := w.keys(catalog.SchedulePrefix)[0]
			w.del(key)
			d, err := catalog.ParseDue(key)
			require.NoError(w.t, err)
			return d.PrimaryKey()
		}},
		{name: "a schedule entry of no batch", kind: verify.MarkerStray, do: func(w *world) string {
			d, err := catalog.ParseDue(w.keys(catalog.SchedulePrefix)[0])
			require.NoError(w.t, err)
			key := catalog.ScheduleKey(d.Chain, d.First, int64(d.Order)+9)
			w.put(key, []byte{1})
			return key
		}},
		{name: "a reap-check without its entry by stream", kind: verify.IndexMissing, do: func(w *world) string {
			key := w.key(catalog.PendingsPrefix, "/reap~")
			w.del(key)
			_, due, err := catalog.ParsePendingKey(key)
			require.NoError(w.t, err)
			return due
		}},
		{name: "an entry by stream of no marker", kind: verify.MarkerStray, do: func(w *world) string {
			key := w.key(catalog.PendingsPrefix, "/reap~") + "0"
			w.put(key, []byte{1})
			return key
		}},
		{name: "an entry by another stream", kind: verify.MarkerStray, do: func(w *world) string {
			_, due, err := catalog.ParsePendingKey(w.key(catalog.PendingsPrefix, "/reap~"))
			require.NoError(w.t, err)
			s, _ := w.slotOf("big")
			key := catalog.PendingKey(s.Stream, due)
			w.put(key, []byte{1})
			return key
		}},
		{name: "a gc record without its marker", kind: verify.MarkerMissing, also: []verify.Kind{verify.MarkerStray}, do: func(w *world) string {
			w.del(w.key(catalog.QueuePrefix(catalog.GC), ""))
			return w.key(catalog.GCPrefix, "")
		}},
		{name: "a gc marker without its record", kind: verify.MarkerStray, do: func(w *world) string {
			w.del(w.key(catalog.GCPrefix, ""))
			return w.key(catalog.QueuePrefix(catalog.GC), "")
		}},
		{name: "a trimcheck beyond the checkpoint", kind: verify.CursorOrder, do: func(w *world) string {
			_, slot := w.slotOf("s0")
			c, _, err := catalog.ParseSlotKey(slot)
			require.NoError(w.t, err)
			key := catalog.DueKey(catalog.TrimCheck, 77, c.String())
			w.put(key, []byte{1, 100})
			return key
		}},
		{name: "a leaked settled object", kind: verify.ObjectUnrecorded, list: true, do: func(w *world) string {
			_, object := w.settledOf("s0")
			w.copy(object, "settled/01LEAKED")
			return "settled/01LEAKED"
		}},
		{name: "a leaked slot", kind: verify.ObjectUnrecorded, list: true, do: func(w *world) string {
			_, object := w.slotOf("s0")
			leak := catalog.SlotKey(catalog.ChainID{Star: "gone", Epoch: 3}, 5)
			w.copy(object, leak)
			return leak
		}},
	}
}

// Each kind of damage is found, as what it is, at what it is at; nothing else is.
func TestDamage(t *testing.T) {
	filled := newWorld(t)
	filled.fill()
	state := filled.snapshot()
	for _, d := range damages() {
		t.Run(strings.ReplaceAll(d.name, " ", "-"), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.restore(state)
			key := d.do(w)
			rep := w.verify(verify.Options{List: d.list})
			found := false
			var kinds []verify.Kind
			for _, f := range rep.Findings {
				kinds = append(kinds, f.Kind)
				found = found || f.Kind == d.kind && f.Key == key
				require.NotEmpty(t, f.Detail)
				require.NotEmpty(t, f.Advice)
			}
			require.True(t, found, "%s of %s in %v", d.kind, key, rep.Findings)
			require.Equal(t, len(rep.Findings), rep.Amiss)
			for _, k := range kinds {
				require.Contains(t, append(d.also, d.kind), k, "%v", rep.Findings)
			}
		})
	}
}

// The report keeps a bounded number of findings, and counts all of them.
func TestFindingsAreBounded(t *testing.T) {
	w := newWorld(t)
	w.fill()
	for _, key := range w.keys(catalog.RefsPrefix) {
		w.del(key)
	}
	rep := w.verify(verify.Options{Keep: 2})
	require.Len(t, rep.Findings, 2)
	require.Greater(t, rep.Amiss, 2)
}

// A bucket or a store that does not answer is no finding.
func TestInterrupted(t *testing.T) {
	w := newWorld(t)
	w.fill()
	ctx, cancel := context.WithCancel(context.Background())
	var phases []string
	rep, err := verify.Run(ctx, w.catalog(time.Hour), w.bucket, w.clk, verify.Options{Progress: func(p verify.Progress) {
		phases = append(phases, p.Phase)
		if p.Phase == "streams" {
			cancel()
		}
	}})
	require.ErrorIs(t, err, context.Canceled)
	require.Zero(t, rep.Amiss)
	require.Contains(t, phases, "chains")
	require.NotContains(t, phases, "references")
}
