package sim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nova-store/nova/clock"
)

var (
	// ErrDown: the node did not run; what was asked did not begin.
	ErrDown = errors.New("sim: node is down")
	// ErrLost: no answer came; what was asked happened, or not, or in part, or
	// may still happen as long as the process lives.
	ErrLost = errors.New("sim: answer lost")
)

// Client is a part of the harness that talks to nodes: its tasks are never
// killed, their waits are no steps, and its clock shows the true time.
type Client struct {
	w    *World
	name string
	// Rand is the client's own stream of random numbers.
	Rand *Rand
}

// Client returns the client of that name, made when it is first asked for.
func (w *World) Client(name string) *Client {
	for _, c := range w.clients {
		if c.name == name {
			return c
		}
	}
	c := &Client{w: w, name: name, Rand: w.Stream("client/" + name)}
	w.clients = append(w.clients, c)
	return c
}

// Name returns the client's name.
func (c *Client) Name() string { return c.name }

// Clock is what the client's tasks sleep and wait on.
func (c *Client) Clock() clock.Clock { return c.w.HarnessClock() }

// Go starts a task of the client.
func (c *Client) Go(f func(ctx context.Context)) { c.w.Go(c.name, f) }

// HarnessClock shows the true time; only tasks of the harness may wait on it.
func (w *World) HarnessClock() clock.Clock { return &w.harness.clk }

// Go starts a task of the harness.
func (w *World) Go(name string, f func(ctx context.Context)) {
	w.spawn(w.harness, name, w.harness.ctx, f)
}

// HarnessTasks returns how many tasks of the harness have not ended.
func (w *World) HarnessTasks() int { return w.harness.count }

// rpc is one call of a client into a process.
type rpc struct {
	w      *World
	inc    *Incarnation
	client clock.Parker
	gone   bool // the client does not wait any more
	over   bool
	err    error
	cancel context.CancelFunc // of the context that the process sees
}

// Do calls into the process: f runs as a task of inc, and the calling task, one of
// the harness, waits until it has returned and the answer arrived. Otherwise the
// error is ErrDown or ErrLost, wrapped; after ErrLost f may still run, so whatever
// it writes to must not be read. If ctx ends first, the client goes away, and the
// context that f was given ends too, unless the network is cut.
func (c *Client) Do(ctx context.Context, inc *Incarnation, name string, f func(ctx context.Context)) error {
	w := c.w
	t := w.harness.enter()
	w.rpcEvent(EvAsk, inc, t, name+" by "+c.name)
	r := &rpc{w: w, inc: inc, client: w.harness.clk.NewParker()}
	switch {
	case inc.dead:
		// Never at once, so that whoever tries again and again lets others go on.
		w.At(duration(2*w.fault.latency(w.faults.NetLatency)), func() { r.answer(ErrDown) })
	case inc.node.cutNet || w.fault.Chance(w.faults.NetLost):
		w.Mark("net/request-lost")
		w.later(w.outageDelay(), func() { r.answer(ErrLost) })
	default:
		inc.rpcs = append(inc.rpcs, r)
		w.boundary() // before it a kill refuses what after it it loses
		w.later(w.fault.latency(w.faults.NetLatency), func() { r.arrive(name, f) })
	}
	err := r.client.Park(ctx)
	switch {
	case err != nil && !r.over:
		r.gone = true
		if r.cancel != nil && !inc.node.cutNet {
			r.cancel()
		}
		err = fmt.Errorf("%s on %s: %w: %w", name, inc, ErrLost, err)
	case r.err != nil:
		err = fmt.Errorf("%s on %s: %w", name, inc, r.err)
	default:
		err = nil
	}
	word := "ok"
	switch {
	case errors.Is(err, ErrDown):
		word = "down"
	case err != nil:
		word = "lost"
	}
	w.rpcEvent(EvReply, inc, t, name+" by "+c.name+": "+word)
	return err
}

// Call is Do for a function that returns something. What it returned is given
// only when its answer arrived.
func Call[T any](ctx context.Context, c *Client, inc *Incarnation, name string, f func(ctx context.Context) T) (T, error) {
	answer := new(T)
	err := c.Do(ctx, inc, name, func(ctx context.Context) { *answer = f(ctx) })
	if err != nil {
		var none T
		return none, err
	}
	return *answer, nil
}

func (w *World) rpcEvent(kind EventKind, inc *Incarnation, t *task, text string) {
	w.emit(w.record(kind, 0, inc, t, w.steps, text))
}

// later has f called after that time, or at once.
func (w *World) later(in int64, f func()) {
	if in <= 0 {
		f()
		return
	}
	w.At(time.Duration(in), f)
}

// arrive starts what was asked, if there is still someone to do it.
func (r *rpc) arrive(name string, f func(ctx context.Context)) {
	inc, w := r.inc, r.w
	if inc.dead || r.gone {
		r.leave()
		return
	}
	ctx, cancel := inc.derive(inc.ctx, false, 0)
	r.cancel = cancel
	w.spawn(inc, name, ctx, func(ctx context.Context) {
		f(ctx)
		cancel()
		r.leave()
		w.boundary()
		if inc.node.cutNet || w.fault.Chance(w.faults.NetLost) {
			w.Mark("net/answer-lost")
			w.later(w.outageDelay(), func() { r.answer(ErrLost) })
			return
		}
		w.later(w.fault.latency(w.faults.NetLatency), func() { r.answer(nil) })
	})
}

// leave takes r off the list of those whom the process owes an answer.
func (r *rpc) leave() {
	if i := slices.Index(r.inc.rpcs, r); i >= 0 {
		r.inc.rpcs = slices.Delete(r.inc.rpcs, i, i+1)
	}
}

func (r *rpc) serverDied() {
	r.w.later(r.w.fault.latency(r.w.faults.NetLatency), func() { r.answer(ErrLost) })
}

func (r *rpc) answer(err error) {
	if r.over {
		return
	}
	r.over, r.err = true, err
	r.client.Unpark()
}
