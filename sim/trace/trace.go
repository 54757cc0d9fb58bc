// Package trace writes down what happens in a simulated world: as JSON lines for
// programs, and as one page for people. docs/trace.md describes both.
package trace

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/nova-store/nova/catalog"
	"github.com/nova-store/nova/sim"
)

// Line is one line of a trace. What a kind has no use for is left out.
type Line struct {
	// Kind is run, issue, effect, late, answer, session, start, exit, up, kill, pause,
	// resume, ask, reply, note, fault, mark, change, marker, cursor, object, finding or end.
	Kind string `json:"kind"`
	// Step is the number of the call's step, or of the newest one.
	Step int `json:"step"`
	// T is the virtual time since the world began, in microseconds.
	T int64 `json:"t"`

	Node string `json:"node,omitempty"`
	Inc  int    `json:"inc,omitempty"`  // the node's incarnation, from 1
	Task uint64 `json:"task,omitempty"` // its number, of no other task of the run
	Name string `json:"name,omitempty"` // of the task; of a cursor; of a fault or a mark

	Call    string   `json:"call,omitempty"`
	Keys    []string `json:"keys,omitempty"`
	Outcome string   `json:"outcome,omitempty"` // of a call that was not plainly done
	Text    string   `json:"text,omitempty"`

	// Of change, marker and object:
	Key    string          `json:"key,omitempty"`
	State  string          `json:"state,omitempty"`
	Value  json.RawMessage `json:"value,omitempty"`
	Rev    uint64          `json:"rev,omitempty"`
	Late   bool            `json:"late,omitempty"`
	Object string          `json:"object,omitempty"` // of the bucket, that the record is about
	Size   int64           `json:"size,omitempty"`
	Queue  string          `json:"queue,omitempty"`
	Ready  *int64          `json:"ready,omitempty"` // when a marker is due, as T
	// Standing is how many markers of the queue, or objects of the kind, there are now.
	Standing *int `json:"standing,omitempty"`
	// Of a cursor: whose it is, and its value.
	Of string  `json:"of,omitempty"`
	At *uint64 `json:"at,omitempty"`

	// Of run and end:
	Start     string   `json:"start,omitempty"`
	Verdict   string   `json:"verdict,omitempty"`
	Invariant string   `json:"invariant,omitempty"`
	Hash      string   `json:"hash,omitempty"`
	Plan      []string `json:"plan,omitempty"`
}

// Recorder turns what happens in one world into lines. Its Event is the world's sink, and
// Attach must be called before anything happens.
type Recorder struct {
	title string
	sink  func(*Line)
	w     *sim.World
	start int64

	standing map[string]int    // by queue, and by kind of object
	names    map[string]string // of streams, by id
	cursors  map[string]uint64
}

// New returns a recorder of a run of that name, which gives its lines to sink. A line is not
// used again.
func New(title string, sink func(*Line)) *Recorder {
	return &Recorder{title: title, sink: sink, standing: make(map[string]int), names: make(map[string]string), cursors: make(map[string]uint64)}
}

// Attach makes the recorder see the changes of the world's store and bucket.
func (r *Recorder) Attach(w *sim.World) {
	r.w, r.start = w, w.Time().UnixMicro()
	r.sink(&Line{Kind: "run", Text: r.title, Start: w.Time().Format("2006-01-02T15:04:05Z07:00")})
	w.OnCommit(r.commit)
	w.OnBucket(r.bucket)
}

// End writes the last line.
func (r *Recorder) End(f *sim.Finding, steps int, hash uint64, plan string) {
	l := &Line{Kind: "end", Step: steps, T: r.now(), Verdict: "held", Hash: fmt.Sprintf("%016x", hash)}
	if plan != "" {
		l.Plan = strings.Split(strings.TrimRight(plan, "\n"), "\n")
	}
	if f != nil {
		l.Verdict, l.Invariant, l.Key, l.Text, l.Step = "broken", f.Invariant, f.Object, f.Text, f.Step
	}
	r.sink(l)
}

func (r *Recorder) now() int64 { return r.w.Time().UnixMicro() - r.start }

// Event takes an event of the world's own trace.
func (r *Recorder) Event(e *sim.Event) {
	l := &Line{Kind: e.Kind.String(), Step: e.Step, T: e.Time.UnixMicro() - r.start, Node: e.Node, Inc: e.Inc, Task: e.Task, Name: e.TaskName}
	if e.Op != 0 {
		l.Call = e.Op.String()
	}
	l.Keys = append(l.Keys, e.Keys...)
	switch e.Kind {
	case sim.EvIssue, sim.EvEffect, sim.EvLate, sim.EvAnswer:
		l.Outcome = e.Outcome
	case sim.EvMark:
		if Fault(e.Outcome) {
			l.Kind = "fault"
		}
		l.Text = e.Outcome
	default:
		l.Text = e.Outcome
	}
	r.sink(l)
}

// Fault tells whether a mark is that of something going wrong, and not of how the program took it.
func Fault(mark string) bool {
	kind, _, _ := strings.Cut(mark, "/")
	return kind == "fault" || kind == "chaos" || kind == "net"
}

// by fills in who did something.
func by(l *Line, inc *sim.Incarnation) *Line {
	if inc != nil && inc.Node() != nil {
		l.Node, l.Inc = inc.Node().Name(), inc.Number()
	}
	return l
}

func (r *Recorder) commit(m *sim.Commit) {
	step := m.Step
	if step == 0 {
		step = r.w.Steps()
	}
	for i := range m.Changes {
		ch := &m.Changes[i]
		r.change(m, ch, step)
	}
}

func (r *Recorder) change(m *sim.Commit, ch *sim.Change, step int) {
	key := ch.New.Key
	if key == "" {
		key = ch.Old.Key
	}
	rec := ch.New
	l := by(&Line{Kind: "change", Step: step, T: r.now(), Key: key, Rev: uint64(m.Rev), Late: m.Late}, m.Inc)
	switch {
	case !ch.New.Exists():
		l.State, rec = "deleted", ch.Old
	case ch.Old.Exists():
		l.State = "changed"
	default:
		l.State = "created"
	}
	v := decode(key, rec.Value)
	l.Object = v.object
	if ch.New.Exists() {
		l.Value = v.json
	}
	r.sink(l)
	if v.stream != "" {
		r.names[strings.TrimPrefix(key, "stream/")] = v.stream
	}
	if v.queue != "" {
		r.marker(l, v)
	}
	if ch.New.Exists() {
		for _, c := range v.cursors {
			of := v.of
			if name := r.names[of]; name != "" {
				of = name
			}
			id := of + " " + c.name
			if old, ok := r.cursors[id]; ok && old == c.at {
				continue
			}
			r.cursors[id] = c.at
			r.sink(&Line{Kind: "cursor", Step: step, T: r.now(), Of: of, Name: c.name, At: &c.at})
		}
	}
}

// marker writes a marker's life: armed, changed, or gone.
func (r *Recorder) marker(change *Line, v decoded) {
	m := *change
	m.Kind, m.Queue, m.Value, m.Rev = "marker", v.queue, nil, 0
	switch change.State {
	case "created":
		m.State = "armed"
		r.standing[v.queue]++
	case "deleted":
		m.State = "gone"
		r.standing[v.queue]--
	}
	if v.ready > 0 {
		at := v.ready*1000 - r.start
		m.Ready = &at
	}
	n := r.standing[v.queue]
	m.Standing = &n
	r.sink(&m)
}

func (r *Recorder) bucket(e *sim.BucketEffect) {
	kind, _, _ := strings.Cut(e.Key, "/")
	l := by(&Line{Kind: "object", Step: e.Step, T: r.now(), Key: e.Key, Object: e.Key, Size: e.Size, Late: e.Late, State: "put"}, e.Inc)
	switch {
	case e.Delete:
		l.State = "deleted"
		r.standing[kind+"/"]--
	case e.HasReplaced:
		l.State = "replaced"
	default:
		r.standing[kind+"/"]++
	}
	n := r.standing[kind+"/"]
	l.Standing = &n
	r.sink(l)
}

// Writer returns a sink that writes each line as JSON, and a function that tells whether that
// ever failed.
func Writer(w io.Writer) (sink func(*Line), failed func() error) {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	var first error
	return func(l *Line) {
			if err := enc.Encode(l); err != nil && first == nil {
				first = fmt.Errorf("writing the trace: %w", err)
			}
		}, func() error {
			return first
		}
}

// decoded is what a record of the store says.
type decoded struct {
	json    json.RawMessage
	object  string
	stream  string // its name, of an identity
	queue   string
	ready   int64 // Unix ms; 0: a marker that has no time
	of      string
	cursors []cursor
}

type cursor struct {
	name string
	at   uint64
}

// decode reads a record by its key. What cannot be read is no value.
func decode(key string, b []byte) decoded {
	var v decoded
	set := func(value any, err error) bool {
		if err != nil {
			return false
		}
		v.json, err = json.Marshal(value)
		return err == nil
	}
	head, rest, _ := strings.Cut(key, "/")
	switch head {
	case "due", "schedule":
		v.due(key, b, set)
	case "span":
		if s, err := catalog.DecodeSpan(b); set(s, err) {
			v.object = s.Object
		}
	case "ref":
		ref, err := catalog.DecodeRef(b)
		set(ref, err)
		v.object, _, _, _ = catalog.ParseRefKey(key)
	case "gc":
		rec, err := catalog.DecodeGCRecord(b)
		set(rec, err)
		v.object = strings.ReplaceAll(rest, "!", "/")
	case "chain":
		if !strings.Contains(rest, "/") {
			h, err := catalog.DecodeChainHead(b)
			set(h, err)
			break
		}
		c, err := catalog.DecodeChain(b)
		if set(struct {
			State string // by its name
			catalog.Chain
		}{c.State.String(), c}, err) {
			v.of = "chain " + short(rest)
			v.cursors = []cursor{{"checkpoint", c.Checkpoint}}
		}
	case "trim":
		if t, err := catalog.DecodeTrim(b); set(t, err) {
			v.of = "chain " + short(rest)
			v.cursors = []cursor{{"rewritten", t.Rewritten}, {"trimmed", t.Trimmed}}
		}
	case "head":
		if h, err := catalog.DecodeHead(b); set(h, err) {
			v.of = rest
			v.cursors = []cursor{{"next offset", h.Next}}
		}
	case "mark":
		if m, err := catalog.DecodeMark(b); set(m, err) {
			v.of = rest
			v.cursors = []cursor{{"watermark", m.Watermark}}
		}
	case "stream":
		s, err := catalog.DecodeStream(b)
		if set(struct {
			State string
			catalog.Stream
		}{s.State.String(), s}, err) {
			v.stream = s.Name
		}
	case "name", "ids":
		id, err := catalog.DecodeID(b)
		set(id.String(), err)
	case "cluster":
		if strings.HasPrefix(key, catalog.StarsPrefix) {
			s, err := catalog.DecodeStar(b)
			set(s, err)
		}
	}
	return v
}

func (v *decoded) due(key string, b []byte, set func(any, error) bool) {
	if strings.HasPrefix(key, "due/") {
		_, rest, _ := strings.Cut(key, "/")
		v.queue, _, _ = strings.Cut(rest, "/")
	}
	d, err := catalog.ParseDue(key)
	if v.queue == string(catalog.Denorm) {
		if batch, err := catalog.DecodeBatch(b); set(batch, err) {
			v.ready = batch.Ready
		}
		return
	}
	if err != nil {
		return
	}
	if d.Queue.TimeOrdered() {
		v.ready = d.ReadyAt().UnixMilli()
	}
	switch d.Queue {
	case catalog.Orphan:
		v.object = d.Object()
		i, err := catalog.DecodeIntent(b)
		set(i, err)
	case catalog.Reap:
		v.object = d.Object()
		set(catalog.DecodeReapMarker(b), nil)
	case catalog.GC:
		v.object = d.Object()
		set(catalog.DecodeGCMarker(b), nil)
	case catalog.TrimCheck:
		t, err := catalog.DecodeTrimCheckMarker(b)
		set(t, err)
	case catalog.Teardown:
		t, err := catalog.DecodeTeardownMarker(b)
		set(t, err)
	}
}

// short is a chain's star and epoch without leading zeros.
func short(rest string) string {
	star, epoch, _ := strings.Cut(rest, "/")
	if epoch = strings.TrimLeft(epoch, "0"); epoch == "" {
		epoch = "0"
	}
	return star + " " + epoch
}
