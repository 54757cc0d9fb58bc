package soak

import (
	"bytes"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
)

// identity is what a record says of itself: no two records of a run have the same one.
type identity struct {
	Stream uint32 // number of the stream, from 1; one that is made again under an old name has a new number
	Client uint32 // who appended it
	Seq    uint64 // the client's how-manieth record of that stream, from 0
}

func (id identity) String() string {
	return fmt.Sprintf("record %d of client %d of stream %d", id.Seq, id.Client, id.Stream)
}

// Sizes of records' payloads, in bytes: most are small, some large enough to leave the slot for a bundle.
const (
	smallRecord  = 1200
	mediumRecord = 24 << 10
	largeRecord  = 400 << 10
	mediumOneIn  = 100
	largeOneIn   = 2000
	leastRecord  = 80
)

const filling = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"

// payload is the one text that a record of that identity may have in the run of that seed: a heading for
// people and for parse, the checksum of all that follows it, and filling that depends on the identity.
func payload(seed uint64, id identity) []byte {
	r := rand.New(rand.NewPCG(seed^uint64(id.Stream)<<32^uint64(id.Client), id.Seq))
	size := leastRecord + r.IntN(smallRecord)
	switch n := r.IntN(largeOneIn); {
	case n == 0:
		size += largeRecord/2 + r.IntN(largeRecord/2)
	case n < largeOneIn/mediumOneIn:
		size += r.IntN(mediumRecord)
	}
	filler := make([]byte, size)
	for i := 0; i < size; {
		for bits, left := r.Uint64(), 10; left > 0 && i < size; i, left, bits = i+1, left-1, bits>>6 {
			filler[i] = filling[bits&63]
		}
	}
	head := fmt.Sprintf("soak stream=%d client=%d seq=%d crc=%08x ", id.Stream, id.Client, id.Seq, crc32.Checksum(filler, crc32.MakeTable(crc32.Castagnoli)))
	return append([]byte(head), filler...)
}

// parse reads whose record a payload is, and refuses one that differs by a byte from what was to be appended.
func parse(seed uint64, data []byte) (identity, error) {
	var id identity
	var crc uint32
	if _, err := fmt.Sscanf(string(data[:min(len(data), 100)]), "soak stream=%d client=%d seq=%d crc=%08x ", &id.Stream, &id.Client, &id.Seq, &crc); err != nil {
		return id, fmt.Errorf("%d bytes are no record of a soak: %.60q", len(data), data)
	}
	if !bytes.Equal(data, payload(seed, id)) {
		return id, fmt.Errorf("%v has other bytes than were appended", id)
	}
	return id, nil
}
