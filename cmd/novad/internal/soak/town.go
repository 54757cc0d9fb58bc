package soak

import (
	"context"
	"sync"

	"github.com/nova-store/nova/api"
	"github.com/nova-store/nova/api/service"
)

// roamingClient is the number of the client that appends to a name, and not to the one stream that has it just now.
const roamingClient = 1 << 16

// roamingStream is what a record of such a client says in the place of its stream's number: nobody knows that before the answer.
const roamingStream = 1 << 31

// roamer is what is known of the records that one client sent to a name. Each belongs to one of the streams that had the name, to the one
// whose id the answer says, and no other may hold it; the stream's ledger keeps the offset. An append is tried once, so that it cannot land twice.
type roamer struct {
	number uint32 // roamingStream and the name's own number

	mu      sync.Mutex
	sent    uint64
	refused spans
	unknown spans
	homes   facts // offsets are the client's records here, and clients the numbers of the streams that hold them
}

func (r *roamer) send(n int) (seq uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	seq = r.sent
	r.sent += uint64(n)
	return seq
}

// failed notes records that were refused, or whose outcome is unknown.
func (r *roamer) failed(o outcome, seq uint64, n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if o == refused {
		r.refused.add(roamingClient, seq, uint64(n))
	} else {
		r.unknown.add(roamingClient, seq, uint64(n))
	}
}

// at notes that a stream holds records, and returns how many of them another one holds, too.
func (r *roamer) at(stream uint32, seq, n uint64) (elsewhere uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.homes.add(run{off: seq, seq: seq, n: n, client: stream})
}

func (r *roamer) first() (unsent uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.sent
}

func (r *roamer) overlap(o outcome, x run) uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	if o == refused {
		return r.refused.overlap(x)
	}
	return r.unknown.overlap(x)
}

// town is a name, and all the streams that had it one after the other.
type town struct {
	name   string
	roamer *roamer

	// calls is held for reading as long as a call by the name is under way, so that whoever locks it knows that none is.
	calls sync.RWMutex

	mu     sync.Mutex
	byID   map[string]*ledger // of all its streams, by service.ByID
	parked map[string][]ack   // of streams whose creation was not answered yet
	fate   fate
}

// fate is what a name certainly leads to.
type fate struct {
	living *ledger // has the name: was created or undeleted, and its deletion was not asked for
	gone   *ledger // had it: its deletion was acknowledged, and to undo it was not asked for
	turn   uint64  // changes with either, so that two equal fates say that nothing changed in between
}

// ack is an acknowledged append whose stream has no ledger yet.
type ack struct {
	seq   uint64
	n     int
	first *uint64
}

func newTown(name string, number int) *town {
	return &town{name: name, roamer: &roamer{number: roamingStream + uint32(number)}, byID: map[string]*ledger{}, parked: map[string][]ack{}}
}

// becomes tells what the name leads to from now on; both nil: that is about to change.
func (tn *town) becomes(living, gone *ledger) {
	tn.mu.Lock()
	defer tn.mu.Unlock()
	tn.fate = fate{living, gone, tn.fate.turn + 1}
}

func (tn *town) now() fate {
	tn.mu.Lock()
	defer tn.mu.Unlock()
	return tn.fate
}

// found makes a stream's ledger known, which has the name from now on, and gives it what was acknowledged of it before.
func (tn *town) found(l *ledger) {
	l.roamer = tn.roamer
	tn.mu.Lock()
	early := tn.parked[l.id]
	delete(tn.parked, l.id)
	tn.byID[l.id] = l
	tn.fate = fate{l, nil, tn.fate.turn + 1}
	for _, a := range early { // before anybody else can settle later ones
		l.settle(acknowledged, roamingClient, a.seq, a.n, a.first)
	}
	tn.mu.Unlock()
}

// home returns the ledger of a stream's id; nil: its creation was not answered yet, and a is kept for it.
func (tn *town) home(id string, a ack) *ledger {
	tn.mu.Lock()
	defer tn.mu.Unlock()
	l := tn.byID[id]
	if l == nil {
		tn.parked[id] = append(tn.parked[id], a)
	}
	return l
}

// strangers counts acknowledged appends to streams that nobody made.
func (tn *town) strangers() int {
	tn.mu.Lock()
	defer tn.mu.Unlock()
	return len(tn.parked)
}

// roam appends to a name and reads from it, whichever stream has it, until ctx ends.
func (s *soak) roam(ctx context.Context, tn *town) {
	t := s.task(tn.name+" roamer", 0)
	for {
		n := 1 + t.r.IntN(batchMost)
		if !t.pause(ctx, s.every*2) {
			return
		}
		tn.calls.RLock()
		if t.r.IntN(4) == 0 {
			t.readByName(ctx, tn)
		} else {
			t.appendByName(tn, n)
		}
		tn.calls.RUnlock()
	}
}

func (t *task) appendByName(tn *town, n int) {
	seq := tn.roamer.send(n)
	records := make([][]byte, n)
	for i := range records {
		records[i] = payload(t.s.o.Seed, identity{tn.roamer.number, roamingClient, seq + uint64(i)})
	}
	before := tn.now()
	var res api.AppendResult
	err := t.call(t.s.hard, func(ctx context.Context, c *api.Client) (err error) {
		res, err = c.Append(ctx, tn.name, records, api.AppendOptions{})
		return err
	})
	if err == nil {
		l := tn.home("id:"+res.ID, ack{seq, n, res.FirstOffset})
		if l == nil {
			return
		}
		t.s.afterlife(l, before, tn.now(), "an append to its name was acknowledged in it")
		if over := l.settle(acknowledged, roamingClient, seq, n, res.FirstOffset); over {
			t.s.surprise("%d records to the name %s were acknowledged in %s, which was deleted before and closed", n, tn.name, l.id)
		}
		return
	}
	v, effect := judge(t.s.hard, err)
	o := refused
	switch {
	case v == noStream:
		t.s.lackOf(before, tn.now(), "an append to its name")
	case v == odd:
		t.s.surprise("appending to the name %s: %v", tn.name, err)
	}
	if effect {
		o = unknown
	}
	tn.roamer.failed(o, seq, n)
	t.s.failed(o, n)
	sleep(t.s.hard, callPause)
}

// readByName reads a page somewhere in the stream that has the name: the answer says which one that is.
func (t *task) readByName(ctx context.Context, tn *town) {
	before := tn.now()
	opts := api.ReadOptions{MaxRecords: 1 + t.r.IntN(probeMost)}
	if before.living != nil {
		if trimmed, end := before.living.bounds(); end > trimmed && before.living.maxBytes == 0 {
			opts.From = service.FromOffset(trimmed + t.r.Uint64N(end-trimmed))
		}
	}
	var page service.ReadResult
	err := t.call(ctx, func(ctx context.Context, c *api.Client) (err error) {
		page, err = c.Read(ctx, tn.name, opts)
		return err
	})
	if err != nil {
		if v, _ := judge(ctx, err); v == noStream {
			t.s.lackOf(before, tn.now(), "a read of its name")
		}
		return // a trim, or another stream that is shorter, may be why
	}
	tn.mu.Lock()
	l := tn.byID[service.ByID(page.Stream)]
	tn.mu.Unlock()
	if l == nil {
		return // its creation was not answered yet
	}
	t.s.afterlife(l, before, tn.now(), "a read of its name found it")
	l.observe(page.Records)
}

// afterlife judges that a stream answered to its name: not one that had been deleted before the call, and was not undeleted.
func (s *soak) afterlife(l *ledger, before, after fate, what string) {
	if before.gone == l && before == after {
		if over := l.afterlife(what); over {
			s.closed(verdicts{Undead: 1}, tally{}, []string{l.id + " was deleted, and " + what})
		}
	}
}

// lackOf judges that no stream had the name: one did if the same one had it before and after.
func (s *soak) lackOf(before, after fate, what string) {
	if before.living != nil && before == after {
		before.living.vanished(what)
	}
}

// failed counts a roamer's records that are in no ledger.
func (s *soak) failed(o outcome, n int) {
	if o == refused {
		s.closed(verdicts{}, tally{Refused: uint64(n)}, nil)
	} else {
		s.closed(verdicts{}, tally{Unknown: uint64(n)}, nil)
	}
}
