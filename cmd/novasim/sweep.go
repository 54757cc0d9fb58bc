package main

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/nova-store/nova/sim"
	"github.com/nova-store/nova/sim/play"
)

// sweepReport is the JSON of many runs.
type sweepReport struct {
	Seeds   int            `json:"seeds"`
	Verdict string         `json:"verdict"`
	Broken  []report       `json:"broken"`
	Steps   int            `json:"steps"`
	Virtual float64        `json:"virtual_seconds"`
	Wall    float64        `json:"wall_seconds"`
	Marks   map[string]int `json:"marks"`
	// With -require-marks: what the scenarios hit, which marks nothing hit, and which are on no list.
	Scenarios map[string]int `json:"scenario_marks,omitempty"`
	NeverHit  []string       `json:"never_hit,omitempty"`
	Unlisted  []string       `json:"unlisted,omitempty"`
	Replay    string         `json:"replay,omitempty"`
	// Interrupted tells that a signal ended it before all was done: this is what came of it until then.
	Interrupted bool `json:"interrupted,omitempty"`
}

// sweeping is a sweep under way.
type sweeping struct {
	c     *command
	ctx   context.Context // ends where the sweep is interrupted
	play  func(seed uint64) play.Outcome
	start time.Time
	next  atomic.Uint64 // seed
	bar   progress

	mu      sync.Mutex
	report  sweepReport
	virtual time.Duration
	marks   sim.Marks
	broken  []play.Outcome
	hashes  map[uint64]string // a line for each seed, if a list is asked for
	failed  error             // of a file
}

// sweep runs seeds until all are done, the time is over, one broke and that is to end it, or a signal comes: then the seeds
// that run are ended, what came of all is told, and the status says that it is not all. A second signal ends the program at once.
func (c *command) sweep() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop)
	return c.newSweep(ctx).run()
}

func (c *command) newSweep(ctx context.Context) *sweeping {
	s := &sweeping{c: c, ctx: ctx, start: time.Now(), marks: sim.Marks{}}
	s.play = func(seed uint64) play.Outcome { return play.Seed(seed, play.Options{Short: c.steps}) }
	s.next.Store(c.first)
	return s
}

func (s *sweeping) run() int {
	c := s.c
	var failures *os.File
	if c.failures != "" {
		var err error
		if failures, err = os.OpenFile(c.failures, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644); err != nil {
			fmt.Fprintf(c.errOut, "novasim: %v\n", err)
			return exitUsage
		}
		defer failures.Close()
	}
	if c.hashes != "" {
		// Before an hour's work, rather than after it.
		if err := os.WriteFile(c.hashes, nil, 0o644); err != nil {
			fmt.Fprintf(c.errOut, "novasim: %v\n", err)
			return exitUsage
		}
		s.hashes = map[uint64]string{}
	}
	s.bar = newProgress(c.errOut, cmp.Or(c.seeds, -1), "seeds")
	parallel(c.parallel, func() {
		for {
			seed, ok := s.take()
			if !ok {
				return
			}
			o := s.one(seed)
			s.done(&o, failures)
			s.bar.add(1)
		}
	})
	s.bar.clear()
	if err := s.writeHashes(); err != nil {
		s.failed = err
	}
	if s.failed != nil {
		fmt.Fprintf(c.errOut, "novasim: %v\n", s.failed)
		return exitFailed
	}
	return s.print()
}

// take returns the next seed, if there is to be one.
func (s *sweeping) take() (seed uint64, ok bool) {
	s.mu.Lock()
	stop := s.c.stopAt && len(s.broken) > 0 || s.failed != nil
	s.mu.Unlock()
	if stop || s.ctx.Err() != nil || s.c.duration > 0 && time.Since(s.start) > s.c.duration {
		return 0, false
	}
	seed = s.next.Add(1) - 1
	return seed, s.c.seeds == 0 || seed-s.c.first < uint64(s.c.seeds)
}

// one runs a seed. A panic of the harness is a finding about it: it names the seed, and does not end a night's sweep.
func (s *sweeping) one(seed uint64) (o play.Outcome) {
	defer func() {
		if r := recover(); r != nil {
			o = play.Outcome{Seed: seed, Finding: &sim.Finding{Invariant: "harness", Object: fmt.Sprintf("seed %d", seed),
				Text: fmt.Sprintf("the simulator panicked: %v", r), Stack: string(debug.Stack())}}
		}
	}()
	o = s.play(seed)
	if s.c.twice {
		s.again(&o)
	}
	return o
}

// again runs the seed a second time: all of it must be the same.
func (s *sweeping) again(o *play.Outcome) {
	p := s.play(o.Seed)
	if o.Hash != p.Hash || o.Steps != p.Steps || o.Virtual != p.Virtual || !maps.Equal(o.Marks, p.Marks) {
		o.Finding = &sim.Finding{Invariant: "harness", Object: fmt.Sprintf("seed %d", o.Seed), Step: min(o.Steps, p.Steps),
			Text: fmt.Sprintf("it is not the same the second time: hash %016x after %d steps, and %016x after %d", o.Hash, o.Steps, p.Hash, p.Steps)}
	}
}

// done adds a run up.
func (s *sweeping) done(o *play.Outcome, failures *os.File) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.report.Seeds++
	s.report.Steps += o.Steps
	s.virtual += o.Virtual
	s.marks.Add(o.Marks)
	if s.hashes != nil {
		s.hashes[o.Seed] = fmt.Sprintf("%d %016x %d", o.Seed, o.Hash, o.Steps)
	}
	if o.Finding == nil {
		return
	}
	s.broken = append(s.broken, *o)
	if failures == nil {
		return
	}
	// One write a line, so that whoever follows the file, or comes after a machine that stopped, finds whole ones.
	text, _, _ := strings.Cut(o.Finding.Text, "\n")
	if _, err := fmt.Fprintf(failures, "novasim -seed %d\t%s\t%s\t%s\n", o.Seed, o.Finding.Invariant, o.Finding.Object, text); err != nil {
		s.failed = err
	}
}

// writeHashes writes the list, in order of the seeds.
func (s *sweeping) writeHashes() (err error) {
	if s.hashes == nil {
		return nil
	}
	f, err := os.Create(s.c.hashes)
	if err != nil {
		return err
	}
	w := bufio.NewWriter(f)
	for _, seed := range slices.Sorted(maps.Keys(s.hashes)) {
		fmt.Fprintln(w, s.hashes[seed])
	}
	if err := w.Flush(); err != nil {
		_ = f.Close() // the first error counts
		return err
	}
	return f.Close()
}

// print reports the sweep and returns the exit status.
func (s *sweeping) print() int {
	c, r := s.c, &s.report
	r.Verdict, r.Broken, r.Marks = "held", []report{}, s.marks
	r.Virtual, r.Wall = s.virtual.Seconds(), time.Since(s.start).Seconds()
	slices.SortFunc(s.broken, func(a, b play.Outcome) int { return int(int64(a.Seed) - int64(b.Seed)) })
	var first *play.Outcome
	for i := range s.broken {
		if first == nil {
			first = &s.broken[i]
			r.Verdict, r.Replay = "broken", fmt.Sprintf("novasim -seed %d", first.Seed)
		}
		r.Broken = append(r.Broken, newReport(&s.broken[i], 0))
	}
	code := exitHeld
	if first != nil {
		code = status(first.Finding)
	}
	var cov *coverage
	if s.ctx.Err() != nil {
		r.Interrupted = true
		code = max(code, exitBroken)
	}
	if c.marks != "" && first == nil && !r.Interrupted {
		var err error
		if cov, err = cover(c.marks, c.parallel, s.marks); err != nil {
			fmt.Fprintf(c.errOut, "novasim: %v\n", err)
			return exitUsage
		}
		code = cov.status()
		r.Scenarios, r.NeverHit, r.Unlisted = cov.scenarios, cov.neverHit, cov.unlisted
		if cov.finding != nil {
			r.Verdict, r.Replay = "broken", "novasim -scenario "+quote(cov.broken)
		}
	}
	if c.output == "json" {
		c.json(r)
		return code
	}
	so := ""
	if r.Interrupted {
		so = ", interrupted"
	}
	fmt.Fprintf(c.out, "%d seeds %s%s: %d steps, %v of virtual time in %.3fs (%.0f steps/s), %d broken\n",
		r.Seeds, r.Verdict, so, r.Steps, s.virtual.Round(time.Second), r.Wall, float64(r.Steps)/r.Wall, len(s.broken))
	if cov != nil {
		cov.print(c.out)
		return code
	}
	for _, m := range s.marks.List() {
		fmt.Fprintf(c.out, "  %8d  %s\n", m.Count, m.Name)
	}
	if first != nil {
		fmt.Fprintf(c.out, "\n%s\nwhat the seed had drawn\n%s\nreplay: %s\n%s", first.Finding.Report(), first.Plan, r.Replay, nextOf(first.Seed))
	}
	return code
}

// parallel runs n workers at once, each to its end. A panic in one is the caller's, with the stack.
func parallel(n int, worker func()) {
	var wg sync.WaitGroup
	var failed atomic.Pointer[string]
	for range n {
		wg.Go(func() {
			defer func() {
				if r := recover(); r != nil {
					text := fmt.Sprintf("%v\n\n%s", r, debug.Stack())
					failed.CompareAndSwap(nil, &text)
				}
			}()
			worker()
		})
	}
	wg.Wait()
	if r := failed.Load(); r != nil {
		panic(*r)
	}
}
