package star_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/nova-store/nova/catalog"
	"github.com/nova-store/nova/objstore/format"
	"github.com/nova-store/nova/sim"
	"github.com/nova-store/nova/star"
)

// chaosFaults is everything that a store and a bucket may do, often.
func chaosFaults() sim.Faults {
	lat := sim.Latency{Base: 200 * time.Microsecond, Jitter: 5 * time.Millisecond, Tail: 6}
	return sim.Faults{
		StoreLatency: lat, BucketLatency: lat, NetLatency: lat,
		StoreUnavailable: 0.03, CommitUnknownNoEffect: 0.04, CommitUnknownEffect: 0.04, CommitUnknownLate: 0.04,
		CommitLateMax: 3 * time.Second, CommitSlow: 0.1, CommitSlowMax: 50 * time.Millisecond, ScanShort: 0.2,
		SessionLate: 0.2, SessionEarly: 0.1, SessionLateMax: 10 * time.Second,
		BucketThrottle: 0.04, BucketReadError: 0.03, PutUnknownNoEffect: 0.05, PutUnknownEffect: 0.05, PutUnknownLate: 0.05,
		PutLateMax: 20 * time.Second, CorruptRead: 0.03, TruncateRead: 0.03, NetLost: 0.05,
	}
}

// Under every fault, kills and pauses included: what was acknowledged is at its
// offset, an idempotent producer's records appear once and in order, and no
// record appears twice.
func TestChaos(t *testing.T) {
	for seed := range uint64(6) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { chaos(t, seed) })
	}
}

type acked struct {
	stream string
	offset uint64
	data   string
}

func chaos(t *testing.T, seed uint64) {
	embedded := seed%2 == 0
	w := newWorld(t, sim.Config{Seed: seed, Embedded: embedded, MaxOps: 64})
	change := func(o *star.Options) { o.Window, o.FlightBytes, o.TailBytes, o.InlineBytes = 3, 600, 3000, 11 }
	r := newRig(t, w, "n", change)
	streams := []string{"s0", "s1", "s2"}
	r.create(streams...)
	rigs := []*rig{r}
	w.OnKill(func(*sim.Incarnation) { rigs = append(rigs, bootRig(t, w, "n", change)) })
	w.SetFaults(chaosFaults())

	const each = 60
	var acks []acked
	done := 0
	send := func(ctx context.Context, c *sim.Client, req star.AppendRequest) (star.AppendResult, error) {
		r := rigs[len(rigs)-1]
		type reply struct {
			res star.AppendResult
			err error
		}
		a, err := sim.Call(ctx, c, r.inc, "append", func(ctx context.Context) reply {
			ctx, cancel := r.clk.WithTimeout(ctx, 20*time.Second)
			defer cancel()
			res, err := r.star.Append(ctx, req)
			return reply{res, err}
		})
		if err != nil {
			return a.res, err
		}
		return a.res, a.err
	}
	for i := range 4 {
		c := w.Client(fmt.Sprint("producer", i))
		c.Go(func(ctx context.Context) {
			for seq := range uint64(each) {
				req := star.AppendRequest{Name: streams[i%3], Records: records(fmt.Sprintf("%s-%d", c.Name(), seq)),
					Producer: &format.Producer{ID: c.Name(), Seq: seq}}
				for {
					res, err := send(ctx, c, req)
					if err == nil {
						if res.OffsetsKnown {
							acks = append(acks, acked{req.Name, res.First, string(req.Records[0].Data)})
						}
						break
					}
					for _, never := range []error{star.ErrProducerFenced, star.ErrWrongOffset, catalog.ErrNoStream} {
						require.NotErrorIs(t, err, never)
					}
					require.NoError(t, c.Clock().Sleep(ctx, 50*time.Millisecond))
				}
			}
			done++
		})
		p := w.Client(fmt.Sprint("plain", i))
		p.Go(func(ctx context.Context) {
			for n := range each {
				data := fmt.Sprintf("%s-%d", p.Name(), n)
				if res, err := send(ctx, p, star.AppendRequest{Name: streams[(i+1)%3], Records: records(data)}); err == nil {
					acks = append(acks, acked{streams[(i+1)%3], res.First, data})
				}
				require.NoError(t, p.Clock().Sleep(ctx, 200*time.Millisecond))
			}
			done++
		})
	}
	w.Go("nemesis", func(ctx context.Context) {
		topo := w.Topology()
		for range 20 {
			require.NoError(t, w.HarnessClock().Sleep(ctx, topo.Between(0, 4*time.Second)))
			inc := w.Node("n").Current()
			switch topo.N(4) {
			case 0:
				inc.Kill()
			case 1:
				w.KillAt(sim.Kill{Step: w.Steps() + 1 + topo.N(20), Side: sim.Side(topo.N(2)), Drawn: true})
			case 2:
				w.ExpireSession(w.StoreView().Session(catalog.RouteKey("a")))
			default:
				inc.Pause()
				require.NoError(t, w.HarnessClock().Sleep(ctx, topo.Between(0, 15*time.Second)))
				inc.Resume()
			}
		}
		w.StopFaults()
	})
	r.until(func() bool { return done == 8 && w.HarnessTasks() == 0 })
	w.RunFor(time.Minute) // a kill that was planned meets its step

	r = rigs[len(rigs)-1]
	r.until(func() bool { return r.star.Ready() == nil })
	require.NotEmpty(t, acks)
	content := map[string][]string{}
	at := map[string]int{}
	for _, s := range streams {
		content[s] = r.all(s)
		for i, data := range content[s] {
			_, twice := at[data]
			require.False(t, twice, "%s appears twice", data)
			at[data] = i
		}
	}
	for _, a := range acks {
		require.Less(t, a.offset, uint64(len(content[a.stream])))
		require.Equal(t, a.data, content[a.stream][a.offset])
	}
	for i := range 4 {
		last := -1
		for seq := range each {
			i, ok := at[fmt.Sprintf("producer%d-%d", i, seq)]
			require.True(t, ok, "an acknowledged record is missing")
			require.Greater(t, i, last)
			last = i
		}
	}
	for _, r := range rigs {
		require.LessOrEqual(t, r.events.ahead, uint64(2))
		require.True(t, !r.over || errors.Is(r.err, context.Canceled), "%v", r.err)
	}
}
