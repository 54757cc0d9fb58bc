// Package verify is the operator's check: it reads every record of the keyspace and
// every recorded byte of the bucket, and says in an operator's words what is amiss
// and what to do. It changes nothing.
//
// # A busy server is never accused
//
// Pages of a walk are not one snapshot, so what a walk finds odd is only a
// suspicion. A suspicion is evaluated on its own, record first, then what the record names, again and
// again with a pause in between, until two consecutive evaluations agree that it is
// amiss: the same thing, the same reason, on the same basis. The record may have moved or gone: then it
// is no finding. Why agreement proves it, by the shape of the evaluation:
//
//   - One revision. Where all that the statement is about fits into one Get, that read
//     is a snapshot. Every transition of the keyspace keeps these statements in every commit, so that
//     one such read that breaks it is a proof, whatever happens before and after. The second read only
//     guards against a read that went wrong. These have no basis.
//   - Cursors. Next offset, watermark, frontier, trimmed and checkpoint never go back. What
//     is read *before* a page bounds from below what held at the page, what is read
//     *after* it from above. An evaluation in the right order is again a proof by itself.
//   - Held still. Where a record and an object, or a record and several pages, speak of each other, the basis is
//     the record's version. A version never repeats: the same one in both evaluations means that the
//     record stood unchanged from the first read to the last, and so at the moment at which
//     what it names was seen missing. Objects are never changed or made again under a key, so that what
//     was missing or corrupt while the record stood was a fault at that instant.
//
// A suspicion that never comes to rest within its tries is counted (Report.Restless), not
// reported: the next run will find it if it is real.
//
// # Cost
//
// Each record is read once in a page, and once more by key together with what it names, several
// dozens in one Get; a span held by a slot costs one more short scan, unless its batch was seen
// lately; a settled object costs one read of its last 16 KiB and of its header beside the ranges of its
// spans, a slot one whole read. Memory is bounded: one page, the bytes of the objects read at once
// (96 MiB at most), a cache of batch inventories, and two sets of hashes; see the constants.
package verify

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/nova-store/nova/catalog"
	"github.com/nova-store/nova/clock"
	"github.com/nova-store/nova/metastore"
	"github.com/nova-store/nova/objstore"
)

// Kind names a kind of damage.
type Kind string

// The kinds of damage. Advice says what to do about each.
const (
	BadRecord        Kind = "bad-record"        // a key or value that does not decode, or of no known kind
	WrongFormat      Kind = "wrong-format"      // the keyspace is of another format
	TimelineCutOff   Kind = "timeline-cut-off"  // the beginning of a new time line has not ended: no node starts
	NameMismatch     Kind = "name-mismatch"     // a name and its stream do not lead to each other
	StreamIncomplete Kind = "stream-incomplete" // of a stream's records one is missing, or the id counter is behind
	ChainIncomplete  Kind = "chain-incomplete"  // of a chain's records one is missing
	CursorOrder      Kind = "cursor-order"      // cursors that must be in order are not
	SpanGap          Kind = "span-gap"          // readable offsets that no span holds
	SpanOverlap      Kind = "span-overlap"      // offsets that two spans hold
	SpanStray        Kind = "span-stray"        // a span of no stream, or beyond its end
	SpanAccount      Kind = "span-account"      // byte positions or times of spans that do not follow each other
	SpanUnwatched    Kind = "span-unwatched"    // a span in a slot that no batch marker holds
	RefMissing       Kind = "ref-missing"       // a span whose object does not know it
	RefStray         Kind = "ref-stray"         // a ref without its span
	RefMismatch      Kind = "ref-mismatch"      // a ref that says other sizes than span and object
	ObjectMissing    Kind = "object-missing"    // a recorded object that is not there
	ObjectCorrupt    Kind = "object-corrupt"    // its bytes are not what was written
	ObjectMismatch   Kind = "object-mismatch"   // its bytes are intact, but not what the record says
	SlotUnwatched    Kind = "slot-unwatched"    // a slot that nothing will delete
	MarkerMissing    Kind = "marker-missing"    // a record whose due marker does not stand
	MarkerStray      Kind = "marker-stray"      // a due marker, or an entry of an index, that speaks of nothing
	MarkerMisplaced  Kind = "marker-misplaced"  // a marker in a shard in which nobody looks for it
	IndexMissing     Kind = "index-missing"     // a marker without its entry in the schedule or by stream
	ObjectUnrecorded Kind = "object-unrecorded" // an object in the bucket that no record names
	BucketStray      Kind = "bucket-stray"      // something in the bucket's folder that is no object
)

// Finding is one thing amiss.
type Finding struct {
	Kind   Kind   `json:"kind"`
	Key    string `json:"key"`    // of the record, or of the object
	Detail string `json:"detail"` // what is wrong
	Advice string `json:"advice"` // what to do
}

// Stray is something in the bucket's storage that is no object.
type Stray struct{ Path, Why string }

// Recorded is an object that the metadata records.
type Recorded struct {
	Key string `json:"key"`
	// Size is that of a settled object or of a bundle by a ref, and that of a slot by its own footer, since its chain records
	// none: UnknownSize where that cannot be read, which is a finding.
	Size int64 `json:"size"`
}

// UnknownSize is that of a slot which is not what was written.
const UnknownSize = -1

// QueueCount counts a queue's markers.
type QueueCount struct {
	Queue   catalog.Queue `json:"queue"`
	Markers int           `json:"markers"`
}

// Report is what a run found.
type Report struct {
	Streams int          `json:"streams"`
	Spans   int          `json:"spans"`
	Records uint64       `json:"records"` // of streams, read and verified
	Bytes   uint64       `json:"bytes"`   // their payload
	Refs    int          `json:"refs"`
	Objects int          `json:"objects"` // settled objects, bundles, and slots that were read
	Chains  int          `json:"chains"`
	Queues  []QueueCount `json:"queues"`
	Pending int          `json:"pending"` // entries of the by-stream index
	Listed  int          `json:"listed"`  // objects of the bucket's listing; 0 without one
	// ListedBytes is their size.
	ListedBytes uint64 `json:"listed_bytes"`
	Rechecks    int    `json:"rechecks"`
	// Restless counts suspicions that kept changing while they were looked at. They
	// are no findings.
	Restless int `json:"restless"`
	// Amiss counts all findings, of which Findings holds the first.
	Amiss    int           `json:"amiss"`
	Findings []Finding     `json:"findings"`
	Took     time.Duration `json:"took_ns"`
}

// Progress tells how far a run is.
type Progress struct {
	Phase   string `json:"phase"`
	Streams int    `json:"streams"`
	Spans   int    `json:"spans"`
	Objects int    `json:"objects"`
	Bytes   uint64 `json:"bytes"`
	Amiss   int    `json:"amiss"`
}

// Options of Run. The zero value is usable.
type Options struct {
	// Abreast is how many objects are read at once, at most. 0: 4.
	Abreast int
	// List lists the bucket too and reports every object that no record names. Only where
	// nothing else has the bucket open: a running server's PUTs come before their records.
	List bool
	// Strays, with List, tells what is in the bucket's storage and is no object, some of it at least: its place and why. Nil: there
	// is nothing to look into.
	Strays func(context.Context) ([]Stray, error)
	// Recorded, if not nil, is told of each object that the metadata records, with each size that it has by a record. It is never called
	// twice at once. So it is of the slots that a chain which is not sealed announces, where they exist. What an intent announces is not recorded yet, and
	// what a reap-check or a gc marker alone names not any more.
	Recorded func(Recorded)
	// PageSize is how many records one page holds. 0: 256.
	PageSize int
	// Keep bounds the findings that the report holds; all are counted. 0: 1000.
	Keep int
	// Progress, if not nil, is called at most about every 200 ms, and at the begin of each
	// phase, never twice at once. It must not block for long.
	Progress func(Progress)
}

const (
	defaultAbreast  = 4
	defaultPage     = 256
	defaultKeep     = 1000
	progressEvery   = 200 * time.Millisecond
	memoryMost      = 96 << 20 // bytes of objects held at once
	pieceBytes      = 4 << 20  // a longer span is read in pieces
	hashesMost      = 1 << 20  // entries of each set of hashes: 8 MiB
	cachedItemsMost = 1 << 20  // inventory items of the batches cached: about 32 MiB
)

// run is one run's state. The walks are one task; only objects are read by several.
type run struct {
	cat    *catalog.Catalog
	store  metastore.Store
	bucket objstore.Bucket
	clk    clock.Clock
	o      Options
	most   int // keys of one Get
	start  time.Time

	memory  *clock.Semaphore
	batches *batchCache
	teared  hashes // streams that a teardown marker names
	reaped  hashes // objects that a reap-check names

	telling sync.Mutex // held while Options.Recorded is told

	mu      sync.Mutex
	rep     Report
	seen    map[string]bool // findings kept, by kind and key
	phase   string
	shown   time.Time // when progress was shown last
	showing bool      // it is being shown
	queues  map[catalog.Queue]int
}

// Run checks the whole keyspace and the bucket. An error means that it could not be finished (a store or
// a bucket that does not answer, a context that ended); the report then holds what was seen so far.
// What is amiss is in the report, and no error.
func Run(ctx context.Context, cat *catalog.Catalog, bucket objstore.Bucket, clk clock.Clock, o Options) (Report, error) {
	if o.Abreast < 1 {
		o.Abreast = defaultAbreast
	}
	if o.PageSize < 1 {
		o.PageSize = defaultPage
	}
	if o.Keep < 1 {
		o.Keep = defaultKeep
	}
	r := &run{
		cat: cat, store: cat.Store(), bucket: bucket, clk: clk, o: o, start: clk.Now(), most: cat.Store().Limits().MaxOps,
		memory: clock.NewSemaphore(clk, memoryMost), batches: newBatchCache(),
		rep:  Report{Findings: []Finding{}}, // which is no null to whoever reads the report as JSON
		seen: map[string]bool{}, queues: map[catalog.Queue]int{},
	}
	err := r.all(ctx)
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, q := range catalog.Queues() {
		r.rep.Queues = append(r.rep.Queues, QueueCount{q, r.queues[q]})
	}
	r.rep.Took = clk.Now().Sub(r.start)
	slices.SortStableFunc(r.rep.Findings, byKey)
	return r.rep, err
}

// all runs the phases. Markers come first: their walk gathers which streams have a teardown
// marker and which objects a reap-check, for the walks after it.
func (r *run) all(ctx context.Context) error {
	phases := []struct {
		name string
		do   func(context.Context) error
	}{
		{"cluster", r.cluster},
		{"markers", r.markers},
		{"pending work", r.pending},
		{"chains", r.chains},
		{"streams", r.streams},
		{"references", r.refs},
	}
	if r.o.List {
		phases = append(phases, struct {
			name string
			do   func(context.Context) error
		}{"bucket", r.list})
	}
	for _, p := range phases {
		r.enter(p.name)
		if err := p.do(ctx); err != nil {
			return fmt.Errorf("verifying %s: %w", p.name, err)
		}
	}
	r.enter("done")
	return nil
}

func byKey(a, b Finding) int {
	if a.Kind != b.Kind {
		if a.Kind < b.Kind {
			return -1
		}
		return 1
	}
	if a.Key < b.Key {
		return -1
	}
	if a.Key > b.Key {
		return 1
	}
	return 0
}

// enter begins a phase.
func (r *run) enter(phase string) {
	r.mu.Lock()
	r.phase, r.shown = phase, time.Time{}
	r.mu.Unlock()
	r.count(func(*Report) {})
}

// count changes the report, and shows progress now and then.
func (r *run) count(f func(*Report)) {
	now := r.clk.Now()
	r.mu.Lock()
	f(&r.rep)
	show := r.o.Progress != nil && !r.showing && now.Sub(r.shown) >= progressEvery
	p := Progress{r.phase, r.rep.Streams, r.rep.Spans, r.rep.Objects, r.rep.Bytes, r.rep.Amiss}
	if show {
		r.shown, r.showing = now, true
	}
	r.mu.Unlock()
	if show {
		r.o.Progress(p)
		r.mu.Lock()
		r.showing = false
		r.mu.Unlock()
	}
}

// recorded tells of an object that the metadata records.
func (r *run) recorded(key string, size int64) {
	if r.o.Recorded == nil {
		return
	}
	r.telling.Lock()
	defer r.telling.Unlock()
	r.o.Recorded(Recorded{key, size})
}

// report notes what is amiss, once for each kind and key.
func (r *run) report(f Finding) {
	f.Advice = advice(f.Kind)
	r.count(func(rep *Report) {
		id := string(f.Kind) + " " + f.Key
		if r.seen[id] {
			return
		}
		rep.Amiss++
		if len(rep.Findings) < r.o.Keep {
			r.seen[id] = true
			rep.Findings = append(rep.Findings, f)
		}
	})
}

// claim is what one evaluation found amiss.
type claim struct {
	Finding
	// basis is what must be the same in two evaluations for them to agree; see the
	// package's comment.
	basis string
	// moving: what was looked at changed under the evaluation, which says nothing.
	moving bool
}

func amiss(kind Kind, key, format string, args ...any) *claim {
	return &claim{Finding: Finding{Kind: kind, Key: key, Detail: fmt.Sprintf(format, args...)}}
}

func (c *claim) on(versions ...metastore.Version) *claim {
	c.basis = fmt.Sprint(versions)
	return c
}

const (
	confirmTries = 12
	confirmFirst = 20 * time.Millisecond
	confirmMost  = time.Second
)

// confirm evaluates a suspicion until two consecutive evaluations agree, and reports it then. It
// returns without a finding as soon as one evaluation finds nothing.
func (r *run) confirm(ctx context.Context, eval func(context.Context) (*claim, error)) error {
	var last *claim
	for try := range confirmTries {
		if try > 0 {
			if err := r.clk.Sleep(ctx, clock.Jitter(r.clk, min(confirmFirst<<try, confirmMost))); err != nil {
				return err
			}
		}
		r.count(func(rep *Report) { rep.Rechecks++ })
		now, err := eval(ctx)
		if err != nil {
			return err
		}
		if now == nil {
			return nil
		}
		if last != nil && !now.moving && !last.moving && now.Kind == last.Kind && now.Key == last.Key && now.basis == last.basis {
			r.report(now.Finding)
			return nil
		}
		last = now
	}
	r.count(func(rep *Report) { rep.Restless++ })
	return nil
}

const (
	ioTries = 6
	ioFirst = 20 * time.Millisecond
)

// again calls f until it neither fails for now nor has been tried often enough.
func (r *run) again(ctx context.Context, f func() error) error {
	for try := 1; ; try++ {
		err := f()
		passing := errors.Is(err, metastore.ErrUnavailable) || errors.Is(err, objstore.ErrThrottled) || errors.Is(err, objstore.ErrUnknown)
		if err == nil || !passing || try == ioTries {
			return err
		}
		if err := r.clk.Sleep(ctx, clock.Jitter(r.clk, ioFirst<<try)); err != nil {
			return err
		}
	}
}

// get reads keys at one revision; they are at most r.most.
func (r *run) get(ctx context.Context, keys ...string) (recs []metastore.Record, err error) {
	err = r.again(ctx, func() (err error) { recs, err = r.store.Get(ctx, keys...); return err })
	return recs, err
}

// walk hands the pages of a range to f.
func (r *run) walk(ctx context.Context, rng metastore.Range, f func([]metastore.Record) error) error {
	for {
		page, err := r.page(ctx, rng, r.o.PageSize)
		if err != nil {
			return err
		}
		if len(page.Records) > 0 {
			if err := f(page.Records); err != nil {
				return err
			}
		}
		if !page.More || len(page.Records) == 0 {
			return nil
		}
		rng.Start = page.Records[len(page.Records)-1].Key + "\x00"
	}
}

func (r *run) page(ctx context.Context, rng metastore.Range, limit int) (page metastore.Page, err error) {
	err = r.again(ctx, func() (err error) {
		page, err = r.store.Scan(ctx, rng, limit)
		if err == nil && len(page.Records) == 0 && page.More {
			return fmt.Errorf("%w: an empty page that says more", metastore.ErrUnavailable)
		}
		return err
	})
	return page, err
}

// statement is what must hold of every record of a kind, at one revision: of the record itself, and
// of the records that it names.
type statement struct {
	// needs returns the keys that the record names, or what is wrong with the record itself.
	needs func(rec metastore.Record) ([]string, *claim)
	// judge gets the record and those of its keys, in order, all read at one revision.
	judge func(rec metastore.Record, named []metastore.Record) *claim
}

// hold checks a statement of a page's records: first all of them, many in one read, then each of
// which that raised a suspicion by itself.
func (r *run) hold(ctx context.Context, recs []metastore.Record, s statement) error {
	var suspects []string
	for len(recs) > 0 {
		var keys []string
		n := 0
		needed := make([]int, 0, len(recs))
		for ; n < len(recs); n++ {
			more, bad := s.needs(recs[n])
			if bad != nil {
				more = nil
			}
			if n > 0 && len(keys)+1+len(more) > r.most {
				break
			}
			keys = append(append(keys, recs[n].Key), more...)
			needed = append(needed, len(more))
		}
		got, err := r.get(ctx, keys...)
		if err != nil {
			return err
		}
		for i := range n {
			rec, named := got[0], got[1:1+needed[i]]
			got = got[1+needed[i]:]
			if !rec.Exists() {
				continue
			}
			_, bad := s.needs(rec)
			if bad != nil || rec.Version != recs[i].Version || s.judge(rec, named) != nil {
				suspects = append(suspects, rec.Key)
			}
		}
		recs = recs[n:]
	}
	for _, key := range suspects {
		if err := r.confirm(ctx, func(ctx context.Context) (*claim, error) { return r.evaluate(ctx, key, s) }); err != nil {
			return err
		}
	}
	return nil
}

// evaluate checks a statement of one record at one revision: it reads the record for what it
// names, then it and them together, until it was the same in both.
func (r *run) evaluate(ctx context.Context, key string, s statement) (*claim, error) {
	recs, err := r.get(ctx, key)
	if err != nil {
		return nil, err
	}
	for range 4 {
		rec := recs[0]
		if !rec.Exists() {
			return nil, nil
		}
		keys, bad := s.needs(rec)
		if bad != nil {
			return bad, nil
		}
		if recs, err = r.get(ctx, append([]string{key}, keys...)...); err != nil {
			return nil, err
		}
		if recs[0].Version == rec.Version {
			return s.judge(recs[0], recs[1:]), nil
		}
	}
	return &claim{moving: true}, nil
}

// each checks a statement of every record of a range.
func (r *run) each(ctx context.Context, rng metastore.Range, s statement) error {
	return r.walk(ctx, rng, func(recs []metastore.Record) error { return r.hold(ctx, recs, s) })
}
