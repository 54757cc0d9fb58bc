package play

import (
	"github.com/nova-store/nova/sim"
	"github.com/nova-store/nova/sim/check"
)

// CutReport is what became of a sweep of cuts over one scenario.
type CutReport struct {
	Cuts   int // classes done
	Of     int // classes that there are
	Steps  int // that the classes done stand for
	Broken int
	// First is the first cut that broke, nil if that is the uncut run, and FirstFinding what.
	First        *sim.Class
	FirstFinding *sim.Finding
}

// Cuts plays the script uncut, and then once for each class of cuts, with a kill
// exactly there and a restart, and requires every invariant at every step and the same
// logical state at the end. limit > 0 bounds how many classes are done, taken evenly; sweep runs
// them, in parallel perhaps. A script that breaks uncut is not cut.
func Cuts(s *Script, seed uint64, limit int, sweep func(n int, do func(i int))) CutReport {
	uncut := Scenario(s, seed, nil, true, Options{})
	if uncut.Finding != nil {
		return CutReport{Of: len(uncut.Classes), Broken: 1, FirstFinding: uncut.Finding}
	}
	rep := CutReport{Of: len(uncut.Classes)}
	var pick []sim.Class
	for i, c := range uncut.Classes {
		if limit <= 0 || len(uncut.Classes) <= limit || i*limit/len(uncut.Classes) != (i+1)*limit/len(uncut.Classes) {
			pick = append(pick, c)
		}
	}
	findings := make([]*sim.Finding, len(pick))
	sweep(len(pick), func(i int) {
		k := sim.Kill{Step: pick[i].FirstStep, Side: pick[i].Side}
		o := CutAt(s, seed, k, uncut.State, Options{})
		findings[i] = o.Finding
	})
	for i, f := range findings {
		rep.Cuts++
		rep.Steps += pick[i].Steps
		if f != nil {
			if rep.Broken++; rep.First == nil {
				rep.First, rep.FirstFinding = &pick[i], f
			}
		}
	}
	return rep
}

// ScenarioAt plays the script, with one cut if it is not nil. One that breaks without its cut already
// is not cut.
func ScenarioAt(s *Script, seed uint64, cut *sim.Kill, opt Options) ScenarioOutcome {
	if cut == nil {
		return Scenario(s, seed, nil, false, opt)
	}
	uncut := Scenario(s, seed, nil, false, Options{})
	if uncut.Finding != nil {
		return uncut
	}
	return CutAt(s, seed, *cut, uncut.State, opt)
}

// CutAt plays the script with one cut: a finding of it is also that the logical state at the
// end is not the one wanted, that of the uncut run.
func CutAt(s *Script, seed uint64, k sim.Kill, want map[string]check.Logical, opt Options) ScenarioOutcome {
	o := Scenario(s, seed, &k, false, opt)
	if o.Finding == nil {
		if text := sameState(want, o.State); text != "" {
			o.Finding = cutFinding(&o, text)
		}
	}
	return o
}
