package play

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nova-store/nova/catalog"
	"github.com/nova-store/nova/sim"
	"github.com/nova-store/nova/star"
)

// player plays the statements of a script in a world.
type player struct {
	g          *game
	cut        bool // a kill strikes somewhere that the script does not know of
	producers  map[producerName]*producer
	registered int // producers, ever
	rules      []*rule
	ids        map[string]catalog.StreamID // that names have led to
	deleted    map[string]catalog.StreamID // the last of each name
	parted     map[producerName]*producer  // of streams that were deleted
}

// producerName is a stream's producer, "" the one that has no name.
type producerName struct{ stream, name string }

func newPlayer(g *game, cut bool) *player {
	p := &player{g: g, cut: cut, producers: make(map[producerName]*producer), ids: make(map[string]catalog.StreamID), deleted: make(map[string]catalog.StreamID), parted: make(map[producerName]*producer)}
	g.w.Inject(p.inject)
	return p
}

func (p *player) fail(st *statement, text string, args ...any) {
	p.g.w.Finding("expectation", fmt.Sprintf("line %d", st.line), fmt.Sprintf(text, args...))
}

// processes calls f with the living process of each node that the statement names.
func (p *player) processes(st *statement, f func(inc *sim.Incarnation)) {
	for _, n := range st.args {
		if inc := p.g.w.Node(n).Current(); inc != nil {
			f(inc)
		}
	}
}

func (p *player) start(st *statement) {
	for _, n := range st.args {
		if q := p.g.processes[n]; q != nil {
			q.replaced = false // the script wants it all the same
		}
		p.g.up(n)
	}
	p.awake()
}

func (p *player) kill(st *statement) { p.processes(st, (*sim.Incarnation).Kill) }

func (p *player) drain(st *statement) {
	p.g.stopping = true
	p.processes(st, func(inc *sim.Incarnation) {
		inc.Interrupt()
		p.g.w.RunUntil(inc.Dead, time.Minute)
	})
	p.g.stopping = false
}

func (p *player) pause(st *statement) { p.processes(st, (*sim.Incarnation).Pause) }

func (p *player) resume(st *statement) {
	p.processes(st, (*sim.Incarnation).Resume)
	p.awake()
}

// awake lets go on what nodes were about to ask for when they were paused.
func (p *player) awake() {
	for _, r := range p.rules {
		if h := r.hold; h != nil && r.action == "pause" {
			r.hold = nil
			h.Release()
		}
	}
}

func (p *player) expire(st *statement) {
	p.processes(st, func(inc *sim.Incarnation) {
		p.g.w.Mark("scenario/expired")
		p.g.w.ExpireSessions(inc)
	})
}

func (p *player) partition(st *statement) {
	from, ok := st.opts["from"]
	if !ok {
		from = strings.Join(partitionable, ",")
	}
	for _, n := range st.args {
		p.g.w.Node(n).Partition(strings.Contains(from, "store"), strings.Contains(from, "bucket"), strings.Contains(from, "clients"))
	}
}

func (p *player) heal(st *statement) {
	for _, n := range st.args {
		p.g.w.Node(n).Partition(false, false, false)
	}
}

func (p *player) clock(st *statement) {
	off, _ := time.ParseDuration(st.args[1]) // checked when it was parsed
	p.g.w.Node(st.args[0]).SetClock(off, st.number("drift", 0))
}

func (p *player) decommission(st *statement) {
	for _, n := range st.args {
		p.g.gone[n] = true
	}
	p.kill(st)
	p.together(st, func(ctx context.Context, c *sim.Client, node string) { p.g.retire(ctx, c, p.g.star(node)) })
}

// together runs f for each word of the statement side by side, and the world until these have ended.
func (p *player) together(st *statement, f func(ctx context.Context, c *sim.Client, of string)) {
	g := p.g
	left := len(st.args)
	for _, of := range st.args {
		g.goClient("client/"+of, func(ctx context.Context, c *sim.Client) {
			f(ctx, c, of)
			left--
		})
	}
	if st.opts["wait"] == "no" {
		return
	}
	if r := g.w.RunUntil(func() bool { return left == 0 }, time.Hour); r.Reason != sim.Reached && g.w.Found() == nil {
		p.fail(st, "%s does not end: %v", st.verb, r.Reason)
	}
}

func (p *player) create(st *statement) {
	p.together(st, func(ctx context.Context, c *sim.Client, stream string) { p.g.create(ctx, c, stream, st.policy()) })
}

func (p *player) policy(st *statement) {
	p.together(st, func(ctx context.Context, c *sim.Client, stream string) {
		p.g.until(ctx, c, func(q *Process) bool { return p.g.setPolicy(ctx, c, q, stream, st.policy()) == nil })
	})
}

func (p *player) trim(st *statement) {
	last := len(st.args) - 1
	upTo, _ := strconv.ParseUint(st.args[last], 10, 64) // checked when it was parsed
	of := &statement{line: st.line, verb: st.verb, args: st.args[:last]}
	p.together(of, func(ctx context.Context, c *sim.Client, stream string) {
		p.g.until(ctx, c, func(q *Process) bool { return p.g.trim(ctx, c, q, stream, upTo) == nil })
	})
}

func (p *player) deleteAll(st *statement) {
	p.together(st, func(ctx context.Context, c *sim.Client, stream string) {
		if id := p.g.deleteStream(ctx, c, stream); id != 0 {
			p.deleted[stream] = id
		}
	})
	move(p.producers, p.parted, func(n producerName) bool { return slices.Contains(st.args, n.stream) })
}

// move moves what is of some producers from one map to another.
func move(from, to map[producerName]*producer, which func(producerName) bool) {
	maps.DeleteFunc(to, func(n producerName, _ *producer) bool { return which(n) })
	for n, pr := range from {
		if which(n) {
			to[n] = pr
		}
	}
	maps.DeleteFunc(from, func(n producerName, _ *producer) bool { return which(n) })
}

func (p *player) undeleteAll(st *statement) {
	p.together(st, func(ctx context.Context, c *sim.Client, stream string) {
		if p.g.undelete(ctx, c, stream, p.deleted[stream]) {
			// The stream knows them again: they go on where they were.
			move(p.parted, p.producers, func(n producerName) bool { return n.stream == stream })
		}
	})
}

func (p *player) read(st *statement) {
	p.together(st, func(ctx context.Context, c *sim.Client, stream string) {
		if st.opts["start"] == "yes" {
			p.g.until(ctx, c, func(q *Process) bool {
				_, _, err := p.g.readOnce(ctx, c, q, star.ReadRequest{Name: stream, Start: true, MaxRecords: 100, MaxBytes: 1 << 20})
				return err == nil
			})
			return
		}
		if err := p.g.readUntil(ctx, c, stream); err != nil {
			p.fail(st, "reading %s: %v", stream, err)
		}
	})
}

// followPatience is how long one call of a follower waits.
const followPatience = 10 * time.Second

func (p *player) follow(st *statement) {
	upTo := uint64(st.number("upto", 0))
	p.together(st, func(ctx context.Context, c *sim.Client, stream string) {
		for at := uint64(st.number("from", 0)); at < upTo && ctx.Err() == nil && p.g.w.Found() == nil; {
			if q := p.g.serving(c.Rand.N(len(p.g.order))); q != nil {
				next, err := p.g.follow(ctx, c, q, star.ReadRequest{Name: stream, From: at, MaxRecords: 100, MaxBytes: 1 << 20}, followPatience)
				switch {
				case err == nil:
					at = max(at, next)
					continue
				case errors.Is(err, catalog.ErrNoStream):
					return
				}
			}
			_ = c.Clock().Sleep(ctx, 100*time.Millisecond)
		}
	})
}

// litter has a star write what nobody can read.
func (p *player) litter(st *statement) {
	p.together(&statement{line: st.line, verb: st.verb, args: []string{"litter"}}, func(ctx context.Context, c *sim.Client, _ string) { p.g.litter(ctx, c) })
}

func (p *player) tick(st *statement) {
	d, _ := time.ParseDuration(st.args[0]) // checked when it was parsed
	p.g.w.RunFor(d)
}

func (p *player) converge(*statement) {
	p.calm()
	if converged := p.g.converge(bound(p.g.configs[p.g.order[0]])); p.g.w.Found() == nil {
		p.g.finish(converged)
	}
}

func (p *player) expect(st *statement) {
	if text := st.expect.judge(p.g.check); text != "" && (!p.cut || st.opts["cut"] != "no") {
		p.fail(st, "%s", text)
	}
}

// reached judges where a run that is not cut has led; one that is may lead elsewhere.
func (p *player) reached(st *statement) {
	for _, mark := range st.args {
		if !p.cut && p.g.w.Marks()[mark] == 0 {
			p.fail(st, "mark %s was not hit", mark)
		}
	}
}

// The answers that an append may be expected to have.
const (
	answerOK     = "ok"
	answerLost   = "lost"         // the producer's state was evicted: the outcome is unknown
	answerOffset = "wrong-offset" // the next offset is not the one expected
	answerGone   = "gone"         // there is no such stream, or no more
	answerGap    = "gap"          // the producer left a sequence out
	answerFenced = "fenced"       // there is a newer epoch of the producer
	answerAny    = "any"
)

var answers = []string{answerOK, answerLost, answerOffset, answerGone, answerGap, answerFenced, answerAny}

// appendAll sends the statement's appends: to streams side by side, by the producers of one stream one after the other.
func (p *player) appendAll(st *statement) {
	names, _ := expand(st.opts["by"]) // checked when it was parsed
	of, turns := make(map[string][]*producer), make(map[string][]int)
	for _, stream := range st.args {
		for _, name := range names {
			pr := p.register(stream, name)
			of[stream], turns[stream] = append(of[stream], pr), append(turns[stream], pr.turns)
			pr.turns++
		}
	}
	p.together(st, func(ctx context.Context, c *sim.Client, stream string) {
		for i, pr := range of[stream] {
			// A producer sends one append after the other.
			for pr.turn != turns[stream][i] && ctx.Err() == nil {
				_ = c.Clock().Sleep(ctx, 10*time.Millisecond)
			}
			p.append(ctx, c, st, stream, pr)
			pr.turn++
		}
	})
}

// register makes a producer of a stream, in the order of the script, or finds it.
func (p *player) register(stream, name string) *producer {
	key := producerName{stream, name}
	if p.producers[key] == nil {
		p.registered++
		p.producers[key] = &producer{id: "p/" + stream + "/" + name, fresh: true, numbered: true, next: uint64(p.registered) << 32}
	}
	return p.producers[key]
}

// append sends the statement's appends by one producer.
func (p *player) append(ctx context.Context, c *sim.Client, st *statement, stream string, pr *producer) {
	pr.ago, pr.expected = st.duration("ago", 0), nil
	if st.opts["at"] != "" {
		at := uint64(st.number("at", 0))
		pr.expected = &at
	}
	was := *pr
	pr.strange = st.opts["epoch"] != "" || st.opts["seq"] != ""
	pr.epoch, pr.seq = uint32(st.number("epoch", int(pr.epoch))), uint64(st.number("seq", int(pr.seq)))
	defer func() {
		if pr.strange && st.opts["answer"] != "" && st.opts["answer"] != answerOK {
			pr.epoch, pr.seq, pr.fresh, pr.since = was.epoch, was.seq, was.fresh, was.since
		}
	}()
	for i := range st.number("times", 1) {
		if after := st.duration("after", 0); after > 0 && i > 0 {
			_ = c.Clock().Sleep(ctx, after)
		}
		have := answerOK
		switch err := p.g.produce(ctx, c, pr, stream, st.number("records", 1), st.number("size", 50)); {
		case errors.Is(err, star.ErrProducerLost):
			have = answerLost
		case errors.Is(err, star.ErrWrongOffset):
			have = answerOffset
		case errors.Is(err, catalog.ErrNoStream):
			have = answerGone
		case errors.Is(err, star.ErrProducerGap):
			have = answerGap
		case errors.Is(err, star.ErrProducerFenced):
			have = answerFenced
		case err != nil:
			have = err.Error()
		}
		want := answerOK
		if a := st.opts["answer"]; a != "" {
			want = a
		}
		if have != want && want != answerAny && p.g.w.Found() == nil {
			p.fail(st, "an append to %s was answered %q; %q was expected", stream, have, want)
			return
		}
	}
}
