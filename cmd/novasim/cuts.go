package main

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/nova-store/nova/sim"
	"github.com/nova-store/nova/sim/play"
)

const (
	cutHelp = "kill the scenario's nodes: `all`, sample:N, pairs:N (a second kill in the recovery from the first), " +
		"duty=NAME (only in steps of that duty; also all,duty=NAME and so on), or STEP:SIDE, STEP:SIDE+STEP:SIDE, " +
		"where SIDE is before, before-others (whose effects come), middle (of a delete of several keys), after or after-alone"
	cutNodeHelp = "cut only the steps of this `node`, and keep it down until the others had time to take over; all: every node dies with the one that is cut"
)

// cutFlag is what -cut and -cut-node say.
type cutFlag struct {
	play.CutPlan
	sweep bool       // all, a sample or pairs
	at    []sim.Kill // or this one cut
}

// asked says of which steps cuts are asked for.
func (f *cutFlag) asked() (text string) {
	if f.Duty != "" {
		text += " of duty " + f.Duty
	}
	if f.Node != "" {
		text += " of node " + f.Node
	}
	return text
}

// cutAllNodes is the -cut-node that stands for all of them.
const cutAllNodes = "all"

// parseCut reads -cut and -cut-node.
func parseCut(cut, node string) (f cutFlag, err error) {
	switch node {
	case "":
	case cutAllNodes:
		f.Mode = play.CutAll
	default:
		f.Mode, f.Node = play.CutAway, node
	}
	if cut == "" {
		f.sweep = node != ""
		return f, nil
	}
	wrong := func() (cutFlag, error) {
		return f, fmt.Errorf("-cut is all, sample:N, pairs:N, duty=NAME, or STEP:SIDE, where SIDE is one of %s; not %q", strings.Join(sim.Sides(), ", "), cut)
	}
	for _, part := range strings.Split(cut, ",") {
		what, arg, _ := strings.Cut(part, ":")
		duty, isDuty := strings.CutPrefix(part, "duty=")
		switch {
		case part == "all":
			f.sweep = true
		case isDuty:
			if !slices.Contains(play.Duties(), duty) {
				return f, fmt.Errorf("-cut duty=%s: the duties are %s", duty, strings.Join(play.Duties(), ", "))
			}
			f.sweep, f.Duty = true, duty
		case what == "sample" || what == "pairs":
			n, err := strconv.Atoi(arg)
			if err != nil || n < 1 {
				return f, fmt.Errorf("-cut %s: how many cuts?", part)
			}
			f.sweep = true
			if what == "pairs" {
				f.Pairs = n
			} else {
				f.Limit = n
			}
		default:
			for _, at := range strings.Split(part, "+") {
				step, side, _ := strings.Cut(at, ":")
				k := sim.Kill{}
				var ok bool
				if k.Side, ok = sim.ParseSide(side); !ok {
					return wrong()
				}
				if k.Step, err = strconv.Atoi(step); err != nil || k.Step < 1 {
					return f, fmt.Errorf("-cut %s: %q is no step", cut, step)
				}
				f.at = append(f.at, k)
			}
		}
	}
	if f.sweep && len(f.at) > 0 || f.Limit > 0 && f.Pairs > 0 || len(f.at) > 2 {
		return wrong()
	}
	return f, nil
}

// scenarioFiles returns the files that the -scenario flags name: a file, all *.nova at or below a directory,
// or what a glob matches, in this order and each once.
func scenarioFiles(patterns []string) ([]string, error) {
	var out []string
	add := func(path string) {
		if !slices.Contains(out, path) {
			out = append(out, path)
		}
	}
	for _, p := range patterns {
		info, err := os.Stat(p)
		switch {
		case err == nil && info.IsDir():
			found := len(out)
			err := filepath.WalkDir(p, func(path string, d fs.DirEntry, err error) error {
				if err == nil && !d.IsDir() && filepath.Ext(path) == ".nova" {
					add(path)
				}
				return err
			})
			if err != nil {
				return nil, err
			}
			if len(out) == found {
				return nil, fmt.Errorf("%s holds no scenario", p)
			}
		case errors.Is(err, fs.ErrNotExist) && strings.ContainsAny(p, "*?["):
			files, err := filepath.Glob(p)
			if err != nil || len(files) == 0 {
				return nil, fmt.Errorf("-scenario %s matches nothing", p)
			}
			for _, file := range files {
				add(file)
			}
		case err != nil:
			return nil, err
		default:
			add(p)
		}
	}
	return out, nil
}

// kindReport is the JSON of the cuts in one kind of step of one duty.
type kindReport struct {
	Duty    string `json:"duty"`
	Kind    string `json:"kind"`
	Cuts    int    `json:"cuts"`
	Of      int    `json:"of"`
	Steps   int    `json:"steps"`
	OfSteps int    `json:"of_steps"`
}

func kindReports(kinds []play.CutKind) []kindReport {
	out := []kindReport{}
	for _, k := range kinds {
		out = append(out, kindReport{k.Duty, k.Op.String(), k.Cuts, k.Of, k.Steps, k.OfSteps})
	}
	return out
}

// addKinds adds counts of the same duty and kind up; the sum is in the order in which they came.
func addKinds(sum, more []kindReport) []kindReport {
	for _, k := range more {
		i := slices.IndexFunc(sum, func(s kindReport) bool { return s.Duty == k.Duty && s.Kind == k.Kind })
		if i < 0 {
			sum = append(sum, k)
			continue
		}
		s := &sum[i]
		s.Cuts, s.Of, s.Steps, s.OfSteps = s.Cuts+k.Cuts, s.Of+k.Of, s.Steps+k.Steps, s.OfSteps+k.OfSteps
	}
	return sum
}

// stepKinds groups the kinds of steps into the columns of the table of cuts.
var stepKinds = []struct {
	title string
	ops   []sim.Op
}{
	{"commits", []sim.Op{sim.OpCommit}},
	{"PUTs", []sim.Op{sim.OpBucketPut}},
	{"DELETEs", []sim.Op{sim.OpBucketDelete}},
	{"sessions", []sim.Op{sim.OpOpenSession, sim.OpKeepAlive, sim.OpCloseSession}},
	{"reads", []sim.Op{sim.OpGet, sim.OpScan, sim.OpPeek, sim.OpBucketGet, sim.OpBucketStat, sim.OpBucketList}},
	{"sleeps, waits", []sim.Op{sim.OpSleep, sim.OpWait}},
}

// kindTable shows a row for each duty and a column for each kind of step: how many cuts were
// made, of how many if not all were.
func kindTable(kinds []kindReport) string {
	cell := func(cuts, of int) string {
		switch {
		case of == 0:
			return ""
		case cuts == of:
			return strconv.Itoa(of)
		}
		return fmt.Sprintf("%d of %d", cuts, of)
	}
	t := table.NewWriter()
	t.SetStyle(table.StyleLight)
	t.Style().Format.Header = text.FormatDefault
	t.Style().Format.Footer = text.FormatDefault
	head := table.Row{"cuts in steps of"}
	for _, k := range stepKinds {
		head = append(head, k.title)
	}
	t.AppendHeader(append(head, "cuts", "for steps"))
	duties := map[string]bool{}
	for _, k := range kinds {
		duties[k.Duty] = true
	}
	row := func(title string, in func(k *kindReport) bool) table.Row {
		r := table.Row{title}
		var all kindReport
		for _, col := range stepKinds {
			cuts, of := 0, 0
			for i := range kinds {
				k := &kinds[i]
				if in(k) && slices.ContainsFunc(col.ops, func(op sim.Op) bool { return op.String() == k.Kind }) {
					cuts, of = cuts+k.Cuts, of+k.Of
					all.Cuts, all.Of, all.Steps, all.OfSteps = all.Cuts+k.Cuts, all.Of+k.Of, all.Steps+k.Steps, all.OfSteps+k.OfSteps
				}
			}
			r = append(r, cell(cuts, of))
		}
		return append(r, cell(all.Cuts, all.Of), cell(all.Steps, all.OfSteps))
	}
	for _, d := range slices.Sorted(maps.Keys(duties)) {
		t.AppendRow(row(d, func(k *kindReport) bool { return k.Duty == d }))
	}
	t.AppendFooter(row("all", func(*kindReport) bool { return true }))
	columns := []table.ColumnConfig{}
	for i := range len(stepKinds) + 2 {
		columns = append(columns, table.ColumnConfig{Number: i + 2, Align: text.AlignRight, AlignFooter: text.AlignRight})
	}
	t.SetColumnConfigs(columns)
	return t.Render()
}
