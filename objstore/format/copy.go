package format

// copyFrom is the raw size from which a block is copied as it is stored. Smaller ones are
// taken apart, so that the blocks of many small sources become few large ones.
const copyFrom = BlockTarget / 2

// AddBlocks adds to the section begun last the records with ordinals in [first, end) of
// blocks: the bytes of whole consecutive blocks of one section of the stream, as for
// [Decoder.Records], which d is used for. Each block is verified. A large one that lies
// wholly in the range is copied as it is stored, under a new header: compressing
// is most of what a rewrite would cost.
//
// It returns how many records were added, which the caller compares with what it
// wanted. Errors are those of Records; the object under way must then be dropped,
// since a part of the range may be in it.
func (w *Writer) AddBlocks(d *Decoder, blocks []byte, stream uint64, first, end uint32) (added uint32, err error) {
	var next uint32
	for at := int64(0); at < int64(len(blocks)); {
		h, payload, err := readBlock(blocks[at:], at)
		if err != nil {
			return added, err
		}
		switch {
		case h.stream != stream:
			return added, corrupt(at, "a block of stream %016x where %016x was expected", h.stream, stream)
		case at > 0 && h.ordinal != next:
			return added, corrupt(at, "a block begins with ordinal %d where %d was expected", h.ordinal, next)
		}
		raw, err := d.decode(h, payload, at)
		if err != nil {
			return added, err
		}
		if h.raw >= copyFrom && h.ordinal >= first && h.ordinal+h.records <= end {
			err = w.addBlock(h, payload, raw, at)
			added += h.records
		} else {
			err = records(h, raw, at, func(ordinal uint32, r Record) error {
				if ordinal >= first && ordinal < end {
					w.Add(r.Timestamp, r.Data)
					added++
				}
				return nil
			})
		}
		if err != nil {
			return added, err
		}
		next = h.ordinal + h.records
		at += BlockHeaderLength + int64(h.stored)
	}
	return added, nil
}

// addBlock adds a verified block as it is stored, after the open one. raw is its payload, decoded.
func (w *Writer) addBlock(h blockHeader, payload, raw []byte, at int64) error {
	if len(w.sections) == 0 {
		w.misuse("a block before the first section")
	}
	if w.kind.judged() {
		w.misuse("blocks are copied into settled objects alone, this is a %v", w.kind)
	}
	w.endBlock()
	if w.err != nil {
		return nil // Finish tells
	}
	s := &w.sections[len(w.sections)-1]
	bytes, latest := uint64(0), h.base
	err := records(h, raw, at, func(_ uint32, r Record) error {
		bytes += uint64(len(r.Data))
		latest = max(latest, r.Timestamp)
		return nil
	})
	if err != nil {
		return err
	}
	if s.Records == 0 {
		s.FirstTimestamp, s.MaxTimestamp = h.base, h.base
	}
	h.stream, h.ordinal = s.Stream, s.Records
	s.Records += h.records
	s.Bytes += bytes
	s.MaxTimestamp = max(s.MaxTimestamp, latest)
	w.putBlock(h, payload)
	return nil
}
