package auditor

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/nova-store/nova/catalog"
	"github.com/nova-store/nova/metastore"
)

// walkPages bounds how many pages of a shard one pass walks, so that no shard takes
// a whole pass. A walk that was cut goes on there in the next pass.
const walkPages = 64

// source is the pull iterator over one queue's shard, with the position that it
// remembers between passes.
//
// The front of a queue is where deletes pile up, and a store may have to wade through them:
// so a walk starts at the lowest key that the last one left standing (failed,
// leased elsewhere, skipped). In a queue ordered by time the position never
// passes the pass's start − MaxClockSkew, so that whoever arms for "now" by another
// clock arms above it. What lands below it all the same (a commit that was long under way, a clock that is further off) is
// found by a walk from the very front, every FrontEvery at most, or at once after Wake; and what
// this process itself armed below, the next walk begins with ([Auditor.Armed]).
//
// All of it is a hint: a position too low costs reads, one too high a wait.
type source struct {
	a     *Auditor
	reg   *Registration
	shard int
	whole metastore.Range

	pos    string    // where the next walk starts
	resume string    // where a walk that was cut goes on; empty: it was not
	fronts time.Time // when a walk last started at the very front

	// Of the walk under way. Only open is shared with the jobs.
	bound  uint64 // the ready time that pos may not pass, in a queue ordered by time
	last   string // highest key seen
	at     string // where the next page begins, or behind it if that is last
	page   []metastore.Record
	more   bool // there may be records behind the page
	walked int  // pages read in this pass
	gave   bool // a job, in this pass
	state  walkState
	taken  map[string]bool // subjects of groups offered in this walk

	mu    sync.Mutex
	low   string   // lowest key that the walk, or a job, left standing
	open  []string // markers of jobs of this walk that have not ended, in order
	armed string   // the lowest key that this process armed since the walk began
}

type walkState uint8

const (
	walkIdle walkState = iota // not begun in this pass
	walkLive
	walkDone   // at the end, or at an unripe marker
	walkFailed // the store failed: the next pass starts again
)

func (s *source) init(a *Auditor, reg *Registration, shard int, whole metastore.Range) {
	s.a, s.reg, s.shard, s.whole, s.pos = a, reg, shard, whole, whole.Start
}

func (s *source) queue() catalog.Queue { return s.reg.Queue }

// begin starts the walk of a pass that began at start, and returns the range to peek at. Ready times from bound on
// may be armed by other clocks yet.
func (s *source) begin(start time.Time, bound uint64, front bool) metastore.Range {
	s.state, s.walked, s.gave, s.page = walkLive, 0, false, nil
	from := s.resume
	s.resume = ""
	// After a clock was set back no position means anything.
	since := start.Sub(s.fronts)
	if s.fronts.IsZero() || since < 0 || since >= s.reg.FrontEvery && from == "" {
		front = true
	}
	s.mu.Lock()
	armed := s.armed
	s.armed = ""
	if front || from == "" || armed != "" && armed < from {
		s.last, s.taken = "", nil
		s.low, s.open = "", nil
		from = s.pos
		if armed != "" {
			from = min(from, armed)
		}
		s.bound = bound
	}
	s.mu.Unlock()
	if front {
		s.fronts, from = start, s.whole.Start
	}
	s.at, s.more = from, true
	return metastore.Range{Start: from, End: s.whole.End}
}

// prime is told what lies at the start of the range, and tells whether the walk is
// worth an iterator.
func (s *source) prime(rec metastore.Record, now time.Time) bool {
	if !rec.Exists() {
		s.state = walkDone
		return false
	}
	s.at = rec.Key
	if due, err := catalog.ParseDue(rec.Key); err == nil &&
		s.reg.Duty.Judge(catalog.MarkerAt{Due: due, Value: rec.Value, Version: rec.Version}, now) == Stop {
		s.state = walkDone
		return false
	}
	return true
}

// fail takes the source out of the pass.
func (s *source) fail(err error) {
	s.state = walkFailed
	s.a.log.Warn("a shard could not be walked; the next pass tries again", "queue", s.reg.Queue, "shard", s.shard, "err", err)
}

// pull returns the next record of the walk; ok is false where it ends or is cut.
func (s *source) pull(ctx context.Context) (rec metastore.Record, ok bool) {
	for len(s.page) == 0 {
		switch {
		case !s.more:
			s.state = walkDone
			return rec, false
		case s.walked >= walkPages:
			return rec, false
		}
		page, err := s.a.cat.Store().Scan(ctx, metastore.Range{Start: s.ahead(), End: s.whole.End}, s.a.opts.PageSize)
		if err != nil {
			if ctx.Err() == nil {
				s.fail(err)
			}
			return rec, false
		}
		s.walked++
		s.page, s.more = page.Records, page.More
		if page.More && len(page.Records) == 0 {
			s.fail(metastore.ErrUnavailable)
			return rec, false
		}
	}
	rec = s.page[0]
	s.page = s.page[1:]
	s.at, s.last = rec.Key, rec.Key
	return rec, true
}

// ahead is the lowest key that the walk has not seen.
func (s *source) ahead() string {
	if s.at == s.last {
		return s.at + "\x00"
	}
	return s.at
}

// next returns the next job of the walk, its markers claimed: one ripe marker that may run, or, of a duty
// that works on groups, as many as a group takes.
func (s *source) next(ctx context.Context) func(ctx context.Context) {
	j := &Job{a: s.a, reg: s.reg, src: s}
	for s.state == walkLive && ctx.Err() == nil && len(j.members) < max(s.reg.GroupUpTo, 1) {
		if !s.reg.AllShards && !s.a.ring.owns(s.shard) {
			break
		}
		rec, ok := s.pull(ctx)
		if !ok {
			break
		}
		s.triage(ctx, j, rec)
	}
	if len(j.members) == 0 {
		return nil
	}
	s.gave = true
	j.Marker, j.Started = j.Markers[0], s.a.clk.Now()
	return j.run
}

// triage judges one record of the walk, and adds it to the job where it may run and is claimed.
func (s *source) triage(ctx context.Context, j *Job, rec metastore.Record) {
	due, err := catalog.ParseDue(rec.Key)
	m := catalog.MarkerAt{Due: due, Value: rec.Value, Version: rec.Version}
	now := s.a.clk.Now()
	verdict := Discard
	if err == nil {
		verdict = s.reg.Duty.Judge(m, now)
	}
	switch verdict {
	case Stop:
		s.state = walkDone
	case Skip:
		s.stands(rec.Key)
	case Discard:
		s.discard(ctx, rec, err)
	default:
		claimed, err := s.claim(ctx, m, now)
		if claimed != nil {
			j.Markers, j.members = append(j.Markers, m), append(j.members, *claimed)
			return
		}
		s.stands(rec.Key)
		if err != nil && ctx.Err() == nil {
			s.fail(err)
		}
	}
}

// claim claims the marker; nil where it rests, runs already or is leased elsewhere.
func (s *source) claim(ctx context.Context, m catalog.MarkerAt, now time.Time) (*member, error) {
	key := busyKey(m.Due)
	if s.taken[key] || s.a.backoff.rests(m.Due.PrimaryKey(), now) || s.a.backoff.rests(key, now) || !s.a.pool.occupy(key) {
		return nil, nil
	}
	if s.reg.Grouped {
		// The job takes all of the subject's ripe markers: the others of this walk are its own.
		if s.taken == nil {
			s.taken = make(map[string]bool)
		}
		s.taken[key] = true
	}
	job := s.reg.leaseKey(m.Due)
	l, err := s.a.leases.claim(ctx, job)
	if err != nil {
		s.a.pool.vacate(key)
		if errors.Is(err, catalog.ErrLeaseHeld) {
			s.a.leases.skipped(s.reg, m, job, err)
			return nil, nil
		}
		return nil, err
	}
	s.mu.Lock()
	s.open = append(s.open, m.Due.Key)
	s.mu.Unlock()
	return &member{marker: m, key: key, lease: l}, nil
}

// discard resolves a marker that nobody could ever run. There is no duplicate work to
// avoid, hence no lease; it is logged whole, since nothing else will remember it.
func (s *source) discard(ctx context.Context, rec metastore.Record, why error) {
	if err := s.a.cat.Discard(ctx, rec.Key, rec.Version); err != nil {
		s.stands(rec.Key)
		s.a.log.Warn("a malformed marker could not be discarded", "key", rec.Key, "err", err)
		return
	}
	s.a.log.Warn("discarded a malformed marker", "key", rec.Key, "value", strconv.Quote(string(rec.Value)), "err", why)
	s.a.emit(Event{Duty: string(s.reg.Queue), Action: Discarded, Subject: rec.Key, Err: why})
}

// arm notes a key that this process has armed.
func (s *source) arm(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.armed == "" || key < s.armed {
		s.armed = key
	}
}

// stands notes a key that the walk leaves behind.
func (s *source) stands(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lower(key)
}

func (s *source) lower(key string) {
	if s.low == "" || key < s.low {
		s.low = key
	}
}

// ended notes that a job's marker stands no more, or may stand still.
func (s *source) ended(key string, stands bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.Index(s.open, key); i >= 0 {
		s.open = slices.Delete(s.open, i, i+1)
	}
	if stands {
		s.lower(key)
	}
}

// finish ends the walk of a pass and remembers the position. Jobs that still run
// count as standing. It tells whether the walk gave jobs and was cut, so that there may be more: one that
// met nothing but markers to leave standing goes on with the next pass, and not at once.
func (s *source) finish() (more bool) {
	state := s.state
	s.state, s.page = walkIdle, nil
	switch state {
	case walkIdle:
		return false
	case walkFailed:
		s.fronts = time.Time{} // this may have been the look from the front
		return false
	case walkLive:
		s.resume = s.ahead()
		return s.gave && s.walked >= walkPages
	}
	s.mu.Lock()
	pos := s.low
	if len(s.open) > 0 && (pos == "" || s.open[0] < pos) {
		pos = s.open[0]
	}
	s.mu.Unlock()
	if pos == "" && s.last == "" {
		return false // nothing was there: the position is as good as it was
	}
	if pos == "" {
		pos = max(s.pos, s.last+"\x00")
	}
	if s.reg.TimeOrdered {
		pos = min(pos, catalog.ShardFrom(s.reg.Queue, s.shard, s.bound))
	}
	s.pos = pos
	return false
}
