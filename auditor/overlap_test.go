package auditor

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/nova-store/nova/catalog"
	"github.com/nova-store/nova/sim"
)

func TestOverlapCostsDuplicateWorkAlone(t *testing.T) {
	for seed := range uint64(6) {
		r := newRigOf(t, sim.Config{Seed: seed, MaxOps: 128})
		audit := func() *Auditor {
			return r.auditor(func(o *Options) { o.NoLeases, o.Workers, o.SettleObjectMin = true, 4, 200 })
		}
		one, two := audit(), audit()
		r.w.SetFaults(sim.Faults{
			StoreLatency:  sim.Latency{Base: time.Millisecond, Jitter: 20 * time.Millisecond},
			BucketLatency: sim.Latency{Base: 10 * time.Millisecond, Jitter: 50 * time.Millisecond},
		})
		for _, a := range []*Auditor{one, two} {
			r.inc.Go("run", func(ctx context.Context) { require.NoError(t, a.Run(ctx)) })
		}
		r.do(func(ctx context.Context) {
			s := r.mint(ctx, "a", 16)
			ids := []catalog.StreamID{r.stream(ctx, "x"), r.stream(ctx, "y"), r.stream(ctx, "z")}
			want := map[catalog.StreamID][][]byte{}
			for range 12 {
				s.flight(ctx, part{id: ids[0], n: 2, size: 40}, part{id: ids[1], n: 1, size: 300}, part{id: ids[2], n: 1, size: 10})
				require.NoError(t, s.session.KeepAlive(ctx))
				for _, id := range ids {
					want[id], _ = r.read(ctx, id, 0)
				}
				require.NoError(t, r.inc.Clock().Sleep(ctx, 500*time.Millisecond))
			}
			for range 60 {
				require.NoError(t, r.inc.Clock().Sleep(ctx, 5*time.Second))
				require.NoError(t, s.session.KeepAlive(ctx))
			}
			require.Greater(t, countOf(r.did(BatchesDone))+len(r.did(Settled)), 12, "the work was shared out twice")
			named := map[string]bool{}
			for _, id := range ids {
				got, objects := r.read(ctx, id, 0)
				require.Equal(t, want[id], got)
				for _, o := range settledOnly(t, objects) {
					named[o] = true
				}
			}
			require.Len(t, r.objects("settled/"), len(named), "what nothing names is gone")
			require.Empty(t, r.objects("slot/"))
			for _, q := range []catalog.Queue{catalog.Denorm, catalog.TrimCheck, catalog.Orphan, catalog.Reap} {
				require.Empty(t, r.markers(q), q)
			}
		})
	}
}

func TestALeaseDiesWithItsHolder(t *testing.T) {
	h := newHarnessRig(t, nil)
	h.do(func(ctx context.Context) {
		key := h.arm(ctx, -time.Second, object(0))
		s, err := h.cat.Store().OpenSession(ctx, time.Minute)
		require.NoError(t, err)
		_, err = h.cat.Claim(ctx, s.ID(), key, "other")
		require.NoError(t, err)
		h.passes(ctx, h.a, 2, time.Second)
		require.Empty(t, h.d.ran)
		require.NoError(t, s.Close(ctx))
		h.passes(ctx, h.a, 1, 0)
		require.Len(t, h.d.ran, 1)
	})
}

func TestADeadlineLosesNothing(t *testing.T) {
	for cut := 10 * time.Millisecond; cut <= 400*time.Millisecond; cut += 10 * time.Millisecond {
		r := newRig(t, true)
		a := r.auditor(func(o *Options) { o.SettleObjectMin = 200 })
		timing := quick(true)
		timing.JobDeadline = cut
		short := catalog.New(r.inc.Store(), r.inc.Clock(), timing, nil)
		r.do(func(ctx context.Context) {
			s, x, y := r.mint(ctx, "a", 8), r.stream(ctx, "x"), r.stream(ctx, "y")
			for range 3 {
				s.flight(ctx, part{id: x, n: 2, size: 300}, part{id: y, n: 2, size: 10})
			}
			want, _ := r.read(ctx, x, 0)
			require.NoError(t, r.inc.Clock().Sleep(ctx, 2*time.Second))
			r.w.SetFaults(sim.Faults{StoreLatency: sim.Latency{Base: 5 * time.Millisecond}, BucketLatency: sim.Latency{Base: 10 * time.Millisecond}})
			whole := a.cat
			a.cat = short
			r.passes(ctx, a, 1, 0)
			a.cat = whole
			r.w.SetFaults(sim.Faults{})
			r.passes(ctx, a, 12, r.cat.Timing().OrphanGrace/4)
			got, objects := r.read(ctx, x, 0)
			require.Equal(t, want, got)
			_, more := r.read(ctx, y, 0)
			named := append(slices.Clone(settledOnly(t, objects)), settledOnly(t, more)...)
			slices.Sort(named)
			require.Equal(t, slices.Compact(named), r.objects("settled/"), "cut after %v", cut)
			require.Empty(t, r.objects("slot/"))
			for _, q := range []catalog.Queue{catalog.Denorm, catalog.TrimCheck, catalog.Orphan, catalog.Reap} {
				require.Empty(t, r.markers(q), "%s, cut after %v", q, cut)
			}
		})
	}
}
