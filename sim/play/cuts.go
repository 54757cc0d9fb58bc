package play

import (
	"fmt"

	"github.com/nova-store/nova/sim"
	"github.com/nova-store/nova/sim/check"
)

// CutReport is what became of a sweep of cuts over one scenario.
type CutReport struct {
	Cuts   int // classes done
	Of     int // classes that there are
	Steps  int // that the classes done stand for
	Broken int
	// First is the first cut that broke, with its finding.
	First        *sim.Class
	FirstFinding *sim.Finding
}

// Cuts plays the script uncut, and then once for each class of cuts, with a kill
// exactly there and a restart, and requires every invariant at every step and the same
// logical state at the end. limit > 0 bounds how many classes are done, taken evenly; sweep runs
// them, in parallel perhaps, and each may be told to progress.
func Cuts(s *Script, seed uint64, limit int, sweep func(n int, do func(i int)), progress func(done, of int)) (CutReport, error) {
	uncut := Scenario(s, seed, nil, true, Options{})
	if uncut.Finding != nil {
		return CutReport{}, fmt.Errorf("%s does not hold without a cut: %s", s.Name, uncut.Finding.Report())
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
		findings[i] = CutAt(s, seed, pick[i], uncut.State)
		if progress != nil {
			progress(i, len(pick))
		}
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
	return rep, nil
}

// CutAt plays the script with one cut and returns what broke, or nil.
func CutAt(s *Script, seed uint64, c sim.Class, want map[string]check.Logical) *sim.Finding {
	o := Scenario(s, seed, &sim.Kill{Step: c.FirstStep, Side: c.Side}, false, Options{})
	if o.Finding != nil || want == nil {
		return o.Finding
	}
	if text := sameState(want, o.State); text != "" {
		return cutFinding(&o, text)
	}
	return nil
}
