package play

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/nova-store/nova/catalog"
	"github.com/nova-store/nova/sim"
)

// Cut is where a play is cut: one kill, or a second one in the recovery from the first.
type Cut struct {
	Kills []sim.Kill
	Mode  CutMode
}

// CutMode is what befalls the nodes at a cut.
type CutMode uint8

const (
	// CutHere: the node that issues the step dies, and is started again at once, while others go on.
	CutHere CutMode = iota
	// CutAway: it stays away until the others, if there are any, have had the time to notice and to take over
	// what was its own.
	CutAway
	// CutAll: every node that runs dies with it, as where the power fails, and is started again at once.
	CutAll
)

func (m CutMode) String() string { return [...]string{"here", "away", "all"}[m] }

// String returns the cut as -cut takes it: STEP:SIDE, twice with a + between.
func (c Cut) String() string {
	var places []string
	for _, k := range c.Kills {
		places = append(places, fmt.Sprintf("%d:%s", k.Step, k.Side))
	}
	return strings.Join(places, "+")
}

// CutPlan says which cuts a sweep makes of those that there are.
type CutPlan struct {
	// Limit, if above 0, is how many are made at most, taken evenly.
	Limit int
	// Pairs, if above 0, is how many pairs are made instead: a first cut, and a second one drawn from
	// the seed in the recovery from it.
	Pairs int
	// Duty and Node, if not "", take only cuts in steps of that duty, and of that node. Of a pair that
	// is the first cut.
	Duty, Node string
	Mode       CutMode
	// FailFast ends the sweep at the first cut that breaks.
	FailFast bool
}

// CutKind counts the cuts and steps of one kind of step of one duty. A class counts where its first
// step, at which it is cut, belongs, its steps each where they do.
type CutKind struct {
	Duty string
	Op   sim.Op
	Cuts int // classes done
	Of   int // classes that there are
	// Steps and OfSteps are the steps for which these stand.
	Steps, OfSteps int
}

// CutReport is what became of a sweep of cuts over one scenario.
type CutReport struct {
	Cuts   int // classes done, or pairs
	Of     int // classes that there are and that the plan asks for; of pairs those of the first cut
	Steps  int // that the classes done stand for
	Broken int
	// Kinds are the same by duty and kind of step, sorted; of pairs they tell the first cuts.
	Kinds []CutKind
	// First is the first cut that broke, nil if that is the uncut run, and FirstFinding what.
	First        *Cut
	FirstFinding *sim.Finding
}

// Sweep runs do(0) to do(n-1), side by side perhaps, begun in this order, until all are done or
// one returns false.
type Sweep func(n int, do func(i int) bool)

// Cuts plays the script uncut, and then once for each class of cuts, with a kill
// exactly there and a restart, and requires every invariant at every step, and the same
// logical state and live objects at the end. A script that breaks uncut is not cut.
func Cuts(s *Script, seed uint64, plan CutPlan, sweep Sweep) CutReport {
	uncut := Scenario(s, seed, nil, true, Options{})
	if uncut.Finding != nil {
		return CutReport{Of: len(uncut.Classes), Broken: 1, FirstFinding: uncut.Finding}
	}
	classes := slices.DeleteFunc(slices.Clone(uncut.Classes), func(c sim.Class) bool {
		return plan.Duty != "" && !c.Of(plan.Duty) || plan.Node != "" && c.Node != plan.Node
	})
	limit := cmp.Or(plan.Pairs, plan.Limit)
	pick := evenly(classes, limit)
	done := make([][]outcomeOfCut, len(pick))
	sweep(len(pick), func(i int) bool {
		first := Cut{Kills: []sim.Kill{{Step: pick[i].FirstStep, Side: pick[i].Side}}, Mode: plan.Mode}
		if plan.Pairs == 0 {
			o := mustStrike(s, seed, first, &uncut, false)
			done[i] = []outcomeOfCut{{first, o.Finding}}
		} else {
			n := plan.Pairs / len(pick)
			if i < plan.Pairs%len(pick) {
				n++
			}
			done[i] = pairs(s, seed, first, &uncut, n)
		}
		return !plan.FailFast || !slices.ContainsFunc(done[i], outcomeOfCut.broke)
	})
	rep := CutReport{Of: len(classes)}
	kinds := cutKinds{}
	for i := range classes {
		kinds.count(&classes[i], false)
	}
	for i, outcomes := range done {
		if len(outcomes) == 0 {
			continue // the sweep had ended
		}
		rep.Cuts += len(outcomes)
		rep.Steps += pick[i].Steps
		kinds.count(&pick[i], true)
		for _, o := range outcomes {
			if o.broke() {
				if rep.Broken++; rep.First == nil {
					rep.First, rep.FirstFinding = &o.cut, o.finding
				}
			}
		}
	}
	rep.Kinds = kinds.sorted()
	return rep
}

// outcomeOfCut is what became of one cut.
type outcomeOfCut struct {
	cut     Cut
	finding *sim.Finding
}

func (o outcomeOfCut) broke() bool { return o.finding != nil }

// evenly picks so many of the classes, as far from each other as they come; all if limit is 0.
func evenly(classes []sim.Class, limit int) []sim.Class {
	n := len(classes)
	if limit <= 0 || n <= limit {
		return classes
	}
	pick := make([]sim.Class, 0, limit)
	for i, c := range classes {
		if i*limit/n != (i+1)*limit/n {
			pick = append(pick, c)
		}
	}
	return pick
}

// pairs makes n pairs of which the first cut is that one. The second is drawn from what
// happens after the first one, the sooner the likelier, since it is to meet the recovery: half of all pairs
// lie within the square root of what is left of the run.
func pairs(s *Script, seed uint64, first Cut, uncut *ScenarioOutcome, n int) []outcomeOfCut {
	o := mustStrike(s, seed, first, uncut, true)
	if o.Finding != nil {
		return []outcomeOfCut{{first, o.Finding}}
	}
	// Those met after the kill: of steps issued before, others may go on until then. The other sides of its own step come too late.
	at := slices.IndexFunc(o.Classes, func(c sim.Class) bool {
		return c.FirstStep == first.Kills[0].Step && c.Side == first.Kills[0].Side
	})
	after := slices.DeleteFunc(slices.Clone(o.Classes[at+1:]), func(c sim.Class) bool { return c.FirstStep == first.Kills[0].Step })
	r := sim.NewRand(seed, "pairs/"+first.String())
	var out []outcomeOfCut
	for range n {
		if len(after) == 0 {
			break
		}
		i := min(int(math.Pow(float64(len(after)+1), r.Float64()))-1, len(after)-1)
		cut := Cut{Kills: []sim.Kill{first.Kills[0], {Step: after[i].FirstStep, Side: after[i].Side}}, Mode: first.Mode}
		out = append(out, outcomeOfCut{cut, mustStrike(s, seed, cut, uncut, false).Finding})
	}
	return out
}

// NoKill begins the text of a MissedError, by which whoever runs the program tells it from others.
const NoKill = "no kill strikes"

// MissedError is what a cut is answered that strikes nowhere.
type MissedError struct {
	Kill  sim.Kill
	Steps int // of the run
}

func (e *MissedError) Error() string {
	at := fmt.Sprintf("%d:%s", e.Kill.Step, e.Kill.Side)
	switch {
	case e.Kill.Step > e.Steps:
		return fmt.Sprintf(NoKill+" at %s: the run has %d steps", at, e.Steps)
	case e.Kill.Side == sim.Middle:
		return fmt.Sprintf(NoKill+" at %s: the step is no delete of several keys", at)
	}
	return fmt.Sprintf(NoKill+" at %s: the step is not over when the run ends", at)
}

// ScenarioAt plays the script, with that cut if it is not nil. One that breaks without its cut already
// is not cut. Errors: *MissedError.
func ScenarioAt(s *Script, seed uint64, cut *Cut, opt Options) (ScenarioOutcome, error) {
	if cut == nil {
		return Scenario(s, seed, nil, false, opt), nil
	}
	uncut := Scenario(s, seed, nil, false, Options{})
	if uncut.Finding != nil {
		return uncut, nil
	}
	o := playScript(s, seed, cut, &uncut, false, opt)
	if len(o.Missed) > 0 && o.Finding == nil {
		return o, &MissedError{Kill: o.Missed[0], Steps: o.Steps}
	}
	return o, nil
}

// CutAt plays the script with a cut, where uncut is what became of it without: a finding of it is also
// that the logical state or the live objects at the end are not the same.
func CutAt(s *Script, seed uint64, cut Cut, uncut *ScenarioOutcome, opt Options) ScenarioOutcome {
	return playScript(s, seed, &cut, uncut, false, opt)
}

// mustStrike is CutAt for a cut that another run of the same seed has met: if it is not met again, the world is not deterministic.
func mustStrike(s *Script, seed uint64, cut Cut, uncut *ScenarioOutcome, classes bool) ScenarioOutcome {
	o := playScript(s, seed, &cut, uncut, classes, Options{})
	if len(o.Missed) > 0 && o.Finding == nil {
		missed := &MissedError{Kill: o.Missed[0], Steps: o.Steps}
		o.Finding = &sim.Finding{Invariant: "harness", Object: "cut " + cut.String(), Text: missed.Error(), Step: o.Steps}
	}
	return o
}

// cutKinds counts classes by duty and kind of step.
type cutKinds map[cutKindKey]*CutKind

type cutKindKey struct {
	duty string
	op   sim.Op
}

func (m cutKinds) count(c *sim.Class, done bool) {
	for i, p := range c.Parts {
		k := m[cutKindKey{p.Duty, p.Op}]
		if k == nil {
			k = &CutKind{Duty: p.Duty, Op: p.Op}
			m[cutKindKey{p.Duty, p.Op}] = k
		}
		n := 0
		if i == 0 {
			n = 1
		}
		if done {
			k.Cuts += n
			k.Steps += p.Steps
		} else {
			k.Of += n
			k.OfSteps += p.Steps
		}
	}
}

func (m cutKinds) sorted() []CutKind {
	out := make([]CutKind, 0, len(m))
	for _, k := range m {
		out = append(out, *k)
	}
	slices.SortFunc(out, func(a, b CutKind) int {
		return cmp.Or(strings.Compare(a.Duty, b.Duty), cmp.Compare(a.Op, b.Op))
	})
	return out
}

// Duties of tasks that work for no queue.
const (
	dutyBoot    = "boot"    // what a process does before its roles run
	dutyStar    = "star"    // the star's own tasks
	dutyAuditor = "auditor" // the auditor's, between its jobs
	dutyCalls   = "calls"   // of clients
)

// Duties returns the names of all duties by which cuts are told: the auditor's queues, and what works for none.
func Duties() []string {
	var out []string
	for _, q := range catalog.Queues() {
		out = append(out, string(q))
	}
	return append(out, dutyStar, dutyAuditor, dutyCalls, dutyBoot)
}

// duty tells for which duty a task works, by its name and the duty of the one that started it: tasks
// that a job starts work for that job's.
func duty(task, parent string) string {
	if q, ok := strings.CutPrefix(task, "auditor/"); ok && slices.Contains(catalog.Queues(), catalog.Queue(q)) {
		return q
	}
	switch {
	case parent == "" && task == "main":
		return dutyBoot
	case parent == "":
		return dutyCalls
	case parent != dutyBoot:
		return parent
	case task == "star":
		return dutyStar
	}
	return dutyAuditor
}
