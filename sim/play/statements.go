package play

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nova-store/nova/catalog"
	"github.com/nova-store/nova/sim/check"
)

// verb is one statement of the language.
type verb struct {
	usage string
	doc   string
	// least and most bound the words that are no options; most below 0 is no bound. words says what they are.
	least, most int
	words       string
	opts        map[string]optionKind
	raw         bool // words are taken as they are: s1..s3 is no range
	declares    bool // it stands before everything that happens
	check       func(s *Script, st *statement) error
	play        func(p *player, st *statement) // nil: nothing happens
}

// verbs are the statements, by their first word.
var verbs = map[string]verb{
	"world": {usage: "world embedded|shared [latency=SPAN] [max-ops=N] [bucket-clock=SPAN]", doc: "which of the two worlds; it is the first statement; else shared. " +
		"Each way of a call of the store takes the latency, of the bucket twice that, 1ms unless given; max-ops bounds a commit, 128; bucket-clock is how far the clock is off by which the bucket judges puts",
		least: 1, most: 1, words: "one word", opts: map[string]optionKind{"latency": anySpan, "max-ops": aCount, "bucket-clock": anySpan}, declares: true, check: parseWorld},
	"timing": {usage: "timing NAME=DURATION …", doc: "of the nodes that are declared below: settle-age-cap, settle-recheck, reap-grace, trim-grace, " +
		"retire-grace, orphan-grace, job-deadline, put-horizon, session-ttl, max-clock-skew, undelete-window",
		words: "no words but NAME=DURATION", opts: timingOptions, declares: true, check: parseTiming},
	"node": {usage: "node NAME [KEY=VALUE …]", doc: "a node; both roles unless serve=no or audit=no",
		least: 1, most: 1, words: "one name", opts: nodeOptions, declares: true, check: parseNode},

	"start":  {usage: "start NODE …", doc: "begins a process on each, where none runs", least: 1, most: -1, words: "a node", check: checkNodes, play: (*player).start},
	"kill":   {usage: "kill NODE …", doc: "ends its process at once, as kill -9 does", least: 1, most: -1, words: "a node", check: checkNodes, play: (*player).kill},
	"drain":  {usage: "drain NODE …", doc: "stops it as a signal does, and waits until it has exited", least: 1, most: -1, words: "a node", check: checkNodes, play: (*player).drain},
	"pause":  {usage: "pause NODE …", doc: "its tasks get no turns; what they have asked for goes on", least: 1, most: -1, words: "a node", check: checkNodes, play: (*player).pause},
	"resume": {usage: "resume NODE …", doc: "a paused node goes on where it was", least: 1, most: -1, words: "a node", check: checkNodes, play: (*player).resume},
	"expire": {usage: "expire NODE …", doc: "all sessions of its process end, early", least: 1, most: -1, words: "a node", check: checkNodes, play: (*player).expire},
	"partition": {usage: "partition NODE … [from=store,bucket,clients]", doc: "it reaches them no more; without from: none of the three",
		least: 1, most: -1, words: "a node", opts: map[string]optionKind{"from": aWord}, check: checkPartition, play: (*player).partition},
	"heal": {usage: "heal NODE …", doc: "ends its partition", least: 1, most: -1, words: "a node", check: checkNodes, play: (*player).heal},
	"clock": {usage: "clock NODE SPAN [drift=PPM]", doc: "sets how far its clock is off, within half of max-clock-skew, and how many microseconds it gains a second",
		least: 2, most: 2, words: "a node and a span of time", opts: map[string]optionKind{"drift": aNumber}, check: checkClock, play: (*player).clock},
	"decommission": {usage: "decommission NODE …", doc: "stops it for good, and retires its star", least: 1, most: -1, words: "a node", check: checkNodes, play: (*player).decommission},

	"create": {usage: "create STREAM … [age=DURATION] [bytes=N]", doc: "makes streams, with that policy; s1..s20 stands for twenty",
		least: 1, most: -1, words: "a stream", opts: policyOptions, check: checkCreate, play: (*player).create},
	"policy": {usage: "policy STREAM … [age=DURATION] [bytes=N]", doc: "gives them another policy; what is not given has no bound",
		least: 1, most: -1, words: "a stream", opts: policyOptions, check: checkStreams, play: (*player).policy},
	"append": {usage: "append STREAM … [records=N] [size=N] [times=N] [after=DURATION] [ago=DURATION] [by=PRODUCER] [at=OFFSET] [epoch=N] [seq=N] [answer=ANSWER] [wait=no]",
		doc:   "by an idempotent producer, one for each stream unless by names others, streams side by side, each append repeated until its outcome is definite",
		least: 1, most: -1, words: "a stream", opts: map[string]optionKind{"records": aCount, "size": aCount, "times": aCount, "after": aDuration, "ago": aDuration,
			"by": aWord, "at": aNumber, "epoch": aNumber, "seq": aNumber, "answer": aWord, "wait": aSwitch}, check: checkAppend, play: (*player).appendAll},
	"trim": {usage: "trim STREAM … OFFSET", doc: "OFFSET is the first that stays readable", least: 2, most: -1, words: "a stream and an offset",
		check: checkTrim, play: (*player).trim},
	"delete":   {usage: "delete STREAM …", doc: "deletes them, and waits until that is definite", least: 1, most: -1, words: "a stream", check: checkStreams, play: (*player).deleteAll},
	"undelete": {usage: "undelete STREAM …", doc: "undoes the last deletion of each by this script, or fails to, and waits until that is definite", least: 1, most: -1, words: "a stream", check: checkStreams, play: (*player).undeleteAll},
	"read": {usage: "read STREAM … [start=yes] [wait=no]", doc: "reads all of each, and compares it with what was absorbed; with start=yes what one read gives that begins at its first readable record",
		least: 1, most: -1, words: "a stream", opts: map[string]optionKind{"start": aSwitch, "wait": aSwitch}, check: checkStreams, play: (*player).read},
	"follow": {usage: "follow STREAM … upto=OFFSET [from=OFFSET] [wait=no]", doc: "reads as a long poll does, again and again, until it has the records below OFFSET",
		least: 1, most: -1, words: "a stream", opts: map[string]optionKind{"upto": aCount, "from": aNumber, "wait": aSwitch}, check: checkFollow, play: (*player).follow},
	"litter": {usage: "litter", doc: "writes a marker that nobody can read into every queue but denorm", words: "no words", play: (*player).litter},

	"tick":     {usage: "tick DURATION", doc: "lets time pass", least: 1, most: 1, words: "one duration", check: checkTick, play: (*player).tick},
	"converge": {usage: "converge", doc: "ends all faults, starts what is down, and lets time pass until nothing is left to do", words: "no words", play: (*player).converge},
	"expect": {usage: "expect SUBJECT [NAME] [N] [cut=no]", doc: "what must be so at this moment; N is 3, <=3 or >=3; with cut=no in a run that is not cut alone",
		least: 1, most: 3, words: "a subject", raw: true, opts: map[string]optionKind{"cut": aSwitch},
		check: checkExpect, play: (*player).expect},
	"reached": {usage: "reached MARK …", doc: "that each of these coverage marks was hit by now, in a run that is not cut", least: 1, most: -1, words: "a mark", raw: true,
		play: (*player).reached},

	"fault": {usage: "fault NODE|any CALL KEY ACTION [by=TASK] [with=KEY] [without=KEY] [nth=N] [times=N|all] [as=NAME]",
		doc:   "what becomes of the calls that match",
		least: 3, most: 4, words: "a node, a call, a key and an action", raw: true, opts: faultOptions, check: parseFault, play: (*player).fault},
	"await": {usage: "await FAULT … [within=DURATION]", doc: "lets time pass until each has struck", least: 1, most: -1, words: "a fault's name",
		opts: map[string]optionKind{"within": aDuration}, check: checkFaults, play: (*player).await},
	"release": {usage: "release FAULT …", doc: "the fault ends, and what it holds goes on", least: 1, most: -1, words: "a fault's name", check: checkFaults, play: (*player).release},
	"faults": {usage: "faults NAME=CHANCE …", doc: "how often calls go wrong from now on, by a draw: " + strings.Join(slices.Sorted(maps.Keys(weather)), ", "),
		words: "no words but NAME=CHANCE", opts: weatherOptions(), play: (*player).weather},
}

var policyOptions = map[string]optionKind{"age": aDuration, "bytes": aCount}

var timings = map[string]func(*catalog.Timing) *time.Duration{
	"settle-age-cap":  func(t *catalog.Timing) *time.Duration { return &t.SettleAgeCap },
	"settle-recheck":  func(t *catalog.Timing) *time.Duration { return &t.SettleRecheck },
	"reap-grace":      func(t *catalog.Timing) *time.Duration { return &t.ReapGrace },
	"trim-grace":      func(t *catalog.Timing) *time.Duration { return &t.TrimGrace },
	"retire-grace":    func(t *catalog.Timing) *time.Duration { return &t.RetireGrace },
	"orphan-grace":    func(t *catalog.Timing) *time.Duration { return &t.OrphanGrace },
	"job-deadline":    func(t *catalog.Timing) *time.Duration { return &t.JobDeadline },
	"put-horizon":     func(t *catalog.Timing) *time.Duration { return &t.PutHorizon },
	"session-ttl":     func(t *catalog.Timing) *time.Duration { return &t.SessionTTL },
	"max-clock-skew":  func(t *catalog.Timing) *time.Duration { return &t.MaxClockSkew },
	"undelete-window": func(t *catalog.Timing) *time.Duration { return &t.UndeleteWindow },
}

var timingOptions = func() map[string]optionKind {
	out := make(map[string]optionKind, len(timings))
	for k := range timings {
		out[k] = aDuration
	}
	return out
}()

func parseWorld(s *Script, st *statement) error {
	switch {
	case st.args[0] != "embedded" && st.args[0] != "shared":
		return wrong("", "%q is no world", st.args[0])
	case len(s.Nodes) > 0:
		return wrong("", "the world stands behind a node; it is the first statement")
	}
	s.Embedded = st.args[0] == "embedded"
	s.timing = catalog.DefaultTiming(s.Embedded)
	s.latency, s.maxOps, s.bucketClock = st.duration("latency", time.Millisecond), st.number("max-ops", 0), st.duration("bucket-clock", 0)
	switch {
	case s.latency < 0 || s.latency > time.Second:
		return wrong("latency=2ms", "a latency of %v is not from 0 to 1s", s.latency)
	case s.maxOps > 0 && s.maxOps < 32:
		return wrong("max-ops=32", "a store of less than 32 operations a commit is none that Nova runs on")
	}
	return nil
}

func parseTiming(s *Script, st *statement) error {
	if len(st.opts) == 0 {
		return wrong("", "timing sets nothing")
	}
	for k := range st.opts {
		*timings[k](&s.timing) = st.duration(k, 0)
	}
	return nil
}

var nodeOptions = map[string]optionKind{
	"serve": aSwitch, "audit": aSwitch, "star": aWord, "window": aCount, "workers": aCount, "era": aCount, "inline": aCount, "flight": aCount,
	"settle-min": aCount, "gc-bytes": aCount, "idle": aDuration, "leases": aSwitch, "page": aCount, "slot-deadline": aDuration,
}

func parseNode(s *Script, st *statement) error {
	name := st.args[0]
	if slices.ContainsFunc(s.Nodes, func(n NodeConfig) bool { return n.Name == name }) {
		return wrong("", "there is a node %q already", name)
	}
	if err := s.timing.Validate(s.Embedded); err != nil {
		return wrong("timing NAME=DURATION …, above the node", "%v", err)
	}
	if err := s.withinSkew("bucket-clock", s.bucketClock); err != nil {
		return err
	}
	if len(s.Nodes) > 0 && !check.Alike(s.timing, s.Nodes[0].Timing) {
		return wrong("timing max-clock-skew=… undelete-window=…, above the first node", "node %q has another max-clock-skew or undelete-window than node %q; the checker assumes one of all", name, s.Nodes[0].Name)
	}
	s.Nodes = append(s.Nodes, NodeConfig{
		Name: name, Serve: st.opts["serve"] != "no", Audit: st.opts["audit"] != "no", Star: st.opts["star"], Timing: s.timing, Embedded: s.Embedded,
		Window: st.number("window", 4), Workers: st.number("workers", 2), IdleInterval: st.duration("idle", time.Second),
		MarkersPerEra: st.number("era", 64), MemberParallel: 2, InlineBytes: st.number("inline", 0), FlightBytes: st.number("flight", 0),
		SettleObjectMin: int64(st.number("settle-min", 0)), GCMinDeadBytes: int64(st.number("gc-bytes", 0)), NoLeases: st.opts["leases"] == "no",
		PageSize: st.number("page", 0), SlotDeadline: st.duration("slot-deadline", 0),
	})
	return nil
}

func (s *Script) node(name string) error {
	if !slices.ContainsFunc(s.Nodes, func(n NodeConfig) bool { return n.Name == name }) {
		return wrong("node "+name+", above the first statement that does something", "no node %q was declared above", name)
	}
	return nil
}

func checkNodes(s *Script, st *statement) error {
	for _, a := range st.args {
		if err := s.node(a); err != nil {
			return err
		}
	}
	return nil
}

// partitionable are what a node may be cut off from.
var partitionable = []string{"store", "bucket", "clients"}

func checkPartition(s *Script, st *statement) error {
	for _, from := range strings.Split(st.opts["from"], ",") {
		if from != "" && !slices.Contains(partitionable, from) {
			return wrong("", "a node can't be cut off from %q, but from %s", from, strings.Join(partitionable, ", "))
		}
	}
	return checkNodes(s, st)
}

func checkClock(s *Script, st *statement) error {
	if err := s.node(st.args[0]); err != nil {
		return err
	}
	d, err := time.ParseDuration(st.args[1])
	if err != nil {
		return wrong("", "%q is no span of time", st.args[1])
	}
	return s.withinSkew("clock", d)
}

// withinSkew refuses a clock that is further off than half of what two clocks may differ by.
func (s *Script) withinSkew(what string, off time.Duration) error {
	if most := s.timing.MaxClockSkew / 2; max(off, -off) > most {
		return wrong("", "a %s that is off by %v breaks what everything rests on: half of max-clock-skew, %v, is the most", what, off, most)
	}
	return nil
}

func checkCreate(s *Script, st *statement) error {
	for _, a := range st.args {
		if err := catalog.CheckStreamName(a); err != nil {
			return err
		}
		s.streams[a] = true
	}
	return nil
}

func (s *Script) stream(name string) error {
	if !s.streams[name] {
		return wrong("create "+name+", above", "no stream %q was created above", name)
	}
	return nil
}

func checkStreams(s *Script, st *statement) error {
	for _, a := range st.args {
		if err := s.stream(a); err != nil {
			return err
		}
	}
	return nil
}

func checkAppend(s *Script, st *statement) error {
	if a, ok := st.opts["answer"]; ok && !slices.Contains(answers, a) {
		return wrong("", "%q is no answer; the answers are %s", a, strings.Join(answers, ", "))
	}
	if _, err := expand(st.opts["by"]); err != nil {
		return err
	}
	if n := st.number("size", 50); n > 1<<20 {
		return wrong("size=1000", "records of %d bytes make a scenario slow", n)
	}
	return checkStreams(s, st)
}

func checkTrim(s *Script, st *statement) error {
	last := len(st.args) - 1
	if _, err := strconv.ParseUint(st.args[last], 10, 64); err != nil {
		return wrong("", "%q is no offset", st.args[last])
	}
	return checkStreams(s, &statement{args: st.args[:last]})
}

func checkFollow(s *Script, st *statement) error {
	if st.opts["upto"] == "" {
		return wrong("", "follow does not say up to which offset")
	}
	return checkStreams(s, st)
}

func checkTick(_ *Script, st *statement) error {
	if d, err := time.ParseDuration(st.args[0]); err != nil || d <= 0 {
		return wrong("tick 1500ms", "%q is no duration", st.args[0])
	}
	return nil
}

func checkExpect(s *Script, st *statement) (err error) {
	if st.expect, err = parseExpectation(st.args); err != nil {
		return err
	}
	if st.expect.arg == "STREAM" {
		return s.stream(st.expect.of)
	}
	return nil
}

func checkFaults(s *Script, st *statement) error {
	for _, a := range st.args {
		if !s.faults[a] {
			return wrong(fmt.Sprintf("fault … as=%s, above", a), "no fault above is named %q", a)
		}
	}
	return nil
}
