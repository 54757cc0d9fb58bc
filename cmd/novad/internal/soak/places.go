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
	lifetime  time.Duration // about how long its streams live; 0: to the end
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
	}
	return n
}

// task makes a client whose chance is its own.
func (s *soak) task(name string, number uint32) task {
	h := fnv.New64a()
	fmt.Fprint(h, name)
	return task{s: s, r: rand.New(rand.NewPCG(s.o.Seed^h.Sum64(), uint64(number)))}
}

// inhabit makes the streams of a place, one after the other, until ctx ends; the last one stays.
func (s *soak) inhabit(ctx context.Context, p place) {
	t := s.task(p.name, 0)
	for ctx.Err() == nil {
		l := s.create(ctx, &t, p)
		if l == nil {
			return
		}
		if deleted := s.live(ctx, &t, p, l); !deleted {
			return
		}
		s.bury(&t, l)
	}
}

func (s *soak) create(ctx context.Context, t *task, p place) *ledger {
	var made api.Stream
	ok, _ := t.insist(ctx, "creating a stream", func(ctx context.Context, c *api.Client) (err error) {
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
	return l
}

// live lets clients use a stream until ctx ends, or deletes it under their hands when its time has come. They have all
// ended when it returns.
func (s *soak) live(ctx context.Context, t *task, p place, l *ledger) (deleted bool) {
	using, cancel := context.WithCancel(ctx)
	defer cancel()
	var users sync.WaitGroup
	for i := range p.producers + p.plain {
		client := uint32(i + 1)
		w := &writer{task: s.task(p.name, l.number<<8|client), l: l, client: client, every: s.every, plain: i >= p.producers}
		users.Go(func() { w.run(using) })
	}
	f := &follower{task: s.task(p.name+" follower", l.number), l: l}
	users.Go(func() { f.run(using) })
	if p.trims {
		t := s.task(p.name+" trimmer", l.number)
		users.Go(func() { s.trimmer(using, &t, l) })
	}
	if p.lifetime > 0 {
		sleep(ctx, p.lifetime/2+time.Duration(t.r.Int64N(int64(p.lifetime))))
		if ctx.Err() == nil {
			l.delete()
			l.journal.printf("deleting stream %d (%s, %s)", l.number, l.name, l.id)
			ok, v := t.insist(s.hard, "deleting "+l.id, func(ctx context.Context, c *api.Client) error {
				_, err := c.DeleteStream(ctx, l.id)
				return err
			})
			deleted = ok || v == noStream
			cancel()
		}
	}
	users.Wait()
	return deleted
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

// bury checks that a deleted stream is gone, and closes its ledger.
func (s *soak) bury(t *task, l *ledger) {
	ok, _ := t.insist(s.hard, "reading what is deleted", func(ctx context.Context, c *api.Client) error {
		_, err := c.Read(ctx, l.id, api.ReadOptions{})
		return err
	})
	if ok {
		l.afterlife("a read found it")
	}
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
