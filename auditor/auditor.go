// Package auditor is Nova's background role: it settles, trims, reaps and retires, and it
// is the only one that deletes an object.
//
// It never looks for work. Whoever makes a condition that needs background work arms
// a due marker in the same commit; a pass reads the ripe markers of the shards
// that this member owns and runs a leased job for each.
//
// # What correctness rests on
//
// Not on anything in this package's memory. Every change of liveness is a
// transition of package catalog, conditional on the versions that were judged; a marker
// is resolved, at the version judged, only after what it announced is durable. So
// a job may be cut anywhere, run twice, run by two members at once or by one that slept
// for a day, and another run converges. Ring, seats, leases, remembered positions and
// back-off only spare work; each duty's comment says what a crash after each of its
// steps leaves, and who watches every object then.
//
// One thing rests on time, the put horizon: see [catalog.Timing]. Where it is 0
// (embedded store, local directory) a PUT has no deadline but cannot outlive its
// process, and for that a job counts as running until its last bucket call has
// returned, past its deadline and its lease: [Duty.Handle] returns no sooner, its
// subject stays busy until then, and a busy subject admits no second job. So does the
// intent of an object whose publish is not over.
//
// # Under the simulator
//
// The package starts no goroutine, uses no channel and reads no clock but
// package clock's, so that it runs unchanged under the simulator's scheduler.
package auditor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nova-store/nova/catalog"
	"github.com/nova-store/nova/clock"
	"github.com/nova-store/nova/metastore"
	"github.com/nova-store/nova/objstore"
	"github.com/nova-store/nova/objstore/format"
)

// Options of an auditor. Zero fields take the defaults given.
type Options struct {
	// Member is the name on the ring.
	Member string
	// Version of the program, for the node stats.
	Version string
	// Workers is how many jobs run at once (2). No duty holds more than half, or one.
	Workers int
	// IdleInterval is the wait after a pass that left nothing to do (30 s).
	IdleInterval time.Duration
	// PassBudget bounds one pass (30 s).
	PassBudget time.Duration
	// MarkersPerEra bounds the batch markers that a settle round takes (256).
	MarkersPerEra int
	// MemberParallel is how many objects an era writes abreast (2).
	MemberParallel int
	// SettleObjectMin is from how many bytes on a stream gets settled objects of its own (1 MiB).
	// SettleObjectMax is how large one gets, in bytes (64 MiB).
	SettleObjectMin, SettleObjectMax int64
	// RequestRate bounds bucket requests a second, RewriteRate bytes rewritten a
	// second; 0 is unlimited.
	RequestRate, RewriteRate float64
	// Room refuses rewrites for which the bucket has no room left: their markers stand, and are tried again. Nil: none are.
	Room *objstore.Room
	// FetchCacheBytes bounds the source objects that eras hold in memory, all together (128 MiB).
	FetchCacheBytes int64
	// GCMinDeadRatio (0.5) and GCMinDeadBytes (1 MiB) are how much of an object must be dead,
	// of its size and in bytes, for its gc marker to be armed.
	GCMinDeadRatio float64
	GCMinDeadBytes int64
	// ReapSpool is how many confirmed reaps wait for one batch delete (1000, which is also the most).
	ReapSpool int
	// PageSize is how many markers a walk reads ahead (128).
	PageSize int
	// NoLeases makes every claim succeed without being made. Nothing but duplicate work
	// may come of it; the simulator checks that.
	NoLeases bool
	// Embedded: store and bucket cannot outlive this process; the put horizon is 0.
	Embedded bool
	// Codec compresses settled objects; nil stores them as they are.
	Codec format.Codec
	// Logger gets failures and warnings; nil: none.
	Logger *slog.Logger
	// Events is told what happens; nil: nobody is.
	Events Events
}

func (o *Options) setDefaults() {
	o.Workers = orDefault(o.Workers, 2)
	o.IdleInterval = orDefault(o.IdleInterval, 30*time.Second)
	o.PassBudget = orDefault(o.PassBudget, 30*time.Second)
	o.MarkersPerEra = orDefault(o.MarkersPerEra, 256)
	o.MemberParallel = orDefault(o.MemberParallel, 2)
	o.SettleObjectMin = orDefault(o.SettleObjectMin, 1<<20)
	o.SettleObjectMax = min(orDefault(o.SettleObjectMax, 64<<20), 64<<20)
	o.FetchCacheBytes = orDefault(o.FetchCacheBytes, 128<<20)
	o.GCMinDeadRatio = orDefault(o.GCMinDeadRatio, 0.5)
	o.GCMinDeadBytes = orDefault(o.GCMinDeadBytes, 1<<20)
	o.ReapSpool = min(orDefault(o.ReapSpool, objstore.MaxDeleteKeys), objstore.MaxDeleteKeys)
	o.PageSize = orDefault(o.PageSize, 128)
	if o.Codec == nil {
		o.Codec = format.Stored()
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
}

func orDefault[T int | int64 | float64 | time.Duration](v, d T) T {
	if v <= 0 {
		return d
	}
	return v
}

// Auditor is one member. Its methods are safe for concurrent use.
type Auditor struct {
	cat    *catalog.Catalog
	bucket *bucket
	clk    clock.Clock
	opts   Options
	log    *slog.Logger

	ring    *ring
	leases  *leases
	pool    *pool
	backoff *backoff
	wake    *clock.Signal
	stats   nodeStats
	sources []*source
	blocks  [][]source // the same by duty and shard
	// Of the pass under way alone.
	peekSources []*source
	peekRanges  []metastore.Range

	mu       sync.Mutex
	running  bool
	fronting bool // the next pass walks from the very front
}

// New returns an auditor with the duties of this version. It does no I/O.
//
// Errors: catalog.ErrBadName for the member's name, catalog.ErrUnsafeTiming for a
// catalog whose timing breaks the one timing assumption.
func New(cat *catalog.Catalog, b objstore.Bucket, clk clock.Clock, opts Options) (*Auditor, error) {
	if err := catalog.CheckNodeName(opts.Member); err != nil {
		return nil, fmt.Errorf("auditor: %w", err)
	}
	if err := cat.Timing().Validate(opts.Embedded); err != nil {
		return nil, fmt.Errorf("auditor: %w", err)
	}
	opts.setDefaults()
	a := newHarness(cat, b, clk, opts)
	reap := newReap(a)
	a.register(
		Registration{Queue: catalog.Teardown, Duty: &teardown{a}, TimeOrdered: true, GroupUpTo: teardownGroup, GroupAbreast: teardownAbreast, FrontEvery: frontEvery},
		Registration{Queue: catalog.Settle, Duty: &settle{a}, TimeOrdered: true, FrontEvery: frontEvery},
		Registration{Queue: catalog.Retention, Duty: &retention{a}, TimeOrdered: true, FrontEvery: frontEvery},
		Registration{Queue: catalog.Reap, Duty: reap, TimeOrdered: true, FrontEvery: frontEvery, PassEnd: reap.flush},
		Registration{Queue: catalog.TrimCheck, Duty: &trimcheck{a}, TimeOrdered: true, FrontEvery: frontEvery},
		Registration{Queue: catalog.Denorm, Duty: newDenorm(a), TimeOrdered: true, AllShards: true, Grouped: true, FrontEvery: frontEvery},
		Registration{Queue: catalog.Orphan, Duty: &orphan{a}, FrontEvery: cat.Timing().OrphanGrace / 4},
		// Its biggest new work sorts to the front: every walk starts there.
		Registration{Queue: catalog.GC, Duty: newGC(a)},
	)
	return a, nil
}

// frontEvery is how often a time-ordered queue is looked at from its very front, for
// late landings and slow clocks.
const frontEvery = time.Minute

// newHarness returns an auditor without duties.
func newHarness(cat *catalog.Catalog, b objstore.Bucket, clk clock.Clock, opts Options) *Auditor {
	a := &Auditor{
		cat: cat, clk: clk, opts: opts,
		log:     opts.Logger.With("member", opts.Member),
		bucket:  newBucket(b, clk, opts),
		pool:    newPool(clk, opts.Workers),
		backoff: newBackoff(),
		wake:    clock.NewSignal(clk),
	}
	a.ring = newRing(a)
	a.leases = newLeases(a)
	return a
}

// register adds duties; their order is their priority.
func (a *Auditor) register(rs ...Registration) {
	for i := range rs {
		r := &rs[i]
		// One piece of memory for all of them: a process that dies and starts again and again, as simulated ones do, feels it.
		block, ranges := make([]source, catalog.Shards), catalog.ShardRanges(r.Queue)
		for shard := range block {
			s := &block[shard]
			s.init(a, r, shard, ranges[shard])
			a.sources = append(a.sources, s)
		}
		a.blocks = append(a.blocks, block)
	}
}

// Run announces the member, runs passes until ctx ends, then waits until every job has returned,
// withdraws and returns nil. Jobs are cut by ctx's end, as a crash might, only softer.
// A failed pass or job is logged and never ends Run. It must not be called twice at once.
func (a *Auditor) Run(ctx context.Context) error {
	a.mu.Lock()
	if a.running {
		a.mu.Unlock()
		return errors.New("auditor: it runs already")
	}
	a.running = true
	a.mu.Unlock()

	// What is left to do once ctx has ended must not be cut by that end. Whoever
	// can't wait kills the process.
	lctx := context.WithoutCancel(ctx)
	actx, stop := a.clk.WithCancel(lctx)
	defer stop()
	alive := clock.NewGroup(a.clk, 0)
	if !a.opts.Embedded {
		// Embedded sessions end with the process alone.
		if err := alive.Go(actx, "auditor/keepalive", a.keepAlive); err != nil {
			return fmt.Errorf("auditor: %w", err)
		}
	}
	for ctx.Err() == nil {
		gen := a.wake.Generation()
		if a.pass(ctx) {
			continue
		}
		wctx, cancel := a.clk.WithTimeout(ctx, a.opts.IdleInterval)
		// A job completed, or a call of Wake, since gen was read ends the wait at once.
		_ = a.wake.Wait(wctx, gen)
		cancel()
	}
	err := a.pool.tasks.Wait(lctx)
	stop()
	err = errors.Join(err, alive.Wait(lctx))
	a.withdraw(lctx)
	a.mu.Lock()
	a.running = false
	a.mu.Unlock()
	return err
}

// withdraw leaves the ring and gives the leases back, both by ending their
// sessions. What fails here ends with the sessions' TTL.
func (a *Auditor) withdraw(ctx context.Context) {
	wctx, cancel := a.clk.WithTimeout(ctx, a.cat.Timing().SessionTTL)
	defer cancel()
	if err := errors.Join(a.ring.withdraw(wctx), a.leases.close(wctx)); err != nil {
		a.log.Warn("withdrawal failed; the sessions end by their TTL", "err", err)
	}
	a.emit(Event{Action: Withdrawn})
}

// Wake makes the auditor look again at once, from the front of every queue: a commit
// of this process has armed a marker for now or the past. One armed for later needs no wake.
func (a *Auditor) Wake() {
	a.mu.Lock()
	a.fronting = true
	a.mu.Unlock()
	a.wake.Raise()
}

// Armed notes that a commit of this process put a due marker or an entry of denorm's schedule, so that the next walk
// of its shard begins no higher. It costs next to nothing and may be called by any task. Other keys are ignored.
func (a *Auditor) Armed(key string) {
	prefix := key[:strings.LastIndexByte(key, '/')+1]
	const tail = len("00/")
	for _, b := range a.blocks {
		head := b[0].whole.Start[:len(b[0].whole.Start)-tail]
		if len(prefix) != len(head)+tail || prefix[:len(head)] != head {
			continue
		}
		if shard, err := strconv.ParseUint(prefix[len(head):len(prefix)-1], 16, 8); err == nil && shard < catalog.Shards && b[shard].whole.Start == prefix {
			b[shard].arm(key)
		}
		return
	}
}

func (a *Auditor) takeFronting() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	f := a.fronting
	a.fronting = false
	return f
}

// Member returns the name on the ring.
func (a *Auditor) Member() string { return a.opts.Member }

// Announced tells whether the member is on the ring, as far as it knows.
func (a *Auditor) Announced() bool { return a.ring.announced() }

// Live tells whether the member's announcement is live: it is on the ring, and its session was kept alive less than a TTL
// ago. A member that cannot reach the store ceases to be, although nobody has told it that it is gone.
func (a *Auditor) Live() bool { return a.ring.fresh(a.clk.Now()) }

// Seat returns what the ring dealt to this member at the last pass boundary.
func (a *Auditor) Seat() Seat { return a.ring.current() }

// Busy returns how many jobs run at the moment.
func (a *Auditor) Busy() int { return a.pool.tasks.Running() }

// Worked returns how much time workers have spent on jobs since the start, added up over all of them.
func (a *Auditor) Worked() time.Duration { return a.pool.worked(a.clk.Now()) }

// Workers returns how many jobs can run at once.
func (a *Auditor) Workers() int { return a.opts.Workers }
