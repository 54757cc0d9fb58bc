package main

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
)

// printHunt prints the report: a table of mutants, and then what is not as it must be.
func (c *command) printHunt(rep *huntReport) {
	if c.output == "json" {
		c.json(rep)
		return
	}
	t := table.NewWriter()
	t.SetStyle(table.StyleLight)
	t.Style().Format.Header = text.FormatDefault
	t.AppendHeader(table.Row{"mutant", "caught by", "took", "seconds", "where"})
	t.SetColumnConfigs([]table.ColumnConfig{{Number: 4, Align: text.AlignRight}})
	for i := range rep.Mutants {
		r := &rep.Mutants[i]
		by := r.Invariant
		if r.Verdict != caught {
			by = strings.TrimSpace(strings.ToUpper(r.Verdict) + " " + r.Invariant)
		}
		where := shortReplay(r.Replay)
		for _, g := range r.Guards {
			if g.Replay != r.Replay {
				where += "\n" + shortReplay(g.Replay) + ": " + g.Invariant
			}
		}
		t.AppendRow(table.Row{r.Mutant, by, r.took(), fmt.Sprintf("%.1f", r.Wall), strings.TrimSpace(where)})
	}
	if c.output == "markdown" {
		fmt.Fprintln(c.out, t.RenderMarkdown())
	} else {
		fmt.Fprintln(c.out, t.Render())
	}
	for i := range rep.Mutants {
		r := &rep.Mutants[i]
		switch {
		case r.Error != "":
			fmt.Fprintf(c.out, "%s: %s\n", r.Mutant, r.Error)
		case r.Verdict == misread:
			fmt.Fprintf(c.out, "%s: caught by %s, and not by what it must break: %s\n", r.Mutant, r.Invariant, r.MustBreak)
		case r.Note != "":
			fmt.Fprintf(c.out, "%s: %s\n", r.Mutant, r.Note)
		}
	}
	fmt.Fprintf(c.out, "\n%d mutants, %d caught, in %.0f s; the control run held\n", len(rep.Mutants),
		len(rep.Mutants)-len(rep.Survivors)-len(rep.Failed), rep.Wall)
	if len(rep.Survivors) > 0 {
		fmt.Fprintf(c.out, "not caught as they must be: %s\n", strings.Join(rep.Survivors, ", "))
	}
	if len(rep.Failed) > 0 {
		fmt.Fprintf(c.out, "nothing is known of: %s\n", strings.Join(rep.Failed, ", "))
	}
}

// took says by how many seeds or cuts a mutant was caught.
func (r *mutantReport) took() string {
	switch {
	case r.Replay == "":
		return ""
	case r.Cuts > 0:
		return fmt.Sprintf("%d cuts", r.Cuts)
	case r.Seeds > 0:
		return fmt.Sprintf("%d seeds", r.Seeds)
	case strings.Contains(r.Replay, "-scenario"):
		return "a scenario"
	}
	return "a known seed"
}

// brief is one line for who watches.
func (r *mutantReport) brief() string {
	s := r.Verdict
	if r.Invariant != "" {
		s += ": " + r.Invariant + ", " + r.took()
	}
	for _, more := range []string{r.Note, r.Error} {
		if more != "" {
			s += "; " + more
		}
	}
	return fmt.Sprintf("%s (built in %.1f s, ran %.1f s)", s, r.Build, r.Wall)
}

// shortReplay is a replay without what the table's reader knows.
func shortReplay(replay string) string {
	args := words(strings.TrimPrefix(replay, "novasim "))
	for i, a := range args {
		if strings.HasSuffix(a, ".nova") {
			args[i] = filepath.Base(a)
		}
	}
	return strings.Join(args, " ")
}
