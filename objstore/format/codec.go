package format

import (
	"fmt"
	"slices"

	"github.com/klauspost/compress/zstd"
)

// Codec compresses blocks. It is injected into a Writer; a Decoder knows them all by
// their ids. Implementations may be used by several goroutines at once.
type Codec interface {
	// ID is the byte that blocks carry.
	ID() uint8
	// Encode appends the encoding of src to dst.
	Encode(dst, src []byte) []byte
	// Decode appends the size bytes that src decodes to to dst. Anything but exactly size
	// bytes is an error; it never allocates in proportion to more than size.
	Decode(dst, src []byte, size int) ([]byte, error)
}

// Codec ids, as they are in the bytes.
const (
	storedID = 0
	zstdID   = 1
)

// Stored returns the codec that leaves bytes as they are.
func Stored() Codec { return stored{} }

type stored struct{}

func (stored) ID() uint8 { return storedID }

func (stored) Encode(dst, src []byte) []byte { return append(dst, src...) }

func (stored) Decode(dst, src []byte, size int) ([]byte, error) {
	if len(src) != size {
		return dst, fmt.Errorf("%d bytes stored, %d expected", len(src), size)
	}
	return append(dst, src...), nil
}

// Zstd returns a zstd codec. Its state is made once and shared by its users, who wait
// for one another: give each busy task its own.
func Zstd() Codec {
	enc, err := zstd.NewWriter(nil,
		zstd.WithEncoderLevel(zstd.SpeedFastest),
		zstd.WithEncoderConcurrency(1), // EncodeAll in the caller's goroutine alone
		zstd.WithEncoderCRC(false),     // blocks have their own
		zstd.WithSingleSegment(true),   // the decoder needs no window beside its output
		zstd.WithLowerEncoderMem(true))
	if err != nil {
		panic("format: zstd refuses constant encoder options: " + err.Error())
	}
	dec, err := zstd.NewReader(nil,
		zstd.WithDecoderConcurrency(1),
		zstd.WithDecoderLowmem(true),
		zstd.WithDecoderMaxMemory(maxBlockRaw),
		zstd.WithDecodeAllCapLimit(true)) // never past the size that Decode was told
	if err != nil {
		panic("format: zstd refuses constant decoder options: " + err.Error())
	}
	return &zstdCodec{enc: enc, dec: dec}
}

type zstdCodec struct {
	enc *zstd.Encoder
	dec *zstd.Decoder
}

func (*zstdCodec) ID() uint8 { return zstdID }

func (c *zstdCodec) Encode(dst, src []byte) []byte { return c.enc.EncodeAll(src, dst) }

func (c *zstdCodec) Decode(dst, src []byte, size int) ([]byte, error) {
	n := len(dst)
	dst = slices.Grow(dst, size)
	out, err := c.dec.DecodeAll(src, dst[:n:n+size])
	if err != nil {
		return dst, fmt.Errorf("zstd: %w", err)
	}
	if len(out) != n+size {
		return dst, fmt.Errorf("zstd: %d bytes decoded, %d expected", len(out)-n, size)
	}
	return out, nil
}
