package play

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/nova-store/nova/sim"
	"github.com/nova-store/nova/sim/check"
)

// Saved is one run on file: its plan, or its script, and all that chance decided in it. It is played
// again without a seed, and without drawing a plan, so that it outlives changes of both.
type Saved struct {
	Version int `json:"version"`
	// From is the command whose run it is, for people.
	From string `json:"from"`
	// What became of it: the invariant that broke, or "", and the trace hash.
	Invariant string `json:"invariant,omitempty"`
	Object    string `json:"object,omitempty"`
	Text      string `json:"text,omitempty"`
	Steps     int    `json:"steps"`
	Hash      string `json:"hash"`

	// Plan is that of a seed; of a scenario there are the Script, and the Cut if one was made.
	Plan   *plan     `json:"plan,omitempty"`
	Script string    `json:"script,omitempty"`
	Name   string    `json:"name,omitempty"` // of the script
	Cut    *SavedCut `json:"cut,omitempty"`

	Decisions *sim.Decisions `json:"decisions"`
}

// SavedCut is where a scenario's node is killed, and, if Then is not nil, once more after that.
type SavedCut struct {
	Step int       `json:"step"`
	Side string    `json:"side"`           // of a sim.Side
	Mode string    `json:"mode,omitempty"` // of a CutMode; "": CutHere
	Then *SavedCut `json:"then,omitempty"`
}

// saveCut returns the cut to be saved; nil of nil.
func saveCut(cut *Cut) (s *SavedCut) {
	if cut == nil {
		return nil
	}
	for _, k := range slices.Backward(cut.Kills) {
		s = &SavedCut{Step: k.Step, Side: k.Side.String(), Then: s}
	}
	if cut.Mode != CutHere {
		s.Mode = cut.Mode.String()
	}
	return s
}

// cut returns the cut that was saved; nil of nil.
func (c *SavedCut) cut() *Cut {
	if c == nil {
		return nil
	}
	cut := &Cut{}
	for _, m := range []CutMode{CutAway, CutAll} {
		if c.Mode == m.String() {
			cut.Mode = m
		}
	}
	for ; c != nil; c = c.Then {
		side, _ := sim.ParseSide(c.Side) // checked when it was read
		cut.Kills = append(cut.Kills, sim.Kill{Step: c.Step, Side: side})
	}
	return cut
}

// savedVersion is that of the format.
const savedVersion = 1

// Replayed is what became of a saved run that was played again.
type Replayed struct {
	Outcome
	// Same tells that it was the same run: the trace hash is that of the file.
	Same bool
	// Left is where it left what was saved, if it did: the program has changed since.
	Left *sim.Departure
}

// SaveSeed plays a seed and returns the run to be saved.
func SaveSeed(seed uint64, opt Options) (*Saved, Outcome) {
	p := draw(seed)
	return savePlan(&p, fmt.Sprintf("novasim -seed %d", seed), opt)
}

func savePlan(p *plan, from string, opt Options) (*Saved, Outcome) {
	if opt.Decisions == nil {
		opt.Decisions = sim.RecordDecisions()
	}
	o := p.play(opt)
	kept := p.clone()
	kept.config.Seed = 0 // nothing is drawn from it any more
	s := &Saved{Plan: kept, From: from, Decisions: opt.Decisions}
	s.became(&o)
	return s, o
}

// SaveScenario plays a script, with that cut, and returns the run to be saved.
func SaveScenario(text, name string, seed uint64, cut *Cut, opt Options) (*Saved, Outcome, error) {
	s := &Saved{Script: text, Name: name, From: fmt.Sprintf("novasim -scenario %s -seed %d", name, seed), Decisions: sim.RecordDecisions()}
	if cut != nil {
		s.Cut = saveCut(cut)
		s.From += " -cut " + cut.String()
	}
	opt.Decisions = s.Decisions
	o, err := s.playScript(seed, opt)
	if err != nil {
		return nil, Outcome{}, err
	}
	s.became(&o)
	return s, o, nil
}

func (s *Saved) became(o *Outcome) {
	s.Version, s.Steps, s.Hash = savedVersion, o.Steps, fmt.Sprintf("%016x", o.Hash)
	if f := o.Finding; f != nil {
		s.Invariant, s.Object, s.Text = f.Invariant, f.Object, f.Text
	}
}

// Play plays the run again.
func (s *Saved) Play(opt Options) (Replayed, error) {
	opt.Decisions = s.Decisions.Replay()
	var o Outcome
	if s.Plan != nil {
		o = s.Plan.clone().play(opt)
	} else {
		var err error
		if o, err = s.playScript(0, opt); err != nil {
			return Replayed{}, err
		}
	}
	r := Replayed{Outcome: o, Left: opt.Decisions.Left()}
	r.Same = r.Left == nil && fmt.Sprintf("%016x", o.Hash) == s.Hash
	return r, nil
}

// playScript plays the script; what a cut must end in is what the uncut run ends in, whatever its seed.
func (s *Saved) playScript(seed uint64, opt Options) (Outcome, error) {
	script, err := ParseScript(s.Name, strings.NewReader(s.Script))
	if err != nil {
		return Outcome{}, err
	}
	o, err := ScenarioAt(script, seed, s.Cut.cut(), opt)
	return o.Outcome, err
}

// Write writes the run as JSON.
func (s *Saved) Write(w io.Writer) error {
	b, err := json.MarshalIndent(s, "", " ")
	if err != nil {
		return fmt.Errorf("saving a run: %w", err)
	}
	_, err = w.Write(append(b, '\n'))
	return err
}

// ErrBadSaved: a file holds no run that this program can play again.
var ErrBadSaved = errors.New("no saved run that can be played again")

// ReadSaved reads what Write has written. Errors: ErrBadSaved.
func ReadSaved(r io.Reader) (*Saved, error) {
	s := new(Saved)
	dec := json.NewDecoder(r)
	dec.DisallowUnknownFields()
	if err := dec.Decode(s); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrBadSaved, err)
	}
	switch {
	case s.Version != savedVersion:
		return nil, fmt.Errorf("%w: it is of version %d; this program reads version %d", ErrBadSaved, s.Version, savedVersion)
	case s.Decisions == nil:
		return nil, fmt.Errorf("%w: it has no decisions", ErrBadSaved)
	case s.Plan == nil && s.Script == "":
		return nil, fmt.Errorf("%w: it has neither a plan nor a script", ErrBadSaved)
	case s.Plan != nil && len(s.Plan.nodes) == 0:
		return nil, fmt.Errorf("%w: it has no node", ErrBadSaved)
	case s.Plan != nil && slices.ContainsFunc(s.Plan.nodes, func(n NodeConfig) bool { return !check.Alike(n.Timing, s.Plan.nodes[0].Timing) }):
		return nil, fmt.Errorf("%w: its nodes differ in max-clock-skew or undelete-window, of which the checker assumes one", ErrBadSaved)
	}
	for c := s.Cut; c != nil; c = c.Then {
		if _, ok := sim.ParseSide(c.Side); !ok || !slices.Contains(cutModes, c.Mode) {
			return nil, fmt.Errorf("%w: its cut is %q, %q", ErrBadSaved, c.Side, c.Mode)
		}
	}
	return s, nil
}

// cutModes are what a saved cut's mode may be.
var cutModes = []string{"", CutHere.String(), CutAway.String(), CutAll.String()}
