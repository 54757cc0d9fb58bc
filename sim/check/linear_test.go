package check

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func at(n uint64) *uint64 { return &n }

// A search that would take too long is given up, always at the same move.
func TestUndecidedHistories(t *testing.T) {
	h := NewHistories()
	for range historyUnknown - 1 {
		h.Append("s", 1, nil).Unknown()
	}
	for i := range 20 {
		h.Append("s", 1, nil).Landed(uint64(i))
	}
	h.Look("s").Landed(99)
	stream, _, undecided := h.judge(1000)
	require.Empty(t, stream)
	require.Equal(t, 1, undecided)
	stream, _, undecided = h.Judge()
	require.Equal(t, "s", stream, "with more moves it is refuted")
	require.Zero(t, undecided)
}

// Histories that a log could have given, and such that none could.
func TestHistories(t *testing.T) {
	for name, c := range map[string]struct {
		play func(h *Histories)
		bad  bool
	}{
		"nothing": {play: func(*Histories) {}},
		"one after the other": {play: func(h *Histories) {
			h.Append("s", 2, nil).Landed(0)
			h.Look("s").Landed(2)
			h.Append("s", 3, at(2)).Landed(2)
			h.Append("s", 1, at(2)).Wrong()
			h.Look("s").Landed(5)
		}},
		"side by side, in the other order": {play: func(h *Histories) {
			a, b := h.Append("s", 2, nil), h.Append("s", 3, nil)
			a.Landed(3)
			b.Landed(0)
		}},
		"unknown, and it happened": {play: func(h *Histories) {
			h.Append("s", 2, nil).Unknown()
			h.Look("s").Landed(0)
			h.Look("s").Landed(2)
		}},
		"unknown, and it never happened": {play: func(h *Histories) {
			h.Append("s", 2, nil).Unknown()
			h.Append("s", 1, nil).Landed(0)
			h.Look("s").Landed(1)
		}},
		"two at one offset": {bad: true, play: func(h *Histories) { h.Append("s", 2, nil).Landed(0); h.Append("s", 2, nil).Landed(0) }},
		"acknowledged, and not seen": {bad: true, play: func(h *Histories) {
			h.Append("s", 2, nil).Landed(0)
			h.Look("s").Landed(0)
		}},
		"seen, and gone again": {bad: true, play: func(h *Histories) {
			h.Append("s", 2, nil).Unknown()
			h.Look("s").Landed(2)
			h.Look("s").Landed(0)
		}},
		"a retry that landed twice": {bad: true, play: func(h *Histories) {
			a := h.Append("s", 2, nil)
			a.Landed(0)
			h.Look("s").Landed(4)
		}},
		"at an offset that was not the end": {bad: true, play: func(h *Histories) {
			h.Append("s", 2, nil).Landed(0)
			h.Append("s", 1, at(1)).Landed(2)
		}},
		"refused, though it was the end": {bad: true, play: func(h *Histories) {
			h.Append("s", 2, nil).Landed(0)
			h.Append("s", 1, at(2)).Wrong()
		}},
		"refused, and there": {bad: true, play: func(h *Histories) {
			h.Append("s", 2, nil).Void()
			h.Look("s").Landed(2)
		}},
		"bad, but of a stream that was deleted": {play: func(h *Histories) {
			h.Append("s", 2, nil).Landed(7)
			h.Spoil("s")
		}},
		"what comes after the window": {play: func(h *Histories) {
			early := h.Append("s", 2, nil)
			for range historyOps {
				h.Append("s", 1, nil).Void()
			}
			early.Landed(1) // behind one that is not in the history
		}},
	} {
		h := NewHistories()
		c.play(h)
		stream, text, undecided := h.Judge()
		require.Zero(t, undecided, name)
		if !c.bad {
			require.Empty(t, text, name)
			continue
		}
		require.Equal(t, "s", stream, name)
		require.Contains(t, text, "no order of what clients were told", name)
	}
}
