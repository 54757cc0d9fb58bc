package soak

import (
	"context"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/nova-store/nova/api"
)

// place is a name, and what becomes of the streams that have it one after the other.
type place struct {
	name      string
	trims     bool          // it is trimmed now and then
	maxBytes  uint64        // its policy
	lifetime  time.Duration // about how long its streams live; 0: to the end. Then the name is used again, and a further client goes by it
	producers int           // idempotent clients
	plain     int           // others
}

// places are all that is written to. What is kept for ever is a small part, so that a long run needs little space.
func places() []place {
	return []place{
		{name: "kept/1", producers: 2, plain: 1},
		{name: "kept/2", producers: 1},
		{name: "trimmed/1", trims: true, producers: 2, plain: 2},
		{name: "trimmed/2", trims: true, producers: 1, plain: 1},
		{name: "bounded/1", maxBytes: 256 << 10, producers: 2, plain: 1},
		{name: "bounded/2", maxBytes: 2 << 20, producers: 1, plain: 1},
		{name: "fleeting/1", lifetime: 10 * time.Second, producers: 1, plain: 1},
		{name: "fleeting/2", lifetime: 20 * time.Second, producers: 1, plain: 1},
		{name: "fleeting/3", lifetime: 40 * time.Second, trims: true, producers: 1, plain: 1},
		{name: "fleeting/4", lifetime: 60 * time.Second, maxBytes: 64 << 10, producers: 1, plain: 1},
	}
}

// trimEvery is about how long a trimmed stream is left alone.
const trimEvery = 6 * time.Second

func writers(ps []place) (n int) {
	for _, p := range ps {
		n += p.producers + p.plain
		if p.lifetime > 0 {
			n++ // the one that goes by its name
		}
	}
	return n
}

// task makes a client whose chance is its own.
func (s *soak) task(name string, number uint32) task {
	h := fnv.New64a()
	fmt.Fprint(h, name)
	return task{s: s, r: rand.New(rand.NewPCG(s.o.Seed^h.Sum64(), uint64(number)))}
}

// undeleteWindow is --undelete-window of the nodes.
const undeleteWindow = 8 * time.Second

// inhabit makes the streams of a place, one after the other, until ctx ends; the last one stays.
func (s *soak) inhabit(ctx context.Context, p place, tn *town) {
	t := s.task(p.name, 0)
	for ctx.Err() == nil {
		l := s.create(&t, p, tn)
		if l == nil {
			return
		}
		for life, back := uint32(0), true; back; life++ {
			until, deleted := s.live(ctx, &t, p, tn, l, life)
			if !deleted {
				return
			}
			s.mourn(&t, l)
			if back = t.r.IntN(2) == 0 && s.undelete(&t, tn, l, until); !back {
				s.bury(tn, l)
			}
		}
	}
}

// create makes a stream, also where the run's time is over meanwhile: who goes by its name may have appended to it.
func (s *soak) create(t *task, p place, tn *town) *ledger {
	var made api.Stream
	ok, _ := t.insist(s.hard, "creating a stream", func(ctx context.Context, c *api.Client) (err error) {
		made, _, err = c.CreateStream(ctx, p.name, &api.Policy{MaxBytes: p.maxBytes})
		return err
	})
	if !ok {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ids[made.ID] {
		s.surpriseLocked("the id %s was given to a stream before", made.ID)
	}
	s.ids[made.ID] = true
	l := newLedger(s.o.Seed, uint32(len(s.ids)), p.name, "id:"+made.ID, p.maxBytes)
	l.journal = s.world.journal
	l.journal.printf("made stream %d (%s, %s)", l.number, l.name, l.id)
	s.ledgers = append(s.ledgers, l)
	tn.found(l)
	return l
}

// deletePatience bounds how long nothing may come of a read while everything goes wrong.
const deletePatience = 2 * time.Minute

// live lets clients use a stream until ctx ends, or deletes it when its time has come: under their hands, or, as often, after they
// have all stopped and one has read it to its end. They have all ended when it returns. Until is when an undelete may fail; zero: not known.
func (s *soak) live(ctx context.Context, t *task, p place, tn *town, l *ledger, life uint32) (until time.Time, deleted bool) {
	using, cancel := context.WithCancel(ctx)
	defer cancel()
	var users sync.WaitGroup
	defer users.Wait()
	chance := func(who string, client uint32) task {
		return s.task(fmt.Sprintf("%s %s of life %d", p.name, who, life), l.number<<8|client)
	}
	for i := range p.producers + p.plain {
		client := uint32(i + 1)
		w := &writer{task: chance("writer", client), l: l, client: client, every: s.every, plain: i >= p.producers}
		users.Go(func() { w.run(using) })
	}
	f := &follower{task: chance("follower", 0), l: l}
	users.Go(func() { f.run(using) })
	if p.trims {
		t := chance("trimmer", 0)
		users.Go(func() { s.trimmer(using, &t, l) })
	}
	if p.lifetime == 0 {
		return until, false
	}
	sleep(ctx, p.lifetime/2+time.Duration(t.r.Int64N(int64(p.lifetime))))
	if t.r.IntN(2) == 0 {
		cancel()
		users.Wait()
		if err := s.readBefore(ctx, *t, tn, l); err != nil {
			return until, false // the time is over
		}
	}
	if ctx.Err() != nil {
		return until, false
	}
	defer cancel() // before the wait, and after the deletion
	return s.delete(t, tn, l)
}

// readBefore reads a stream to its end that is to be deleted, while nobody appends, and judges it as if it were the end.
func (s *soak) readBefore(ctx context.Context, t task, tn *town, l *ledger) error {
	tn.calls.Lock()
	defer tn.calls.Unlock()
	end, err := s.readStream(ctx, t, l, deletePatience)
	if err != nil {
		return err
	}
	l.readBefore(end)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.readFirst++
	return nil
}

func (s *soak) delete(t *task, tn *town, l *ledger) (until time.Time, deleted bool) {
	l.delete()
	tn.becomes(nil, nil)
	l.journal.printf("deleting stream %d (%s, %s)", l.number, l.name, l.id)
	ok, v := t.insist(s.hard, "deleting "+l.id, func(ctx context.Context, c *api.Client) error {
		d, err := c.DeleteStream(ctx, l.id)
		until = d.Until
		return err
	})
	if !ok && v != noStream {
		return until, false
	}
	tn.becomes(nil, l)
	return until, true
}

// undelete undoes a deletion after a while, at which the time for that may be over or not, and tells whether the stream lives again.
func (s *soak) undelete(t *task, tn *town, l *ledger, until time.Time) bool {
	sleep(s.hard, time.Duration(t.r.Int64N(int64(undeleteWindow+undeleteWindow/4))))
	tn.becomes(nil, nil)
	l.journal.printf("undeleting stream %d (%s, %s)", l.number, l.name, l.id)
	for {
		err := t.call(s.hard, func(ctx context.Context, c *api.Client) error {
			_, err := c.UndeleteStream(ctx, l.id)
			return err
		})
		if err == nil {
			l.revive()
			tn.becomes(l, nil)
			s.mu.Lock()
			s.undeleted++
			s.mu.Unlock()
			return true
		}
		if isProblem(err, api.ProblemStreamTearing) || isProblem(err, api.ProblemNoStream) {
			if left := time.Until(until); left > 0 {
				s.surprise("undeleting %s, %v before its time is over: %v", l.id, left, err)
			}
			return false
		}
		switch v, _ := judge(s.hard, err); v {
		case over:
			return false
		case odd:
			s.surprise("undeleting %s: %v", l.id, err)
		}
		sleep(s.hard, callPause)
	}
}

func (s *soak) trimmer(ctx context.Context, t *task, l *ledger) {
	for t.pause(ctx, trimEvery) {
		trimmed, end := l.bounds()
		if end <= trimmed {
			continue
		}
		before := trimmed + 1 + t.r.Uint64N(end-trimmed)
		l.trim(before)
		ok, v := t.insist(ctx, "trimming "+l.id, func(ctx context.Context, c *api.Client) error {
			_, err := c.Trim(ctx, l.id, before)
			return err
		})
		if ok {
			l.trimDone(before)
		} else if v == noStream {
			if !l.dying() {
				l.vanished("a trim")
			}
			return
		}
	}
}

// mourn checks that a deleted stream is gone.
func (s *soak) mourn(t *task, l *ledger) {
	ok, _ := t.insist(s.hard, "reading what is deleted", func(ctx context.Context, c *api.Client) error {
		_, err := c.Read(ctx, l.id, api.ReadOptions{})
		return err
	})
	if ok {
		l.afterlife("a read found it")
	}
}

// bury closes the ledger of a deleted stream, once no call by its name is under way: what was appended before the deletion has been answered.
func (s *soak) bury(tn *town, l *ledger) {
	tn.becomes(nil, l)
	tn.calls.Lock()
	defer tn.calls.Unlock()
	s.mu.Lock()
	s.deleted++
	s.ledgers = slices.DeleteFunc(s.ledgers, func(o *ledger) bool { return o == l })
	s.mu.Unlock()
	s.closed(l.close(nil))
}

// closed adds up what a ledger came to.
func (s *soak) closed(v verdicts, n tally, details []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.verdicts.add(v)
	s.tally.add(n)
	s.details = append(s.details, details[:min(len(details), max(0, 5*detailsMost-len(s.details)))]...)
}

// anyLedger picks a stream that lives.
func (s *soak) anyLedger(r *rand.Rand) *ledger {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.ledgers) == 0 {
		return nil
	}
	return s.ledgers[r.IntN(len(s.ledgers))]
}
