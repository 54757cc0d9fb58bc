package check

import (
	"encoding/binary"

	"github.com/cespare/xxhash/v2"
)

// PayloadMin is the smallest record that says which append it belongs to.
const PayloadMin = 20

// AppendPayload appends record index of count of the append id to dst: size bytes, at least
// PayloadMin. Every record of a run is unlike every other, so that one that
// appears twice, or was never sent, is told by its bytes.
func AppendPayload(dst []byte, id uint64, index, count uint32, size int) []byte {
	at := len(dst)
	dst = binary.LittleEndian.AppendUint64(dst, id)
	dst = binary.LittleEndian.AppendUint32(dst, index)
	dst = binary.LittleEndian.AppendUint32(dst, count)
	x := id*0x9e3779b97f4a7c15 + uint64(index)
	for len(dst)-at < size-4 {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		dst = append(dst, byte(x>>32))
	}
	return binary.LittleEndian.AppendUint32(dst, uint32(xxhash.Sum64(dst[at:])))
}

// parsePayload reads the header of a record, and checks the sum of its bytes.
func parsePayload(b []byte) (id uint64, index, count uint32, ok bool) {
	if len(b) < PayloadMin {
		return 0, 0, 0, false
	}
	n := len(b) - 4
	if binary.LittleEndian.Uint32(b[n:]) != uint32(xxhash.Sum64(b[:n])) {
		return 0, 0, 0, false
	}
	return binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint32(b[8:]), binary.LittleEndian.Uint32(b[12:]), true
}

// recordID tells records apart: their append and their place in it.
type recordID struct {
	id    uint64
	index uint32
	count uint32
}

// record is what an offset holds for ever.
type record struct {
	recordID
	timestamp int64
	size      uint32 // of its payload
}
