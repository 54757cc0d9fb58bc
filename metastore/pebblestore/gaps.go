package pebblestore

import (
	"github.com/tidwall/btree"
)

// gaps remembers where the newest view has no durable keys but many tombstones,
// so that the reads of a queue's front do not step over every marker that was ever
// resolved there: in an LSM tree that takes milliseconds for some 100,000 of them, and lasts
// until a compaction drops them.
//
// A read that had to step over many learns the gap. From then on the view's
// changes keep it true: a put cuts it, a delete next to it extends it. It is only a
// shortcut, forgotten at a restart and whenever it grows too large. All of it
// is guarded by views.mu and changes together with the view it describes.
type gaps struct {
	// known holds disjoint ranges, by start.
	known btree.Map[string, gap]

	// puts are the newest keys that were put, a ring, so that what a read learned from an
	// older view can be brought up to date.
	puts    []putAt
	oldest  int
	dropped uint64 // seq of the newest view of which the ring has lost a put
}

type gap struct {
	end string
	// cut tells that a put stands just before. The piece between two puts is given up, so
	// that a front with any number of keys behind it is two gaps, not one a key.
	cut bool
}

type putAt struct {
	seq uint64
	key string
}

const (
	// learnSteps tombstones in a row are worth remembering.
	learnSteps = 16
	maxGaps    = 4096
	maxPuts    = 4096
)

// skip returns the first place at or after start where a durable key may be.
func (g *gaps) skip(start string) string {
	if _, gp, ok := g.at(start); ok && gp.end > start {
		return gp.end
	}
	return start
}

// at returns the last gap that starts at or before key.
func (g *gaps) at(key string) (start string, gp gap, ok bool) {
	g.known.Descend(key, func(s string, v gap) bool {
		start, gp, ok = s, v, true
		return false
	})
	return start, gp, ok
}

// change keeps the gaps true across the change of a durable key by the view seq.
func (g *gaps) change(seq uint64, c change) {
	if c.put {
		if len(g.puts) < maxPuts {
			g.puts = append(g.puts, putAt{seq, c.key})
		} else {
			g.dropped = g.puts[g.oldest].seq
			g.puts[g.oldest] = putAt{seq, c.key}
			g.oldest = (g.oldest + 1) % maxPuts
		}
	}
	if g.known.Len() == 0 {
		return
	}
	start, gp, ok := g.at(c.key)
	switch {
	case !ok:
	case !c.put && gp.end == c.key:
		g.add(c.key, after(c.key))
	case c.put && gp.end > c.key:
		if gp.cut || start == c.key {
			g.known.Delete(start)
		} else {
			g.known.Set(start, gap{end: c.key})
		}
		if rest := after(c.key); rest < gp.end {
			g.known.Set(rest, gap{end: gp.end, cut: true})
		}
	}
}

// learn adds [start, end), which was empty in the view seq.
func (g *gaps) learn(seq uint64, start, end string) {
	if g.dropped > seq {
		return
	}
	for _, p := range g.puts {
		if p.seq > seq && p.key >= start && p.key < end {
			end = p.key
		}
	}
	if start < end {
		g.add(start, end)
	}
}

// add joins [start, end) with the gaps that it touches.
func (g *gaps) add(start, end string) {
	cut := false
	if s, gp, ok := g.at(start); ok && gp.end >= start {
		start, cut = s, gp.cut
	}
	var touched []string
	g.known.Ascend(start, func(s string, gp gap) bool {
		if s > end {
			return false
		}
		touched = append(touched, s)
		end = max(end, gp.end)
		return true
	})
	for _, s := range touched {
		g.known.Delete(s)
	}
	if g.known.Len() >= maxGaps {
		g.known.Clear()
	}
	g.known.Set(start, gap{end: end, cut: cut})
}

// after returns the smallest key above key.
func after(key string) string { return key + "\x00" }
