package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/nova-store/nova/sim"
	"github.com/nova-store/nova/sim/play"
)

// coverage is which marks were hit, and by what: a check that never ran proves nothing.
type coverage struct {
	seeds, scenarios sim.Marks
	played           int
	neverHit         []string // by neither
	unlisted         []string // hit, and not on the list
	broken           string   // the first scenario that does not hold
	finding          *sim.Finding
}

// cover plays the scenarios of a folder and those below it, uncut, and adds up what was hit.
func cover(dir string, workers int, seeds sim.Marks) (*coverage, error) {
	paths, err := scenarioFiles([]string{dir})
	if err != nil {
		return nil, err
	}
	scripts, err := loadAll(paths)
	if err != nil {
		return nil, err
	}
	c := &coverage{seeds: seeds, scenarios: sim.Marks{}, played: len(scripts)}
	outcomes := make([]play.ScenarioOutcome, len(scripts))
	var next atomic.Int64
	var mu sync.Mutex
	parallel(workers, func() {
		for {
			i := int(next.Add(1) - 1)
			if i >= len(scripts) {
				return
			}
			o := play.Scenario(scripts[i], 0, nil, false, play.Options{})
			mu.Lock()
			outcomes[i] = o
			c.scenarios.Add(o.Marks)
			mu.Unlock()
		}
	})
	listed, spared := play.Marks(), play.Spared()
	for _, name := range listed {
		if seeds[name]+c.scenarios[name] == 0 && spared[name] == "" {
			c.neverHit = append(c.neverHit, name)
		}
	}
	all := maps.Clone(seeds)
	all.Add(c.scenarios)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if !slices.Contains(listed, name) {
			c.unlisted = append(c.unlisted, name)
		}
	}
	for i := range outcomes {
		if f := outcomes[i].Finding; f != nil {
			c.broken, c.finding = scripts[i].Name, f
			break
		}
	}
	return c, nil
}

// status is 1 where a mark was not hit, or is on no list.
func (c *coverage) status() int {
	switch {
	case c.finding != nil:
		return status(c.finding)
	case len(c.neverHit)+len(c.unlisted) > 0:
		return exitBroken
	}
	return exitHeld
}

func (c *coverage) print(out io.Writer) {
	fmt.Fprintf(out, "  %8s  %9s  mark, over all seeds and %d scenarios\n", "seeds", "scenarios", c.played)
	all := maps.Clone(c.seeds)
	all.Add(c.scenarios)
	for _, name := range play.Marks() {
		all[name] += 0
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		fmt.Fprintf(out, "  %8d  %9d  %s\n", c.seeds[name], c.scenarios[name], name)
	}
	for _, name := range c.neverHit {
		fmt.Fprintf(out, "mark %s was never hit: nothing has shown what happens there\n", name)
	}
	for _, name := range c.unlisted {
		fmt.Fprintf(out, "mark %s is not on the list of sim/play/marks.go\n", name)
	}
	if c.finding != nil {
		fmt.Fprintf(out, "\n%s\nreplay: novasim -scenario %s\n", c.finding.Report(), quote(c.broken))
	}
}
