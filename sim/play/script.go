package play

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nova-store/nova/catalog"
)

// Script is a scenario file: what happens, in order, one statement a line. A '#'
// begins a comment. The statements are those of the table in statements.go, and docs/scenarios.md
// has an example of each.
type Script struct {
	Name        string
	Embedded    bool
	Nodes       []NodeConfig
	latency     time.Duration // of the store; the bucket's is twice that
	bucketClock time.Duration // how far it is off
	maxOps      int
	steps       []statement

	// Of the parsing: what was declared so far.
	timing  catalog.Timing
	streams map[string]bool
	faults  map[string]bool
}

// statement is one line as parsed.
type statement struct {
	line int
	verb string
	args []string
	opts map[string]string

	expect expectation // of expect
	rule   *rule       // of fault
}

// ScriptError is a mistake in a script, with what to write instead.
type ScriptError struct {
	File string
	Line int    // from 1; 0: the script as a whole
	Text string // the line
	// Problem says what was found and what was expected, Instead what to write.
	Problem, Instead string
}

func (e *ScriptError) Error() string {
	var b strings.Builder
	b.WriteString(e.File)
	if e.Line > 0 {
		fmt.Fprintf(&b, ":%d", e.Line)
	}
	fmt.Fprintf(&b, ": %s", e.Problem)
	if e.Line > 0 {
		fmt.Fprintf(&b, "\n  found: %s", e.Text)
	}
	if e.Instead != "" {
		fmt.Fprintf(&b, "\n  write: %s", e.Instead)
	}
	return b.String()
}

// mistake is what a check finds; the line is added by whoever has it.
type mistake struct{ problem, instead string }

func (m *mistake) Error() string { return m.problem }

// wrong returns a mistake; what to write instead is, where that is empty, how the statement is written.
func wrong(instead, format string, a ...any) error {
	return &mistake{problem: fmt.Sprintf(format, a...), instead: instead}
}

// ParseScript reads a scenario. Its errors are *ScriptError, but for those of the reader.
func ParseScript(name string, r io.Reader) (*Script, error) {
	s := &Script{Name: name, latency: time.Millisecond, timing: catalog.DefaultTiming(false), streams: make(map[string]bool), faults: make(map[string]bool)}
	in := bufio.NewScanner(r)
	for n := 1; in.Scan(); n++ {
		text, _, _ := strings.Cut(in.Text(), "#")
		words := strings.Fields(text)
		if len(words) == 0 {
			continue
		}
		if err := s.parseLine(n, words); err != nil {
			m := err.(*mistake)
			return nil, &ScriptError{File: name, Line: n, Text: strings.Join(words, " "), Problem: m.problem, Instead: m.instead}
		}
	}
	if err := in.Err(); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if len(s.Nodes) == 0 {
		return nil, &ScriptError{File: name, Problem: "it has no node, so that nothing can happen", Instead: "node a"}
	}
	return s, nil
}

// parseLine reads one line's words. Its errors are mistakes.
func (s *Script) parseLine(line int, words []string) error {
	v, ok := verbs[words[0]]
	if !ok {
		known := slices.Sorted(maps.Keys(verbs))
		instead := "one of " + strings.Join(known, ", ")
		if near := nearest(words[0], known); near != "" {
			instead = verbs[near].usage
		}
		return wrong(instead, "no such statement: %q", words[0])
	}
	st := statement{line: line, verb: words[0], opts: make(map[string]string)}
	for _, w := range words[1:] {
		if k, value, ok := strings.Cut(w, "="); ok && k != "<" && k != ">" {
			if err := s.option(v, &st, k, value); err != nil {
				return orUsage(v, err)
			}
			continue
		}
		args := []string{w}
		if !v.raw {
			var err error
			if args, err = expand(w); err != nil {
				return err
			}
		}
		st.args = append(st.args, args...)
	}
	switch n := len(st.args); {
	case n < v.least && v.least == v.most:
		return wrong(v.usage, "%s takes %s, and %d were given", st.verb, v.words, n)
	case n < v.least:
		return wrong(v.usage, "%s needs %s", st.verb, v.words)
	case v.most >= 0 && n > v.most:
		return wrong(v.usage, "%s takes %s, and %q is one word too many", st.verb, v.words, st.args[v.most])
	}
	if v.declares && len(s.steps) > 0 {
		return wrong("", "%s stands behind line %d, at which something happens already; it belongs before all such statements", st.verb, s.steps[0].line)
	}
	if v.check != nil {
		if err := v.check(s, &st); err != nil {
			return orUsage(v, err)
		}
	}
	if v.play != nil {
		s.steps = append(s.steps, st)
	}
	return nil
}

// orUsage makes an error a mistake that says how the statement is written, where it does not say what to write itself.
func orUsage(v verb, err error) error {
	m, ok := err.(*mistake)
	if !ok {
		m = &mistake{problem: err.Error()}
	}
	if m.instead == "" {
		m.instead = v.usage
	}
	return m
}

// option takes a word key=value.
func (s *Script) option(v verb, st *statement, k, value string) error {
	kind, ok := v.opts[k]
	if !ok {
		known := slices.Sorted(maps.Keys(v.opts))
		switch near := nearest(k, known); {
		case len(known) == 0:
			return wrong("", "%s has no options, and %s=%s is one", st.verb, k, value)
		case near != "":
			return wrong(near+"="+value, "%s has no option %q", st.verb, k)
		default:
			return wrong("", "%s has no option %q; it has %s", st.verb, k, strings.Join(known, ", "))
		}
	}
	if _, twice := st.opts[k]; twice {
		return wrong("", "%s is given twice", k)
	}
	if want := kind.refuses(value); want != "" {
		return wrong(k+"="+kind.example(), "%s=%s is not %s", k, value, want)
	}
	st.opts[k] = value
	return nil
}

// optionKind is what the value of an option may be.
type optionKind uint8

const (
	aWord     optionKind = iota
	aNumber              // 0 or more
	aCount               // 1 or more
	aDuration            // a millisecond or more
	anySpan              // of time, negative too
	aChance              // from 0 to 1
	aSwitch              // yes or no
)

var optionKinds = [...]struct{ want, example string }{
	aWord:     {"a word", "x"},
	aNumber:   {"a number", "3"},
	aCount:    {"a number of 1 or more", "1"},
	aDuration: {"a duration of a millisecond or more", "1500ms"},
	anySpan:   {"a span of time", "-200ms"},
	aChance:   {"a chance from 0 to 1", "0.25"},
	aSwitch:   {"yes or no", "no"},
}

func (k optionKind) example() string { return optionKinds[k].example }

// refuses says what a value should have been, or "".
func (k optionKind) refuses(v string) string {
	ok := v != ""
	switch k {
	case aNumber, aCount:
		n, err := strconv.Atoi(v)
		ok = err == nil && n >= 0 && (k == aNumber || n > 0)
	case aDuration, anySpan:
		d, err := time.ParseDuration(v)
		ok = err == nil && (k == anySpan || d >= time.Millisecond)
	case aChance:
		f, err := strconv.ParseFloat(v, 64)
		ok = err == nil && f >= 0 && f <= 1
	case aSwitch:
		ok = v == "yes" || v == "no"
	}
	if ok {
		return ""
	}
	return optionKinds[k].want
}

// number, duration and chance read an option that was checked when it was parsed.
func (st *statement) number(key string, def int) int {
	if v, ok := st.opts[key]; ok {
		def, _ = strconv.Atoi(v)
	}
	return def
}

func (st *statement) duration(key string, def time.Duration) time.Duration {
	if v, ok := st.opts[key]; ok {
		def, _ = time.ParseDuration(v)
	}
	return def
}

// policy is what a statement's age and bytes say.
func (st *statement) policy() catalog.Policy {
	return catalog.Policy{MaxAgeMS: st.duration("age", 0).Milliseconds(), MaxBytes: uint64(st.number("bytes", 0))}
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
		return nil, wrong("s1..s20, which stands for s1 s2 … s20", "%q is no range of names", w)
	}
	var out []string
	for i := a; i <= b; i++ {
		out = append(out, stem+strconv.Itoa(i))
	}
	return out, nil
}

// nearest returns the word that was probably meant, or "".
func nearest(word string, known []string) string {
	best, least := "", max(len(word)/3, 1)+1
	for _, k := range known {
		d := distance(word, k)
		if strings.HasPrefix(k, word) && len(word) > 1 {
			d = min(d, 1)
		}
		if d < least {
			best, least = k, d
		}
	}
	return best
}

// distance is how many letters must be put in, taken out or changed to make b of a.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		before := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := before
			if a[i] != b[j] {
				change++
			}
			before = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
