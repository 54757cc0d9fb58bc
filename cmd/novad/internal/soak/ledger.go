package soak

import (
	"fmt"
	"sync"

	"github.com/nova-store/nova/api/service"
)

// verdicts counts what must not be, in records unless it says otherwise.
type verdicts struct {
	Lost       uint64 `json:"lost"`       // acknowledged or read once, and not there any more though nothing let it go
	Duplicated uint64 `json:"duplicated"` // at two offsets
	Reordered  uint64 `json:"reordered"`  // before an earlier record of the same client, or two at one offset
	Corrupt    uint64 `json:"corrupt"`    // other bytes than were appended, or those of another stream
	Phantom    uint64 `json:"phantom"`    // there, though it was refused or never sent
	Undead     uint64 `json:"undead"`     // served though it was trimmed, expired or deleted
}

func (v *verdicts) add(o verdicts) {
	v.Lost += o.Lost
	v.Duplicated += o.Duplicated
	v.Reordered += o.Reordered
	v.Corrupt += o.Corrupt
	v.Phantom += o.Phantom
	v.Undead += o.Undead
}

func (v verdicts) clean() bool { return v == verdicts{} }

// tally counts what happened to appended records.
type tally struct {
	Acknowledged uint64 `json:"acknowledged"`
	Refused      uint64 `json:"refused"`
	Unknown      uint64 `json:"unknown"`              // of which nobody ever said
	UnknownThere uint64 `json:"unknown_landed"`       // of these, seen
	Read         uint64 `json:"read"`                 // records read and compared, repeated reads included
	ReadBefore   uint64 `json:"read_before_deletion"` // readable records of streams that were read whole just before their deletion
	Readable     uint64 `json:"readable"`             // at the end
	Gone         uint64 `json:"rightly_gone"`         // acknowledged, and trimmed, expired or deleted since
}

func (t *tally) add(o tally) {
	t.Acknowledged += o.Acknowledged
	t.Refused += o.Refused
	t.Unknown += o.Unknown
	t.UnknownThere += o.UnknownThere
	t.Read += o.Read
	t.ReadBefore += o.ReadBefore
	t.Readable += o.Readable
	t.Gone += o.Gone
}

// ledger is what the soak knows of one stream. All of it is safe for concurrent use.
//
// It is told of an append before it is sent and once its outcome is known, of a trim likewise, and of every record
// that a reader got; it keeps runs of records and no records.
type ledger struct {
	seed     uint64
	number   uint32
	name     string
	id       string // as service.ByID
	maxBytes uint64 // its policy; 0: none
	journal  *journal
	roamer   *roamer // of its name; nil: nobody appends by that

	mu       sync.Mutex
	facts    facts
	sent     map[uint32]uint64 // by client: the first seq not sent
	refused  spans             // must never be seen
	unknown  spans             // may be seen once, and later than what was sent after them
	unplaced spans             // acknowledged without an offset
	trimming uint64            // the highest offset below which a trim was asked for
	trimmed  uint64            // the highest that was acknowledged
	deleting bool              // a deletion was asked for, and not undone
	deleted  uint64            // how often one was
	over     bool              // it is closed
	verdicts verdicts
	tally    tally
	details  []string
}

// detailsMost bounds the sentences that a ledger keeps; all is counted.
const detailsMost = 20

func newLedger(seed uint64, number uint32, name, id string, maxBytes uint64) *ledger {
	return &ledger{seed: seed, number: number, name: name, id: id, maxBytes: maxBytes, sent: make(map[uint32]uint64)}
}

// note keeps a sentence on what is wrong. Called with mu held.
func (l *ledger) note(format string, a ...any) {
	text := fmt.Sprintf("stream %d (%s, %s): ", l.number, l.name, l.id) + fmt.Sprintf(format, a...)
	l.journal.printf("%s", text)
	if len(l.details) < detailsMost {
		l.details = append(l.details, text)
	}
}

// send is told before records are sent; it returns their first seq.
func (l *ledger) send(client uint32, n int) (seq uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	seq = l.sent[client]
	l.sent[client] = seq + uint64(n)
	return seq
}

// outcome is what became of an append.
type outcome int

const (
	acknowledged outcome = iota
	refused              // certainly not appended
	unknown              // appended or not, or yet to be
)

// settle is told what became of records; first is the offset of the first of those acknowledged, nil if it was not told. A ledger that is
// over takes nothing.
func (l *ledger) settle(o outcome, client uint32, seq uint64, n int, first *uint64) (over bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over {
		return true
	}
	count := uint64(n)
	switch {
	case o == refused:
		l.refused.add(client, seq, count)
		l.tally.Refused += count
	case o == unknown:
		l.unknown.add(client, seq, count)
		l.tally.Unknown += count
	case first == nil:
		l.unplaced.add(client, seq, count)
		l.tally.Acknowledged += count
	default:
		l.tally.Acknowledged += count
		l.fact(run{off: *first, seq: seq, n: count, client: client}, "acknowledged")
	}
	return false
}

// fact notes a run. Called with mu held.
func (l *ledger) fact(r run, how string) {
	if r.client == roamingClient {
		if k := l.roamer.at(l.number, r.seq, r.n); k > 0 {
			l.verdicts.Duplicated += k
			l.note("%d of the records from %d on of client %d are at offsets from %d on, and in another stream of the name, too", k, r.seq, r.client, r.off)
		}
	}
	if k := l.facts.add(r); k > 0 {
		l.verdicts.Reordered += k
		l.note("offsets %d to %d were %s as records from %d on of client %d, and %d of them were known as others", r.off, r.end()-1, how, r.seq, r.client, k)
	}
}

// observe is told of records that a reader got, in the order of the answer.
func (l *ledger) observe(records []service.Record) {
	var r run
	for _, rec := range records {
		id, err := parse(l.seed, rec.Data)
		if err == nil && id.Stream != l.number && (l.roamer == nil || id.Stream != l.roamer.number) {
			err = fmt.Errorf("%v in another stream", id)
		}
		if err != nil {
			l.mu.Lock()
			l.verdicts.Corrupt++
			l.note("offset %d: %v", rec.Offset, err)
			l.mu.Unlock()
			continue
		}
		if next := (run{off: rec.Offset, seq: id.Seq, n: 1, client: id.Client}); r.n > 0 && r.end() == next.off && r.agrees(next) {
			r.n++
		} else {
			l.observed(r)
			r = next
		}
	}
	l.observed(r)
}

func (l *ledger) observed(r run) {
	if r.n == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tally.Read += r.n
	sent := l.sent[r.client]
	if r.client == roamingClient {
		sent = l.roamer.first()
	}
	if r.seq+r.n > sent {
		l.verdicts.Phantom += r.seq + r.n - max(sent, r.seq)
		l.note("offset %d holds record %d of client %d, who has sent %d so far", r.off, r.seq, r.client, sent)
	}
	l.fact(r, "read")
}

// unreadable is told that nothing is read from an offset on, though nothing goes wrong any more: the ledger's end says what is lost.
func (l *ledger) unreadable(from uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.note("it cannot be read from offset %d on", from)
}

// trim is told before a trim is asked for; trimDone when it was acknowledged.
func (l *ledger) trim(before uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.trimming = max(l.trimming, before)
}

func (l *ledger) trimDone(before uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.trimmed = max(l.trimmed, before)
}

// delete is told before the deletion is asked for.
func (l *ledger) delete() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.deleting = true
	l.deleted++
}

// revive is told that the deletion was undone.
func (l *ledger) revive() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.deleting = false
}

// deletions returns how often a deletion was asked for: who finds no stream is right if that changed meanwhile.
func (l *ledger) deletions() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.deleted
}

func (l *ledger) dying() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.deleting
}

// bounds returns the offset below which nothing may be served any more, and the one behind the last that is known.
func (l *ledger) bounds() (trimmed, end uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.trimmed, l.facts.end()
}

// mayBegin checks the first readable offset that a server told: it is above 0 only where a trim was asked for, or the
// policy lets records go.
func (l *ledger) mayBegin(first uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.maxBytes == 0 && first > l.trimming {
		l.verdicts.Lost += first - l.trimming
		l.note("the first readable offset is %d, and a trim was asked for below %d at most", first, l.trimming)
	}
}

// gap is told that a reader who was at from was given a page that begins elsewhere.
func (l *ledger) gap(from, got uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.verdicts.Lost++
	l.note("a read from offset %d answered with offset %d", from, got)
}

// served is told that a record below an acknowledged trim was served.
func (l *ledger) served(offset, trimmed uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.verdicts.Undead++
	l.note("offset %d was served after a trim below %d was acknowledged", offset, trimmed)
}

// afterlife is told that a deleted stream still answered. Of a ledger that is over nobody counts it any more.
func (l *ledger) afterlife(what string) (over bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.verdicts.Undead++
	l.note("it was deleted, and %s", what)
	return l.over
}

// vanished is told that a stream that nobody deleted is not found.
func (l *ledger) vanished(where string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.verdicts.Lost++
	l.note("nobody deleted it, and %s does not find it", where)
}
