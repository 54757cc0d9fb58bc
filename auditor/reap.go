package auditor

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nova-store/nova/catalog"
	"github.com/nova-store/nova/objstore"
)

// reap deletes objects that nothing names any more. A reap-check is armed in the very
// commit that takes a ref from an object, ready after the reap grace.
//
// Steps, and what a crash after each leaves:
//
//  1. Probe: read the intent, *then* one ref. In the other order a swap and the resolve of its
//     intent could slip in between, and a live object look dead. A failed or short
//     read is a failure, never "dead".
//  2. A ref names it: stand down, on condition that this ref still exists in the same
//     commit; so a kill that leaned on the marker is not left without it. The ref watches. Where enough
//     of the object is dead, the same commit arms its gc marker.
//  3. An intent stands: its publish may not be over. Re-arm; intent and marker both watch.
//  4. Neither: dead for good. Nothing swaps to an object but its publisher, under an intent, and
//     an intent is never armed for swaps again once it went. Spool it. The marker stands and watches the object.
//  5. At the pass's end, or when the spool is full, delete a batch. What is deleted needs no watcher; a
//     crash before the resolve has the deletion repeated.
//  6. Resolve the markers of those whose deletion was confirmed. The others stand.
//
// No PUT of the object can land any more: it was named by a ref when the marker was armed, the PUT's first tries ended
// before its put horizon, and the reap grace exceeds that and the clock skew.
type reap struct {
	a *Auditor

	mu    sync.Mutex
	spool []spooled
}

type spooled struct {
	at  catalog.ReapAt
	job *Job
}

func newReap(a *Auditor) *reap { return &reap{a: a} }

// Judge runs what is ripe. An object key that no bucket could hold names nothing: nobody could
// ever reap it.
func (r *reap) Judge(m catalog.MarkerAt, now time.Time) Verdict {
	if v := ripe(m.Due, now); v != Run {
		return v
	}
	if objstore.CheckKey(m.Due.Object()) != nil {
		return Discard
	}
	return Run
}

const (
	// reapProbes bounds the probes of one job while refs come and go.
	reapProbes = 3
	// reapWaitMost is what the wait for a publish backs off to.
	reapWaitMost = 10 * time.Minute
)

// Handle runs steps 1 to 4.
func (r *reap) Handle(ctx context.Context, j *Job) (Outcome, error) {
	cat := r.a.cat
	at := catalog.ReapAt{
		Key: j.Marker.Due.Key, Object: j.Marker.Due.Object(),
		Marker: catalog.DecodeReapMarker(j.Marker.Value), Version: j.Marker.Version,
	}
	for probe := 1; ; probe++ {
		done := j.step("probe")
		_, standing, err := cat.ReadIntent(ctx, at.Object)
		if err != nil {
			return Standing, err
		}
		live, err := r.a.liveness(ctx, at.Object)
		done()
		switch {
		case err != nil:
			return Standing, err
		case len(live.first) > 0:
			err := cat.StandDownReap(ctx, at, live.first, live.reclaim)
			if errors.Is(err, catalog.ErrMoved) && probe < reapProbes {
				continue
			}
			if err != nil {
				return Standing, err
			}
			j.emit(Event{Action: ObjectAlive, Object: at.Object})
			return Resolved, nil
		case standing:
			before := time.Duration(at.Marker.Delay) * time.Millisecond
			return Waiting, cat.RearmReap(ctx, at, min(max(2*before, cat.Timing().ReapGrace), reapWaitMost))
		}
		if r.add(spooled{at, j}) {
			r.deleteBatch(ctx)
		}
		return Spooled, nil
	}
}

// add spools a confirmed reap and tells whether the spool is full.
func (r *reap) add(s spooled) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.spool = append(r.spool, s)
	return len(r.spool) >= r.a.opts.ReapSpool
}

// take takes a batch out of the spool.
func (r *reap) take() []spooled {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := min(len(r.spool), objstore.MaxDeleteKeys)
	batch := r.spool[:n:n]
	r.spool = r.spool[n:]
	return batch
}

// flush empties the spool at a pass's end. A batch has as long as a pass may take, so that a bucket that hangs does not keep the
// next pass, and with it every other duty, waiting for a whole job deadline.
func (r *reap) flush(ctx context.Context) {
	for ctx.Err() == nil && r.size() > 0 {
		fctx, cancel := r.a.clk.WithTimeout(ctx, min(r.a.cat.Timing().JobDeadline, r.a.opts.PassBudget))
		r.deleteBatch(fctx)
		cancel()
	}
}

func (r *reap) size() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.spool)
}

// deleteBatch runs steps 5 and 6 for one batch, and ends its jobs.
func (r *reap) deleteBatch(ctx context.Context) {
	batch := r.take()
	if len(batch) == 0 {
		return
	}
	keys := make([]string, len(batch))
	for i, s := range batch {
		keys[i] = s.at.Object
	}
	var deleted []catalog.ReapAt
	var jobs []*Job
	for i, err := range r.a.bucket.delete(ctx, keys) {
		if err != nil {
			batch[i].job.end(Standing, fmt.Errorf("deleting %s: %w", keys[i], err))
			continue
		}
		batch[i].job.emit(Event{Action: ObjectReaped, Object: keys[i], Bytes: int64(batch[i].at.Marker.Size)})
		deleted = append(deleted, batch[i].at)
		jobs = append(jobs, batch[i].job)
	}
	for i, err := range r.a.cat.ResolveReaps(ctx, deleted) {
		if err != nil {
			jobs[i].end(Standing, err)
			continue
		}
		jobs[i].end(Resolved, nil)
	}
}
