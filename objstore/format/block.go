package format

import (
	"encoding/binary"
	"fmt"
	"math"
)

// Block header, little-endian:
//
//	 0  2  magic "NB"
//	 2  1  codec
//	 3  1  zero
//	 4  4  records
//	 8  8  stream
//	16  4  ordinal of the first record
//	20  4  raw length
//	24  4  stored length
//	28  8  base timestamp
//	36  4  CRC32C of the stored payload
//	40  4  CRC32C of bytes 0–39
//
// The header has a checksum of its own, so that the lengths are known to be right
// before anything is read or allocated by them.
type blockHeader struct {
	codec   uint8
	records uint32
	stream  uint64
	ordinal uint32
	raw     uint32
	stored  uint32
	base    int64
	payload uint32
	crc     uint32 // of the header, the payload's included
}

const (
	blockMagic0 = 'N'
	blockMagic1 = 'B'
)

// appendBlock appends a block's header (its checksums are computed here) and payload.
func appendBlock(dst []byte, h *blockHeader, payload []byte) []byte {
	at := len(dst)
	h.stored, h.payload = uint32(len(payload)), checksum(payload)
	dst = append(dst, blockMagic0, blockMagic1, h.codec, 0)
	dst = binary.LittleEndian.AppendUint32(dst, h.records)
	dst = binary.LittleEndian.AppendUint64(dst, h.stream)
	dst = binary.LittleEndian.AppendUint32(dst, h.ordinal)
	dst = binary.LittleEndian.AppendUint32(dst, h.raw)
	dst = binary.LittleEndian.AppendUint32(dst, h.stored)
	dst = binary.LittleEndian.AppendUint64(dst, uint64(h.base))
	dst = binary.LittleEndian.AppendUint32(dst, h.payload)
	h.crc = checksum(dst[at:])
	dst = binary.LittleEndian.AppendUint32(dst, h.crc)
	return append(dst, payload...)
}

// readBlock verifies the block at the start of b, which lies at offset at, and returns
// its header and stored payload.
func readBlock(b []byte, at int64) (blockHeader, []byte, error) {
	if len(b) < BlockHeaderLength {
		return blockHeader{}, nil, corrupt(at, "a block header is cut after %d bytes", len(b))
	}
	h := blockHeader{
		codec:   b[2],
		records: binary.LittleEndian.Uint32(b[4:]),
		stream:  binary.LittleEndian.Uint64(b[8:]),
		ordinal: binary.LittleEndian.Uint32(b[16:]),
		raw:     binary.LittleEndian.Uint32(b[20:]),
		stored:  binary.LittleEndian.Uint32(b[24:]),
		base:    int64(binary.LittleEndian.Uint64(b[28:])),
		payload: binary.LittleEndian.Uint32(b[36:]),
		crc:     binary.LittleEndian.Uint32(b[40:]),
	}
	switch {
	case b[0] != blockMagic0 || b[1] != blockMagic1:
		return h, nil, corrupt(at, "no block begins here")
	case checksum(b[:40]) != h.crc:
		return h, nil, corrupt(at, "the checksum of a block header is wrong")
	case b[3] != 0:
		return h, nil, corrupt(at, "a block header's reserved byte is %d", b[3])
	case h.raw > maxBlockRaw || h.stored > h.raw || h.codec == storedID && h.stored != h.raw:
		return h, nil, corrupt(at, "a block header gives %d raw and %d stored bytes, codec %d", h.raw, h.stored, h.codec)
	case h.records == 0 || h.records > h.raw/minRecordLength || h.records > math.MaxUint32-h.ordinal:
		return h, nil, corrupt(at, "a block header gives %d records from ordinal %d in %d bytes", h.records, h.ordinal, h.raw)
	case uint64(len(b)) < BlockHeaderLength+uint64(h.stored):
		return h, nil, corrupt(at, "a block of %d bytes is cut after %d", BlockHeaderLength+h.stored, len(b))
	}
	payload := b[BlockHeaderLength : BlockHeaderLength+h.stored : BlockHeaderLength+h.stored]
	if checksum(payload) != h.payload {
		return h, nil, corrupt(at, "the checksum of a block's payload is wrong")
	}
	return h, payload, nil
}

// Decoder reads records from blocks. It keeps its buffers (at most one block's raw
// bytes) for the next call. Not for several goroutines at once.
type Decoder struct {
	raw  []byte
	zstd Codec // made at the first block that needs it
}

// NewDecoder returns a Decoder.
func NewDecoder() *Decoder { return &Decoder{} }

// Records calls fn for every record of blocks: the bytes of whole consecutive blocks of
// one section of the stream (a span's block-aligned range). A block is verified
// before fn sees its first record: its checksums, its stream, and that its ordinals
// follow those of the block before. ordinal counts from the section's start, so that the
// caller can skip what its span does not hold; which ordinals must be there only
// the caller knows (a range cut between two blocks looks whole). r.Data is valid
// only during fn. An error of fn ends the walk and is returned as it is.
//
// Errors: CorruptError, its offset counted from the start of blocks (InObject makes
// it the object's); ErrVersion for a codec that this program does not know.
func (d *Decoder) Records(blocks []byte, stream uint64, fn func(ordinal uint32, r Record) error) error {
	var next uint32
	for at := int64(0); at < int64(len(blocks)); {
		h, payload, err := readBlock(blocks[at:], at)
		if err != nil {
			return err
		}
		if h.stream != stream {
			return corrupt(at, "a block of stream %016x where %016x was expected", h.stream, stream)
		}
		if at > 0 && h.ordinal != next {
			return corrupt(at, "a block begins with ordinal %d where %d was expected", h.ordinal, next)
		}
		raw, err := d.decode(h, payload, at)
		if err != nil {
			return err
		}
		if err := records(h, raw, at, fn); err != nil {
			return err
		}
		next = h.ordinal + h.records
		at += BlockHeaderLength + int64(h.stored)
	}
	return nil
}

func (d *Decoder) decode(h blockHeader, payload []byte, at int64) ([]byte, error) {
	switch h.codec {
	case storedID:
		return payload, nil
	case zstdID:
		if d.zstd == nil {
			d.zstd = Zstd()
		}
		raw, err := d.zstd.Decode(d.raw[:0], payload, int(h.raw))
		d.raw = raw
		if err != nil {
			return nil, corrupt(at, "a block's payload does not decode: %v", err)
		}
		return raw, nil
	}
	return nil, fmt.Errorf("%w: block at byte %d has codec %d", ErrVersion, at, h.codec)
}

// records walks the raw bytes of one verified block: per record a varint timestamp
// delta to the record before (the first: to the base), a uvarint length, the data.
func records(h blockHeader, raw []byte, at int64, fn func(ordinal uint32, r Record) error) error {
	ts := h.base
	for i := uint32(0); i < h.records; i++ {
		delta, n := binary.Varint(raw)
		if n <= 0 {
			return corrupt(at, "record %d of a block has no timestamp", i)
		}
		size, m := binary.Uvarint(raw[n:])
		if m <= 0 || size > MaxRecordBytes || size > uint64(len(raw)-n-m) {
			return corrupt(at, "record %d of a block has no legal length", i)
		}
		ts += delta // wraps, as the writer's subtraction did
		end := n + m + int(size)
		if err := fn(h.ordinal+i, Record{Timestamp: ts, Data: raw[n+m : end : end]}); err != nil {
			return err
		}
		raw = raw[end:]
	}
	if len(raw) != 0 {
		return corrupt(at, "%d bytes follow the last record of a block", len(raw))
	}
	return nil
}
