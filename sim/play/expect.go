package play

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/nova-store/nova/catalog"
	"github.com/nova-store/nova/sim/check"
)

// subject is something that a script can expect.
type subject struct {
	arg   string // what it is of; "": nothing
	value bool   // it has a number
	have  func(c *check.Checker, of string) int
	doc   string
}

// subjects are what the statement expect knows. A subject without a number is expected to be so.
var subjects = map[string]subject{
	"slots":   {"", true, func(c *check.Checker, _ string) int { return c.Objects("slot") }, "slots and seals in the bucket"},
	"bundles": {"", true, func(c *check.Checker, _ string) int { return c.Objects("bundle") }, "bundles in the bucket"},
	"settled": {"", true, func(c *check.Checker, _ string) int { return c.Objects("settled") }, "settled objects in the bucket"},
	"objects": {"", true, func(c *check.Checker, _ string) int {
		return c.Objects("slot") + c.Objects("bundle") + c.Objects("settled")
	}, "all three together"},
	"rewritten": {"", true, func(c *check.Checker, _ string) int { return c.Rewritten() }, "bytes of settled objects that were put, in percent of those appended"},
	"chains":    {"", true, func(c *check.Checker, _ string) int { return c.Chains() }, "chains that are not retired"},
	"markers":   {"QUEUE", true, func(c *check.Checker, q string) int { return c.Markers(catalog.Queue(q)) }, "standing markers of a queue"},
	"next":      {"STREAM", true, func(c *check.Checker, s string) int { return int(c.Next(s)) }, "a stream's next offset"},
	"first":     {"STREAM", true, func(c *check.Checker, s string) int { return int(c.Readable(s)) }, "its first readable offset, by watermark and policy"},
	"records":   {"STREAM", true, func(c *check.Checker, s string) int { return int(c.Next(s) - c.Readable(s)) }, "how many of its records are readable"},
	"spans":     {"STREAM", true, func(c *check.Checker, s string) int { return c.Spans(s) }, "how many spans its catalog has"},
	"deleted":   {"STREAM", false, func(c *check.Checker, s string) int { return boolean(c.Stream(s) == 0) }, "the name leads to no stream"},
	"gone":      {"STREAM", false, func(c *check.Checker, s string) int { return boolean(c.Remains(s) == 0) }, "of no stream that ever had the name is a record left"},
	"tearing":   {"STREAM", false, func(c *check.Checker, s string) int { return boolean(c.Tearing(s)) }, "a stream of that name is being torn down"},
	"standing":  {"STREAM", false, func(c *check.Checker, s string) int { return boolean(c.Stream(s) != 0) }, "the name leads to a stream"},
}

func boolean(b bool) int {
	if b {
		return 1
	}
	return 0
}

// expectation is one statement expect.
type expectation struct {
	subject
	name, of, compare string
	want              int
}

// parseExpectation reads the words behind expect. Errors say what it should have been.
func parseExpectation(words []string) (expectation, error) {
	s, ok := subjects[words[0]]
	if !ok {
		known := slices.Sorted(maps.Keys(subjects))
		instead := "expect with one of " + strings.Join(known, ", ")
		if near := nearest(words[0], known); near != "" {
			instead = shapeOf(near)
		}
		return expectation{}, wrong(instead, "nothing is known of %q", words[0])
	}
	e := expectation{subject: s, name: words[0], compare: "=", want: 1}
	rest := words[1:]
	if s.arg != "" && len(rest) > 0 {
		e.of, rest = rest[0], rest[1:]
	}
	switch {
	case s.arg != "" && e.of == "", s.value != (len(rest) == 1), !s.value && len(rest) > 0:
		return expectation{}, wrong(shapeOf(e.name), "expect %s is of %s", e.name, s.doc)
	case e.name == "markers" && !slices.Contains(catalog.Queues(), catalog.Queue(e.of)):
		return expectation{}, wrong(shapeOf(e.name), "%q is no queue; the queues are %v", e.of, catalog.Queues())
	case !s.value:
		return e, nil
	}
	number := rest[0]
	for _, cmp := range []string{"<=", ">="} {
		if n, ok := strings.CutPrefix(number, cmp); ok {
			e.compare, number = cmp, n
		}
	}
	n, err := strconv.Atoi(number)
	if err != nil || n < 0 {
		return expectation{}, wrong(shapeOf(e.name)+", where N is like 3, <=3 or >=3", "%q is no number", rest[0])
	}
	e.want = n
	return e, nil
}

// shapeOf is how the expectation of a subject is written.
func shapeOf(name string) string {
	shape, s := "expect "+name, subjects[name]
	if s.arg != "" {
		shape += " " + s.arg
	}
	if s.value {
		shape += " N"
	}
	return shape
}

// judge says what was expected and what is, or "".
func (e *expectation) judge(c *check.Checker) string {
	have := e.have(c, e.of)
	held := have == e.want || e.compare == "<=" && have < e.want || e.compare == ">=" && have > e.want
	switch {
	case held:
		return ""
	case !e.value:
		return fmt.Sprintf("expected %s to be %s, it is not: %s", e.of, e.name, e.doc)
	}
	what := strings.TrimSpace(e.name + " " + e.of)
	if e.compare == "=" {
		return fmt.Sprintf("expected %s to be %d, it is %d", what, e.want, have)
	}
	return fmt.Sprintf("expected %s to be %s%d, it is %d", what, e.compare, e.want, have)
}
