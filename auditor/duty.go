package auditor

import (
	"context"
	"time"

	"github.com/nova-store/nova/catalog"
)

// Verdict is what triage says of one marker.
type Verdict uint8

const (
	// Run: the marker is ripe; a job may take it.
	Run Verdict = iota
	// Stop: the queue is ordered by time and this marker is not ripe: everything behind
	// it is younger still. The walk of the shard ends.
	Stop
	// Discard: nobody could ever run the marker. It is resolved away without a lease.
	Discard
	// Skip: the marker is left standing and the walk goes on.
	Skip
)

// Outcome is what a job has made of its marker.
type Outcome uint8

const (
	// Standing: the marker is where it was.
	Standing Outcome = iota
	// Resolved: the marker is gone, or some of the group's are, or it was re-armed for
	// more work. It counts as completed: the pass is run again at once.
	Resolved
	// Waiting: the marker was re-armed, for nothing but to wait.
	Waiting
	// Spooled: the marker stands until the duty's spool is flushed, which ends the job.
	Spooled
)

func (o Outcome) String() string {
	switch o {
	case Resolved:
		return "resolved"
	case Waiting:
		return "waiting"
	case Spooled:
		return "spooled"
	}
	return "standing"
}

// Duty is one family of background work. Everything that duties share is the
// harness's: leases, the deadline, discards, latencies, the back-off of what fails.
type Duty interface {
	// Judge triages one marker whose key parses, before any lease is taken: key work
	// against the clock and what is in memory, without I/O.
	Judge(m catalog.MarkerAt, now time.Time) Verdict

	// Handle runs one leased job to convergence. A cut anywhere, by an error, the
	// deadline in ctx or a crash, leaves what another run converges from. It returns
	// only when no bucket call of its own is in the air. catalog.ErrMoved (wrapped) means that
	// someone else acted: nothing is wrong, and the marker, if it stands, is judged anew.
	Handle(ctx context.Context, j *Job) (Outcome, error)
}

// Registration binds a duty to its queue and its scheduling facts.
type Registration struct {
	Queue catalog.Queue
	Duty  Duty
	// TimeOrdered: what is walked is ordered by ready time.
	TimeOrdered bool
	// AllShards: every member walks every shard, and Judge skips what is placed
	// elsewhere. Else a member walks the shards it owns.
	AllShards bool
	// Grouped: one job takes all ripe markers of its subject, under one lease on the
	// subject. Else each marker has a lease of its own.
	Grouped bool
	// GroupUpTo, above 1: a job takes up to as many ripe markers as one source has, each
	// claimed by a lease of its own; one whose claim is lost is left out. What becomes of
	// each is its own affair ([Job.each]). Not together with Grouped.
	GroupUpTo int
	// GroupAbreast bounds how many members of such a group are worked on at once.
	GroupAbreast int
	// FrontEvery is how often, at most, a walk starts at the very front and not at
	// the remembered position.
	FrontEvery time.Duration
	// PassEnd, if not nil, is called at the end of every pass, once no job of the
	// duty runs or the pass is over its budget.
	PassEnd func(ctx context.Context)
}

// leaseKey names the lease that a job of the marker claims.
func (r *Registration) leaseKey(d catalog.Due) string {
	if r.Grouped {
		return busyKey(d)
	}
	return d.Key
}

// busyKey is what excludes a second job in this process, as long as the first one's
// task lives. It is of the subject, since a marker may move to another key meanwhile.
func busyKey(d catalog.Due) string { return string(d.Queue) + "/" + d.Subject }

// Job is one leased job.
type Job struct {
	// Marker is the job's marker, of a group the first; Markers are all of a group, or the one.
	Marker  catalog.MarkerAt
	Markers []catalog.MarkerAt
	// Started is when it was claimed; its context ends a job deadline later.
	Started time.Time

	a       *Auditor
	reg     *Registration
	src     *source
	members []member // one for each of Markers
}

// member is a marker that a job has claimed.
type member struct {
	marker catalog.MarkerAt
	key    string // busy until the member has ended
	lease  *lease // nil: given back, or none was needed
	ended  bool
}

// step times one step of the job, until the function it returns is called.
func (j *Job) step(name string) func() {
	if j.a.opts.Events == nil {
		return func() {}
	}
	start := j.a.clk.Now()
	return func() {
		j.emit(Event{Action: StepDone, Step: name, Took: j.a.clk.Now().Sub(start)})
	}
}

// emit tells the listener what the job did.
func (j *Job) emit(e Event) {
	e.Duty, e.Subject = string(j.reg.Queue), j.Marker.Due.Subject
	j.a.emit(e)
}

// ripe is the verdict on a marker whose order is its ready time.
func ripe(d catalog.Due, now time.Time) Verdict {
	if d.Order > uint64(max(now.UnixMilli(), 0)) {
		return Stop
	}
	return Run
}
