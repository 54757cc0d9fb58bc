package format

import (
	"bytes"
	"encoding/hex"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write the byte vectors of testdata/format again, but the decode-only ones only where there is none")

// vectorsDir is beside the module's other test data.
var vectorsDir = filepath.Join("..", "..", "testdata", "format")

// A vector is an object whose bytes are pinned. What it holds is also told, for
// readers in other languages, by the README beside the files.
type vector struct {
	file       string
	in         input
	codec      Codec
	bundled    bool // the slot of the bundle that in describes
	decodeOnly bool // a later version of the codec's library may write other bytes
}

func vectors() []vector {
	line := func(ts int64, s string) Record { return Record{Timestamp: ts, Data: []byte(s)} }
	flight := [16]byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}
	slot := input{
		kind: KindSlot, star: "vega", epoch: 3, slot: 1027, flight: flight,
		sections: []sectionInput{
			{stream: 0x2a00000000000001, appends: []appendInput{
				{a: Append{HasExpected: true, Expected: 4711}, records: []Record{line(1767225600000, "first"), line(1767225600250, "")}},
				{a: Append{HasProducer: true, Producer: Producer{ID: "till-7", Epoch: 2, Seq: 9, Since: 4700}}, records: []Record{line(1767225599000, "third")}},
			}},
			{stream: 0x0500000000000002, appends: []appendInput{
				{a: Append{
					HasExpected: true, HasProducer: true, Producer: Producer{ID: "till-8"},
				}, records: []Record{{Timestamp: 1767225600001, Data: []byte{0, 0xff, '\r', '\n'}}}},
			}},
		},
	}
	bundle := slot
	bundle.kind, bundle.slot = KindBundle, 1028
	packed := input{kind: KindSettled, sections: []sectionInput{
		{stream: 0x2a00000000000001, firstOffset: 4711, appends: []appendInput{{records: []Record{line(1767225600000, "first"), line(1767225600250, ""), line(1767225599000, "third")}}}},
		{stream: 0x0500000000000002, appends: []appendInput{{records: []Record{line(1767225600001, strings.Repeat("long ", 60))}}}},
		{stream: 0x2a00000000000001, firstOffset: 4800, appends: []appendInput{{records: []Record{line(-1, "before 1970")}}}},
	}}
	var letters []Record
	for i := range 100 {
		letters = append(letters, line(1767225600000+int64(i), strings.Repeat(string(rune('a'+i%26)), 1000)))
	}
	compressed := input{kind: KindSettled, sections: []sectionInput{{stream: 0x2a00000000000001, firstOffset: 5000, appends: []appendInput{{records: letters}}}}}
	return []vector{
		{file: "slot.hex", in: slot, codec: Stored()},
		{file: "bundle.hex", in: bundle, codec: Stored()},
		{file: "bundled-slot.hex", in: bundle, codec: Stored(), bundled: true},
		{file: "settled-packed.hex", in: packed, codec: Stored()},
		{file: "settled-zstd.hex", in: compressed, codec: Zstd(), decodeOnly: true},
		{file: "seal.hex", in: input{kind: KindSeal, star: "vega", epoch: 3, slot: 1029}},
	}
}

func (v vector) object(t *testing.T) []byte {
	if v.in.kind == KindSeal {
		return Seal(v.in.star, v.in.epoch, v.in.slot)
	}
	object, f := newlyWritten(t, v.in, v.codec)
	if v.bundled {
		var err error
		object, _, err = BundleIndex(f)
		require.NoError(t, err)
	}
	return object
}

// appendHex renders bytes as lines of 32.
func appendHex(object []byte) []byte {
	var b bytes.Buffer
	for len(object) > 0 {
		n := min(32, len(object))
		b.WriteString(hex.EncodeToString(object[:n]) + "\n")
		object = object[n:]
	}
	return b.Bytes()
}

func readVector(t *testing.T, path string) []byte {
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	object, err := hex.DecodeString(strings.ReplaceAll(string(text), "\n", ""))
	require.NoError(t, err)
	return object
}

func TestVectors(t *testing.T) {
	readme, err := os.ReadFile(filepath.Join(vectorsDir, "README.md"))
	require.NoError(t, err)
	files, err := filepath.Glob(filepath.Join(vectorsDir, "*.hex"))
	require.NoError(t, err)
	if !*update {
		require.Len(t, files, len(vectors()), "a vector that no test reads, or one that is missing")
	}
	for _, v := range vectors() {
		t.Run(v.file, func(t *testing.T) {
			path := filepath.Join(vectorsDir, v.file)
			_, statErr := os.Stat(path)
			if *update && (!v.decodeOnly || os.IsNotExist(statErr)) {
				require.NoError(t, os.WriteFile(path, appendHex(v.object(t)), 0o644))
			}
			object := readVector(t, path)
			if !v.decodeOnly {
				require.Equal(t, string(appendHex(v.object(t))), string(appendHex(object)))
			}
			require.Contains(t, string(readme), "`"+v.file+"`")

			f, err := Parse(object)
			require.NoError(t, err)
			require.Equal(t, []any{v.in.star, v.in.epoch, v.in.slot, v.in.flight, v.bundled}, []any{f.Star, f.Epoch, f.Slot, f.Flight, f.Bundled})
			require.Len(t, f.Sections, len(v.in.sections))
			blocks := object
			if v.bundled {
				blocks = readVector(t, filepath.Join(vectorsDir, "bundle.hex"))
			}
			for i, want := range v.in.sections {
				s := &f.Sections[i]
				require.Equal(t, []uint64{want.stream, want.firstOffset}, []uint64{s.Stream, s.FirstOffset})
				requireFigures(t, want, *s)
				_, got, err := collect(NewDecoder(), sectionBytes(blocks, s), s.Stream)
				require.NoError(t, err)
				requireRecords(t, want.records(), got)
			}
		})
	}
}

func TestZstdVectorIsCompressed(t *testing.T) {
	object := readVector(t, filepath.Join(vectorsDir, "settled-zstd.hex"))
	f, err := Parse(object)
	require.NoError(t, err)
	require.Len(t, f.Sections[0].Blocks, 2)
	for _, b := range f.Sections[0].Blocks {
		h, _, err := readBlock(object[b.Offset:], b.Offset)
		require.NoError(t, err)
		require.EqualValues(t, zstdID, h.codec)
	}
}
