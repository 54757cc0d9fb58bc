package catalog_test

import (
	"testing"
	"time"

	"github.com/nova-store/nova/catalog"
	"github.com/nova-store/nova/metastore"
)

// lost makes a store as a backup holds it: a star that was killed with one slot absorbed and one, which the bucket
// has, not.
func (s *setup) lost() (*starLife, catalog.StreamID) {
	s.NoError(s.cat.EnsureFormat(s.Context()))
	star, id := s.filled(1, catalog.Policy{})
	s.slots(star, 1, id)
	s.store.end(star.session)
	return star, id
}

func (s *setup) counter(shard int) uint64 {
	return uint64(must(catalog.DecodeID(s.store.mirror[catalog.IDsKey(shard)].Value)))
}

func (s *setup) epoch(star string) uint64 {
	return must(catalog.DecodeChainHead(s.store.mirror[catalog.ChainHeadKey(star)].Value)).Epoch
}

// begun demands that a new time line of the store of lost has begun, and lives in it.
func (s *setup) begun(star *starLife, old catalog.StreamID) {
	const step = uint64(1) << 32
	s.GreaterOrEqual(s.epoch("a"), 1+step)
	for shard := range catalog.Shards {
		s.GreaterOrEqual(s.counter(shard), step, "shard %d, whether it gave out ids or not", shard)
	}
	at := must(s.cat.ReadChain(s.Context(), star.chain)).Chain
	s.Equal(catalog.ChainSealed, at.State)
	s.Equal([]uint64{1, 1, 1 + window}, []uint64{at.Checkpoint, at.Seal, at.WindowEnd}, "sealed at the checkpoint, whatever its slots hold")

	raised := s.epoch("a")
	s.Equal(raised+1, s.world.start("a").chain.Epoch)
	s.GreaterOrEqual(s.world.start("unknown").chain.Epoch, 1+step, "a star that may have minted in the lost time line")
	v, created, err := s.cat.CreateStream(s.Context(), "t", catalog.Policy{})
	s.NoError(err)
	s.True(created)
	s.GreaterOrEqual(v.ID.Counter(), step)
	s.NotEqual(old, v.ID)
	s.Equal(uint64(1), s.view(old).Head.Next, "the stream is as it was")
}

func TestBeginTimeline(t *testing.T) {
	s := newSetup(t, 128)
	star, id := s.lost()
	s.NoError(s.cat.BeginTimeline(s.Context()))
	s.begun(star, id)
}

// Two restores of one backup begin two time lines, and a third of what the second has become a third one, also with a clock that stands still or went back.
func TestTimelinesDiffer(t *testing.T) {
	s := newSetup(t, 128)
	s.lost()
	var epochs, counters []uint64
	for _, passed := range []time.Duration{0, time.Millisecond, 0, -time.Hour, time.Minute} {
		s.clk.now = s.clk.now.Add(passed)
		s.NoError(s.cat.BeginTimeline(s.Context()))
		epochs, counters = append(epochs, s.epoch("a")), append(counters, s.counter(7))
	}
	s.IsIncreasing(epochs)
	s.IsIncreasing(counters)
	s.Equal(epochs[1]+1<<32, epochs[2], "the clock has not moved")

	other := newSetup(t, 128)
	other.lost()
	other.clk.now = other.clk.now.Add(time.Second)
	s.NoError(other.cat.BeginTimeline(other.Context()))
	s.Greater(other.epoch("a"), epochs[0]+1000, "the same backup a second later")
	s.Greater(other.counter(7), counters[0]+1000)

	old := newSetup(t, 128)
	old.clk.now = time.Date(1999, 1, 1, 0, 0, 0, 0, time.UTC)
	star, id := old.lost()
	old.NoError(old.cat.BeginTimeline(old.Context()))
	old.Equal(uint64(1)<<32, old.counter(7))
	old.begun(star, id)
}

// Cut at each of its commits, before or after, and begun anew, it is whole; twins that land late change nothing.
func TestBeginTimelineCutAnywhere(t *testing.T) {
	const commits = 7
	for _, f := range []fault{crashBefore, crashAfter, crashLate, lostWithEffect, lostWithoutEffect, lostLate} {
		for n := range commits {
			s := newSetup(t, 16)
			star, id := s.lost()
			s.store.plan = append(make([]fault, n), f)
			died := dies(func() { s.NoError(s.cat.BeginTimeline(s.Context())) })
			s.Empty(s.store.plan, "it has %d commits at least", n+1)
			first, last := n == 0 && f != crashAfter, n == commits-1 && f == crashAfter
			if err := s.cat.EnsureFormat(s.Context()); !died || first || last {
				s.NoError(err)
			} else {
				s.ErrorIs(err, catalog.ErrBeginning, "nothing serves from it after %v at commit %d", f, n)
				_, err = s.cat.Mint(s.Context(), catalog.MintRequest{Star: "a", Window: window})
				s.ErrorIs(err, catalog.ErrBeginning, "nor does a node that was started before")
			}
			if died {
				s.NoError(s.cat.BeginTimeline(s.Context()))
			}
			s.Zero(s.store.landAll())
			s.begun(star, id)
		}
	}
}

func TestBeginTimelineRefuses(t *testing.T) {
	s := newSetup(t, 128)
	s.ErrorIs(s.cat.BeginTimeline(s.Context()), catalog.ErrCorruptValue, "no format")
	s.NoError(s.cat.EnsureFormat(s.Context()))
	star := s.world.start("a")
	s.ErrorIs(s.cat.BeginTimeline(s.Context()), catalog.ErrStarLive)
	s.store.end(star.session)
	for _, key := range []string{catalog.ChainKey(star.chain), catalog.ChainHeadKey("a"), catalog.IDsKey(3), catalog.RestoredKey} {
		before := s.store.mirror[key]
		s.store.committed = nil
		s.raw(key, []byte{9})
		s.ErrorIs(s.cat.BeginTimeline(s.Context()), catalog.ErrCorruptValue, key)
		if before.Exists() {
			s.raw(key, before.Value)
			continue
		}
		_, err := s.store.Commit(s.Context(), metastore.Batch{Ops: []metastore.Op{metastore.Delete(key)}})
		s.NoError(err)
	}
	s.NoError(s.cat.BeginTimeline(s.Context()))
}
