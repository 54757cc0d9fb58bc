package trace_test

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"io"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/nova-store/nova/sim/play"
	"github.com/nova-store/nova/sim/trace"
)

// record plays a seed and returns its lines, and its page.
func record(t *testing.T, seed uint64) ([]trace.Line, play.Outcome, string) {
	t.Helper()
	var lines []trace.Line
	page := trace.NewPage()
	r := trace.New("a <run>", func(l *trace.Line) {
		lines = append(lines, *l)
		page.Add(l)
	})
	o := play.Seed(seed, play.Options{Sink: r.Event, Attach: r.Attach})
	r.End(o.Finding, o.Steps, o.Hash, o.Plan)
	var b bytes.Buffer
	require.NoError(t, page.Write(&b))
	return lines, o, b.String()
}

// documented are the kinds that docs/trace.md has a row for.
func documented(t *testing.T) map[string]bool {
	t.Helper()
	text, err := os.ReadFile("../../docs/trace.md")
	require.NoError(t, err)
	out := map[string]bool{}
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z]+)` \\|").FindAllStringSubmatch(string(text), -1) {
		out[m[1]] = true
	}
	return out
}

// A trace holds every step, the markers' lives add up, and each kind is documented.
func TestTrace(t *testing.T) {
	docs := documented(t)
	seen := map[string]bool{}
	for seed := uint64(1); seed <= 3; seed++ {
		lines, o, _ := record(t, seed)
		require.Equal(t, play.Seed(seed, play.Options{}).Hash, o.Hash, "to be looked at changes nothing")
		require.Equal(t, "run", lines[0].Kind)
		require.Equal(t, "end", lines[len(lines)-1].Kind)
		issues, standing := 0, map[string]int{}
		at := int64(0)
		for i := range lines {
			l := &lines[i]
			seen[l.Kind] = true
			require.GreaterOrEqual(t, l.T, at, "time goes on")
			at = l.T
			switch l.Kind {
			case "issue":
				issues++
				require.Equal(t, issues, l.Step)
			case "marker":
				switch l.State {
				case "armed":
					standing[l.Queue]++
				case "gone":
					standing[l.Queue]--
				}
				require.Equal(t, standing[l.Queue], *l.Standing)
			case "object":
				require.NotEmpty(t, l.State)
				require.GreaterOrEqual(t, *l.Standing, 0)
			}
		}
		require.Equal(t, o.Steps, issues)
	}
	for kind := range seen {
		require.True(t, docs[kind], "docs/trace.md has no row for %q", kind)
	}
	for _, kind := range []string{"change", "cursor", "fault", "mark", "object", "marker", "kill"} {
		require.True(t, seen[kind], kind)
	}
}

// Each line is one JSON object that reads back as it was.
func TestWriter(t *testing.T) {
	lines, _, _ := record(t, 2)
	var b bytes.Buffer
	sink, failed := trace.Writer(&b)
	for i := range lines {
		sink(&lines[i])
	}
	require.NoError(t, failed())
	dec := json.NewDecoder(&b)
	dec.DisallowUnknownFields()
	for i := range lines {
		var l trace.Line
		require.NoError(t, dec.Decode(&l))
		if len(lines[i].Keys) == 0 {
			l.Keys = lines[i].Keys
		}
		require.Equal(t, lines[i], l)
	}

	sink, failed = trace.Writer(full{})
	sink(&lines[0])
	require.ErrorContains(t, failed(), "writing the trace")
}

type full struct{}

func (full) Write([]byte) (int, error) { return 0, io.ErrShortWrite }

// The page stands for itself: it asks for nothing, and its data holds every step.
func TestPage(t *testing.T) {
	_, o, page := record(t, 2)
	require.NotRegexp(t, `(?i)(src|href)\s*=|https?://|@import|url\(`, page)
	require.Contains(t, page, "<title>a &lt;run&gt;</title>")
	require.NotContains(t, page, "{{")
	m := regexp.MustCompile(`(?s)<script type="text/plain" id="data">(.*?)</script>`).FindStringSubmatch(page)
	require.NotNil(t, m)
	packed, err := base64.StdEncoding.DecodeString(m[1])
	require.NoError(t, err)
	z, err := gzip.NewReader(bytes.NewReader(packed))
	require.NoError(t, err)
	var d struct {
		Verdict string   `json:"verdict"`
		S       []string `json:"S"`
		T       []int64  `json:"T"`
		Lanes   [][]int  `json:"lanes"`
		Tasks   [][]int  `json:"tasks"`
		Calls   [][]int  `json:"calls"`
		Series  []struct {
			Group string
			X     []int
			V     []uint64
		} `json:"series"`
	}
	require.NoError(t, json.NewDecoder(z).Decode(&d))
	require.Equal(t, "held", d.Verdict)
	values := strings.Join(d.S, "\n")
	require.Contains(t, values, `{"State":"open"`, "states have their names")
	require.Regexp(t, `"Created":2026-01-01T`, values, "and moments are dates")
	require.NotRegexp(t, `"[A-Z][A-Za-z]+":1767\d{9}`, values)
	require.Len(t, d.Calls, o.Steps)
	for _, c := range d.Calls {
		require.Less(t, c[0], len(d.Tasks))
		require.GreaterOrEqual(t, c[0], 0)
		require.Less(t, c[3], len(d.T))
	}
	// Of two tasks that share a lane one has ended before the other began.
	ends := make([]int, len(d.Lanes))
	for _, task := range d.Tasks {
		lane := task[2]
		require.GreaterOrEqual(t, ends[lane], 0, "a lane is shared with a task that never ends")
		require.LessOrEqual(t, ends[lane], task[3])
		ends[lane] = task[4]
	}
	groups := map[string]bool{}
	for _, s := range d.Series {
		groups[s.Group] = true
		require.Len(t, s.V, len(s.X))
	}
	require.Len(t, groups, 4)
	require.Less(t, len(page), 60_000+60*o.Steps, "a page of many steps must open at once")
	require.False(t, strings.Contains(page, "fetch("))
}
