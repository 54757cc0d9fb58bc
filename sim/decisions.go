package sim

import (
	"bufio"
	"bytes"
	"compress/flate"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
)

// Decisions are all that chance has decided in one world, by stream of random numbers:
// who goes on next, what fails, how long a call takes, what clients do. Given to
// another world of the same plan they make the same run, without any seed.
//
// They are outcomes and not raw random numbers: an index, a yes or no, a delay. So
// they are small, can be read, and a decision that is set to 0 is the plain one: the
// first task that is ready, no fault, the least latency.
type Decisions struct {
	tapes    map[string]*tape
	replayed bool
	calm     bool
	left     *Departure
}

// Departure is where a run left the decisions that it was to follow: they were saved by
// a program that decided something else there. Up to there the runs are equal.
type Departure struct {
	Stream   string // whose decision does not fit
	Decision int    // counted from 0 within the stream
	Step     int    // of the world at that moment
	Why      string
}

func (d *Departure) String() string {
	return fmt.Sprintf("step %d: decision %d of stream %s: %s", d.Step, d.Decision, d.Stream, d.Why)
}

// tape is what one stream has decided.
type tape struct {
	label  string
	values []uint64
	at     int      // of the next to be played
	taken  []uint64 // what was decided instead, while it was played
	of     *Decisions
	step   *int
}

// RecordDecisions returns decisions that a world writes down as it makes them; see
// Config.Decisions.
func RecordDecisions() *Decisions { return &Decisions{tapes: make(map[string]*tape)} }

// Replay returns the decisions for one world to follow from the beginning. What was
// recorded stays as it is.
func (d *Decisions) Replay() *Decisions {
	out := &Decisions{tapes: make(map[string]*tape, len(d.tapes)), replayed: true}
	for label, t := range d.tapes {
		out.tapes[label] = &tape{label: label, values: t.values, of: out}
	}
	return out
}

// Bend returns the decisions for one world to follow as far as they fit: one that does not is
// the plain one, and Taken tells in the end what was decided.
func (d *Decisions) Bend() *Decisions {
	out := d.Replay()
	out.calm = true
	return out
}

// Taken returns what the world has decided that followed these.
func (d *Decisions) Taken() *Decisions {
	out := RecordDecisions()
	for label, t := range d.tapes {
		out.tapes[label] = &tape{label: label, values: t.taken, of: out}
	}
	return out
}

// Left returns where the world left the decisions that it was to follow, or nil: it
// followed them all the way.
func (d *Decisions) Left() *Departure { return d.left }

// Streams returns the labels of the streams that decided something.
func (d *Decisions) Streams() []string {
	labels := slices.Sorted(maps.Keys(d.tapes))
	return slices.DeleteFunc(labels, func(l string) bool { return len(d.tapes[l].values) == 0 })
}

// Len returns how many decisions a stream has made.
func (d *Decisions) Len(label string) int {
	if t := d.tapes[label]; t != nil {
		return len(t.values)
	}
	return 0
}

// Calmed returns a copy in which the decisions [from, to) of that stream are the plain
// ones, and whether it differs at all.
func (d *Decisions) Calmed(label string, from, to int) (*Decisions, bool) {
	t := d.tapes[label]
	if t == nil {
		return d, false
	}
	from, to = max(from, 0), min(to, len(t.values))
	if from >= to || !slices.ContainsFunc(t.values[from:to], func(v uint64) bool { return v != 0 }) {
		return d, false
	}
	out := &Decisions{tapes: maps.Clone(d.tapes)}
	values := slices.Clone(t.values)
	clear(values[from:to])
	out.tapes[label] = &tape{label: label, values: values, of: out}
	return out, true
}

// stream returns the stream of that label for a world, which may be at that step.
func (d *Decisions) stream(seed uint64, label string, step *int) Rand {
	r := newRand(seed, label)
	if d == nil {
		return r
	}
	t := d.tapes[label]
	if t == nil {
		t = &tape{label: label, of: d}
		d.tapes[label] = t
	}
	t.step = step
	r.tape = t
	return r
}

// decide returns what the tape says of a decision among n, where 0 stands for 2^64, or
// notes the one that was drawn. One that does not fit is taken as drawn.
func (t *tape) decide(drawn, n uint64) uint64 {
	if n == 1 {
		return 0
	}
	if !t.of.replayed {
		t.values = append(t.values, drawn)
		return drawn
	}
	i := t.at
	t.at++
	fits := i < len(t.values) && (n == 0 || t.values[i] < n)
	switch {
	case fits:
		drawn = t.values[i]
	case t.of.calm && n != 0:
		drawn = 0
	case t.of.calm: // an identity: it must differ from others
	case i >= len(t.values):
		t.depart(i, "no more were saved")
	default:
		t.depart(i, fmt.Sprintf("it is %d, of %d there are", t.values[i], n))
	}
	if t.of.calm {
		t.taken = append(t.taken, drawn)
	}
	return drawn
}

func (t *tape) depart(i int, why string) {
	if t.of.left == nil {
		t.of.left = &Departure{Stream: t.label, Decision: i, Step: *t.step, Why: why}
	}
}

// MarshalJSON writes for each stream how many decisions it made, and those, each as an
// unsigned varint, deflated, in base64.
func (d *Decisions) MarshalJSON() ([]byte, error) {
	out := make(map[string]savedTape, len(d.tapes))
	for _, label := range d.Streams() {
		var plain []byte
		for _, v := range d.tapes[label].values {
			plain = binary.AppendUvarint(plain, v)
		}
		var packed bytes.Buffer
		w, err := flate.NewWriter(&packed, flate.BestCompression)
		if err != nil {
			return nil, fmt.Errorf("stream %s: %w", label, err)
		}
		if _, err := w.Write(plain); err != nil {
			return nil, fmt.Errorf("stream %s: %w", label, err)
		}
		if err := w.Close(); err != nil {
			return nil, fmt.Errorf("stream %s: %w", label, err)
		}
		out[label] = savedTape{N: len(d.tapes[label].values), Values: base64.StdEncoding.EncodeToString(packed.Bytes())}
	}
	return json.Marshal(out)
}

type savedTape struct {
	N      int    `json:"n"`
	Values string `json:"values"`
}

// decisionsMost bounds how many decisions are read in all: some ten times those of the longest runs.
const decisionsMost = 1 << 24

// UnmarshalJSON reads what MarshalJSON has written.
func (d *Decisions) UnmarshalJSON(b []byte) error {
	var in map[string]savedTape
	if err := json.Unmarshal(b, &in); err != nil {
		return err
	}
	d.tapes = make(map[string]*tape, len(in))
	left := decisionsMost
	for _, label := range slices.Sorted(maps.Keys(in)) {
		values, err := in[label].decisions(left)
		if err != nil {
			return fmt.Errorf("decisions of stream %s: %w", label, err)
		}
		left -= len(values)
		d.tapes[label] = &tape{label: label, values: values, of: d}
	}
	return nil
}

// decisions unpacks what was saved of a stream, of which most may be left. They are taken one by one, since a
// few bytes can be deflated from millions.
func (s savedTape) decisions(most int) (values []uint64, err error) {
	if s.N < 0 || s.N > most {
		return nil, fmt.Errorf("%d of them, where %d can be read", s.N, most)
	}
	packed, err := base64.StdEncoding.DecodeString(s.Values)
	if err != nil {
		return nil, err
	}
	plain := bufio.NewReader(flate.NewReader(bytes.NewReader(packed)))
	for range s.N {
		v, err := binary.ReadUvarint(plain)
		if err != nil {
			return nil, fmt.Errorf("%d of %d are there: %w", len(values), s.N, err)
		}
		values = append(values, v)
	}
	switch _, err := plain.ReadByte(); {
	case err == nil:
		return nil, fmt.Errorf("more than %d are there", s.N)
	case !errors.Is(err, io.EOF):
		return nil, err
	}
	return values, nil
}
