package trace

import (
	"bytes"
	"compress/gzip"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html"
	"io"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// pageHTML is the page without its data and its script, which is pageScript.
//
//go:embed page.html
var pageHTML string

//go:embed page.js
var pageScript string

// Page gathers the lines of a run for one page that needs nothing else: no server, no network. What it
// keeps is small enough for a run of some hundred thousand steps: strings once, numbers in columns.
type Page struct {
	d       pageData
	strings map[string]int
	tasks   map[uint64]int        // tasks that have not ended, by number
	free    map[laneName][]int    // lanes whose task has ended
	calls   map[int]int           // calls without their answer, by step
	series  map[[2]string]int     // by group and name
	open    map[processName][]int // tasks of a process
	t       int64                 // of the newest line
}

type laneName struct{ node, name string }

type processName struct {
	node string
	inc  int
}

// pageData is what the page's script reads. All that is a text is an index into S.
type pageData struct {
	Title     string   `json:"title"`
	Verdict   string   `json:"verdict"`
	Invariant string   `json:"invariant"`
	Object    string   `json:"object"`
	Text      string   `json:"text"`
	Step      int      `json:"step"`
	Hash      string   `json:"hash"`
	Start     string   `json:"start"`
	Plan      []string `json:"plan"`
	Found     int      `json:"found"` // x of the finding; -1: none

	S []string `json:"S"`
	// T is how much time has passed from each x, which numbers what is shown, to the next.
	T []int64 `json:"T"`
	// Lanes are pairs of node and name.
	Lanes [][2]int `json:"lanes"`
	// Tasks are: number, incarnation, lane, first x, last x (-1: never ended).
	Tasks [][5]int `json:"tasks"`
	// Calls are: task, kind, step, x of issue, effect and answer (-1: none), outcome, 1 if it was late; then the keys.
	Calls [][]int `json:"calls"`
	// Points are: x, kind, lane (-1: none), node, step, text; then the keys.
	Points [][]int `json:"points"`
	// Changes are: x, kind (change, marker or object), step, node, state, key, value, object, 1 if it was late, when
	// the marker is due in ms (-1: no time).
	Changes [][10]int `json:"changes"`
	Series  []series  `json:"series"`
}

// series is one line of a chart, with a point for each change.
type series struct {
	Group string   `json:"group"`
	Name  string   `json:"name"`
	X     []int    `json:"x"`
	V     []uint64 `json:"v"`
}

// worldEnds is why processes end that lived until the run was over.
const worldEnds = "the world ends"

// keysShown bounds the keys that the page keeps of a call.
const keysShown = 16

// NewPage returns a page without lines.
func NewPage() *Page {
	p := &Page{strings: make(map[string]int), tasks: make(map[uint64]int), free: make(map[laneName][]int), calls: make(map[int]int),
		series: make(map[[2]string]int), open: make(map[processName][]int)}
	p.d.Found = -1
	p.text("") // is 0
	return p
}

func (p *Page) text(s string) int {
	i, ok := p.strings[s]
	if !ok {
		i = len(p.d.S)
		p.strings[s] = i
		p.d.S = append(p.d.S, s)
	}
	return i
}

func (p *Page) texts(to []int, list []string) []int {
	for _, s := range list[:min(len(list), keysShown)] {
		to = append(to, p.text(s))
	}
	return to
}

// Add takes the next line.
func (p *Page) Add(l *Line) {
	switch l.Kind {
	case "run":
		p.d.Title, p.d.Start = l.Text, l.Start
		return
	case "end":
		p.d.Verdict, p.d.Invariant, p.d.Object, p.d.Text, p.d.Step, p.d.Hash, p.d.Plan = l.Verdict, l.Invariant, l.Key, l.Text, l.Step, l.Hash, l.Plan
		return
	}
	x := len(p.d.T)
	p.d.T = append(p.d.T, l.T-p.t)
	p.t = l.T
	switch l.Kind {
	case "start":
		p.start(l, x)
	case "exit":
		p.exit(l.Task, x)
	case "issue":
		task, ok := p.tasks[l.Task]
		if !ok {
			task = -1
		}
		p.calls[l.Step] = len(p.d.Calls)
		p.d.Calls = append(p.d.Calls, p.texts([]int{task, p.text(l.Call), l.Step, x, -1, -1, 0, 0}, l.Keys))
	case "effect", "late", "answer":
		p.advance(l, x)
	case "change", "marker", "object":
		p.change(l, x)
	case "cursor":
		group := "streams"
		if strings.HasPrefix(l.Of, "chain ") {
			group = "chains"
		}
		p.plot(group, l.Of+" "+l.Name, x, *l.At)
	default:
		p.point(l, x)
	}
}

func (p *Page) start(l *Line, x int) {
	name := laneName{l.Node, l.Name}
	lane := -1
	if free := p.free[name]; len(free) > 0 {
		lane = free[len(free)-1]
		p.free[name] = free[:len(free)-1]
	} else {
		lane = len(p.d.Lanes)
		p.d.Lanes = append(p.d.Lanes, [2]int{p.text(l.Node), p.text(l.Name)})
	}
	task := len(p.d.Tasks)
	p.tasks[l.Task] = task
	p.d.Tasks = append(p.d.Tasks, [5]int{int(l.Task), l.Inc, lane, x, -1})
	process := processName{l.Node, l.Inc}
	p.open[process] = append(p.open[process], int(l.Task))
}

func (p *Page) exit(number uint64, x int) {
	i, ok := p.tasks[number]
	if !ok {
		return
	}
	delete(p.tasks, number)
	t := &p.d.Tasks[i]
	t[4] = x
	lane := p.d.Lanes[t[2]]
	name := laneName{p.d.S[lane[0]], p.d.S[lane[1]]}
	p.free[name] = append(p.free[name], t[2])
}

// advance notes how far a call has come.
func (p *Page) advance(l *Line, x int) {
	i, ok := p.calls[l.Step]
	if !ok {
		return // of the harness, which has no steps
	}
	c := p.d.Calls[i]
	switch l.Kind {
	case "answer":
		c[5] = x
	case "late":
		c[4], c[7] = x, 1
	default:
		c[4] = x
	}
	if l.Outcome != "" {
		c[6] = p.text(l.Outcome)
	}
}

func (p *Page) point(l *Line, x int) {
	lane := -1
	if t, ok := p.tasks[l.Task]; ok {
		lane = p.d.Tasks[t][2]
	}
	switch l.Kind {
	case "finding":
		if p.d.Found < 0 {
			p.d.Found = x
		}
	case "kill":
		// Its tasks end with it.
		process := processName{l.Node, l.Inc}
		for _, t := range p.open[process] {
			p.exit(uint64(t), x)
		}
		delete(p.open, process)
		if l.Text == worldEnds {
			return
		}
	}
	p.d.Points = append(p.d.Points, p.texts([]int{x, p.text(l.Kind), lane, p.text(l.Node), l.Step, p.text(l.Text)}, l.Keys))
}

// unixMS are what in a decoded value is a moment: numbers of milliseconds since 1970, from 2020 to 2100.
var unixMS = regexp.MustCompile(`:(1[5-9]\d{11}|[23]\d{12}|40\d{11})\b`)

// dated is a decoded value with its moments as dates.
func dated(value []byte) string {
	return unixMS.ReplaceAllStringFunc(string(value), func(n string) string {
		ms, err := strconv.ParseInt(n[1:], 10, 64)
		if err != nil {
			return n
		}
		return ":" + time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.000Z")
	})
}

func (p *Page) change(l *Line, x int) {
	kinds := map[string]int{"change": 0, "marker": 1, "object": 2}
	late, ready := 0, -1
	if l.Late {
		late = 1
	}
	if l.Ready != nil {
		ready = int(*l.Ready / 1000)
	}
	value := dated(l.Value)
	if l.Kind == "object" {
		value = fmt.Sprintf("%d bytes", l.Size)
		kind, _, _ := strings.Cut(l.Key, "/")
		p.plot("objects", kind, x, uint64(max(*l.Standing, 0)))
	}
	if l.Kind == "marker" {
		p.plot("queues", l.Queue, x, uint64(max(*l.Standing, 0)))
	}
	p.d.Changes = append(p.d.Changes, [10]int{x, kinds[l.Kind], l.Step, p.text(l.Node), p.text(l.State), p.text(l.Key), p.text(value), p.text(l.Object), late, ready})
}

func (p *Page) plot(group, name string, x int, v uint64) {
	id := [2]string{group, name}
	i, ok := p.series[id]
	if !ok {
		i = len(p.d.Series)
		p.series[id] = i
		p.d.Series = append(p.d.Series, series{Group: group, Name: name})
	}
	s := &p.d.Series[i]
	s.X, s.V = append(s.X, x), append(s.V, v)
}

// Write writes the page.
func (p *Page) Write(w io.Writer) error {
	data, err := json.Marshal(&p.d)
	if err != nil {
		return fmt.Errorf("writing the page: %w", err)
	}
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	if _, err := z.Write(data); err != nil {
		return fmt.Errorf("writing the page: %w", err)
	}
	if err := z.Close(); err != nil {
		return fmt.Errorf("writing the page: %w", err)
	}
	head, rest, _ := strings.Cut(pageHTML, "{{TITLE}}")
	body, rest, _ := strings.Cut(rest, "{{DATA}}")
	between, tail, _ := strings.Cut(rest, "{{SCRIPT}}")
	for _, part := range []string{head, html.EscapeString(p.d.Title), body, base64.StdEncoding.EncodeToString(packed.Bytes()), between, pageScript, tail} {
		if _, err := io.WriteString(w, part); err != nil {
			return fmt.Errorf("writing the page: %w", err)
		}
	}
	return nil
}
