package catalog

import (
	"slices"

	"github.com/nova-store/nova/objstore/format"
)

// Code is an append's fate.
type Code uint8

// Fates of an append, judged in absorb from the records alone, so that the star
// and the settle duty give the same verdict.
const (
	// Accepted: the records are at First to Last.
	Accepted Code = iota + 1
	// Duplicate: the producer's last append again; First and Last are its offsets.
	Duplicate
	// DuplicateUnknown: an older append of the producer; its offsets are not known any more.
	DuplicateUnknown
	// NoStream: the stream is deleted or never was.
	NoStream
	// WrongOffset: the expected offset differs; Next is the stream's.
	WrongOffset
	// ProducerGap: the sequence leaves out Next.
	ProducerGap
	// ProducerFenced: the producer has a newer epoch.
	ProducerFenced
	// ProducerLost: the producer's state is not known any more; an earlier try may
	// have been absorbed: the outcome is unknown.
	ProducerLost
	// Unreadable: the stream's record or head does not decode, so that nothing can be judged by them. The
	// append is turned down, for as long as they are so: it was never acknowledged, whoever absorbs it, and
	// to wait for a repair would hold back every other stream of its slot, and the whole chain behind it.
	Unreadable
)

func (c Code) String() string {
	names := [...]string{"", "accepted", "duplicate", "duplicate-unknown", "no-stream", "wrong-offset",
		"producer-gap", "producer-fenced", "producer-lost", "unreadable"}
	if int(c) < len(names) {
		return names[c]
	}
	return "unknown"
}

// Verdict is what became of an append.
type Verdict struct {
	Code        Code
	First, Last uint64 // offsets of its records
	Next        uint64 // the stream's next offset, or the producer's next sequence
}

// judge decides one append against a stream's records, and on acceptance moves the
// head. Producers come first: a duplicate is answered whatever offset it expects.
func judge(stream *Stream, h *Head, a *format.Append) Verdict {
	if stream == nil || stream.State != StreamActive {
		return Verdict{Code: NoStream}
	}
	at := -1
	if a.HasProducer {
		v, i := judgeProducer(h, &a.Producer)
		if v.Code != Accepted {
			return v
		}
		at = i
	}
	if a.HasExpected && a.Expected != h.Next {
		return Verdict{Code: WrongOffset, Next: h.Next}
	}
	v := Verdict{Code: Accepted, First: h.Next, Last: h.Next + uint64(a.Count) - 1}
	h.Next += uint64(a.Count)
	h.Bytes += a.Bytes
	h.MaxTimestamp = max(h.MaxTimestamp, a.MaxTimestamp)
	if a.HasProducer {
		h.remember(at, ProducerState{a.Producer.ID, a.Producer.Epoch, a.Producer.Seq, v.First, v.Last})
	}
	return v
}

// judgeProducer accepts the producer's last sequence + 1, or 0 of a new epoch or a
// new producer. A producer that the head does not know is new only if none was
// evicted since it first looked: else an earlier try of this very append may have
// been absorbed and forgotten.
func judgeProducer(h *Head, p *format.Producer) (Verdict, int) {
	i := slices.IndexFunc(h.Producers, func(s ProducerState) bool { return s.ID == p.ID })
	if i < 0 {
		if p.Seq != 0 || h.EvictedUpTo > p.Since {
			return Verdict{Code: ProducerLost}, i
		}
		return Verdict{Code: Accepted}, i
	}
	s := &h.Producers[i]
	switch {
	case p.Epoch < s.Epoch:
		return Verdict{Code: ProducerFenced}, i
	case p.Epoch > s.Epoch && p.Seq == 0, p.Epoch == s.Epoch && p.Seq == s.Seq+1:
		return Verdict{Code: Accepted}, i
	case p.Epoch > s.Epoch:
		return Verdict{Code: ProducerGap, Next: 0}, i
	case p.Seq == s.Seq:
		return Verdict{Code: Duplicate, First: s.First, Last: s.Last}, i
	case p.Seq < s.Seq:
		return Verdict{Code: DuplicateUnknown}, i
	}
	return Verdict{Code: ProducerGap, Next: s.Seq + 1}, i
}

// remember makes the producer the most recent one; at is where it stood, or -1.
// Beyond MaxProducers the least recent is evicted.
func (h *Head) remember(at int, p ProducerState) {
	if at >= 0 {
		h.Producers = slices.Delete(h.Producers, at, at+1)
	}
	if len(h.Producers) >= MaxProducers {
		h.EvictedUpTo = max(h.EvictedUpTo, h.Producers[0].Last+1)
		h.Producers = slices.Delete(h.Producers, 0, 1)
	}
	h.Producers = append(h.Producers, p)
}

// clone copies what judging may change.
func (h *Head) clone() Head {
	c := *h
	c.Chains = slices.Clone(h.Chains)
	c.Producers = slices.Clone(h.Producers)
	return c
}
