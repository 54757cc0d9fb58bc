package check

// Forgetting keeps a long run from growing: of each stream the checker holds what its offsets hold for ever only
// as far down as that can still be told. An offset is forgotten once the watermark has passed it, no span holds it any
// more, and every read that began while one did has been judged. From then on a read that
// is given it fails by its floor, and a span that holds it fails by being there. Of the appends that are forgotten their
// number and a hash of their order remain, for the logical state.

// foldID takes the id of the next append into the hash of those before it.
func foldID(h, id uint64) uint64 {
	h = (h ^ id) * mixID
	return h ^ h>>32
}

// forget lets go of what of the stream cannot be told any more.
func (c *Checker) forget(s *stream) {
	if s.leaving > s.base && c.judgedUpTo(s.leavingSince) {
		c.drop(s)
	}
	if s.leaving > s.base {
		return
	}
	end := s.mark.Watermark
	if s.gone {
		end = s.next()
	}
	// Spans go in any order, and another takes the place of several: below the first that stands there is none.
	at := s.base
	for ; at < end; at++ {
		if _, ok := s.byFirst[at]; ok {
			break
		}
	}
	if s.leaving = at; at > s.base {
		s.leavingSince = c.began
		if c.judgedUpTo(c.began) {
			c.drop(s)
		}
	}
}

// judgedUpTo tells whether each of the first n reads has been judged.
func (c *Checker) judgedUpTo(n uint64) bool { return len(c.reads) == 0 || c.reads[0] > n }

// drop forgets the offsets below s.leaving.
func (c *Checker) drop(s *stream) {
	n := s.leaving - s.base
	for i := range s.content[:n] {
		r := &s.content[i]
		if r.index > 0 {
			continue
		}
		s.forgotten++
		s.forgottenHash = foldID(s.forgottenHash, r.id)
		if k := c.known[r.id]; k != nil && k.final {
			delete(c.known, r.id)
		} else if k != nil {
			k.forgotten = true
		}
	}
	s.below = s.sums[n-1]
	s.content, s.sums, s.base = s.content[n:], s.sums[n:], s.leaving
}

// Final notes that no try of an append is on its way any more, and that each was acknowledged: it will
// appear nowhere else. One whose outcome is unknown is known for ever.
func (c *Checker) Final(id uint64) {
	k := c.known[id]
	switch {
	case k == nil:
	case k.forgotten:
		delete(c.known, id)
	default:
		k.final = true
	}
}
