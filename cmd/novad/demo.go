package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/nova-store/nova/api"
	"github.com/nova-store/nova/api/service"
	"github.com/nova-store/nova/clock"
	"github.com/nova-store/nova/testdata/demo"
)

// demoCmd shows a node at work, in a temporary folder.
type demoCmd struct {
	Keep bool `help:"Leave the node serving, and its folder, until Ctrl-C." env:"-"`
}

const (
	demoStream = "harborgate/gate log"
	demoBatch  = 16 << 10
	// demoTimeout bounds the whole demo, with room on a slow machine.
	demoTimeout = 2 * time.Minute
	demoPoll    = 50 * time.Millisecond
)

// demoRun is one run of the demo.
type demoRun struct {
	dir   string
	began time.Time
	color bool

	mu    sync.Mutex // of out
	out   io.Writer
	shown map[string]api.Chain // as last drawn
}

// Run runs the demo. It leaves nothing behind, unless it is to keep the node.
func (c *demoCmd) Run(p *process) error {
	dir, err := os.MkdirTemp("", "nova-demo-")
	if err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	d := &demoRun{dir: dir, began: time.Now(), color: isTerminal(p.stdout), out: p.stdout, shown: make(map[string]api.Chain)}
	ctx, cancel := context.WithTimeout(p.ctx, demoTimeout)
	defer cancel()
	n, err := d.run(ctx)
	if err == nil && c.Keep {
		d.say("The node keeps serving on http://%s, its data is in %s. Ctrl-C ends it.", n.addr, dir)
		d.say("Try: novad read --server http://%s --limit 5 '%s'", n.addr, demoStream)
		select {
		case <-p.ctx.Done():
		case err = <-n.exited:
			n = nil
		}
	}
	if n != nil {
		err = errors.Join(err, n.stop())
	}
	err = errors.Join(err, os.RemoveAll(dir))
	if err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	d.say("Done in %.1f s; the node has stopped, its folder is gone.", time.Since(d.began).Seconds())
	return nil
}

// run returns the node that serves at the end, also with an error where one still runs.
func (d *demoRun) run(ctx context.Context) (*demoNode, error) {
	d.say("Starting a node in %s, with short graces.", d.dir)
	n, err := startDemoNode(ctx, d.dir, "127.0.0.1:0", d.logged)
	if err != nil {
		return nil, err
	}
	client, err := api.NewClient("http://"+n.addr, api.ClientOptions{})
	if err != nil {
		return n, err
	}
	defer client.Close()
	watch, stopWatch := context.WithCancel(ctx)
	defer stopWatch()
	go d.watch(watch, client)

	if _, _, err := client.CreateStream(ctx, demoStream, nil); err != nil {
		return n, err
	}
	producer, err := client.NewProducer(ctx, clock.NewReal(), demoStream)
	if err != nil {
		return n, err
	}
	lines := bytes.Count(demo.Log, []byte{'\n'})
	d.say("Appending testdata/demo/harborgate.log to %q: %d lines, %d bytes.", demoStream, lines, len(demo.Log))
	var once sync.Once
	producer.OnRetry = func(err error) {
		once.Do(func() { d.say("  the client: %v; it repeats the very same append until it is answered", err) })
	}
	cut := bytes.IndexByte(demo.Log[len(demo.Log)/2:], '\n') + len(demo.Log)/2 + 1
	first, err := appendLines(ctx, producer, bytes.NewReader(demo.Log[:cut]), demoStream, demoBatch, service.MaxAppendRecords, nil)
	if err != nil {
		return n, err
	}
	d.say("%d lines are in, the append goes on. Killing the node with SIGKILL.", first.Records)

	type result struct {
		report *appendReport
		err    error
	}
	rest := make(chan result, 1)
	began := make(chan struct{})
	go func() {
		in := &signalReader{r: bytes.NewReader(demo.Log[cut:]), began: began}
		report, err := appendLines(ctx, producer, in, demoStream, demoBatch, service.MaxAppendRecords, nil)
		rest <- result{report, err}
	}()
	<-began
	if err := n.kill(); err != nil {
		return n, err
	}
	d.say("The node is dead. Starting it again on the same folder.")
	if n, err = startDemoNode(ctx, d.dir, n.addr, d.logged); err != nil {
		return nil, err
	}
	second := <-rest
	if second.err != nil {
		return n, second.err
	}
	d.say("All lines are appended: %d before the kill, %d across it and after.", first.Records, second.report.Records)

	d.say("Waiting for the auditor to settle everything, and to delete the slots.")
	if err := d.settled(ctx, client); err != nil {
		return n, err
	}
	stopWatch()
	return n, d.compare(ctx, client, lines)
}

// signalReader tells when reading begins.
type signalReader struct {
	r     io.Reader
	began chan struct{}
	once  sync.Once
}

func (s *signalReader) Read(b []byte) (int, error) {
	s.once.Do(func() { close(s.began) })
	return s.r.Read(b)
}

// compare reads everything back.
func (d *demoRun) compare(ctx context.Context, client *api.Client, lines int) error {
	d.say("Reading everything back, now from settled objects.")
	var back bytes.Buffer
	n := 0
	err := readStream(ctx, client, demoStream, service.Position{}, 0, func(r service.Record) error {
		n++
		return printRaw(&back, r.Data)
	})
	switch {
	case err != nil:
		return err
	case n != lines || !bytes.Equal(back.Bytes(), demo.Log):
		return fmt.Errorf("what came back differs: %d lines of %d bytes, sent were %d of %d", n, back.Len(), lines, len(demo.Log))
	}
	sum := sha256.Sum256(back.Bytes())
	d.say("%s %d lines, %d bytes: what came back is what went in, each line once and in order (SHA-256 %x…).",
		d.paint(text.FgGreen, "Equal."), n, back.Len(), sum[:6])
	return nil
}

// settled waits until the dead chains are gone and of the live one nothing is left to rewrite
// and, but for the slot behind which it goes on, to delete.
func (d *demoRun) settled(ctx context.Context, client *api.Client) error {
	for {
		chains, err := client.Chains(ctx)
		if err != nil {
			return err
		}
		done := len(chains) == 1
		for _, c := range chains {
			done = done && c.Live && c.Checkpoint > 0 && c.Rewritten == c.Checkpoint && c.Checkpoint-c.Trimmed <= 1
		}
		if done {
			d.draw(chains)
			return nil
		}
		if err := clock.NewReal().Sleep(ctx, demoPoll); err != nil {
			return fmt.Errorf("the auditor did not finish: %w", err)
		}
	}
}

// watch draws the chains whenever they moved, until ctx ends. While the node is dead there is
// nothing to draw.
func (d *demoRun) watch(ctx context.Context, client *api.Client) {
	for clock.NewReal().Sleep(ctx, demoPoll) == nil {
		if chains, err := client.Chains(ctx); err == nil {
			d.draw(chains)
		}
	}
}

// draw prints a bar for each chain that moved since.
func (d *demoRun) draw(chains []api.Chain) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, c := range chains {
		name := fmt.Sprintf("%s~%d", c.Star, c.Epoch)
		if d.shown[name] == c {
			continue
		}
		d.shown[name] = c
		fmt.Fprintf(d.out, "  %-17s %s trimmed %d → rewritten %d → checkpoint %d (%s)\n",
			name, d.bar(c), c.Trimmed, c.Rewritten, c.Checkpoint, stateOf(c))
	}
}

// barWidth is the length of a chain's bar.
const barWidth = 24

func (d *demoRun) bar(c api.Chain) string {
	at := func(slot uint64) int {
		if c.Head == 0 {
			return 0
		}
		return int(min(slot, c.Head) * barWidth / c.Head)
	}
	trimmed, rewritten, absorbed := at(c.Trimmed), at(c.Rewritten), at(c.Checkpoint)
	return "[" + d.paint(text.FgHiBlack, strings.Repeat(".", trimmed)) +
		d.paint(text.FgGreen, strings.Repeat("=", rewritten-trimmed)) +
		d.paint(text.FgYellow, strings.Repeat("#", absorbed-rewritten)) +
		strings.Repeat(" ", barWidth-absorbed) + "]"
}

// logged tells what the node logged, where that is of interest.
func (d *demoRun) logged(l logLine) {
	what := l.tell()
	if what == "" {
		return
	}
	who := "node"
	if l.Message == auditMessage {
		who = "auditor"
		if l.Duty != "" {
			who += "/" + l.Duty
		}
	}
	d.print("  " + d.paint(text.FgCyan, fmt.Sprintf("%-17s", who)) + " " + what)
}

// say prints a step of the demo.
func (d *demoRun) say(format string, a ...any) {
	d.print(fmt.Sprintf("%s %s", d.paint(text.Bold, fmt.Sprintf("%5.1fs", time.Since(d.began).Seconds())), fmt.Sprintf(format, a...)))
}

func (d *demoRun) print(line string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	fmt.Fprintln(d.out, line)
}

func (d *demoRun) paint(c text.Color, s string) string {
	if !d.color || s == "" {
		return s
	}
	return text.Colors{c}.EscapeSeq() + s + text.Reset.EscapeSeq()
}
