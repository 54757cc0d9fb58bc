package auditor

import (
	"time"

	"github.com/nova-store/nova/catalog"
)

// Action names what happened.
type Action string

// Actions of the harness.
const (
	Announced    Action = "announced"     // the member is on the ring
	Withdrawn    Action = "withdrawn"     // it left, its pool drained
	SessionLost  Action = "session-lost"  // it owns nothing until it announced anew
	JobDone      Action = "job-done"      // Outcome, Took; Err of a failed one
	StepDone     Action = "step-done"     // Step, Took
	LeaseSkipped Action = "lease-skipped" // another member is on the job
	Discarded    Action = "discarded"     // a marker that nobody could ever run
)

// Actions of the duties.
const (
	Settled        Action = "settled"          // Object took Count spans, Bytes long, of Chain
	SpansKilled    Action = "spans-killed"     // Count spans of tearing streams or below the watermark
	TeardownWaits  Action = "teardown-waits"   // Subject has slots that are still to be settled
	StreamTornDown Action = "stream-torn-down" // Subject's records are gone
	BatchesDone    Action = "batches-done"     // Count markers of Chain, slots From to To
	SlotDamaged    Action = "slot-damaged"     // Object; its batch, From to To, is held back
	NeighbourLeft  Action = "neighbour-left"   // Object has a small span beside the era's, and its bytes can't be had
	ObjectGivenUp  Action = "object-given-up"  // the intent of Object was lost to the orphan duty
	Trimmed        Action = "trimmed"          // slots From to To of Chain are deleted
	Fenced         Action = "fenced"           // Chain can absorb no more
	SlotsAbsorbed  Action = "slots-absorbed"   // slots From to To of a dead Chain
	ChainSealed    Action = "chain-sealed"     // From is the seal, To the window's end
	ChainRetired   Action = "chain-retired"    // Chain's records are gone
	StarSwept      Action = "star-swept"       // nothing is left of Subject, a retired star; Count objects, Bytes long, had been
	ObjectAlive    Action = "object-alive"     // a reap-check stood down
	ObjectReaped   Action = "object-reaped"    // Object is deleted
	ObjectRevised  Action = "object-revised"   // what was alive of Object moved, Bytes of it were dead
	IntentResolved Action = "intent-resolved"  // a ref names Object
	IntentCondemn  Action = "intent-condemned"
	OrphanDeleted  Action = "orphan-deleted" // Object, that nothing ever named
)

// Event is something that happened. Fields that an action has no use for are zero.
// From and To are slots, half open.
type Event struct {
	At       time.Time
	Duty     string // the queue; empty: the harness
	Action   Action
	Subject  string // of the job's marker
	Object   string
	Chain    catalog.ChainID
	From, To uint64
	Count    int
	Bytes    int64
	Step     string
	Outcome  Outcome
	Took     time.Duration
	Err      error
}

// Events listens to what an auditor does. It is called by the auditor's tasks, in
// the middle of their work, and must return at once.
type Events interface{ Event(Event) }

func (a *Auditor) emit(e Event) {
	if a.opts.Events == nil {
		return
	}
	e.At = a.clk.Now()
	a.opts.Events.Event(e)
}
