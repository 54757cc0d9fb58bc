package auditor

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/nova-store/nova/catalog"
	"github.com/nova-store/nova/metastore"
	"github.com/nova-store/nova/sim"
)

// mute is a store that refuses announcements.
type mute struct{ metastore.Store }

func (m mute) Commit(ctx context.Context, b metastore.Batch) (metastore.Version, error) {
	if slices.ContainsFunc(b.Ops, func(op metastore.Op) bool { return op.Key == catalog.MemberKey("m") }) {
		return 0, fmt.Errorf("announcing: %w", metastore.ErrUnavailable)
	}
	return m.Store.Commit(ctx, b)
}

// A member that could not announce itself looks at no queue, not even at those that every member walks.

func TestAMemberNotAnnouncedReadsNothing(t *testing.T) {
	h := newHarnessRig(t, nil)
	h.a.sources[0].reg.AllShards = true
	real := h.a.cat
	h.do(func(ctx context.Context) {
		key := h.arm(ctx, -time.Second, object(0))
		h.a.cat = catalog.New(mute{h.inc.Store()}, h.inc.Clock(), quick(true), nil)
		h.passes(ctx, h.a, 3, time.Second)
		require.False(t, h.a.Announced())
		require.Empty(t, h.startsOf())
		require.Equal(t, []string{key}, h.markers(catalog.Reap))

		h.a.cat = real
		h.passes(ctx, h.a, 1, 0)
		require.Len(t, h.d.ran, 1)
	})
}

// Who joins reads what it owns from then on, and who owned it stops: nothing is written for that, and no

// marker runs twice, or is left out.

func TestAMembershipChangeTransfersNothing(t *testing.T) {
	h := newHarnessRig(t, nil)
	runs := map[string][]string{} // subject → members that ran it
	member := func(name string) *Auditor {
		o := h.options()
		o.Member = name
		o.setDefaults()
		a := newHarness(h.cat, h.inc.Bucket(), h.inc.Clock(), o)
		a.register(Registration{Queue: catalog.Reap, TimeOrdered: true, FrontEvery: frontEvery, Duty: &fakeDuty{
			handle: func(ctx context.Context, j *Job) (Outcome, error) {
				runs[j.Marker.Due.Subject] = append(runs[j.Marker.Due.Subject], name)
				return Resolved, h.cat.ResolveMarker(ctx, j.Marker)
			}}})
		return a
	}
	var written []string
	h.w.OnCommit(func(c *sim.Commit) {
		for _, ch := range c.Changes {
			if !strings.HasPrefix(ch.New.Key+ch.Old.Key, "auditor/lease/") {
				written = append(written, ch.New.Key)
			}
		}
	})
	one, two := member("m1"), member("m2")
	h.do(func(ctx context.Context) {
		arm := func(ready time.Duration, from int) {
			for i := range 40 {
				h.arm(ctx, ready, fmt.Sprintf("settled!%d", from+i))
			}
		}
		arm(-time.Second, 0)
		h.passes(ctx, one, 1, 0)
		require.Len(t, runs, 40)
		require.Empty(t, h.markers(catalog.Reap))

		arm(10*time.Second, 100)
		standing := h.markers(catalog.Reap)
		written = nil
		h.passes(ctx, two, 1, 0)
		h.passes(ctx, one, 1, 0)
		require.Equal(t, standing, h.markers(catalog.Reap))
		require.ElementsMatch(t, []string{catalog.MemberKey("m2"), catalog.StatsKey("m2")}, written, "the announcement is all that is written")

		require.NoError(t, h.inc.Clock().Sleep(ctx, 20*time.Second))
		h.passes(ctx, one, 1, 0)
		require.NotEmpty(t, h.markers(catalog.Reap), "the shards of the other one are left to it")
		h.passes(ctx, two, 1, 0)
		require.Empty(t, h.markers(catalog.Reap))
		for subject, by := range runs {
			require.Len(t, by, 1, subject)
			if s := catalog.Shard(subject); !strings.HasPrefix(subject, "settled!1") || len(subject) < len("settled!100") {
				require.Equal(t, "m1", by[0])
			} else {
				require.Equal(t, owner([]string{"m1", "m2"}, s), by[0], "shard %d", s)
			}
		}
		two.withdraw(ctx)
		arm(0, 200)
		h.passes(ctx, one, 1, 0)
		require.Empty(t, h.markers(catalog.Reap), "what the leaver owned is read by who is left")
	})
}

// Discovery is one range for each queue and owned shard, none of any other shard, and one page of

// bounded size after the other.

func TestAMemberWalksItsOwnShardsAlone(t *testing.T) {
	r := newRig(t, true)
	a := r.auditor(func(o *Options) { o.Member = "m1" })
	looked := map[string]int{} // range → how often in a pass
	r.w.OnStep(func(s *sim.StepInfo) {
		for _, rg := range s.Ranges {
			if strings.HasPrefix(rg.Start, "due/") || strings.HasPrefix(rg.Start, "schedule/") {
				looked[rg.Start+" "+rg.End]++
			}
		}
	})
	r.do(func(ctx context.Context) {
		session, err := r.cat.Store().OpenSession(ctx, time.Hour)
		require.NoError(t, err)
		require.NoError(t, r.cat.Announce(ctx, session.ID(), "m2"))
		r.passes(ctx, a, 1, 0)
		want := map[string]int{}
		for _, s := range a.sources {
			if s.reg.AllShards || owner([]string{"m1", "m2"}, s.shard) == "m1" {
				want[s.whole.Start+" "+s.whole.End] = 1
			}
		}
		require.Equal(t, want, looked)
	})
}

// Jobs are offered while their page is worked off: nothing behind it has been read.

// A seat is a star's, not an epoch's: one member settles all chains of a star.

func TestAllChainsOfAStarHaveOneSeat(t *testing.T) {
	r := newRig(t, true)
	a := r.auditor(func(o *Options) { o.Member = "m1" })
	r.do(func(ctx context.Context) {
		session, err := r.cat.Store().OpenSession(ctx, time.Hour)
		require.NoError(t, err)
		require.NoError(t, r.cat.Announce(ctx, session.ID(), "m2"))
		x := r.stream(ctx, "x")
		chains := map[string][]catalog.ChainID{}
		for range 6 {
			for _, name := range []string{"a", "b"} {
				s := r.mint(ctx, name, 8)
				s.flight(ctx, part{id: x, n: 1, size: 10})
				chains[name] = append(chains[name], s.chain)
			}
		}
		r.passes(ctx, a, 3, time.Second)
		for i, name := range []string{"a", "b"} {
			for _, c := range chains[name] {
				owed, err := r.cat.OwedBatches(ctx, c, 0, 10)
				require.NoError(t, err)
				require.Len(t, owed, i, c)
			}
		}
	})
}

// Every exit withdraws: a stop while idle, one in the middle of a pass, and one while no pass succeeds.

func TestEveryExitWithdraws(t *testing.T) {
	for name, before := range map[string]func(r *rig){
		"idle": func(r *rig) { r.w.RunFor(time.Minute) },
		"in a pass": func(r *rig) {
			r.w.SetFaults(sim.Faults{StoreLatency: sim.Latency{Base: 50 * time.Millisecond}})
			r.w.RunFor(30*time.Second + 120*time.Millisecond)
		},
		"passes fail": func(r *rig) {
			r.w.RunFor(time.Second)
			r.w.SetFaults(sim.Faults{StoreUnavailable: 1})
			r.w.RunFor(2 * time.Minute)
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, true)
			a := r.auditor(nil)
			ended := false
			r.inc.Go("run", func(ctx context.Context) {
				require.NoError(t, a.Run(ctx))
				ended = true
			})
			before(r)
			require.True(t, r.w.StoreView().Get(catalog.MemberKey("m")).Exists())
			r.inc.Interrupt()
			r.w.StopFaults()
			r.w.RunFor(time.Second)
			require.True(t, ended)
			require.False(t, r.w.StoreView().Get(catalog.MemberKey("m")).Exists())
			require.False(t, a.Announced())
		})
	}
}

// A member is on the ring as long as a job of its own runs: peers must not take over what it still works on.

func TestWithdrawalComesAfterThePoolDrained(t *testing.T) {
	h := newHarnessRig(t, nil)
	h.d.handle = func(ctx context.Context, j *Job) (Outcome, error) {
		_ = h.inc.Clock().Sleep(context.WithoutCancel(ctx), 20*time.Second)
		require.True(t, h.w.StoreView().Get(catalog.MemberKey("m")).Exists(), "withdrawn while a job runs")
		return Resolved, nil
	}
	h.do(func(ctx context.Context) { h.arm(ctx, -time.Second, object(0)) })
	ended := false
	h.inc.Go("run", func(ctx context.Context) {
		require.NoError(t, h.a.Run(ctx))
		ended = true
	})
	h.w.RunFor(time.Second)
	require.Equal(t, 1, h.a.Busy())
	h.inc.Interrupt()
	h.w.RunFor(10 * time.Second)
	require.False(t, ended)
	h.w.RunFor(20 * time.Second)
	require.True(t, ended)
	require.False(t, h.w.StoreView().Get(catalog.MemberKey("m")).Exists())
}

// Two processes under one name both own everything, and leases are off: every marker is worked on by both at

// once. That costs work, and nothing else: each record stays where it was, and what was written twice goes.

// A lease is of its holder's session: when that ends the job is anybody's at once.

// Bytes are paid before they are written, and every request before it is made.

// A job's deadline cuts it wherever it is. Nothing is lost by that, and nothing is left behind.

// A pass that has more to do than its budget allows ends with it; the job that runs goes on, the others wait for

// the next pass.

// Two jobs run at once, unless the options say otherwise, and a third waits whatever its duty is.
