package catalog_test

import (
	"testing"
	"time"

	"github.com/nova-store/nova/catalog"
	"github.com/nova-store/nova/metastore"
)

func (s *setup) session() metastore.Session {
	out, err := s.store.OpenSession(s.Context(), time.Second)
	s.NoError(err)
	return out
}

func TestLeases(t *testing.T) {
	s := newSetup(t, 128)
	one, two := s.session(), s.session()
	job := "reap/settled/x"
	v, err := s.cat.Claim(s.Context(), one.ID(), job, "one")
	s.NoError(err)
	s.Equal([]string{"auditor/lease/reap!settled!x"}, s.store.keys("auditor/"))
	_, err = s.cat.Claim(s.Context(), two.ID(), job, "two")
	s.ErrorIs(err, catalog.ErrLeaseHeld)
	s.NoError(s.cat.Release(s.Context(), job, v))
	s.NoError(s.cat.Release(s.Context(), job, v), "gone is given back")
	v, err = s.cat.Claim(s.Context(), two.ID(), job, "two")
	s.NoError(err)

	// Past its deadline anyone takes it over; the late release of the wedged holder leaves it alone.
	s.clk.now = s.clk.now.Add(testTiming().JobDeadline)
	taken, err := s.cat.Claim(s.Context(), one.ID(), job, "one")
	s.NoError(err)
	s.Equal(1, s.branches["lease.takeover"])
	s.NoError(s.cat.Release(s.Context(), job, v))
	s.Equal(taken, s.version("auditor/lease/reap!settled!x"))

	s.store.end(one)
	s.Empty(s.store.keys("auditor/"), "it dies with its session")
	_, err = s.cat.Claim(s.Context(), one.ID(), job, "one")
	s.ErrorIs(err, metastore.ErrSessionGone)
}

func TestClaimsMeet(t *testing.T) {
	s := newSetup(t, 128)
	one := s.session()
	s.during("commit", 0, func() {
		_, err := s.cat.Claim(s.Context(), one.ID(), "job", "one")
		s.NoError(err)
	})
	_, err := s.cat.Claim(s.Context(), one.ID(), "job", "two")
	s.ErrorIs(err, catalog.ErrLeaseHeld, "one claim wins")

	for _, f := range []fault{lostWithEffect, lostWithoutEffect, lostLate} {
		s.store.plan = []fault{f}
		v, err := s.cat.Claim(s.Context(), one.ID(), "other", "one")
		s.NoError(err)
		s.Equal(v, s.version("auditor/lease/other"))
		s.Zero(s.store.landAll())
		s.NoError(s.cat.Release(s.Context(), "other", v))
	}
	s.raw("auditor/lease/other", []byte("?"))
	_, err = s.cat.Claim(s.Context(), one.ID(), "other", "one")
	s.NoError(err, "an unreadable lease holds nobody back")
}

func TestRing(t *testing.T) {
	s := newSetup(t, 128)
	a, b := s.session(), s.session()
	s.NoError(s.cat.Announce(s.Context(), b.ID(), "b"))
	s.store.plan = []fault{lostLate}
	s.NoError(s.cat.Announce(s.Context(), a.ID(), "a"))
	s.ErrorIs(s.cat.Announce(s.Context(), a.ID(), "a/b"), catalog.ErrBadName)
	roster, err := s.cat.Roster(s.Context())
	s.NoError(err)
	s.Equal([]string{"a", "b"}, roster)
	s.store.end(a)
	s.Zero(s.store.landAll(), "a late announcement cannot come back to life")
	roster, err = s.cat.Roster(s.Context())
	s.NoError(err)
	s.Equal([]string{"b"}, roster)
}

func TestCreateStream(t *testing.T) {
	for _, f := range []fault{lostWithEffect, lostWithoutEffect, lostLate, conflict} {
		s := newSetup(t, 128)
		s.store.plan = []fault{f}
		v, created, err := s.cat.CreateStream(s.Context(), "s", catalog.Policy{MaxBytes: 7})
		s.NoError(err)
		s.True(created)
		s.Equal(catalog.Policy{MaxBytes: 7}, v.Stream.Policy)
		s.Zero(s.store.landAll())
		again, created, err := s.cat.CreateStream(s.Context(), "s", catalog.Policy{})
		s.NoError(err)
		s.False(created)
		s.Equal(v, again)
		id, err := s.cat.FindStream(s.Context(), "s")
		s.NoError(err)
		s.Equal(v.ID, id)
		s.Equal(catalog.Shard("s"), int(id>>56))
	}
}

func TestCreateStreamsAtOnce(t *testing.T) {
	s := newSetup(t, 128)
	// Of one name: one is created, the other finds it. (Another name of the same shard takes the counter.)
	same := ""
	for i := range 10_000 {
		if same = "x" + string(rune('a'+i%26)) + string(rune('a'+i/26)); catalog.Shard(same) == catalog.Shard("s") {
			break
		}
	}
	var other catalog.StreamView
	s.during("commit", 0, func() {
		var err error
		other, _, err = s.cat.CreateStream(s.Context(), same, catalog.Policy{})
		s.NoError(err)
	})
	v, created, err := s.cat.CreateStream(s.Context(), "s", catalog.Policy{})
	s.NoError(err)
	s.True(created)
	s.Equal(other.ID+1, v.ID, "an id is never used twice")
	s.Equal(1, s.branches["create.conflict"])

	s.during("commit", 0, func() { other, _, err = s.cat.CreateStream(s.Context(), "t", catalog.Policy{}) })
	v, created, err2 := s.cat.CreateStream(s.Context(), "t", catalog.Policy{})
	s.NoError(err)
	s.NoError(err2)
	s.False(created)
	s.Equal(other.ID, v.ID)
}

func TestStreamsThatAreNot(t *testing.T) {
	s := newSetup(t, 128)
	_, _, err := s.cat.CreateStream(s.Context(), "a!b", catalog.Policy{})
	s.ErrorIs(err, catalog.ErrBadName)
	_, err = s.cat.FindStream(s.Context(), "a~b")
	s.ErrorIs(err, catalog.ErrBadName)
	_, err = s.cat.FindStream(s.Context(), "a")
	s.ErrorIs(err, catalog.ErrNoStream)
	_, err = s.cat.ReadStream(s.Context(), 77)
	s.ErrorIs(err, catalog.ErrNoStream)
	_, ok, err := s.cat.ReadSpan(s.Context(), 77, 1)
	s.NoError(err)
	s.False(ok)
}

func TestEnsureFormat(t *testing.T) {
	s := newSetup(t, 128)
	s.store.plan = []fault{lostWithEffect}
	s.NoError(s.cat.EnsureFormat(s.Context()))
	v := s.version(catalog.FormatKey)
	s.NoError(s.cat.EnsureFormat(s.Context()))
	s.Equal(v, s.version(catalog.FormatKey))
	for _, bad := range [][]byte{{1, 2, 64}, {1, 1, 63}, {2, 1, 64}, nil} {
		s.raw(catalog.FormatKey, bad)
		s.ErrorIs(s.cat.EnsureFormat(s.Context()), catalog.ErrCorruptValue)
	}
}
