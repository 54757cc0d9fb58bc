package catalog_test

import (
	"testing"
	"time"

	"github.com/nova-store/nova/catalog"
	"github.com/nova-store/nova/metastore"
	"github.com/nova-store/nova/objstore/format"
)

func (s *setup) decommission(star string) {
	already, err := s.cat.Decommission(s.Context(), star)
	s.NoError(err)
	s.False(already)
}

func TestDecommissionRefuses(t *testing.T) {
	s := newSetup(t, 128)
	_, err := s.cat.Decommission(s.Context(), "nobody")
	s.ErrorIs(err, catalog.ErrNoStar)
	_, err = s.cat.Decommission(s.Context(), "-")
	s.ErrorIs(err, catalog.ErrBadName)
	a := s.world.start("a")
	_, err = s.cat.Decommission(s.Context(), "a")
	s.ErrorIs(err, catalog.ErrStarLive)
	s.ErrorContains(err, "stop it first")
	s.Empty(s.world.last.sweeps)
	s.store.end(a.session)
	s.decommission("a")
	already, err := s.cat.Decommission(s.Context(), "a")
	s.NoError(err)
	s.True(already)
	s.Equal(1, s.world.last.sweeps["a"])
	_, err = s.mint(a, 1)
	s.ErrorIs(err, catalog.ErrRetired)
	session, err := s.store.OpenSession(s.Context(), testTiming().SessionTTL)
	s.NoError(err)
	_, err = s.cat.Mint(s.Context(), catalog.MintRequest{Star: "a", Session: session.ID(), Window: window})
	s.ErrorIs(err, catalog.ErrRetired, "nor can another process of the name")
}

func TestDecommissionFindsItsTwin(t *testing.T) {
	for _, f := range []fault{lostWithEffect, lostWithoutEffect, lostLate} {
		s := newSetup(t, 128)
		s.store.end(s.world.start("a").session)
		s.store.plan = []fault{f}
		s.decommission("a")
		s.Zero(s.store.landAll())
		s.Equal(1, s.world.last.sweeps["a"])
	}
}

// A star starts between the look and the commit, or while it minted the other way round.
func TestDecommissionMeetsAMint(t *testing.T) {
	s := newSetup(t, 128)
	s.store.end(s.world.start("a").session)
	s.during("commit", 0, func() { s.world.start("a") })
	_, err := s.cat.Decommission(s.Context(), "a")
	s.ErrorIs(err, catalog.ErrStarLive)

	s = newSetup(t, 128)
	a := s.world.start("a")
	s.store.end(a.session)
	session, err := s.store.OpenSession(s.Context(), testTiming().SessionTTL)
	s.NoError(err)
	s.during("commit", 0, func() { s.decommission("a") })
	_, err = s.cat.Mint(s.Context(), catalog.MintRequest{Star: "a", Session: session.ID(), Window: window})
	s.ErrorIs(err, catalog.ErrRetired)
	s.Len(s.world.last.chains, 1)
}

// The retired star is dealt with until it is swept, and remembered for ever.
func TestSweepIsNotedInTheRegistration(t *testing.T) {
	s := newSetup(t, 128)
	a := s.world.start("a")
	s.world.start("b")
	s.store.end(a.session)
	s.decommission("a")
	stars := func() []string {
		out, err := s.cat.Stars(s.Context())
		s.NoError(err)
		return out
	}
	left := func() bool {
		out, err := s.cat.HasChains(s.Context(), "a")
		s.NoError(err)
		return out
	}
	sweep := func() catalog.MarkerAt {
		for _, key := range s.store.keys("due/settle/") {
			if m := s.world.marker(key); m.Due.Subject == "a" {
				return m
			}
		}
		s.Fail("no marker")
		return catalog.MarkerAt{}
	}
	s.True(left())
	s.Equal([]string{"a", "b"}, stars())
	m := sweep()
	s.Zero(m.Due.PastDue(s.clk.now))
	s.store.plan = []fault{lostWithEffect}
	armed := s.clk.now
	s.NoError(s.cat.RearmSweep(s.Context(), m, catalog.SweepMarker{Empty: 7}, 0))
	s.NoError(s.cat.RearmSweep(s.Context(), m, catalog.SweepMarker{}, time.Hour), "a twin did")
	again := sweep()
	s.Equal(uint64(armed.Add(catalog.MinRearm).UnixMilli()), again.Due.Order)
	s.Equal(catalog.SweepMarker{Delay: catalog.MinRearm.Milliseconds(), Empty: 7}, catalog.DecodeSweepMarker(again.Value))
	s.Zero(catalog.DecodeSweepMarker([]byte{1, 2, 3, 4}))

	star, err := s.cat.ReadStar(s.Context(), "a")
	s.NoError(err)
	old := star
	old.Version--
	s.ErrorIs(s.cat.ResolveSweep(s.Context(), again, old), catalog.ErrMoved)
	s.store.committed = nil // its chain stands yet: that is the duty's to see to
	s.NoError(s.cat.ResolveSweep(s.Context(), again, star))
	s.Equal([]string{"b"}, stars())
	star, err = s.cat.ReadStar(s.Context(), "a")
	s.NoError(err)
	s.True(star.Star.Retired && star.Star.Swept)
	already, err := s.cat.Decommission(s.Context(), "a")
	s.NoError(err)
	s.True(already)
	s.Empty(s.store.read().sweeps, "nothing is armed again")
}

// Registrations as they were before there were sweeps are read.
func TestOldRegistrationsAreRead(t *testing.T) {
	s := newSetup(t, 128)
	v, err := catalog.DecodeStar([]byte{1, 1, 14})
	s.NoError(err)
	s.Equal(catalog.Star{Retired: true, Created: 7}, v)
	v, err = catalog.DecodeStar([]byte{1, 2, 14})
	s.NoError(err)
	s.Equal(catalog.Star{Retired: true, Created: 7, Swept: true}, v)
	_, err = catalog.DecodeStar([]byte{1, 3, 14})
	s.ErrorIs(err, catalog.ErrCorruptValue)
}

func TestUnnamed(t *testing.T) {
	s := newSetup(t, 16)
	a, id := s.world.start("a"), s.world.createStream("s")
	named := s.bundled(a, func(o *object) { s.world.record(o, id, 1, format.Append{}) })
	s.absorbed(a, 1)
	announced := catalog.BundleKey(a.chain, 9, [16]byte{})
	_, err := s.cat.ArmIntent(s.Context(), announced)
	s.NoError(err)
	objects := []string{named, announced}
	var want []string
	for i := range uint64(40) {
		want = append(want, catalog.SlotKey(a.chain, 100+i))
	}
	got, err := s.cat.Unnamed(s.Context(), append(objects, want...))
	s.NoError(err)
	s.Equal(want, got)
	// The bundle's absorb comes between: its intent is seen, or its refs are.
	other := s.bundled(a, func(o *object) { s.world.record(o, id, 1, format.Append{}) })
	for _, call := range []string{"get", "peek"} {
		s.during(call, 0, func() { _, _ = s.world.absorb(a, 1, false) })
		got, err = s.cat.Unnamed(s.Context(), []string{other})
		s.NoError(err)
		s.Empty(got)
	}
	for _, call := range []string{"get", "peek"} {
		s.store.readFails = func(c string) bool { return c == call }
		_, err = s.cat.Unnamed(s.Context(), want)
		s.ErrorIs(err, metastore.ErrUnavailable)
	}
}
