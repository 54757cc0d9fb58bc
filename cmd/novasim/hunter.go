package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nova-store/nova/sim/mutant"
	"github.com/nova-store/nova/sim/play"
)

// hunter hunts mutants: it builds programs, and runs them.
type hunter struct {
	root   string
	seeds  int
	quick  bool
	places mutant.Places
	// build builds a program without a mutant, if m is nil, or with one; run runs a program and returns
	// its standard output and its exit status.
	build  func(ctx context.Context, m *mutant.Mutant) (program string, err error)
	run    func(ctx context.Context, program string, args ...string) (out []byte, status int, err error)
	remove func(program string)

	control string // the program without a mutant
	mu      sync.Mutex
	held    map[string]bool // runs that the control was seen to hold
}

// result is what the report of a run says.
type result struct {
	Invariant string `json:"invariant"`
	Replay    string `json:"replay"`
	Seeds     int    `json:"seeds"`
	Cuts      int    `json:"cuts"`
	Broken    any    `json:"broken"` // of seeds: each that broke
	// Scenarios are those of a run of several.
	Scenarios []struct {
		Invariant string `json:"invariant"`
		Replay    string `json:"replay"`
	} `json:"scenarios"`
}

func (r *result) holds() bool { return r == nil || r.Replay == "" }

// play runs a program with -output json and reads what it says. Only a run that held or broke an
// invariant says something; any other is an error.
func (h *hunter) play(ctx context.Context, program string, args ...string) (*result, error) {
	out, status, err := h.run(ctx, program, append(args, "-output", "json")...)
	command := "novasim " + strings.Join(args, " ")
	if err != nil {
		return nil, fmt.Errorf("%s: %w", command, err)
	}
	if status == exitUsage && bytes.Contains(out, []byte(play.NoKill)) {
		return &result{}, nil // the run of this program has no such step
	}
	if status != exitHeld && status != exitBroken {
		return nil, fmt.Errorf("%s ended with status %d: %s", command, status, bytes.TrimSpace(out))
	}
	var r result
	if err := json.Unmarshal(out, &r); err != nil {
		return nil, fmt.Errorf("%s: its report: %w", command, err)
	}
	if broken, ok := r.Broken.([]any); ok && len(broken) > 0 {
		first, _ := broken[0].(map[string]any)
		r.Invariant, _ = first["invariant"].(string)
	}
	if status == exitHeld {
		r.Replay = ""
	} else if r.Invariant == "" || r.Replay == "" {
		return nil, fmt.Errorf("%s broke, and its report does not say what: %s", command, bytes.TrimSpace(out))
	}
	return &r, nil
}

// checkControl builds the program without a mutant and returns the run of it that breaks an invariant, if one
// does. In full it takes all that a mutant can be given; otherwise some seeds, each scenario, and the
// runs by which mutants were caught last.
func (h *hunter) checkControl(ctx context.Context, mutants []mutant.Mutant, full bool, parallel int) (*result, error) {
	var err error
	if h.control, err = h.build(ctx, nil); err != nil {
		return nil, err
	}
	h.held = make(map[string]bool)
	workers := []string{"-parallel", strconv.Itoa(parallel)}
	runs := [][]string{append([]string{"-seeds", strconv.Itoa(min(h.seeds, controlSeeds))}, workers...), {"-scenario", scenariosDir}}
	if full {
		runs = [][]string{append([]string{"-seeds", strconv.Itoa(h.seeds)}, workers...), append([]string{"-cut", "all", "-scenario", scenariosDir}, workers...)}
	}
	if h.quick {
		for _, m := range mutants {
			for _, place := range h.places[m.Name] {
				runs = append(runs, words(place))
			}
		}
	}
	for _, args := range runs {
		r, err := h.play(ctx, h.control, args...)
		if err != nil || !r.holds() {
			return r, err
		}
		h.held[strings.Join(args, " ")] = true
	}
	return nil, nil
}

// hunt hunts one mutant.
func (h *hunter) hunt(ctx context.Context, m *mutant.Mutant) (r mutantReport) {
	r = mutantReport{Mutant: m.Name, MustBreak: m.MustBreak, Guards: []catch{}}
	fail := func(err error) mutantReport {
		r.Verdict, r.Error = unjudgable, err.Error()
		return r
	}
	start := time.Now()
	program, err := h.build(ctx, m)
	if err != nil {
		return fail(err)
	}
	defer h.remove(program)
	r.Build = time.Since(start).Seconds()
	start = time.Now()
	defer func() { r.Wall = time.Since(start).Seconds() }()
	found, note, err := h.search(ctx, program, m)
	if err != nil {
		return fail(err)
	}
	r.Note = note
	if found == nil {
		r.Verdict = survived
	} else {
		r.Invariant, r.Replay, r.Seeds, r.Cuts = found.Invariant, found.Replay, found.seeds, found.cuts
		if r.Verdict = caught; !m.Meant(found.Invariant) {
			r.Verdict = misread
		}
	}
	for _, guard := range m.Guards {
		g, err := h.guard(ctx, program, m, guard)
		switch {
		case err != nil:
			return fail(err)
		case g == nil:
			r.Note = strings.TrimPrefix(r.Note+"; "+guard+" holds, also cut", "; ")
			if r.Verdict == caught {
				r.Verdict = unguarded
			}
		default:
			r.Guards = append(r.Guards, *g)
		}
	}
	return r
}

// search looks for a run of the mutant that breaks an invariant that it must break: where it was caught last, if
// that is enough, then what costs least first: some seeds, the scenarios, the other seeds, the cuts of the scenarios. If there
// is none it returns the first that breaks another invariant; nil: nothing breaks.
func (h *hunter) search(ctx context.Context, program string, m *mutant.Mutant) (found *catch, note string, err error) {
	if h.quick {
		note = "no place is known; searched"
		if places := h.places[m.Name]; len(places) > 0 {
			for _, place := range places {
				found, err = h.try(ctx, program, words(place)...)
				if err != nil || found != nil && m.Meant(found.Invariant) {
					return found, "", err
				}
			}
			note = strings.Join(places, ", ") + ": it is not caught there by now; searched"
		}
	}
	few := min(h.seeds, fewSeeds)
	runs := [][]string{{"-seeds", strconv.Itoa(few)}, {"-scenario", scenariosDir, "-fail-fast=false"}}
	if h.seeds > few {
		runs = append(runs, []string{"-first", strconv.Itoa(few + 1), "-seeds", strconv.Itoa(h.seeds - few)})
	}
	runs = append(runs, []string{"-cut", "all", "-scenario", scenariosDir})
	for i, args := range runs {
		// One after another, so that how many it took is no matter of chance.
		all, err := h.tries(ctx, program, append(args, "-parallel", "1")...)
		if err != nil {
			return nil, note, err
		}
		for j := range all {
			if i == 2 && all[j].seeds > 0 {
				all[j].seeds += few
			}
			if m.Meant(all[j].Invariant) {
				return &all[j], note, nil
			}
			if found == nil {
				found = &all[j]
			}
		}
	}
	return found, note, nil
}

// guard returns how the scenario that guards a mutant fails on it, itself or one of its cuts; nil if it does not.
func (h *hunter) guard(ctx context.Context, program string, m *mutant.Mutant, scenario string) (found *catch, err error) {
	runs := [][]string{{"-scenario", scenario}, {"-cut", "all", "-scenario", scenario, "-parallel", "1"}}
	if places := h.places[m.Name]; h.quick && len(places) > 0 {
		for _, place := range places {
			if args := words(place); slices.Contains(args, scenario) {
				runs = slices.Insert(runs, 0, args)
			}
		}
	}
	for _, args := range runs {
		found, err = h.try(ctx, program, args...)
		if err != nil {
			return nil, err
		}
		if found != nil {
			found.Scenario = scenario
			return found, nil
		}
	}
	return nil, nil
}

// try makes a run of a mutant and returns what breaks first, if anything does.
func (h *hunter) try(ctx context.Context, program string, args ...string) (*catch, error) {
	all, err := h.tries(ctx, program, args...)
	if err != nil || len(all) == 0 {
		return nil, err
	}
	return &all[0], nil
}

// tries makes a run of a mutant and returns what breaks: of several scenarios each that does. It must hold
// without the mutant.
func (h *hunter) tries(ctx context.Context, program string, args ...string) (all []catch, err error) {
	r, err := h.play(ctx, program, args...)
	if err != nil || r.holds() {
		return nil, err
	}
	if err := h.without(ctx, r.Replay); err != nil {
		return nil, err
	}
	all = []catch{{Invariant: r.Invariant, Replay: r.Replay, seeds: r.Seeds, cuts: r.Cuts}}
	for _, s := range r.Scenarios {
		if s.Replay != "" && s.Replay != r.Replay {
			if err := h.without(ctx, s.Replay); err != nil {
				return nil, err
			}
			all = append(all, catch{Invariant: s.Invariant, Replay: s.Replay})
		}
	}
	return all, nil
}

// without plays what breaks with a mutant without it; it must hold.
func (h *hunter) without(ctx context.Context, command string) error {
	replay := strings.TrimPrefix(command, "novasim ")
	h.mu.Lock()
	held := h.held[replay]
	h.mu.Unlock()
	if held {
		return nil
	}
	r, err := h.play(ctx, h.control, words(replay)...)
	if err != nil {
		return err
	}
	if !r.holds() {
		return fmt.Errorf("%s breaks %s without the mutant too", command, r.Invariant)
	}
	h.mu.Lock()
	h.held[replay] = true
	h.mu.Unlock()
	return nil
}

// keep notes where the mutants were caught, for -quick. Of mutants that are no more it forgets the places, if
// these are all.
func (h *hunter) keep(reports []mutantReport, mutants []mutant.Mutant, all bool) error {
	places := maps.Clone(h.places)
	if all {
		maps.DeleteFunc(places, func(name string, _ []string) bool {
			return !slices.ContainsFunc(mutants, func(m mutant.Mutant) bool { return m.Name == name })
		})
	}
	for _, r := range reports {
		if r.Verdict != caught {
			continue
		}
		args := []string{strings.TrimPrefix(r.Replay, "novasim ")}
		for _, g := range r.Guards {
			if place := strings.TrimPrefix(g.Replay, "novasim "); !slices.Contains(args, place) {
				args = append(args, place)
			}
		}
		places[r.Mutant] = args
	}
	return places.Write(h.root)
}

// runProgram runs a program in the root of the tree, for runMost at most.
func runProgram(ctx context.Context, root, program string, args ...string) ([]byte, int, error) {
	most, cancel := context.WithTimeout(ctx, runMost)
	defer cancel()
	cmd := exec.CommandContext(most, program, args...)
	cmd.Dir = root
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	err := cmd.Run()
	var exit *exec.ExitError
	switch {
	case most.Err() != nil:
		return nil, 0, fmt.Errorf("it did not end within %v", runMost)
	case errors.As(err, &exit):
		if exit.ExitCode() != exitBroken {
			out.Write(errOut.Bytes())
		}
		return out.Bytes(), exit.ExitCode(), nil
	}
	return out.Bytes(), exitHeld, err
}
