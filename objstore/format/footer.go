package format

import (
	"encoding/binary"
	"math"
)

// Footer and trailer. All numbers of the footer are unsigned varints unless said
// otherwise; "signed" is the zigzag varint of encoding/binary.
//
//	byte version, byte kind, byte flags (1: bundled)
//	star (length, bytes), epoch, slot, 16 bytes flight
//	body length
//	how many sections, blocks and appends there are in all
//	per section: 8 bytes stream (little-endian), first offset, records, payload bytes,
//	  first timestamp (signed), largest timestamp − first, blocks, appends
//	    per block: length, records, 4 bytes CRC of its header (little-endian)
//	    per append: records, payload bytes, first timestamp − the section's (signed),
//	      largest timestamp − the append's first, byte flags (1: expected, 2: producer),
//	      [expected], [producer id (length, bytes), epoch, sequence, since]
//
// Offsets and ordinals are not written: sections tile the body, blocks tile sections.
//
// Trailer: 4 bytes footer length, 4 bytes CRC32C of the footer, 4 bytes CRC32C of
// these 8, 4 bytes magic "nova"; little-endian.

const (
	flagBundled  = 1
	flagExpected = 1
	flagProducer = 2

	// What an entry of each list takes at least, and so how many a footer can hold.
	minSectionBytes = 8 + 7
	minBlockBytes   = 2 + 4
	minAppendBytes  = 5
	// And at most, an append's producer id and the footer's star not counted.
	maxSectionBytes = 8 + 10 + 5 + 10 + 10 + 10 + 5 + 5
	maxBlockBytes   = 5 + 5 + 4
	maxAppendBytes  = 5 + 10 + 10 + 10 + 1 + 10 + (5 + 5 + 10 + 10)
	maxFixedBytes   = 3 + 5 + 10 + 10 + 16 + 10 + 5 + 5 + 5

	maxStarBytes = 63
)

func appendHeader(dst []byte, kind Kind) []byte {
	at := len(dst)
	dst = append(dst, 'N', 'O', 'V', 'A', Version, byte(kind), 0, 0)
	return binary.LittleEndian.AppendUint32(dst, checksum(dst[at:]))
}

// appendFooter appends footer and trailer.
func appendFooter(dst []byte, f *Footer) []byte {
	at := len(dst)
	var flags byte
	if f.Bundled {
		flags = flagBundled
	}
	dst = append(dst, Version, byte(f.Kind), flags)
	dst = appendString(dst, f.Star)
	dst = binary.AppendUvarint(dst, f.Epoch)
	dst = binary.AppendUvarint(dst, f.Slot)
	dst = append(dst, f.Flight[:]...)
	dst = binary.AppendUvarint(dst, uint64(f.BodyLength))
	blocks, appends := 0, 0
	for i := range f.Sections {
		blocks += len(f.Sections[i].Blocks)
		appends += len(f.Sections[i].Appends)
	}
	dst = binary.AppendUvarint(dst, uint64(len(f.Sections)))
	dst = binary.AppendUvarint(dst, uint64(blocks))
	dst = binary.AppendUvarint(dst, uint64(appends))
	for i := range f.Sections {
		dst = appendSection(dst, &f.Sections[i])
	}
	length, crc := uint32(len(dst)-at), checksum(dst[at:])
	at = len(dst)
	dst = binary.LittleEndian.AppendUint32(dst, length)
	dst = binary.LittleEndian.AppendUint32(dst, crc)
	dst = binary.LittleEndian.AppendUint32(dst, checksum(dst[at:]))
	return append(dst, 'n', 'o', 'v', 'a')
}

func appendSection(dst []byte, s *Section) []byte {
	dst = binary.LittleEndian.AppendUint64(dst, s.Stream)
	dst = binary.AppendUvarint(dst, s.FirstOffset)
	dst = binary.AppendUvarint(dst, uint64(s.Records))
	dst = binary.AppendUvarint(dst, s.Bytes)
	dst = binary.AppendVarint(dst, s.FirstTimestamp)
	dst = binary.AppendUvarint(dst, uint64(s.MaxTimestamp)-uint64(s.FirstTimestamp))
	dst = binary.AppendUvarint(dst, uint64(len(s.Blocks)))
	dst = binary.AppendUvarint(dst, uint64(len(s.Appends)))
	for _, b := range s.Blocks {
		dst = binary.AppendUvarint(dst, uint64(b.Length))
		dst = binary.AppendUvarint(dst, uint64(b.Records))
		dst = binary.LittleEndian.AppendUint32(dst, b.CRC)
	}
	for i := range s.Appends {
		a := &s.Appends[i]
		dst = binary.AppendUvarint(dst, uint64(a.Count))
		dst = binary.AppendUvarint(dst, a.Bytes)
		dst = binary.AppendVarint(dst, a.FirstTimestamp-s.FirstTimestamp)
		dst = binary.AppendUvarint(dst, uint64(a.MaxTimestamp)-uint64(a.FirstTimestamp))
		var flags byte
		if a.HasExpected {
			flags |= flagExpected
		}
		if a.HasProducer {
			flags |= flagProducer
		}
		dst = append(dst, flags)
		if a.HasExpected {
			dst = binary.AppendUvarint(dst, a.Expected)
		}
		if a.HasProducer {
			dst = appendString(dst, a.Producer.ID)
			dst = binary.AppendUvarint(dst, uint64(a.Producer.Epoch))
			dst = binary.AppendUvarint(dst, a.Producer.Seq)
			dst = binary.AppendUvarint(dst, a.Producer.Since)
		}
	}
	return dst
}

func appendString(dst []byte, s string) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(s))), s...)
}

// reader reads a footer. Its error is sticky: the first thing found wrong.
type reader struct {
	b      []byte
	reason string
}

// fail notes the first reason and ends the reading: everything after is zero.
func (r *reader) fail(reason string) {
	if r.reason == "" {
		r.reason = reason
	}
	r.b = nil
}

func (r *reader) bytes(n uint64) []byte {
	if n > uint64(len(r.b)) {
		r.fail("the footer ends early")
		return nil
	}
	b := r.b[:n]
	r.b = r.b[n:]
	return b
}

func (r *reader) byte() byte {
	if b := r.bytes(1); b != nil {
		return b[0]
	}
	return 0
}

// uint reads a number of at most max.
func (r *reader) uint(max uint64) uint64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 || v > max {
		r.fail("a number of the footer is cut or too large")
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *reader) uint32() uint32 { return uint32(r.uint(math.MaxUint32)) }

func (r *reader) int() int64 {
	v, n := binary.Varint(r.b)
	if n <= 0 {
		r.fail("a number of the footer is cut")
		return 0
	}
	r.b = r.b[n:]
	return v
}

// count reads the length of a list whose entries take at least size bytes each.
func (r *reader) count(size int) int { return int(r.uint(uint64(len(r.b) / size))) }

func (r *reader) string() string { return string(r.bytes(r.uint(uint64(len(r.b))))) }

// timestamps reads a first timestamp, relative to base, and the largest of a list that
// it belongs to.
func (r *reader) timestamps(base int64) (first, largest int64) {
	first = base + r.int()
	largest = int64(uint64(first) + r.uint(math.MaxUint64))
	if largest < first {
		r.fail("a largest timestamp lies before the first")
	}
	return first, largest
}

// payload reads how many payload bytes a number of records holds.
func (r *reader) payload(records uint32) uint64 { return r.uint(uint64(records) * MaxRecordBytes) }

// readFooter decodes a footer whose checksum holds. at is its offset in the object.
// Sums cannot overflow: every term is bounded by what it is read with.
func readFooter(b []byte, at int64) (Footer, error) {
	r := &reader{b: b}
	if v := r.byte(); r.reason == "" && v != Version {
		return Footer{}, versionError(v)
	}
	f := Footer{Kind: Kind(r.byte())}
	flags := r.byte()
	if r.reason == "" && (f.Kind < KindSlot || f.Kind > KindSeal || flags&^flagBundled != 0) {
		return Footer{}, kindError(f.Kind, flags)
	}
	f.Bundled = flags == flagBundled
	f.Star, f.Epoch, f.Slot = r.string(), r.uint(math.MaxUint64), r.uint(math.MaxUint64)
	copy(f.Flight[:], r.bytes(uint64(len(f.Flight))))
	f.BodyLength = int64(r.uint(MaxObjectBytes))
	sections, blocks, appends := r.count(minSectionBytes), r.count(minBlockBytes), r.count(minAppendBytes)
	if sections*minSectionBytes+blocks*minBlockBytes+appends*minAppendBytes > len(r.b) {
		r.fail("the footer is too short for its lists")
	}
	if reason := f.shape(sections); reason != "" {
		r.fail(reason)
	}
	if r.reason == "" && sections > 0 {
		f.Sections = make([]Section, sections)
		lists := lists{blocks: make([]Block, 0, blocks), appends: make([]Append, 0, appends)}
		offset := int64(HeaderLength)
		for i := range f.Sections {
			r.section(&f.Sections[i], f.Kind, offset, &lists)
			offset += f.Sections[i].Length
		}
		switch {
		case len(lists.blocks) != blocks || len(lists.appends) != appends:
			r.fail("the footer's totals are wrong")
		case offset != HeaderLength+f.BodyLength:
			r.fail("the sections do not tile the body")
		case f.Kind.judged() && repeats(f.Sections):
			r.fail("a stream has two sections")
		}
	}
	if len(r.b) != 0 {
		r.fail("bytes follow the footer's last entry")
	}
	if r.reason != "" {
		return Footer{}, corrupt(at, "%s", r.reason)
	}
	return f, nil
}

// shape says what is wrong with a footer's fixed part and number of sections.
func (f *Footer) shape(sections int) string {
	switch {
	case f.Kind.ofChain() != (f.Star != "") || len(f.Star) > maxStarBytes:
		return "the star's name does not fit the kind"
	case !f.Kind.ofChain() && (f.Epoch != 0 || f.Slot != 0):
		return "a settled object names a slot"
	case !f.Kind.judged() && f.Flight != [16]byte{}:
		return "an object without a flight names one"
	case f.Bundled && f.Kind != KindSlot:
		return "only a slot can be bundled"
	case (f.Kind == KindSeal) != (sections == 0):
		return "the number of sections does not fit the kind"
	case sections == 0 && f.BodyLength != 0:
		return "the sections do not tile the body"
	}
	return ""
}

// lists are the backing arrays of all sections' blocks and appends: two allocations
// whatever the number of sections. They never grow.
type lists struct {
	blocks  []Block
	appends []Append
}

func (r *reader) section(s *Section, kind Kind, offset int64, l *lists) {
	if b := r.bytes(8); b != nil {
		s.Stream = binary.LittleEndian.Uint64(b)
	}
	s.Offset = offset
	s.FirstOffset = r.uint(math.MaxUint64)
	s.Records = r.uint32()
	s.Bytes = r.payload(s.Records)
	s.FirstTimestamp, s.MaxTimestamp = r.timestamps(0)
	blocks := r.uint(uint64(cap(l.blocks) - len(l.blocks)))
	appends := r.uint(uint64(cap(l.appends) - len(l.appends)))
	if kind.judged() != (appends > 0) || kind.judged() && s.FirstOffset != 0 || s.FirstOffset > math.MaxUint64-uint64(s.Records) {
		r.fail("a section's appends or first offset do not fit the kind")
	}
	s.Blocks = r.blocks(blocks, s, l)
	if appends > 0 {
		s.Appends = r.appends(appends, s, l)
	}
}

func (r *reader) blocks(n uint64, s *Section, l *lists) []Block {
	from := len(l.blocks)
	ordinal := uint64(0)
	for ; n > 0 && r.reason == ""; n-- {
		b := Block{Offset: s.Offset + s.Length, Ordinal: uint32(ordinal)}
		b.Length = int64(r.uint(BlockHeaderLength + maxBlockRaw))
		b.Records = r.uint32()
		if crc := r.bytes(4); crc != nil {
			b.CRC = binary.LittleEndian.Uint32(crc)
		}
		if b.Length < BlockHeaderLength+1 || b.Records == 0 || ordinal+uint64(b.Records) > uint64(s.Records) {
			r.fail("a block is empty or does not fit its section")
		}
		s.Length += b.Length
		ordinal += uint64(b.Records)
		l.blocks = append(l.blocks, b)
	}
	if ordinal != uint64(s.Records) || s.Records == 0 {
		r.fail("the blocks do not tile their section")
	}
	return l.blocks[from:len(l.blocks):len(l.blocks)]
}

func (r *reader) appends(n uint64, s *Section, l *lists) []Append {
	from := len(l.appends)
	var count, bytes uint64
	largest := s.FirstTimestamp
	for ; n > 0 && r.reason == ""; n-- {
		var a Append
		a.Count = r.uint32()
		a.Bytes = r.payload(a.Count)
		a.FirstTimestamp, a.MaxTimestamp = r.timestamps(s.FirstTimestamp)
		flags := r.byte()
		if flags&^(flagExpected|flagProducer) != 0 {
			r.fail("an append has flags that version 1 does not know")
		}
		if a.HasExpected = flags&flagExpected != 0; a.HasExpected {
			a.Expected = r.uint(math.MaxUint64)
		}
		if a.HasProducer = flags&flagProducer != 0; a.HasProducer {
			a.Producer = Producer{ID: r.string(), Epoch: r.uint32(), Seq: r.uint(math.MaxUint64), Since: r.uint(math.MaxUint64)}
		}
		if a.Count == 0 || count == 0 && a.FirstTimestamp != s.FirstTimestamp {
			r.fail("an append is empty or does not fit its section")
		}
		count, bytes, largest = count+uint64(a.Count), bytes+a.Bytes, max(largest, a.MaxTimestamp)
		l.appends = append(l.appends, a)
	}
	if count != uint64(s.Records) || bytes != s.Bytes || largest != s.MaxTimestamp {
		r.fail("the appends do not tile their section")
	}
	return l.appends[from:len(l.appends):len(l.appends)]
}

// repeats says whether a stream has more than one section.
func repeats(sections []Section) bool {
	if len(sections) == 1 {
		return false
	}
	seen := make(map[uint64]struct{}, len(sections))
	for i := range sections {
		seen[sections[i].Stream] = struct{}{}
	}
	return len(seen) != len(sections)
}
