package play

import (
	"bufio"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/nova-store/nova/catalog"
)

// Script is a scenario file: what happens, in order, one statement a line. A '#'
// begins a comment.
//
//	world embedded|shared      first; the world's kind
//	timing NAME=DURATION …     of every node: settle-age-cap, trim-grace, …
//	node NAME [KEY=VALUE …]    a node; its keys are in docs/simulator.md
//	start NAME …               begins a process
//	create STREAM … [age=DURATION] [bytes=N]
//	                           s1..s20 stands for twenty of them
//	policy STREAM … [age=DURATION] [bytes=N]
//	                           what is not given has no bound
//	append STREAM … [records=N] [size=N] [times=N] [after=DURATION] [ago=DURATION] [wait=no]
//	                           by a producer for each stream, side by side, each
//	                           repeated until its outcome is definite
//	trim STREAM OFFSET         the first that stays readable
//	delete STREAM …
//	decommission NODE          stops it, and retires its star
//	tick DURATION              lets time pass
//	kill|drain|pause|resume NAME …
//	pause NAME … at=put|bundle not now, but in the moment in which it has next put a
//	                           settled object or a bundle, and has not named it yet
//	converge                   no faults; until nothing is left to do
//	read STREAM …              reads all of it back
//	expect SUBJECT [NAME] [N]  N may be 3, <=3 or >=3; the subjects are in expect.go
type Script struct {
	Name     string
	Embedded bool
	Nodes    []NodeConfig
	steps    []statement
}

type statement struct {
	line int
	verb string
	args []string
	opts map[string]string
}

// pausePoints are where a node may pause: once it has put an object with that prefix.
var pausePoints = map[string]string{"put": "settled/", "bundle": "bundle/"}

// ParseScript reads a scenario. Errors name the line and what it should have been.
func ParseScript(name string, r io.Reader) (*Script, error) {
	s := &Script{Name: name}
	timing := catalog.DefaultTiming(false)
	in := bufio.NewScanner(r)
	for n := 1; in.Scan(); n++ {
		text, _, _ := strings.Cut(in.Text(), "#")
		words := strings.Fields(text)
		if len(words) == 0 {
			continue
		}
		st := statement{line: n, verb: words[0], opts: map[string]string{}}
		for _, w := range words[1:] {
			if k, v, ok := strings.Cut(w, "="); ok && k != "<" && k != ">" {
				st.opts[k] = v
				continue
			}
			args, err := expand(w)
			if err != nil {
				return nil, fmt.Errorf("%s:%d: %w", name, n, err)
			}
			st.args = append(st.args, args...)
		}
		var err error
		switch st.verb {
		case "world":
			if len(st.args) != 1 || st.args[0] != "embedded" && st.args[0] != "shared" {
				err = fmt.Errorf("world is embedded or shared")
				break
			}
			s.Embedded = st.args[0] == "embedded"
			timing = catalog.DefaultTiming(s.Embedded)
		case "timing":
			err = setTiming(&timing, st.opts)
		case "node":
			err = s.addNode(st, timing)
		case "decommission", "start", "kill", "drain", "pause", "resume":
			if at, ok := st.opts["at"]; ok && (st.verb != "pause" || pausePoints[at] == "") {
				err = fmt.Errorf("%s has no at=%s; a node may pause at=put or at=bundle", st.verb, at)
				break
			}
			err = s.checkNodes(st)
			s.steps = append(s.steps, st)
		case "create", "append", "policy", "trim", "delete", "tick", "converge", "read":
			err = checkStatement(st)
			s.steps = append(s.steps, st)
		case "expect":
			_, err = parseExpectation(st.args)
			s.steps = append(s.steps, st)
		default:
			err = fmt.Errorf("no such statement: %q", st.verb)
		}
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %w", name, n, err)
		}
	}
	if err := in.Err(); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if len(s.Nodes) == 0 {
		return nil, fmt.Errorf("%s: it has no node", name)
	}
	for i := range s.Nodes {
		if err := s.Nodes[i].Timing.Validate(s.Embedded); err != nil {
			return nil, fmt.Errorf("%s: node %s: %w", name, s.Nodes[i].Name, err)
		}
	}
	return s, nil
}

// expand turns s1..s20 into twenty words.
func expand(w string) ([]string, error) {
	from, to, ok := strings.Cut(w, "..")
	if !ok {
		return []string{w}, nil
	}
	stem := strings.TrimRight(from, "0123456789")
	a, err1 := strconv.Atoi(from[len(stem):])
	b, err2 := strconv.Atoi(strings.TrimPrefix(to, stem))
	if err1 != nil || err2 != nil || b < a || b-a > 1000 {
		return nil, fmt.Errorf("%q is not like s1..s20", w)
	}
	var out []string
	for i := a; i <= b; i++ {
		out = append(out, stem+strconv.Itoa(i))
	}
	return out, nil
}

func setTiming(t *catalog.Timing, opts map[string]string) error {
	for k, v := range opts {
		d, err := time.ParseDuration(v)
		if err != nil {
			return fmt.Errorf("timing %s: %q is not a duration", k, v)
		}
		switch k {
		case "settle-age-cap":
			t.SettleAgeCap = d
		case "settle-recheck":
			t.SettleRecheck = d
		case "reap-grace":
			t.ReapGrace = d
		case "trim-grace":
			t.TrimGrace = d
		case "retire-grace":
			t.RetireGrace = d
		case "orphan-grace":
			t.OrphanGrace = d
		case "job-deadline":
			t.JobDeadline = d
		case "put-horizon":
			t.PutHorizon = d
		case "session-ttl":
			t.SessionTTL = d
		case "max-clock-skew":
			t.MaxClockSkew = d
		case "undelete-window":
			t.UndeleteWindow = d
		default:
			return fmt.Errorf("no such timing: %s", k)
		}
	}
	return nil
}

func (s *Script) addNode(st statement, t catalog.Timing) error {
	if len(st.args) != 1 {
		return fmt.Errorf("a node has one name")
	}
	c := NodeConfig{
		Name: st.args[0], Serve: true, Audit: true, Timing: t, Embedded: s.Embedded, Window: 4, Workers: 2,
		IdleInterval: time.Second, MarkersPerEra: 64, MemberParallel: 2,
	}
	for k, v := range st.opts {
		n, nerr := strconv.Atoi(v)
		b, berr := strconv.ParseBool(v)
		err := nerr
		switch k {
		case "serve":
			c.Serve, err = b, berr
		case "audit":
			c.Audit, err = b, berr
		case "star":
			c.Star, err = v, nil
		case "window":
			c.Window = n
		case "workers":
			c.Workers = n
		case "era":
			c.MarkersPerEra = n
		case "inline":
			c.InlineBytes = n
		case "flight":
			c.FlightBytes = n
		case "settle-min":
			c.SettleObjectMin = int64(n)
		case "gc-bytes":
			c.GCMinDeadBytes = int64(n)
		case "idle":
			c.IdleInterval, err = time.ParseDuration(v)
		case "leases":
			c.NoLeases, err = !b, berr
		default:
			return fmt.Errorf("a node has no %q", k)
		}
		if err != nil {
			return fmt.Errorf("node %s: %s=%s: %w", c.Name, k, v, err)
		}
	}
	s.Nodes = append(s.Nodes, c)
	return nil
}

func (s *Script) checkNodes(st statement) error {
	for _, a := range st.args {
		found := false
		for _, n := range s.Nodes {
			found = found || n.Name == a
		}
		if !found {
			return fmt.Errorf("%s: no node %q was declared above", st.verb, a)
		}
	}
	return nil
}

func checkStatement(st statement) error {
	switch st.verb {
	case "tick":
		if len(st.args) != 1 {
			return fmt.Errorf("tick has one duration")
		}
		if _, err := time.ParseDuration(st.args[0]); err != nil {
			return fmt.Errorf("tick: %q is not a duration", st.args[0])
		}
	case "trim":
		if len(st.args) != 2 {
			return fmt.Errorf("trim has a stream and an offset")
		}
		if _, err := strconv.ParseUint(st.args[1], 10, 64); err != nil {
			return fmt.Errorf("trim: %q is not an offset", st.args[1])
		}
	case "create", "append", "read", "policy", "delete":
		if len(st.args) == 0 {
			return fmt.Errorf("%s needs a stream", st.verb)
		}
	}
	for _, k := range []string{"age", "after", "ago"} {
		if v, ok := st.opts[k]; ok {
			if d, err := time.ParseDuration(v); err != nil || d < time.Millisecond {
				return fmt.Errorf("%s: %s=%s is no duration of a millisecond or more", st.verb, k, v)
			}
		}
	}
	for _, k := range []string{"records", "size", "times", "bytes"} {
		if v, ok := st.opts[k]; ok {
			if _, err := strconv.Atoi(v); err != nil {
				return fmt.Errorf("%s: %q is not a number", k, v)
			}
		}
	}
	return nil
}

// policy is what a statement's age and bytes say.
func (st *statement) policy() catalog.Policy {
	age, _ := time.ParseDuration(st.opts["age"]) // checked when it was parsed
	return catalog.Policy{MaxAgeMS: age.Milliseconds(), MaxBytes: uint64(st.number("bytes", 0))}
}

func (st *statement) number(key string, def int) int {
	if v, ok := st.opts[key]; ok {
		n, _ := strconv.Atoi(v) // checked when it was parsed
		return n
	}
	return def
}
