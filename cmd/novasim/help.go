package main

import (
	"flag"
	"fmt"
	"io"
)

const (
	helpHead = `novasim runs Nova's production code in a seeded, deterministic simulation, and says whether its invariants hold.

  novasim -seed 42                       one seed
  novasim -seeds 2000                    many, on all processors
  novasim -scenario FILE                 a script, uncut; also all of a directory
  novasim -cut all -scenario FILE        a script, killed at every step
  novasim -seed 42 -minimize             the least of a run that still fails, saved
  novasim -replay FILE -html PAGE        a saved run, as a page to be looked at
  novasim -duration 8h -failures FILE    as many seeds as there is time for; those that fail are noted
  novasim -mutants [-quick] [NAME ...]   the checker's checker
  novasim -bench                         how fast it is

Flags:
`
	helpTail = `
Exit status: 0 all held; 1 an invariant broke, or a sweep was interrupted; 2 wrong usage; 3 the simulator itself failed.
docs/simulator.md tells more, above all what to do about a seed that failed.
`
)

// help writes what -h asks for.
func help(w io.Writer, fs *flag.FlagSet) {
	fmt.Fprint(w, helpHead)
	fs.SetOutput(w)
	fs.PrintDefaults()
	fmt.Fprint(w, helpTail)
}
