package check

import (
	"slices"

	"github.com/nova-store/nova/catalog"
)

// What clients are told of trims, policies and creations is judged as what they are told of appends: what was acknowledged has
// happened between the call and the answer, and stays so until someone asks for something else.

// TrimAsk is a trim that a client has asked for.
type TrimAsk struct {
	id   catalog.StreamID
	upTo uint64
	from uint64 // the watermark when the client asked
}

// Trimming notes that a client is about to trim a stream up to an offset.
func (c *Checker) Trimming(id catalog.StreamID, upTo uint64) *TrimAsk {
	s := c.stream(id)
	a := &TrimAsk{id: id, upTo: upTo, from: s.mark.Watermark}
	s.trims = append(s.trims, a)
	return a
}

// Trimmed judges an answer: nothing below the offset is readable any more. The watermark never goes back, so that this holds for ever.
func (c *Checker) Trimmed(a *TrimAsk) {
	s := c.stream(a.id)
	if s.mark.Watermark < a.upTo {
		c.fail(Lost, catalog.MarkKey(a.id), "a trim up to %d was acknowledged, and the watermark is %d", a.upTo, s.mark.Watermark)
	}
	s.trimmedTo = max(s.trimmedTo, a.upTo)
	s.trims = slices.DeleteFunc(s.trims, func(b *TrimAsk) bool { return b.upTo <= s.trimmedTo })
}

// TrimRefused judges an answer that says that nothing happened: the watermark has not moved because of this, and will not.
func (c *Checker) TrimRefused(a *TrimAsk) {
	s := c.stream(a.id)
	s.trims = slices.DeleteFunc(s.trims, func(b *TrimAsk) bool { return a == b })
	w := s.mark.Watermark
	if w <= a.from || w != a.upTo || w <= s.trimTo() {
		return
	}
	if kept := s.mayKeep(c); w > kept {
		c.fail(Lost, catalog.MarkKey(a.id), "a trim up to %d was refused, and the watermark is there, for which nobody else asked; policy keeps what begins at %d", a.upTo, kept)
	}
}

// trimTo is the farthest trim that a client has asked for, and was not refused.
func (s *stream) trimTo() uint64 {
	to := s.trimmedTo
	for _, a := range s.trims {
		to = max(to, a.upTo)
	}
	return to
}

// mayKeep is the first offset that some clock may let the stream's policy keep, the one before this commit or the one after it.
func (s *stream) mayKeep(c *Checker) uint64 {
	now := c.w.Time().Add(c.timing.MaxClockSkew).UnixMilli()
	return max(s.ceil, s.kept(s.was.Policy, s.head.Bytes, now), s.kept(s.rec.Policy, s.head.Bytes, now))
}

// PolicyAsk is a policy that a client has asked for.
type PolicyAsk struct {
	id     catalog.StreamID
	policy catalog.Policy
	held   bool // the stream has had it since the client asked
	alone  bool // it came to have it when nobody else asked for it
}

// AskPolicy notes that a client is about to give a stream a policy.
func (c *Checker) AskPolicy(id catalog.StreamID, p catalog.Policy) *PolicyAsk {
	s := c.stream(id)
	a := &PolicyAsk{id: id, policy: p, held: s.active() && s.rec.Policy == p}
	s.asks = append(s.asks, a)
	return a
}

// PolicySet judges an answer: the stream has had the policy since the client asked, and will not have it again
// for this. What is not acknowledged may come to hold at any time.
func (c *Checker) PolicySet(a *PolicyAsk) {
	s := c.stream(a.id)
	if !a.held {
		c.fail(Lost, catalog.StreamKey(a.id), "the policy %+v was acknowledged, and the stream has not had it since it was asked for; it has %+v", a.policy, s.rec.Policy)
	}
	s.unask(a)
}

// PolicyRefused judges an answer that says that nothing happened: the stream has not had the policy because of this, and will not.
func (c *Checker) PolicyRefused(a *PolicyAsk) {
	s := c.stream(a.id)
	if a.alone {
		c.fail(Lost, catalog.StreamKey(a.id), "the policy %+v was refused, and the stream has had it, for which nobody else asked", a.policy)
	}
	s.unask(a)
}

func (s *stream) unask(a *PolicyAsk) {
	s.asks = slices.DeleteFunc(s.asks, func(b *PolicyAsk) bool { return a == b })
}

// judgePolicy is that a stream's policy changes to one that a client has asked for, who has had no answer yet.
func (c *Checker) judgePolicy(s *stream) {
	switch {
	case s.was.Name == "":
		s.born = s.rec.Policy
		return
	case s.was.Policy == s.rec.Policy:
		return
	}
	var asked []*PolicyAsk
	for _, a := range s.asks {
		if a.policy == s.rec.Policy {
			a.held, asked = true, append(asked, a)
		}
	}
	switch len(asked) {
	case 1:
		asked[0].alone = true
	case 0:
		c.fail(Lost, catalog.StreamKey(s.id), "the policy changes from %+v to %+v, for which nobody asks", s.was.Policy, s.rec.Policy)
	}
}

// CreateAsk is a stream that a client has asked for.
type CreateAsk struct {
	name   string
	policy catalog.Policy
	ids    []catalog.StreamID // that the name has led to since
}

// AskCreate notes that a client is about to make a stream. Created or Uncreated must be called once that is answered.
func (c *Checker) AskCreate(name string, p catalog.Policy) *CreateAsk {
	a := &CreateAsk{name: name, policy: p}
	if id, ok := c.names[name]; ok {
		a.ids = append(a.ids, id)
	}
	c.creating = append(c.creating, a)
	return a
}

// Uncreated ends what AskCreate began, without an answer that says that the stream is there.
func (c *Checker) Uncreated(a *CreateAsk) {
	c.creating = slices.DeleteFunc(c.creating, func(b *CreateAsk) bool { return a == b })
}

// Created judges an answer: the name has led to the stream since the client asked; and, if the call made it, it
// was made with the policy asked for.
func (c *Checker) Created(a *CreateAsk, id catalog.StreamID, created bool) {
	c.Uncreated(a)
	s := c.stream(id)
	switch {
	case !slices.Contains(a.ids, id):
		c.fail(Lost, catalog.NameKey(a.name), "its creation was acknowledged with stream %v, to which the name has not led since", id)
	case created && s.born != a.policy:
		c.fail(Lost, catalog.StreamKey(id), "it was made with the policy %+v, and %+v was asked for", s.born, a.policy)
	}
}
