package differential

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nova-store/nova/auditor"
	"github.com/nova-store/nova/catalog"
	"github.com/nova-store/nova/metastore"
	"github.com/nova-store/nova/objstore"
	"github.com/nova-store/nova/objstore/format"
	"github.com/nova-store/nova/sim"
	"github.com/nova-store/nova/star"
	"github.com/nova-store/nova/verify"
)

// dependencies are a store and a bucket that outlive the process which uses them.
type dependencies interface {
	// open gives a process its store and its bucket.
	open(inc *sim.Incarnation) (metastore.Store, objstore.Bucket, error)
	// ended tells that the process is gone, by a crash or by itself.
	ended(crashed bool) error
}

// process is one life of the node.
type process struct {
	inc    *sim.Incarnation
	cat    *catalog.Catalog
	bucket objstore.Bucket
	star   *star.Star // nil until it has started
}

// side plays a history on one pair of dependencies, with one node, embedded.
type side struct {
	w       *sim.World
	client  *sim.Client
	deps    dependencies
	process *process
	cfg     settings
	last    error // of the newest try that failed
}

// settings of the node, equal on both sides.
type settings struct {
	timing         catalog.Timing
	seed           uint64
	maxOps, window int
	inline         int
	objectMin      int64
	faults         sim.Faults // of the simulated dependencies
	unsynced       int        // percent of what was not synced that a crash keeps
}

func newSide(cfg settings, faults sim.Faults, deps dependencies) *side {
	s := &side{cfg: cfg, deps: deps}
	s.w = sim.New(sim.Config{Seed: cfg.seed, Embedded: true, MaxOps: cfg.maxOps, Faults: faults, MaxSteps: 2_000_000})
	s.client = s.w.Client("client")
	s.w.OnKill(func(inc *sim.Incarnation) {
		s.process = nil
		s.check(deps.ended(!inc.Exited()))
		s.w.At(50*time.Millisecond, s.boot)
	})
	s.boot()
	return s
}

// broken is the invariant of whatever goes wrong here.
const broken = "differential"

func (s *side) check(err error) {
	if err != nil {
		s.w.Finding(broken, "", err.Error())
	}
}

// boot starts the node as novad does.
func (s *side) boot() {
	s.w.Node("a").Start(func(ctx context.Context, inc *sim.Incarnation) {
		clk := inc.Clock()
		store, bucket, err := s.deps.open(inc)
		if err != nil {
			s.check(err)
			return
		}
		p := &process{inc: inc, bucket: bucket, cat: catalog.New(store, clk, s.cfg.timing, nil)}
		for p.cat.EnsureFormat(ctx) != nil {
			if clk.Sleep(ctx, 100*time.Millisecond) != nil {
				inc.Exit()
				return
			}
		}
		st, err := star.New(p.cat, bucket, clk, star.Options{Name: "a", Address: "a", Window: s.cfg.window, FlightBytes: 4096,
			InlineBytes: s.cfg.inline, Codec: format.Stored(), Embedded: true})
		s.check(err)
		aud, err := auditor.New(p.cat, bucket, clk, auditor.Options{Member: "a", Workers: 4, IdleInterval: 500 * time.Millisecond,
			SettleObjectMin: s.cfg.objectMin, GCMinDeadBytes: 100, GCMinDeadRatio: 0.3, Embedded: true})
		s.check(err)
		if s.w.Found() != nil {
			return
		}
		p.star, s.process = st, p
		left := 2
		role := func(run func(context.Context) error) func(context.Context) {
			return func(ctx context.Context) {
				if err := run(ctx); ctx.Err() == nil {
					s.check(fmt.Errorf("a role ended by itself: %w", err))
				}
				if left--; left > 0 {
					return
				}
				for inc.Calls() > 0 {
					_ = clk.Sleep(context.WithoutCancel(ctx), 10*time.Millisecond)
				}
				inc.Exit()
			}
		}
		inc.Go("star", role(st.Run))
		inc.Go("auditor", role(aud.Run))
	})
}

// patience is how long, in virtual time, the client tries one thing.
const patience = 30 * time.Minute

// run has the client do something, to its end.
func (s *side) run(what string, f func(ctx context.Context)) {
	if s.w.Found() != nil {
		return
	}
	done := false
	s.client.Go(func(ctx context.Context) {
		f(ctx)
		done = true
	})
	if r := s.w.RunUntil(func() bool { return done }, patience); r.Reason != sim.Reached && r.Finding == nil {
		s.check(fmt.Errorf("%s did not end (%s); the newest error is %w", what, r.Reason, s.last))
	}
}

// until calls the process again and again, whichever lives, until it has an answer without an error.
func until[T any](ctx context.Context, s *side, what string, do func(ctx context.Context, p *process) (T, error)) T {
	type answer struct {
		v   T
		err error
	}
	for {
		if p := s.process; p != nil {
			a, err := sim.Call(ctx, s.client, p.inc, what, func(ctx context.Context) answer {
				v, err := do(ctx, p)
				return answer{v, err}
			})
			if err == nil && a.err == nil {
				return a.v
			}
			s.last = errors.Join(err, a.err)
		}
		if s.client.Clock().Sleep(ctx, 50*time.Millisecond) != nil || s.w.Found() != nil {
			var none T
			return none
		}
	}
}

// play does one action, until its outcome is definite, and tells the model where that has not been told.
func (s *side) play(a action, m model) {
	switch a.verb {
	case tick:
		s.w.RunFor(a.duration)
		return
	case crash:
		s.w.KillAt(sim.Kill{Step: s.w.Steps() + a.steps, Side: a.side})
		return
	case reopen:
		if p := s.process; p != nil {
			p.inc.Interrupt()
			s.w.RunUntil(p.inc.Dead, time.Minute)
		}
		return
	}
	s.run(a.String(), func(ctx context.Context) { s.ask(ctx, a, m[a.stream]) })
}

// ask has the client do what concerns a stream, of which the model is as it was before.
func (s *side) ask(ctx context.Context, a action, m *modelled) {
	find := func() catalog.StreamID {
		return until(ctx, s, "find", func(ctx context.Context, p *process) (catalog.StreamID, error) {
			return p.cat.FindStream(ctx, a.stream)
		})
	}
	switch a.verb {
	case create:
		until(ctx, s, "create", func(ctx context.Context, p *process) (bool, error) {
			_, made, err := p.cat.CreateStream(ctx, a.stream, a.policy)
			return made, err
		})
	case add:
		s.append(ctx, a, m)
	case trim:
		upTo := uint64(len(m.records) * a.percent / 100)
		id := find()
		until(ctx, s, "trim", func(ctx context.Context, p *process) (catalog.Mark, error) { return p.cat.TrimStream(ctx, id, upTo) })
	case policy:
		id := find()
		until(ctx, s, "policy", func(ctx context.Context, p *process) (catalog.StreamView, error) {
			return p.cat.SetPolicy(ctx, id, a.policy)
		})
	case remove:
		id := find()
		until(ctx, s, "delete", func(ctx context.Context, p *process) (bool, error) {
			_, err := p.cat.DeleteStream(ctx, id)
			if errors.Is(err, catalog.ErrNoStream) {
				err = nil // an earlier try
			}
			return true, err
		})
	}
}

func (s *side) append(ctx context.Context, a action, m *modelled) {
	seq := m.appends
	res := until(ctx, s, "append", func(ctx context.Context, p *process) (star.AppendResult, error) {
		req := star.AppendRequest{Name: a.stream, SinceKnown: true,
			Producer: &format.Producer{ID: fmt.Sprintf("p%d", m.life), Seq: seq}}
		for _, r := range payloads(a, m) {
			req.Records = append(req.Records, star.Record{Timestamp: 1, Data: []byte(r)})
		}
		return p.star.Append(ctx, req)
	})
	if want := uint64(len(m.records)); s.w.Found() == nil && (!res.OffsetsKnown || res.First != want || res.Last != want+uint64(a.n)-1) {
		s.check(fmt.Errorf("%s was acknowledged at %d to %d (known: %v), and belongs at %d", a, res.First, res.Last, res.OffsetsKnown, want))
	}
}

// payloads are an append's records: unlike all others.
func payloads(a action, m *modelled) []string {
	out := make([]string, a.n)
	for i := range out {
		r := []byte(fmt.Sprintf("%s/%d/%d/%d ", a.stream, m.life, m.appends, i))
		for len(r) < a.size {
			r = append(r, byte('a'+len(r)%26))
		}
		out[i] = string(r)
	}
	return out
}

// state reads what every stream holds.
func (s *side) state(names []string) map[string]logical {
	out := map[string]logical{}
	s.run("reading back", func(ctx context.Context) {
		for _, name := range names {
			out[name] = until(ctx, s, "read", func(ctx context.Context, p *process) (logical, error) { return readAll(ctx, p, name) })
		}
	})
	return out
}

func readAll(ctx context.Context, p *process, name string) (logical, error) {
	id, err := p.cat.FindStream(ctx, name)
	if err != nil {
		return logical{}, err
	}
	view, err := p.cat.ReadStream(ctx, id)
	if err != nil {
		return logical{}, err
	}
	l := logical{Records: []string{}, Policy: view.Stream.Policy}
	req := star.ReadRequest{Name: name, Start: true, MaxRecords: 7}
	for {
		r, err := p.star.Read(ctx, req)
		if err != nil {
			return logical{}, err
		}
		if req.Start {
			l.First = r.First
		}
		for _, rec := range r.Records {
			l.Records = append(l.Records, string(rec.Data))
		}
		if r.Next >= r.End {
			return l, nil
		}
		req.Start, req.From = false, r.Next
	}
}

// verify runs the operator's check, without the listing: while a node runs, the auditor deletes slots between a page
// of the listing and the look at their records. That nothing is in the bucket but what records name, the end of all streams shows.
func (s *side) verify() (rep verify.Report) {
	s.run("verify", func(ctx context.Context) {
		rep = until(ctx, s, "verify", func(ctx context.Context, p *process) (verify.Report, error) {
			return verify.Run(ctx, p.cat, p.bucket, p.inc.Clock(), verify.Options{})
		})
	})
	return rep
}

// left waits until the bucket is empty, and returns what is left in it after a long time.
func (s *side) left() (keys []string) {
	for range 300 {
		s.w.RunFor(2 * time.Second)
		s.run("listing", func(ctx context.Context) {
			infos := until(ctx, s, "list", func(ctx context.Context, p *process) ([]objstore.Info, error) { return p.bucket.List(ctx, "", "", 10) })
			keys = nil
			for _, i := range infos {
				keys = append(keys, i.Key)
			}
		})
		if len(keys) == 0 || s.w.Found() != nil {
			return keys
		}
	}
	return keys
}
