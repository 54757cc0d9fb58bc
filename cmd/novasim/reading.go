package main

import (
	"bufio"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/nova-store/nova/sim/play"
	"github.com/nova-store/nova/sim/trace"
)

// reading are the flags by which a run is kept, made smaller and looked at.
type reading struct {
	trace, html, save, replay string
	minimize                  bool
	within                    time.Duration
}

func (r *reading) register(fs *flag.FlagSet) {
	fs.StringVar(&r.trace, "trace", "", "write the trace of the run to this `file` as JSON lines, - for standard output")
	fs.StringVar(&r.html, "html", "", "write the run to this `file` as a page to be looked at")
	fs.StringVar(&r.save, "save", "", "save the run, with all that chance decided in it, to this `file`")
	fs.StringVar(&r.replay, "replay", "", "play the run that was saved to this `file`")
	fs.BoolVar(&r.minimize, "minimize", false, "make the failing run of -seed or -replay smaller as long as it fails, and save that")
	fs.DurationVar(&r.within, "within", time.Minute, "how long -minimize may take, a `duration`")
}

// misread says what is wrong with the flags, or "".
func (f *flags) misread(given map[string]bool) string {
	many := f.bench || f.seeds > 0 || f.duration > 0 || f.plan.sweep || len(f.scenarios) > 1
	for _, one := range []struct{ name, value string }{{"-trace", f.trace}, {"-html", f.html}, {"-save", f.save}} {
		switch {
		case one.value != "" && many:
			return one.name + " is of one run: give it with -seed, -replay, -scenario or -cut STEP:SIDE"
		case one.value == "-" && one.name != "-trace":
			return one.name + " needs a file"
		}
	}
	switch {
	case f.trace == "-" && f.output == "json":
		return "-trace - and -output json both want standard output: give the trace a file"
	case f.replay != "" && (many || f.scenario != "" || given["seed"]):
		return "-replay plays a saved run, which needs no seed and no scenario"
	case f.minimize && (many || f.scenario != ""):
		return "-minimize is of the run of a seed: give it with -seed or -replay"
	case f.minimize && f.replay == "" && !given["seed"]:
		return "-minimize needs -seed or -replay"
	case given["within"] && !f.minimize:
		return "-within is of -minimize"
	case f.within <= 0:
		return "-within must be above 0"
	}
	return ""
}

// unusable is an error of a file that was named, and not of a run.
type unusable struct{ error }

func (e unusable) Unwrap() error { return e.error }

// failed reports that a run could not be made or kept, and returns the exit status.
func (c *command) failed(err error) int {
	fmt.Fprintf(c.errOut, "novasim: %v\n", err)
	var u unusable
	if errors.As(err, &u) {
		return exitUsage
	}
	return exitFailed
}

// observed lets one run play while -trace and -html look on.
func (c *command) observed(title string, run func(play.Options) (*play.Outcome, error)) (err error) {
	var sinks []func(*trace.Line)
	var ends []func() error
	if c.trace != "" {
		f := c.out
		if c.trace != "-" {
			file, err := os.Create(c.trace)
			if err != nil {
				return unusable{err}
			}
			defer func() { err = errors.Join(err, file.Close()) }()
			f = file
		}
		w := bufio.NewWriterSize(f, 1<<20)
		sink, failed := trace.Writer(w)
		sinks = append(sinks, sink)
		ends = append(ends, failed, w.Flush)
	}
	if c.html != "" {
		file, err := os.Create(c.html)
		if err != nil {
			return unusable{err}
		}
		defer func() { err = errors.Join(err, file.Close()) }()
		page := trace.NewPage()
		sinks = append(sinks, page.Add)
		ends = append(ends, func() error { return page.Write(file) })
	}
	if len(sinks) == 0 {
		_, err := run(play.Options{})
		return err
	}
	r := trace.New(title, func(l *trace.Line) {
		for _, sink := range sinks {
			sink(l)
		}
	})
	o, err := run(play.Options{Sink: r.Event, Attach: r.Attach})
	if err != nil {
		return err
	}
	r.End(o.Finding, o.Steps, o.Hash, o.Plan)
	for _, end := range ends {
		if err := end(); err != nil {
			return err
		}
	}
	return nil
}

// write saves a run to the file of -save.
func (c *command) write(s *play.Saved) error {
	file, err := os.Create(c.save)
	if err != nil {
		return unusable{err}
	}
	w := bufio.NewWriter(file)
	if err := errors.Join(s.Write(w), w.Flush(), file.Close()); err != nil {
		return unusable{err}
	}
	return nil
}

func readSaved(path string) (*play.Saved, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, unusable{err}
	}
	defer file.Close()
	s, err := play.ReadSaved(bufio.NewReader(file))
	if err != nil {
		return nil, unusable{fmt.Errorf("%s: %w", path, err)}
	}
	return s, nil
}

// nextOf says what to do about a seed that failed.
func nextOf(seed uint64) string {
	return fmt.Sprintf("next:   novasim -seed %d -minimize -save seed-%d.json\n", seed, seed)
}

// replayReport is the JSON of a run that was played again.
type replayReport struct {
	report
	From string `json:"from"`
	Same bool   `json:"same"`
	Left string `json:"left,omitempty"`
}

// replayed plays a saved run.
func (c *command) replayed() int {
	s, err := readSaved(c.replay)
	if err != nil {
		return c.failed(err)
	}
	if c.minimize {
		return c.shrink(s)
	}
	start := time.Now()
	var r play.Replayed
	if err := c.observed(s.From, func(opt play.Options) (*play.Outcome, error) {
		if r, err = s.Play(opt); err != nil {
			return nil, unusable{err}
		}
		if c.save != "" {
			err = c.write(s)
		}
		return &r.Outcome, err
	}); err != nil {
		return c.failed(err)
	}
	wall := time.Since(start)
	replay := "novasim -replay " + quote(c.replay)
	left := ""
	if r.Left != nil {
		left = r.Left.String()
	}
	if c.output == "json" {
		out := replayReport{report: newReport(&r.Outcome, wall), From: s.From, Same: r.Same, Left: left}
		if r.Finding != nil {
			out.Replay = replay
		}
		c.json(out)
		return status(r.Finding)
	}
	fmt.Fprintf(c.out, "%s %s: %d steps, %v of virtual time in %v, hash %016x\n", c.replay, verdict(r.Finding),
		r.Steps, r.Virtual.Round(time.Millisecond), wall.Round(time.Millisecond), r.Hash)
	fmt.Fprintf(c.out, "saved from: %s\n", s.From)
	switch {
	case r.Same:
		fmt.Fprintln(c.out, "it is the run that was saved, to the last event")
	case left != "":
		fmt.Fprintf(c.out, "this program has left the run that was saved at %s\n", left)
	default:
		fmt.Fprintf(c.out, "this program has decided as it was saved, but its hash was %s\n", s.Hash)
	}
	if r.Finding != nil {
		fmt.Fprintf(c.out, "\n%s\nreplay: %s\n", r.Finding.Report(), replay)
		if c.html == "" {
			fmt.Fprintf(c.out, "next:   %s -html %s\n", replay, quote(strings.TrimSuffix(c.replay, ".json")+".html"))
		}
	}
	return status(r.Finding)
}

// minimized makes the failing run of a seed smaller.
func (c *command) minimized() int {
	start := time.Now()
	s, o := play.SaveSeed(c.seed, play.Options{})
	if o.Finding == nil {
		return c.nothingToMinimize(&o, time.Since(start))
	}
	return c.shrink(s)
}

func (c *command) nothingToMinimize(o *play.Outcome, wall time.Duration) int {
	fmt.Fprintln(c.errOut, "novasim: the run holds: there is nothing to minimize")
	if c.output == "json" {
		c.json(newReport(o, wall))
	}
	return exitHeld
}

// terminal tells whether w is one.
func terminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
