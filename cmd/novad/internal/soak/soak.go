package soak

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// soak is one run.
type soak struct {
	o     Options
	world *world
	began time.Time
	every time.Duration // a record of one writer
	// hard goes on for so long that what was begun can be brought to an end.
	hard context.Context

	mu        sync.Mutex
	ids       map[string]bool // of all streams ever made
	ledgers   []*ledger       // of those that live
	towns     []*town
	deleted   int // and not undeleted
	undeleted int
	readFirst int      // read to their end before they were deleted
	verdicts  verdicts // of closed ledgers
	tally     tally
	surprises int
	details   []string
	phase     string
	fills     int64
	skipped   int64
}

// lastAppends bounds how long appends that were begun are tried after the chaos.
const lastAppends = 2 * time.Minute

// Run runs it all, and leaves no process behind. The report says what was found, also with an error, which means that
// the run could not be completed.
func Run(ctx context.Context, o Options) (*Report, error) {
	w, err := build(o)
	if err != nil {
		return nil, fmt.Errorf("soak: %w", err)
	}
	hard, cancel := context.WithCancel(ctx)
	defer cancel()
	s := &soak{o: o, world: w, began: time.Now(), hard: hard, ids: make(map[string]bool)}
	s.every = time.Duration(float64(writers(places())) / o.Rate * float64(time.Second))
	rep := &Report{Form: o.Form, Seed: o.Seed, Rate: o.Rate}
	err = errors.Join(s.run(hard, cancel, rep), w.journal.close())
	rep.Completed = err == nil
	return rep, err
}

// run starts the processes, does the phases, and ends the processes whatever happens.
func (s *soak) run(ctx context.Context, cancel context.CancelFunc, rep *Report) (err error) {
	shown := s.show(ctx)
	var keepers, backers keeping
	defer func() {
		cancel()
		err = errors.Join(err, keepers.kill(), backers.kill())
		shown()
		s.fill(rep)
	}()
	s.enter("start")
	for _, m := range s.world.backing {
		backers.keep(ctx, m)
	}
	if err := poll(ctx, "waiting for etcd", startPatience, s.world.etcdHealthy); err != nil {
		return err
	}
	for _, m := range s.world.nodes {
		keepers.keep(ctx, m)
	}
	if err := poll(ctx, "waiting for the nodes", startPatience, s.world.starsReady); err != nil {
		return err
	}
	began := time.Now()
	if err := s.load(ctx, cancel); err != nil {
		return err
	}
	rep.Seconds = time.Since(began).Seconds()
	if err := s.end(ctx, rep); err != nil {
		return err
	}
	s.enter("stop")
	if err := keepers.stop(ctx); err != nil {
		return err
	}
	s.enter("verify")
	return s.compare(ctx, rep)
}

// load lets the clients work and everything go wrong, until the time is over; then what was begun is brought to an end.
func (s *soak) load(ctx context.Context, cancel context.CancelFunc) error {
	s.enter("load and chaos")
	working, stopWork := context.WithTimeout(ctx, s.o.Duration)
	defer stopWork()
	var users sync.WaitGroup
	for i, p := range places() {
		tn := newTown(p.name, i)
		s.towns = append(s.towns, tn)
		users.Go(func() { s.inhabit(working, p, tn) })
		if p.lifetime > 0 {
			users.Go(func() { s.roam(working, tn) })
		}
	}
	users.Go(func() { s.probe(working) })
	s.chaos(working)
	s.enter("last appends")
	patience := time.AfterFunc(lastAppends, cancel)
	users.Wait()
	if !patience.Stop() {
		return fmt.Errorf("the clients' last calls were not answered within %v", lastAppends)
	}
	return ctx.Err()
}

// keeping is machines that are kept running.
type keeping struct {
	machines []*machine
	group    sync.WaitGroup
	cancels  []context.CancelFunc
	mu       sync.Mutex
	errs     []error
}

func (k *keeping) keep(ctx context.Context, m *machine) {
	ctx, cancel := context.WithCancel(ctx)
	k.machines, k.cancels = append(k.machines, m), append(k.cancels, cancel)
	k.group.Go(func() {
		if err := m.keep(ctx); err != nil {
			k.mu.Lock()
			defer k.mu.Unlock()
			k.errs = append(k.errs, err)
		}
	})
}

// leave ends the keeping, and leaves the processes running.
func (k *keeping) leave() error {
	for _, cancel := range k.cancels {
		cancel()
	}
	k.group.Wait()
	k.mu.Lock()
	defer k.mu.Unlock()
	return errors.Join(k.errs...)
}

// stopPatience bounds how long a node may take to end by itself.
const stopPatience = 45 * time.Second

// stop ends the processes one after the other the soft way.
func (k *keeping) stop(ctx context.Context) error {
	errs := []error{k.leave()}
	for _, m := range k.machines {
		if m.proc != nil {
			errs = append(errs, m.proc.stop(ctx, stopPatience))
			m.proc = nil
		}
	}
	return errors.Join(errs...)
}

// kill ends what still runs the hard way.
func (k *keeping) kill() error {
	err := k.leave()
	for _, m := range k.machines {
		if m.proc != nil {
			m.proc.kill()
			m.proc = nil
		}
	}
	return err
}

func (s *soak) enter(phase string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.phase = phase
	s.world.journal.printf("phase: %s", phase)
}

// progressEvery is how often progress is shown.
const progressEvery = time.Second

// show tells of the progress until the function that it returns is called.
func (s *soak) show(ctx context.Context) (done func()) {
	ctx, cancel := context.WithCancel(ctx)
	var shower sync.WaitGroup
	if s.o.Progress != nil {
		shower.Go(func() {
			for ctx.Err() == nil {
				s.o.Progress(s.progress())
				sleep(ctx, progressEvery)
			}
		})
	}
	return func() {
		cancel()
		shower.Wait()
	}
}

func (s *soak) progress() Progress {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := Progress{Phase: s.phase, Elapsed: time.Since(s.began), Wrong: s.surprises, Tally: s.tally}
	wrong := s.verdicts
	for _, l := range s.ledgers {
		l.mu.Lock()
		p.Tally.add(l.tally)
		wrong.add(l.verdicts)
		l.mu.Unlock()
	}
	p.Wrong += int(wrong.Lost + wrong.Duplicated + wrong.Reordered + wrong.Corrupt + wrong.Phantom + wrong.Undead)
	for _, m := range s.world.nodes {
		p.Kills += m.kills.Load()
		p.Pauses += m.pauses.Load()
	}
	return p
}

// fill puts into the report what was counted.
func (s *soak) fill(rep *Report) {
	s.mu.Lock()
	defer s.mu.Unlock()
	rep.tally, rep.verdicts = s.tally, s.verdicts
	for _, l := range s.ledgers { // none, unless it ended early
		rep.tally.add(l.tally)
		rep.verdicts.add(l.verdicts)
	}
	rep.Undeleted, rep.ReadFirst = s.undeleted, s.readFirst
	rep.Streams, rep.Deleted, rep.Surprises, rep.Details = len(s.ids), s.deleted, s.surprises, s.details
	rep.Fills, rep.Skipped = s.fills, s.skipped
	for _, m := range s.world.machines() {
		rep.Exits += m.exits.Load()
		switch m.role {
		case roleEtcd:
			rep.EtcdRestarts += m.restarts.Load()
		case roleS3:
			rep.S3Restarts += m.restarts.Load()
		default:
			rep.Kills += m.kills.Load()
			rep.Pauses += m.pauses.Load()
			n, err := m.crashes()
			if err != nil {
				rep.Details = append(rep.Details, err.Error())
			}
			rep.Crashes += n
		}
	}
}
