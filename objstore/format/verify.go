package format

// Tally is what the blocks of a range hold, whole: [First, End) are their ordinals in
// the section, Raw their records' bytes with framing, before compression.
type Tally struct {
	First, End uint32
	Blocks     int
	Raw        int64
}

// VerifyBlocks verifies whole consecutive blocks of one section of the stream, as
// [Decoder.Records] would, without decoding them: what a reader of a range knows
// before it takes anything from it. The one thing that is left to the decoding is
// what a writer got wrong before it made the checksums.
//
// Errors: CorruptError, its offset counted from the start of blocks; also for no bytes at all.
func VerifyBlocks(blocks []byte, stream uint64) (Tally, error) {
	var t Tally
	if len(blocks) == 0 {
		return t, corrupt(0, "no block is there")
	}
	for at := int64(0); at < int64(len(blocks)); {
		h, _, err := readBlock(blocks[at:], at)
		switch {
		case err != nil:
			return t, err
		case h.stream != stream:
			return t, corrupt(at, "a block of stream %016x where %016x was expected", h.stream, stream)
		case at == 0:
			t.First = h.ordinal
		case h.ordinal != t.End:
			return t, corrupt(at, "a block begins with ordinal %d where %d was expected", h.ordinal, t.End)
		}
		t.End = h.ordinal + h.records
		t.Blocks++
		t.Raw += int64(h.raw)
		at += BlockHeaderLength + int64(h.stored)
	}
	return t, nil
}
