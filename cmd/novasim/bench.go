package main

import (
	"fmt"
	"os"
	"runtime"
	"runtime/pprof"
	"syscall"
	"time"

	"github.com/nova-store/nova/sim"
	"github.com/nova-store/nova/sim/play"
)

// benchReport is the JSON of a benchmark. Each figure is of one core, with all checkers on. Rates and ratios are per second of
// the processor, the collector's included: on an idle machine that is real time, and on a busy one others do not enter.
type benchReport struct {
	// Of seeds, one after the other, as a sweep runs them.
	Seeds     int     `json:"seeds"`
	Steps     int     `json:"steps"`
	Wall      float64 `json:"wall_seconds"`
	CPU       float64 `json:"cpu_seconds"`
	PerSecond float64 `json:"steps_per_second"`
	Virtual   float64 `json:"virtual_seconds"`
	Ratio     float64 `json:"virtual_over_wall"`
	Bytes     float64 `json:"bytes_per_step"`
	Allocs    float64 `json:"allocations_per_step"`

	Scheduler float64 `json:"scheduler_steps_per_second"` // tasks that only sleep
	Busy      float64 `json:"busy_steps_per_second"`
	BusyRatio float64 `json:"busy_virtual_over_wall"`
	IdleRatio float64 `json:"idle_virtual_over_wall"`
	// Heap in use after a collection, early in a busy world and a million steps later.
	HeapEarly float64 `json:"heap_early_mib"`
	HeapLate  float64 `json:"heap_late_mib"`
}

const (
	benchSeedsFor   = 10 * time.Second
	benchSleepers   = 2_000_000 // steps
	benchEarly      = 100_000   // steps of the busy world before the heap is looked at first
	benchLate       = 1_000_000 // and then again
	benchIdle       = 1000      // streams
	benchIdleFor    = 7 * 24 * time.Hour
	benchSleepTasks = 100
)

// benchmark measures on one processor.
func (c *command) benchmark() int {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	stop, err := c.profiling()
	if err != nil {
		fmt.Fprintf(c.errOut, "novasim: %v\n", err)
		return exitUsage
	}
	var r benchReport
	f := r.seeds(c.first)
	stop()
	for _, part := range []func() *sim.Finding{r.sleepers, r.busy, r.idle} {
		if f == nil {
			f = part()
		}
	}
	if f != nil {
		fmt.Fprintf(c.errOut, "novasim: %v\n", f)
		return status(f)
	}
	if c.output == "json" {
		c.json(r)
		return exitHeld
	}
	line := func(format string, a ...any) { fmt.Fprintf(c.out, format+"\n", a...) }
	line("On one core, with all checkers on:")
	line("  %9.0f steps/s  %d seeds, %d steps in %.1f s of the processor, %.0f times real time", r.PerSecond, r.Seeds, r.Steps, r.CPU, r.Ratio)
	line("  %9.0f bytes    allocated a step, in %.1f pieces", r.Bytes, r.Allocs)
	line("  %9.0f steps/s  by the scheduler alone: %d tasks that sleep, no checker", r.Scheduler, benchSleepTasks)
	line("  %9.0f steps/s  in a busy world, %.0f times real time", r.Busy, r.BusyRatio)
	line("  %9.0f times    real time in an idle world of %d streams", r.IdleRatio, benchIdle)
	line("  %9.1f MiB      of heap after %d steps of the busy world, %.1f MiB after %d more", r.HeapEarly, benchEarly, r.HeapLate, benchLate)
	return exitHeld
}

// profiling begins the profile, if one is asked for; the returned function ends it.
func (c *command) profiling() (stop func(), err error) {
	if c.profile == "" {
		return func() {}, nil
	}
	f, err := os.Create(c.profile)
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		_ = f.Close() // nothing is in it
		return nil, err
	}
	return func() {
		pprof.StopCPUProfile()
		_ = f.Close() // a profile that is cut short is told by whoever reads it
	}, nil
}

// seeds runs seeds for a while.
func (r *benchReport) seeds(first uint64) *sim.Finding {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	start, cpu := time.Now(), cpuSeconds()
	for seed := first; time.Since(start) < benchSeedsFor; seed++ {
		o := play.Seed(seed, play.Options{})
		if o.Finding != nil {
			return o.Finding
		}
		r.Seeds++
		r.Steps += o.Steps
		r.Virtual += o.Virtual.Seconds()
	}
	r.Wall = time.Since(start).Seconds()
	r.CPU = cpuSeconds() - cpu
	runtime.ReadMemStats(&after)
	steps := float64(r.Steps)
	r.PerSecond, r.Ratio = steps/r.CPU, r.Virtual/r.CPU
	r.Bytes, r.Allocs = float64(after.TotalAlloc-before.TotalAlloc)/steps, float64(after.Mallocs-before.Mallocs)/steps
	return nil
}

// sleepers is what the scheduler does by itself.
func (r *benchReport) sleepers() *sim.Finding {
	l := play.NewSleepers(1, benchSleepTasks)
	defer l.Close()
	cpu := cpuSeconds()
	f := l.Run(benchSleepers, 0)
	r.Scheduler = float64(l.Steps()) / (cpuSeconds() - cpu)
	return f
}

// busy is a world in which there is always something to do, and whether it grows.
func (r *benchReport) busy() *sim.Finding {
	l := play.NewBusy(1)
	defer l.Close()
	if f := l.Run(benchEarly, 0); f != nil {
		return f
	}
	r.HeapEarly = heapMiB()
	steps, virtual, cpu := l.Steps(), l.Elapsed(), cpuSeconds()
	f := l.Run(benchLate, 0)
	spent := cpuSeconds() - cpu
	r.Busy, r.BusyRatio = float64(l.Steps()-steps)/spent, (l.Elapsed()-virtual).Seconds()/spent
	r.HeapLate = heapMiB()
	return f
}

// idle is a world in which there is nothing to do.
func (r *benchReport) idle() *sim.Finding {
	l := play.NewIdle(1, benchIdle)
	defer l.Close()
	virtual, cpu := l.Elapsed(), cpuSeconds()
	f := l.Run(0, benchIdleFor)
	r.IdleRatio = (l.Elapsed() - virtual).Seconds() / (cpuSeconds() - cpu)
	return f
}

// heapMiB is the heap in use after a collection.
func heapMiB() float64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc) / (1 << 20)
}

// cpuSeconds is what the process has used of the processor.
func cpuSeconds() float64 {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		panic(err) // it takes no argument that could be wrong
	}
	return float64(r.Utime.Nano()+r.Stime.Nano()) / 1e9
}
