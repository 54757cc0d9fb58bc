package play

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nova-store/nova/catalog"
	"github.com/nova-store/nova/sim"
)

// rule is one statement fault: which calls it is of, and what becomes of them.
type rule struct {
	name, node, task   string
	kind               string
	key, with, without pattern
	nth, times         int // it strikes from the nth match on, so many times; times 0: always
	action, value      string

	matches, strikes int
	over             bool
	hold             *sim.Hold
	killed           *sim.Incarnation // by the last strike of a kill
}

// struck tells whether the rule has struck: a call was made that it is of, and, where that kills its node, the node is dead.
func (r *rule) struck() bool { return r.strikes > 0 && (r.killed == nil || r.killed.Dead()) }

// callKind is what a fault says of a call.
type callKind struct {
	ops   []sim.Op
	write bool // it may have an effect
	part  func(c *sim.CallInfo) []string
}

func keysOf(c *sim.CallInfo) []string { return c.Keys }

// changesOf returns the keys that a commit puts, or deletes.
func changesOf(deletes bool) func(c *sim.CallInfo) []string {
	return func(c *sim.CallInfo) (keys []string) {
		for _, op := range c.Changes {
			if op.Delete == deletes {
				keys = append(keys, op.Key)
			}
		}
		return keys
	}
}

// callKinds are the calls, written as in the trace: those of the bucket in capitals. arm and drop
// are commits that put, or delete, the key.
var callKinds = map[string]callKind{
	"get":          {[]sim.Op{sim.OpGet}, false, keysOf},
	"scan":         {[]sim.Op{sim.OpScan}, false, keysOf},
	"peek":         {[]sim.Op{sim.OpPeek}, false, keysOf},
	"commit":       {[]sim.Op{sim.OpCommit}, true, keysOf},
	"arm":          {[]sim.Op{sim.OpCommit}, true, changesOf(false)},
	"drop":         {[]sim.Op{sim.OpCommit}, true, changesOf(true)},
	"keep-alive":   {[]sim.Op{sim.OpKeepAlive}, true, func(*sim.CallInfo) []string { return []string{""} }},
	"open-session": {[]sim.Op{sim.OpOpenSession}, true, func(*sim.CallInfo) []string { return []string{""} }},
	"PUT":          {[]sim.Op{sim.OpBucketPut}, true, keysOf},
	"GET":          {[]sim.Op{sim.OpBucketGet}, false, keysOf},
	"STAT":         {[]sim.Op{sim.OpBucketStat}, false, keysOf},
	"DELETE":       {[]sim.Op{sim.OpBucketDelete}, true, keysOf},
	"LIST":         {[]sim.Op{sim.OpBucketList}, false, keysOf},
}

// faultAction is what may become of a call.
type faultAction struct {
	doc   string
	value optionKind
	takes valueRule
	of    string // the calls that it can befall; "": any
}

// valueRule is whether an action has a value.
type valueRule uint8

const (
	noValue valueRule = iota
	mayHave
	mustHave
)

var faultActions = map[string]faultAction{
	"fails":   {doc: "it has no effect, and the caller is told: the store is unavailable, the bucket throttles or can't be reached"},
	"dropped": {doc: "it has no effect, and the caller does not know"},
	"lost":    {doc: "it has its effect, and the caller does not know"},
	"late":    {doc: "the caller does not know, and the effect comes so much later, or when the fault is released", value: aDuration, takes: mayHave, of: "commit arm drop PUT"},
	"slow":    {doc: "it is on its way for so much longer", value: aDuration, takes: mustHave},
	"hold":    {doc: "it is on its way until the fault is released"},
	"kill":    {doc: "the node dies, before the call's effect or after it", value: aWord, takes: mustHave},
	"pause":   {doc: "the node stops before it learns of the answer; with =before, the effect too comes only when it is resumed", value: aWord, takes: mayHave},
	"short":   {doc: "the page has so many records, and says that there are more, if there are", value: aNumber, takes: mustHave, of: "scan"},
	"corrupt": {doc: "a bit of what is read is wrong", of: "GET"},
	"missing": {doc: "the object is not there", of: "GET"},
	"partial": {doc: "so many of the keys are deleted; the others are throttled", value: aNumber, takes: mustHave, of: "DELETE"},
}

var faultOptions = func() map[string]optionKind {
	out := map[string]optionKind{"by": aWord, "with": aWord, "without": aWord, "nth": aCount, "times": aWord, "as": aWord}
	for k, a := range faultActions {
		if a.takes != noValue {
			out[k] = a.value
		}
	}
	return out
}()

// parseFault reads a statement fault: its words are a node, a call and a key, and an action that has no value.
func parseFault(s *Script, st *statement) error {
	r := &rule{name: st.opts["as"], node: st.args[0], kind: st.args[1], task: st.opts["by"], nth: st.number("nth", 1), times: 1}
	if r.node != "any" {
		if err := s.node(r.node); err != nil {
			return err
		}
	}
	kinds := slices.Sorted(maps.Keys(callKinds))
	if _, ok := callKinds[r.kind]; !ok {
		return wrong("", "%q is no call; the calls are %s", r.kind, strings.Join(kinds, ", "))
	}
	for _, p := range []struct {
		to   *pattern
		text string
	}{{&r.key, st.args[2]}, {&r.with, st.opts["with"]}, {&r.without, st.opts["without"]}} {
		var err error
		if *p.to, err = s.parsePattern(p.text); err != nil {
			return err
		}
	}
	if t, ok := st.opts["times"]; ok {
		if t == "all" {
			t = "0"
		} else if aCount.refuses(t) != "" {
			return wrong("times=2, or times=all", "times=%s is no number", t)
		}
		r.times, _ = strconv.Atoi(t)
	}
	if err := r.parseAction(s, st); err != nil {
		return err
	}
	if r.name != "" {
		if s.faults[r.name] {
			return wrong("", "there is a fault %q already", r.name)
		}
		s.faults[r.name] = true
	} else if r.action == "hold" || r.action == "late" && r.value == "" {
		return wrong("as=NAME, and release NAME below", "nobody can release what %s, since the fault has no name", map[bool]string{true: "it holds", false: "comes late"}[r.action == "hold"])
	}
	st.rule = r
	return nil
}

func (r *rule) parseAction(s *Script, st *statement) error {
	known := strings.Join(slices.Sorted(maps.Keys(faultActions)), ", ")
	var found []string
	if len(st.args) > 3 {
		found = append(found, st.args[3])
	}
	for _, k := range slices.Sorted(maps.Keys(st.opts)) {
		if _, ok := faultActions[k]; ok {
			found = append(found, k)
		}
	}
	switch {
	case len(found) == 0:
		return wrong("", "no action: what becomes of the call? One of %s", known)
	case len(found) > 1:
		return wrong("", "both %s and %s: a fault has one action", found[0], found[1])
	}
	r.action, r.value = found[0], st.opts[found[0]]
	a, ok := faultActions[r.action]
	switch kind := callKinds[r.kind]; {
	case !ok:
		return wrong("", "%q is no action; the actions are %s", r.action, known)
	case a.takes == mustHave && r.value == "":
		return wrong(r.action+"="+a.example(), "%s needs a value", r.action)
	case a.of != "" && !slices.Contains(strings.Fields(a.of), r.kind):
		return wrong("", "%s can befall %s, and no %s", r.action, strings.Join(strings.Fields(a.of), ", "), r.kind)
	case r.action == "late" && r.kind == "PUT" && s.Embedded:
		return wrong("", "in an embedded world a PUT returns only when its effect is settled: it can't be late")
	case (r.action == "lost" || r.action == "dropped") && !kind.write:
		return wrong("fails", "%s is of a call that may have an effect, and a %s has none", r.action, r.kind)
	case (r.action == "lost" || r.action == "dropped") && r.kind == "PUT" && s.Embedded:
		return wrong("", "in an embedded world the outcome of a PUT is known")
	case r.action == "kill" && r.value != "before" && r.value != "after":
		return wrong("kill=before, or kill=after", "kill=%s", r.value)
	case r.action == "pause" && r.value != "" && r.value != "before":
		return wrong("pause, or pause=before", "pause=%s", r.value)
	}
	return nil
}

func (a faultAction) example() string {
	if a.value == aWord {
		return "before"
	}
	return a.value.example()
}

// pattern is a key in which * stands for any letters, and {STREAM} for the id of the stream of that name, or the last that
// had it.
type pattern string

func (s *Script) parsePattern(text string) (pattern, error) {
	for rest := text; ; {
		_, after, ok := strings.Cut(rest, "{")
		if !ok {
			return pattern(text), nil
		}
		name, behind, ok := strings.Cut(after, "}")
		if !ok {
			return "", wrong("{STREAM}", "a { of the key %q is not closed", text)
		}
		if err := s.stream(name); err != nil {
			return "", err
		}
		rest = behind
	}
}

// resolve puts ids in the place of names; ok is false as long as there is none.
func (p pattern) resolve(id func(stream string) catalog.StreamID) (text string, ok bool) {
	text = string(p)
	for {
		before, after, ok := strings.Cut(text, "{")
		if !ok {
			return text, true
		}
		name, behind, _ := strings.Cut(after, "}")
		of := id(name)
		if of == 0 {
			return "", false
		}
		text = before + of.String() + behind
	}
}

// matches tells whether one of the keys is as a resolved pattern says.
func matches(text string, keys []string) bool {
	return slices.ContainsFunc(keys, func(k string) bool { return glob(text, k) })
}

// glob tells whether the key is as the pattern says: * stands for any letters.
func glob(pattern, key string) bool {
	parts := strings.Split(pattern, "*")
	if len(parts) == 1 {
		return key == pattern
	}
	rest, ok := strings.CutPrefix(key, parts[0])
	if !ok {
		return false
	}
	for _, part := range parts[1 : len(parts)-1] {
		at := strings.Index(rest, part)
		if at < 0 {
			return false
		}
		rest = rest[at+len(part):]
	}
	return strings.HasSuffix(rest, parts[len(parts)-1])
}

// matches tells whether a call is one that the rule is of.
func (r *rule) isOf(c *sim.CallInfo, id func(stream string) catalog.StreamID) bool {
	kind := callKinds[r.kind]
	if r.over || !slices.Contains(kind.ops, c.Op) || r.node != "any" && r.node != c.Inc.Node().Name() || r.task != "" && !glob(r.task, c.TaskName) {
		return false
	}
	key, ok := r.key.resolve(id)
	if !ok || !matches(key, kind.part(c)) {
		return false
	}
	if with, ok := r.with.resolve(id); !ok || with != "" && !matches(with, c.Keys) {
		return false
	}
	without, ok := r.without.resolve(id)
	return !ok || without == "" || !matches(without, c.Keys)
}

// fate is what becomes of a call that the rule strikes.
func (r *rule) fate(w *sim.World) (f sim.Fate) {
	d, _ := time.ParseDuration(r.value) // checked when it was parsed, as all values are
	n, _ := strconv.Atoi(r.value)
	switch r.action {
	case "fails":
		f.Answer = sim.AnswerRefused
	case "dropped":
		f.Answer = sim.AnswerUnknown
	case "lost":
		f.Answer = sim.AnswerLost
	case "late":
		if f.Answer, f.Late = sim.AnswerUnknown, d; r.value == "" {
			f.Hold = r.held(w)
		}
	case "slow":
		f.Slow = d
	case "hold":
		f.Hold = r.held(w)
	case "kill":
		side := sim.Before
		if r.value == "after" {
			side = sim.After
		}
		f.Kill = &side
	case "pause":
		if f.Pause = true; r.value != "" {
			f.Hold = r.held(w)
		}
	case "short":
		f.Page = &n
	case "corrupt":
		f.Corrupt = true
	case "missing":
		f.Missing = true
	case "partial":
		f.Partial = &n
	}
	return f
}

func (r *rule) held(w *sim.World) *sim.Hold {
	if r.hold == nil {
		r.hold = w.NewHold()
	}
	return r.hold
}

// end ends the rule, and lets go on what it holds.
func (r *rule) end() {
	r.over = true
	if r.hold != nil {
		r.hold.Release()
	}
}

// inject is what the player's faults make of a call. Of several that match the first one strikes; all count it.
func (p *player) inject(c *sim.CallInfo) (f sim.Fate, counted bool) {
	struck := false
	for _, r := range p.rules {
		if !r.isOf(c, p.streamID) {
			continue
		}
		counted = true
		r.matches++
		if r.matches < r.nth || r.times > 0 && r.strikes == r.times || struck {
			continue
		}
		struck = true
		r.strikes++
		if r.action == "kill" {
			r.killed = c.Inc
		}
		f = r.fate(p.g.w)
		p.g.w.Mark("inject/" + r.action)
	}
	return f, counted
}

// streamID is the id of the stream that has a name, or of the last that had it.
func (p *player) streamID(name string) catalog.StreamID {
	if id := p.g.check.Stream(name); id != 0 {
		p.ids[name] = id
	}
	return p.ids[name]
}

func (p *player) fault(st *statement) {
	r := *st.rule
	p.rules = append(p.rules, &r)
	for _, text := range []pattern{r.key, r.with, r.without} {
		text.resolve(p.streamID) // a name may be gone by the time that it matters
	}
}

func (p *player) named(name string) *rule {
	return p.rules[slices.IndexFunc(p.rules, func(r *rule) bool { return r.name == name })]
}

func (p *player) await(st *statement) {
	struck := func() bool {
		return !slices.ContainsFunc(st.args, func(name string) bool { return !p.named(name).struck() })
	}
	r := p.g.w.RunUntil(struck, st.duration("within", 10*time.Minute))
	if r.Reason == sim.Reached || p.cut || p.g.w.Found() != nil {
		return // where a cut has led elsewhere there may be nothing to strike
	}
	for _, name := range st.args {
		if r := p.named(name); !r.struck() {
			p.fail(st, "fault %s has not struck: %d calls matched", name, r.matches)
		}
	}
}

func (p *player) release(st *statement) {
	for _, name := range st.args {
		p.named(name).end()
	}
}

// calm ends all faults.
func (p *player) calm() {
	for _, r := range p.rules {
		r.end()
	}
	for _, name := range p.g.order {
		if inc := p.g.w.Node(name).Current(); inc != nil && inc.Paused() {
			inc.Resume()
		}
	}
}

// weather are the chances that a script can set, each with what a seed draws beside it.
var weather = map[string]func(f *sim.Faults, chance float64){
	"store-unavailable": func(f *sim.Faults, c float64) { f.StoreUnavailable = c },
	"commit-lost":       func(f *sim.Faults, c float64) { f.CommitUnknownEffect = c },
	"commit-dropped":    func(f *sim.Faults, c float64) { f.CommitUnknownNoEffect = c },
	"commit-slow":       func(f *sim.Faults, c float64) { f.CommitSlow, f.CommitSlowMax = c, 300*time.Millisecond },
	"read-slow":         func(f *sim.Faults, c float64) { f.ReadSlow, f.ReadSlowMax = c, 300*time.Millisecond },
	"scan-short":        func(f *sim.Faults, c float64) { f.ScanShort = c },
	"bucket-throttle":   func(f *sim.Faults, c float64) { f.BucketThrottle = c },
	"bucket-read-error": func(f *sim.Faults, c float64) { f.BucketReadError = c },
	"delete-partial":    func(f *sim.Faults, c float64) { f.DeletePartial = c },
	"corrupt-read":      func(f *sim.Faults, c float64) { f.CorruptRead = c },
	"list-lag":          func(f *sim.Faults, c float64) { f.ListLag = time.Duration(c * float64(time.Minute)) },
	"net-lost":          func(f *sim.Faults, c float64) { f.NetLost = c },
}

func weatherOptions() map[string]optionKind {
	out := make(map[string]optionKind, len(weather))
	for k := range weather {
		out[k] = aChance
	}
	return out
}

func (p *player) weather(st *statement) {
	f := p.g.w.Faults()
	for _, k := range slices.Sorted(maps.Keys(st.opts)) {
		c, _ := strconv.ParseFloat(st.opts[k], 64) // checked when it was parsed
		weather[k](&f, c)
	}
	p.g.w.SetFaults(f)
}
