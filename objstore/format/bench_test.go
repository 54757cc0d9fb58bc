package format

import (
	"fmt"
	"testing"
)

// benchmarkInput is 4 MiB of log lines of about the given size: they compress
// about as logs do.
func benchmarkInput(size int) (records []Record, bytes int64) {
	state := uint64(1)
	next := func(n uint64) uint64 { // xorshift64, so that every run measures the same bytes
		state ^= state << 13
		state ^= state >> 7
		state ^= state << 17
		return state % n
	}
	words := []string{"INFO", "WARN", "dfs.DataNode$PacketResponder:", "Received", "block", "blk_", "of", "size", "from", "terminating", "for", "src:", "dest:", "connection", "broken", "id", "my", "=", "error", "notice", "workerEnv", "in", "state"}
	for ts := int64(1767225600000); bytes < 4<<20; ts += int64(next(20)) {
		data := fmt.Appendf(nil, "081109 %06d %d ", ts%1_000_000, next(1000))
		for len(data) < size {
			data = append(append(data, words[next(uint64(len(words)))]...), ' ')
			if next(6) == 0 {
				data = fmt.Appendf(data, "10.250.%d.%d:%d ", next(256), next(256), next(65536))
			}
		}
		records = append(records, Record{Timestamp: ts, Data: data[:size]})
		bytes += int64(size)
	}
	return records, bytes
}

func benchmarkCases(b *testing.B, run func(b *testing.B, codec Codec, records []Record)) {
	for _, name := range []string{"stored", "zstd"} {
		for _, size := range []int{100, 1 << 10, 64 << 10} {
			b.Run(fmt.Sprintf("%s/%dB", name, size), func(b *testing.B) {
				records, bytes := benchmarkInput(size)
				b.SetBytes(bytes)
				b.ReportAllocs()
				run(b, codecs[name](), records)
			})
		}
	}
}

func benchmarkWrite(b *testing.B, w *Writer, records []Record) ([]byte, Footer) {
	w.Reset()
	w.Begin(1, 0)
	for _, r := range records {
		w.Add(r.Timestamp, r.Data)
	}
	object, f, err := w.Finish()
	if err != nil {
		b.Fatal(err)
	}
	return object, f
}

func BenchmarkEncode(b *testing.B) {
	benchmarkCases(b, func(b *testing.B, codec Codec, records []Record) {
		w := NewWriter(KindSettled, codec)
		var object []byte
		var f Footer
		for b.Loop() {
			object, f = benchmarkWrite(b, w, records)
		}
		b.ReportMetric(float64(f.Sections[0].Bytes)/float64(len(object)), "ratio")
	})
}

func BenchmarkDecode(b *testing.B) {
	benchmarkCases(b, func(b *testing.B, codec Codec, records []Record) {
		object, f := benchmarkWrite(b, NewWriter(KindSettled, codec), records)
		d := NewDecoder()
		for b.Loop() {
			err := d.Records(sectionBytes(object, &f.Sections[0]), 1, func(uint32, Record) error { return nil })
			if err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkSmallSlot is the slot of a lone client: one append of one record.
func BenchmarkSmallSlot(b *testing.B) {
	w := NewWriter(KindSlot, Stored())
	data := make([]byte, 100)
	b.ReportAllocs()
	for b.Loop() {
		w.Reset()
		w.SetSlot("vega", 1, 2, [16]byte{1})
		w.Begin(1, 0)
		w.Add(1767225600000, data)
		w.EndAppend(Append{})
		object, _, err := w.Finish()
		if err != nil {
			b.Fatal(err)
		}
		if _, err := Parse(object); err != nil {
			b.Fatal(err)
		}
	}
}
