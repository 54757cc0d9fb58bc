package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/nova-store/nova/catalog"
	"github.com/nova-store/nova/clock"
	"github.com/nova-store/nova/metastore"
)

// timings tells the other nodes of a metastore this node's timing, for as long as it runs and its last put may take effect, and compares it with
// theirs: docs/adr/0024-timing-of-several-nodes.md.
type timings struct {
	cat      *catalog.Catalog
	clk      clock.Clock
	log      *slog.Logger
	node     string
	instance string

	session   metastore.Session // of the keeper alone, once that runs, like published
	published bool
	stop      context.CancelFunc
	kept      sync.WaitGroup
}

// joinTimings publishes first and looks then, so that of two nodes that start at once one sees the other, at least. A refusal takes back what
// was published.
func joinTimings(ctx context.Context, cat *catalog.Catalog, clk clock.Clock, log *slog.Logger, node string) (*timings, error) {
	t := &timings{cat: cat, clk: clk, log: log, node: node, instance: fmt.Sprintf("%016x", clk.Rand())}
	err := t.publish(ctx)
	if err == nil {
		err = t.compare(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, t.close(ctx))
	}
	return t, nil
}

// lasts is how long what is published outlives its last keep-alive: as long as a put of a process that was killed then may take effect.
func (t *timings) lasts() time.Duration {
	timing := t.cat.Timing()
	return timing.SessionTTL + timing.PutHorizon + timing.MaxClockSkew
}

func (t *timings) publish(ctx context.Context) error {
	s, err := t.cat.Store().OpenSession(ctx, t.lasts())
	if err != nil {
		return fmt.Errorf("opening the session of the node's timing: %w", err)
	}
	t.session = s
	err = t.cat.PublishTiming(ctx, s.ID(), t.instance, t.cat.Timing().OfNode(t.node))
	t.published = err == nil
	return err
}

// compare refuses a timing that is unsafe beside another node's, and warns of one that is merely another.
func (t *timings) compare(ctx context.Context) error {
	others, err := t.cat.Timings(ctx, t.instance)
	if err != nil {
		return err
	}
	for _, o := range others {
		differ, err := t.cat.Timing().Beside(o)
		if err != nil {
			return fmt.Errorf("beside node %s, which runs with other values or did until a moment ago (%s): %w", o.Node, flagsOf(differ), timingRefusal(err))
		}
		if len(differ) > 0 {
			t.log.Warn("another node runs with other timing flags; it is safe, and meant for the time of a change", "node", o.Node, "flags", flagsOf(differ))
		}
	}
	return nil
}

// start keeps what was published alive. Where the session is lost all the same, as when etcd was away for longer, it is published anew; nodes that
// have started meanwhile did not see it, so that it looks again, and says what is wrong: to stop now would undo nothing.
func (t *timings) start() {
	if t == nil {
		return
	}
	ctx, stop := context.WithCancel(context.Background())
	t.stop = stop
	t.kept.Go(func() {
		for t.clk.Sleep(ctx, t.lasts()/6) == nil {
			err := t.session.KeepAlive(ctx)
			if errors.Is(err, metastore.ErrSessionGone) || !t.published {
				if err = t.publish(ctx); err == nil {
					err = t.compare(ctx)
				}
			}
			if err != nil && ctx.Err() == nil {
				t.log.Error("the node's timing flags could not be compared with those of other nodes", "error", err)
			}
		}
	})
}

// close takes back what was published. It is for a node that is drained, whose puts have all been answered: one that is killed leaves it.
func (t *timings) close(ctx context.Context) error {
	if t == nil {
		return nil
	}
	if t.stop != nil {
		t.stop()
		t.kept.Wait()
	}
	if t.session == nil {
		return nil
	}
	if err := t.session.Close(ctx); err != nil {
		return fmt.Errorf("taking back the node's timing: %w", err)
	}
	return nil
}
