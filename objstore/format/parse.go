package format

import (
	"encoding/binary"
	"fmt"
)

func versionError(v uint8) error {
	return fmt.Errorf("%w: format version %d, this program knows %d", ErrVersion, v, Version)
}

func kindError(k Kind, flags byte) error {
	return fmt.Errorf("%w: %v with flags %#x", ErrVersion, k, flags)
}

// Parse reads the footer of a whole object and verifies everything: the checksums of
// header, footer, trailer and every block, that the blocks tile the body and are what the
// footer says. Records are not decoded. Of a bundled slot it sees only the index; its
// bundle is an object of its own.
//
// Errors: CorruptError; ErrVersion for bytes that are intact but unknown here.
func Parse(object []byte) (Footer, error) {
	kind, err := readHeader(object)
	if err != nil {
		return Footer{}, err
	}
	size := int64(len(object))
	f, need, err := ParseTail(size, object)
	switch {
	case err != nil:
		return Footer{}, err
	case need > 0: // not reached: the whole object is at hand
		return Footer{}, corrupt(size, "the footer begins before the object")
	case f.Kind != kind:
		return Footer{}, corrupt(0, "the header says %v, the footer %v", kind, f.Kind)
	case f.Bundled:
		return f, nil
	}
	for i := range f.Sections {
		s := &f.Sections[i]
		for _, b := range s.Blocks {
			h, _, err := readBlock(object[b.Offset:b.Offset+b.Length], b.Offset)
			if err != nil {
				return Footer{}, err
			}
			if h.stream != s.Stream || h.ordinal != b.Ordinal || h.records != b.Records ||
				h.crc != b.CRC || BlockHeaderLength+int64(h.stored) != b.Length {
				return Footer{}, corrupt(b.Offset, "a block is not the one that the footer names")
			}
		}
	}
	return f, nil
}

func readHeader(object []byte) (Kind, error) {
	if len(object) < HeaderLength {
		return 0, corrupt(0, "the object is cut after %d bytes", len(object))
	}
	switch {
	case string(object[:4]) != "NOVA":
		return 0, corrupt(0, "no object of this format begins here")
	case checksum(object[:8]) != binary.LittleEndian.Uint32(object[8:]):
		return 0, corrupt(0, "the checksum of the header is wrong")
	case object[4] != Version:
		return 0, versionError(object[4])
	case object[6] != 0 || object[7] != 0:
		return 0, corrupt(0, "the header's reserved bytes are not zero")
	}
	return Kind(object[5]), nil
}

// ParseTail reads the footer from the last bytes of an object of the given size, as a
// ranged reader does: first with TailLength bytes, or the whole object if that is smaller.
// need > 0 says that this many last bytes are needed: read them and call again; a call with
// as many as were asked for asks at most once more. Header and blocks are not looked at; a Decoder verifies the
// blocks that it reads.
//
// Errors as with Parse; offsets are the object's.
func ParseTail(size int64, tail []byte) (f Footer, need int64, err error) {
	have := int64(len(tail))
	if have > size {
		return Footer{}, 0, fmt.Errorf("format: a tail of %d bytes of an object of %d", have, size)
	}
	if size < HeaderLength+TrailerLength || size > MaxObjectBytes {
		return Footer{}, 0, corrupt(0, "an object cannot have %d bytes", size)
	}
	if have < TrailerLength {
		return Footer{}, min(size, TailLength), nil
	}
	trailer := tail[have-TrailerLength:]
	if string(trailer[12:]) != "nova" || checksum(trailer[:8]) != binary.LittleEndian.Uint32(trailer[8:]) {
		return Footer{}, 0, corrupt(size-TrailerLength, "no trailer ends the object: it is cut, or its last bytes are damaged")
	}
	length := int64(binary.LittleEndian.Uint32(trailer))
	at := size - TrailerLength - length
	if length > MaxFooterBytes || at < HeaderLength {
		return Footer{}, 0, corrupt(size-TrailerLength, "the trailer gives a footer of %d bytes", length)
	}
	if have < TrailerLength+length {
		return Footer{}, TrailerLength + length, nil
	}
	footer := tail[have-TrailerLength-length : have-TrailerLength]
	if checksum(footer) != binary.LittleEndian.Uint32(trailer[4:]) {
		return Footer{}, 0, corrupt(at, "the checksum of the footer is wrong")
	}
	f, err = readFooter(footer, at)
	if err != nil {
		return Footer{}, 0, err
	}
	body := f.BodyLength
	if f.Bundled {
		body = 0
	}
	if at != HeaderLength+body {
		return Footer{}, 0, corrupt(at, "the footer begins here and not after a body of %d bytes", body)
	}
	return f, 0, nil
}
