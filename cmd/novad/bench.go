package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
)

// benchCmd measures Nova and, in the same run on the same disk, what it can be
// compared with. Single runs are noisy: the ratios tell more than the figures.
type benchCmd struct {
	Dir      string        `help:"Folder on the disk to measure; its own subfolder is removed afterwards. Default: the system's for temporary files." env:"-" placeholder:"DIR"`
	Duration time.Duration `help:"How long each rate is measured." default:"2s" env:"-"`
	Volume   byteSize      `help:"How much is settled, and copied beside it." default:"64MiB" env:"-"`
	Output   string        `help:"How to print: table or json." enum:"table,json" default:"table" env:"-"`

	AuditorRequestRate float64  `help:"The auditor's bucket requests a second beside the clients; 0 is unlimited." default:"${auditor_request_rate}" env:"-"`
	AuditorRewriteRate byteSize `help:"Bytes that it rewrites a second beside them; 0 is unlimited." default:"${auditor_rewrite_rate}" env:"-"`
}

// Help is shown by novad bench --help.
func (benchCmd) Help() string {
	return `Measures durable appends of 1 KiB a second by 1 and 64 tasks, each to a stream of its own: into a star in this
process, through HTTP, and beside them Pebble's own synced commits of the same bytes and the bare number of
fsyncs of the disk; then the bytes a second of the settle rewrite, without budgets, beside a copy and fsync of the same bytes; then what
appends and reads of four clients each wait, at the 99th percentile, while the auditor is saturated and while it is idle.`
}

// benchResult is the output as JSON. Rates are a second.
type benchResult struct {
	Dir           string  `json:"dir"`
	CPUs          int     `json:"cpus"`
	Fsyncs        float64 `json:"fsyncs_per_second"`
	Pebble1       float64 `json:"pebble_commits_per_second_1"`
	Pebble64      float64 `json:"pebble_commits_per_second_64"`
	Append1       float64 `json:"appends_per_second_1"`
	Append64      float64 `json:"appends_per_second_64"`
	HTTP1         float64 `json:"http_appends_per_second_1"`
	HTTP64        float64 `json:"http_appends_per_second_64"`
	Volume        int64   `json:"settle_bytes"`
	Settle        float64 `json:"settle_bytes_per_second"`
	Copy          float64 `json:"copy_bytes_per_second"`
	IdleAppend    float64 `json:"append_p99_seconds_idle"`
	BusyAppend    float64 `json:"append_p99_seconds_auditing"`
	IdleRead      float64 `json:"read_p99_seconds_idle"`
	BusyRead      float64 `json:"read_p99_seconds_auditing"`
	RatioAppend1  float64 `json:"ratio_append_pebble_1"`
	RatioAppend64 float64 `json:"ratio_append_pebble_64"`
	RatioHTTP1    float64 `json:"ratio_http_pebble_1"`
	RatioHTTP64   float64 `json:"ratio_http_pebble_64"`
	RatioSettle   float64 `json:"ratio_settle_copy"`
	RatioAppendP  float64 `json:"ratio_append_p99_auditing_idle"`
	RatioReadP    float64 `json:"ratio_read_p99_auditing_idle"`
}

// benchTasks is the larger number of tasks.
const benchTasks = 64

// Run measures one after the other, nothing beside anything else.
func (c *benchCmd) Run(p *process) error {
	if c.Duration <= 0 || c.Volume < 1<<20 || c.Volume > 4<<30 {
		return usagef("--duration must be above 0, --volume 1MiB to 4GiB")
	}
	dir, err := os.MkdirTemp(c.Dir, "nova-bench-")
	if err != nil {
		return fmt.Errorf("bench: %w", err)
	}
	r, err := c.measureAll(p.ctx, dir, p.stderr)
	if err = errors.Join(err, os.RemoveAll(dir)); err != nil {
		return fmt.Errorf("bench: %w", err)
	}
	if c.Output == "json" {
		return printJSON(p.stdout, r)
	}
	return r.print(p.stdout)
}

func (c *benchCmd) measureAll(ctx context.Context, dir string, progress io.Writer) (*benchResult, error) {
	b := &bench{ctx: ctx, dir: dir, duration: c.Duration, log: slog.New(slog.NewTextHandler(progress, &slog.HandlerOptions{Level: slog.LevelError}))}
	r := &benchResult{Dir: dir, CPUs: runtime.NumCPU(), Volume: int64(c.Volume)}
	for _, step := range []struct {
		name string
		run  func() error
	}{
		{"fsyncs", func() (err error) { r.Fsyncs, err = b.fsyncs(); return err }},
		{"Pebble, 1 task", func() (err error) { r.Pebble1, err = b.pebble(1); return err }},
		{"appends, 1 task", func() (err error) { r.Append1, err = b.appends(1); return err }},
		{"appends over HTTP, 1 task", func() (err error) { r.HTTP1, err = b.appendsHTTP(1); return err }},
		{"Pebble, 64 tasks", func() (err error) { r.Pebble64, err = b.pebble(benchTasks); return err }},
		{"appends, 64 tasks", func() (err error) { r.Append64, err = b.appends(benchTasks); return err }},
		{"appends over HTTP, 64 tasks", func() (err error) { r.HTTP64, err = b.appendsHTTP(benchTasks); return err }},
		{"copy", func() (err error) { r.Copy, err = b.copyBytes(r.Volume); return err }},
		{"settle", func() (err error) { r.Settle, err = b.settle(r.Volume); return err }},
		{"clients beside the auditor", func() error {
			idle, busy, err := b.foreground(r.Volume, c.AuditorRequestRate, float64(c.AuditorRewriteRate))
			r.IdleAppend, r.IdleRead = idle.append.Seconds(), idle.read.Seconds()
			r.BusyAppend, r.BusyRead = busy.append.Seconds(), busy.read.Seconds()
			return err
		}},
	} {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if isTerminal(progress) {
			fmt.Fprintf(progress, "measuring %s…\n", step.name)
		}
		if err := step.run(); err != nil {
			return nil, fmt.Errorf("%s: %w", step.name, err)
		}
	}
	r.RatioAppend1, r.RatioAppend64 = r.Append1/r.Pebble1, r.Append64/r.Pebble64
	r.RatioHTTP1, r.RatioHTTP64 = r.HTTP1/r.Pebble1, r.HTTP64/r.Pebble64
	r.RatioSettle = r.Settle / r.Copy
	r.RatioAppendP, r.RatioReadP = r.BusyAppend/r.IdleAppend, r.BusyRead/r.IdleRead
	return r, nil
}

// print prints the figures as a table.
func (r *benchResult) print(w io.Writer) error {
	rate := func(v float64) string { return fmt.Sprintf("%.0f/s", v) }
	bytes := func(v float64) string { return fmt.Sprintf("%.1f MiB/s", v/(1<<20)) }
	wait := func(v float64) string { return fmt.Sprintf("%.2f ms", v*1000) }
	ratio := func(v float64) string { return fmt.Sprintf("%.2f", v) }
	fmt.Fprintf(w, "%d CPUs, %s; durable 1 KiB appends, and %v settled. One noisy run: trust the ratios.\n", r.CPUs, r.Dir, byteSize(r.Volume))
	return renderTable(w, 1, table.Row{"", "Nova", "beside it", "ratio"}, []table.Row{
		{"fsyncs of the disk", "", rate(r.Fsyncs), ""},
		{"appends, 1 task : Pebble's synced commits", rate(r.Append1), rate(r.Pebble1), ratio(r.RatioAppend1)},
		{"appends, 64 tasks : Pebble's synced commits", rate(r.Append64), rate(r.Pebble64), ratio(r.RatioAppend64)},
		{"appends over HTTP, 1 client : Pebble's", rate(r.HTTP1), rate(r.Pebble1), ratio(r.RatioHTTP1)},
		{"appends over HTTP, 64 clients : Pebble's", rate(r.HTTP64), rate(r.Pebble64), ratio(r.RatioHTTP64)},
		{"settle : copy and fsync", bytes(r.Settle), bytes(r.Copy), ratio(r.RatioSettle)},
		{"p99 of an append, auditor saturated : idle", wait(r.BusyAppend), wait(r.IdleAppend), ratio(r.RatioAppendP)},
		{"p99 of a read, auditor saturated : idle", wait(r.BusyRead), wait(r.IdleRead), ratio(r.RatioReadP)},
	})
}

// rate runs f in tasks side by side for d, once each at least, and returns how often a second it
// succeeded. Its first error ends them all.
func rate(ctx context.Context, tasks int, d time.Duration, f func(task, i int) error) (float64, error) {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	var all sync.WaitGroup
	var done atomic.Int64
	errs := make([]error, tasks)
	began := time.Now()
	for task := range tasks {
		all.Go(func() {
			for i := 0; i == 0 || ctx.Err() == nil; i++ {
				if errs[task] = f(task, i); errs[task] != nil {
					cancel()
					return
				}
				done.Add(1)
			}
		})
	}
	all.Wait()
	return float64(done.Load()) / time.Since(began).Seconds(), errors.Join(errs...)
}
