package catalog

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/nova-store/nova/objstore/format"
)

// judgeModel is what a stream's producers and offsets should be, written from the
// design's words alone: all appends ever accepted, and when each producer was last heard.
type judgeModel struct {
	next    uint64
	heard   []string // producers remembered, least recently used first
	appends map[string][]modelAppend
	evicted int64 // largest last offset of any producer evicted; -1: none was
}

type modelAppend struct {
	epoch       uint32
	seq         uint64
	first, last uint64
}

func (m *judgeModel) judge(a *format.Append) Verdict {
	known := false
	if a.HasProducer {
		for _, id := range m.heard {
			known = known || id == a.Producer.ID
		}
		switch p := a.Producer; {
		case !known && (p.Seq != 0 || m.evicted >= int64(p.Since)):
			return Verdict{Code: ProducerLost}
		case known:
			last := m.appends[p.ID][len(m.appends[p.ID])-1]
			switch {
			case p.Epoch < last.epoch:
				return Verdict{Code: ProducerFenced}
			case p.Epoch > last.epoch && p.Seq != 0:
				return Verdict{Code: ProducerGap}
			case p.Epoch == last.epoch && p.Seq == last.seq:
				return Verdict{Code: Duplicate, First: last.first, Last: last.last}
			case p.Epoch == last.epoch && p.Seq < last.seq:
				return Verdict{Code: DuplicateUnknown}
			case p.Epoch == last.epoch && p.Seq > last.seq+1:
				return Verdict{Code: ProducerGap, Next: last.seq + 1}
			}
		}
	}
	if a.HasExpected && a.Expected != m.next {
		return Verdict{Code: WrongOffset, Next: m.next}
	}
	v := Verdict{Code: Accepted, First: m.next, Last: m.next + uint64(a.Count) - 1}
	m.next += uint64(a.Count)
	if !a.HasProducer {
		return v
	}
	id := a.Producer.ID
	var heard []string
	for _, h := range m.heard {
		if h != id {
			heard = append(heard, h)
		}
	}
	if len(heard) == 64 {
		gone := heard[0]
		heard = heard[1:]
		m.evicted = max(m.evicted, int64(m.appends[gone][len(m.appends[gone])-1].last))
		delete(m.appends, gone)
	}
	m.heard = append(heard, id)
	m.appends[id] = append(m.appends[id], modelAppend{a.Producer.Epoch, a.Producer.Seq, v.First, v.Last})
	return v
}

func TestJudgeAgainstModel(t *testing.T) {
	seen := make(map[Code]int)
	rapid.Check(t, func(t *rapid.T) {
		m := &judgeModel{appends: make(map[string][]modelAppend), evicted: -1}
		h := &Head{}
		stream := &Stream{State: StreamActive}
		producers := rapid.SampledFrom([]int{3, 70}).Draw(t, "producers")
		// More producers than are remembered, so that some are forgotten early on.
		for i := range producers - 3 {
			a := format.Append{Count: 1, HasProducer: true, Producer: format.Producer{ID: fmt.Sprint("p", i), Since: m.next}}
			require.Equal(t, m.judge(&a), judge(stream, h, &a))
		}
		for range rapid.IntRange(1, 60).Draw(t, "appends") {
			a := format.Append{Count: rapid.Uint32Range(1, 5).Draw(t, "count"), Bytes: 10, MaxTimestamp: rapid.Int64Range(0, 9).Draw(t, "ts")}
			if a.HasExpected = rapid.IntRange(0, 3).Draw(t, "conditional") == 0; a.HasExpected {
				a.Expected = m.next + rapid.SampledFrom([]uint64{0, 0, 1, math.MaxUint64}).Draw(t, "off")
			}
			if a.HasProducer = rapid.IntRange(0, 4).Draw(t, "idempotent") > 0; a.HasProducer {
				p := &a.Producer
				p.ID = fmt.Sprint("p", rapid.IntRange(0, producers-1).Draw(t, "producer"))
				p.Since = rapid.Uint64Range(0, m.next).Draw(t, "since")
				if past := m.appends[p.ID]; len(past) > 0 {
					last := past[len(past)-1]
					p.Epoch = uint32(max(int(last.epoch)+rapid.IntRange(-1, 1).Draw(t, "epoch"), 0))
					p.Seq = uint64(max(int(last.seq)+rapid.IntRange(-2, 2).Draw(t, "seq"), 0))
				} else {
					p.Seq = rapid.Uint64Range(0, 1).Draw(t, "seq")
				}
				if rapid.IntRange(0, 9).Draw(t, "fresh") == 0 {
					p.Seq = 0
				}
			}
			want := m.judge(&a)
			got := judge(stream, h, &a)
			require.Equal(t, want, got, "%+v", a)
			require.Equal(t, m.next, h.Next)
			require.LessOrEqual(t, len(h.Producers), MaxProducers)
			require.Equal(t, len(m.heard), len(h.Producers))
			for i, id := range m.heard {
				require.Equal(t, id, h.Producers[i].ID)
			}
			require.Equal(t, uint64(m.evicted+1), h.EvictedUpTo)
			seen[got.Code]++
		}
	})
	for c := Accepted; c <= ProducerLost; c++ {
		if c != NoStream {
			require.NotZero(t, seen[c], "no append was ever judged %v", c)
		}
	}
}

// The 65th producer makes the first forgotten; what that one sends again is not
// taken for new, unless it began after all that was forgotten.
func TestEvictionOfProducers(t *testing.T) {
	h, stream := &Head{}, &Stream{State: StreamActive}
	first := func(i int, since uint64) *format.Append {
		return &format.Append{Count: 2, HasProducer: true, Producer: format.Producer{ID: fmt.Sprint(i), Since: since}}
	}
	for i := range MaxProducers {
		require.Equal(t, Accepted, judge(stream, h, first(i, 0)).Code)
	}
	require.Zero(t, h.EvictedUpTo)
	require.Equal(t, Verdict{Code: Duplicate, First: 0, Last: 1}, judge(stream, h, first(0, 0)))

	require.Equal(t, Accepted, judge(stream, h, first(MaxProducers, 0)).Code)
	require.Len(t, h.Producers, MaxProducers)
	require.Equal(t, uint64(2), h.EvictedUpTo, "producer 0 held offsets 0 and 1")

	require.Equal(t, ProducerLost, judge(stream, h, first(0, 0)).Code, "its first try may have been absorbed")
	require.Equal(t, ProducerLost, judge(stream, h, first(0, 1)).Code)
	next := h.Next
	require.Equal(t, Verdict{Code: Accepted, First: next, Last: next + 1}, judge(stream, h, first(0, 2)))
	require.Equal(t, uint64(4), h.EvictedUpTo, "now producer 1 is gone, with offsets 2 and 3")

	// An append keeps its producer from being forgotten.
	again := first(2, 0)
	again.Producer.Seq = 1
	require.Equal(t, Accepted, judge(stream, h, again).Code)
	require.Equal(t, Accepted, judge(stream, h, first(1000, h.Next)).Code)
	require.Equal(t, "4", h.Producers[0].ID, "3 went, not 2")
}

func TestJudgeMovesTheHead(t *testing.T) {
	h, stream := &Head{Next: 7, Bytes: 100, MaxTimestamp: 50}, &Stream{State: StreamActive}
	a := &format.Append{Count: 3, Bytes: 11, MaxTimestamp: 40}
	require.Equal(t, Verdict{Code: Accepted, First: 7, Last: 9}, judge(stream, h, a))
	require.Equal(t, &Head{Next: 10, Bytes: 111, MaxTimestamp: 50}, h, "the largest timestamp never goes back")
	a.MaxTimestamp = 60
	judge(stream, h, a)
	require.Equal(t, int64(60), h.MaxTimestamp)

	before := *h
	for _, s := range []*Stream{nil, {State: StreamDeleted}, {State: StreamTearing}} {
		require.Equal(t, Verdict{Code: NoStream}, judge(s, h, a))
	}
	wrong := &format.Append{Count: 1, HasExpected: true, Expected: 12}
	require.Equal(t, Verdict{Code: WrongOffset, Next: 13}, judge(stream, h, wrong))
	require.Equal(t, before, *h, "what is turned down moves nothing")

	// A turned-down append of a producer leaves its state: the retry is no duplicate.
	wrong.HasProducer, wrong.Producer.ID = true, "p"
	require.Equal(t, WrongOffset, judge(stream, h, wrong).Code)
	wrong.Expected = 13
	require.Equal(t, Accepted, judge(stream, h, wrong).Code)
	require.Equal(t, Verdict{Code: Duplicate, First: 13, Last: 13}, judge(stream, h, wrong), "whatever offset it expects")
}

func TestHeadCloneIsDeep(t *testing.T) {
	h := Head{Chains: []ChainLast{{ChainID{"a", 1}, 2}}, Producers: []ProducerState{{ID: "p"}, {ID: "q"}}}
	c := h.clone()
	c.setLast(ChainID{"a", 1}, 9)
	c.setLast(ChainID{"b", 1}, 1)
	c.remember(0, ProducerState{ID: "p", Seq: 5})
	require.Equal(t, Head{Chains: []ChainLast{{ChainID{"a", 1}, 2}}, Producers: []ProducerState{{ID: "p"}, {ID: "q"}}}, h)
	require.Equal(t, []ChainLast{{ChainID{"a", 1}, 9}, {ChainID{"b", 1}, 1}}, c.Chains)
}

func TestCodesHaveNames(t *testing.T) {
	seen := make(map[string]bool)
	for c := Accepted; c <= ProducerLost; c++ {
		require.NotEmpty(t, c.String())
		require.False(t, seen[c.String()])
		seen[c.String()] = true
	}
	require.Equal(t, "unknown", Code(99).String())
}
