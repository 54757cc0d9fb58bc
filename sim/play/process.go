// Package play lets a simulated world run: it boots nodes with the production code
// that novad boots, draws faults and workloads from a seed, plays scenario files, and
// sweeps kills over every step of one. What must hold is said by package check.
package play

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nova-store/nova/auditor"
	"github.com/nova-store/nova/catalog"
	"github.com/nova-store/nova/objstore/format"
	"github.com/nova-store/nova/sim"
	"github.com/nova-store/nova/star"
)

// NodeConfig is how a node's process is started.
type NodeConfig struct {
	Name            string
	Star            string // of its star; "": the node's. Two nodes with one star replace each other
	Serve, Audit    bool
	Timing          catalog.Timing
	Embedded        bool
	Window          int
	FlightBytes     int
	InlineBytes     int
	SlotDeadline    time.Duration
	Workers         int
	IdleInterval    time.Duration
	MarkersPerEra   int
	MemberParallel  int
	SettleObjectMin int64
	PageSize        int
	GCMinDeadBytes  int64
	GCMinDeadRatio  float64
	NoLeases        bool
	Compress        bool
	TailBytes       int64
}

func (c *NodeConfig) star() string {
	if c.Star != "" {
		return c.Star
	}
	return c.Name
}

// Process is one incarnation of a node as it runs.
type Process struct {
	Inc     *sim.Incarnation
	Cat     *catalog.Catalog
	Star    *star.Star       // nil: it does not serve, or has not started yet
	Auditor *auditor.Auditor // likewise

	left     int // roles that still run
	replaced bool
}

// boot starts a process on the node. It does what novad serve does, in its order.
func (g *game) boot(cfg NodeConfig) *Process {
	p := &Process{}
	node := g.w.Node(cfg.Name)
	p.Inc = node.Start(func(ctx context.Context, inc *sim.Incarnation) {
		g.main(ctx, inc, cfg, p)
	})
	g.processes[cfg.Name] = p
	return p
}

// main is the process's first task: format, then each role as a task of its own. A
// process whose roles have all returned after a signal exits.
func (g *game) main(ctx context.Context, inc *sim.Incarnation, cfg NodeConfig, p *Process) {
	clk := inc.Clock()
	p.Cat = catalog.New(inc.Store(), clk, cfg.Timing, func(name string) { g.w.Mark("catalog/" + name) })
	for {
		err := p.Cat.EnsureFormat(ctx)
		if err == nil {
			break
		}
		if errors.Is(err, catalog.ErrCorruptValue) {
			g.w.Finding("crash", inc.String(), err.Error())
			return
		}
		if clk.Sleep(ctx, 200*time.Millisecond) != nil {
			inc.Exit()
			return
		}
	}
	codec := format.Stored()
	if cfg.Compress {
		codec = format.Zstd()
	}
	if cfg.Serve {
		s, err := star.New(p.Cat, inc.Bucket(), clk, star.Options{
			Name: cfg.star(), Address: cfg.Name, Window: cfg.Window, FlightBytes: cfg.FlightBytes, InlineBytes: cfg.InlineBytes,
			SlotDeadline: cfg.SlotDeadline, TailBytes: cfg.TailBytes, Codec: codec, Embedded: cfg.Embedded, Events: starMarks{g.w},
		})
		if err != nil {
			g.w.Finding("harness", inc.String(), err.Error())
			return
		}
		p.Star = s
	}
	if cfg.Audit {
		a, err := auditor.New(p.Cat, inc.Bucket(), clk, auditor.Options{
			Member: cfg.Name, Workers: cfg.Workers, IdleInterval: cfg.IdleInterval, MarkersPerEra: cfg.MarkersPerEra,
			MemberParallel: cfg.MemberParallel, SettleObjectMin: cfg.SettleObjectMin, PageSize: cfg.PageSize, GCMinDeadBytes: cfg.GCMinDeadBytes, GCMinDeadRatio: cfg.GCMinDeadRatio,
			NoLeases: cfg.NoLeases, Codec: codec, Embedded: cfg.Embedded, Events: auditorMarks{g.w},
		})
		if err != nil {
			g.w.Finding("harness", inc.String(), err.Error())
			return
		}
		p.Auditor = a
	}
	if p.Star != nil {
		p.left++
		inc.Go("star", func(ctx context.Context) { g.role(ctx, inc, p, "star", p.Star.Run) })
	}
	if p.Auditor != nil {
		p.left++
		inc.Go("auditor", func(ctx context.Context) { g.role(ctx, inc, p, "auditor", p.Auditor.Run) })
	}
}

// role runs one role until it returns. Only a stop, or being replaced, ends a role.
func (g *game) role(ctx context.Context, inc *sim.Incarnation, p *Process, name string, run func(context.Context) error) {
	err := run(ctx)
	switch {
	case errors.Is(err, catalog.ErrReplaced):
		g.w.Mark("star/replaced")
		p.replaced = true
		inc.Interrupt() // novad stops as a whole
	case errors.Is(err, catalog.ErrRetired) && g.gone[inc.Node().Name()]:
		g.w.Mark("star/retired")
		p.replaced = true
		inc.Interrupt()
	case ctx.Err() == nil:
		g.w.Finding("crash", inc.String(), fmt.Sprintf("the %s ended by itself: %v", name, err))
	}
	p.left--
	if p.left > 0 {
		return
	}
	// As novad's server does: calls under way, whose contexts have ended, are waited for.
	for i := 0; i < 100 && inc.Calls() > 0; i++ {
		_ = inc.Clock().Sleep(context.WithoutCancel(ctx), 100*time.Millisecond)
	}
	inc.Exit()
}

// starMarks and auditorMarks count what the roles tell, as coverage.
type starMarks struct{ w *sim.World }

func (m starMarks) Minted(catalog.ChainID)                        { m.w.Mark("star/minted") }
func (m starMarks) Fenced(catalog.ChainID, error)                 { m.w.Mark("star/fenced") }
func (m starMarks) Departed(catalog.ChainID, uint64, uint64, int) {}
func (m starMarks) Landed(catalog.ChainID, uint64, time.Duration) {}
func (m starMarks) Absorbed(_ catalog.ChainID, slots int, _ uint64) {
	if slots > 1 {
		m.w.Mark("star/absorbed-several")
	}
}
func (m starMarks) Appended(_, _ int, _ time.Duration, err error) {
	m.w.Mark("verdict/" + verdictOf(err))
}
func (m starMarks) Read(int, int, time.Duration, error) {}
func (m starMarks) Branch(name string)                  { m.w.Mark("star/" + name) }

type auditorMarks struct{ w *sim.World }

func (m auditorMarks) Event(e auditor.Event) {
	m.w.Mark("auditor/" + string(e.Action))
	if e.Action == auditor.JobDone {
		m.w.Mark("duty/" + e.Duty + "/" + outcomeOf(&e))
	}
}
