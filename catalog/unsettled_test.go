package catalog_test

import (
	"context"
	"testing"

	"github.com/nova-store/nova/catalog"
	"github.com/nova-store/nova/metastore"
)

// changes are the transitions that a client asks for, each prepared to be the next.
func changes(s *setup) map[string]func(ctx context.Context) error {
	_, id := s.filled(1, catalog.Policy{})
	gone, _, err := s.cat.CreateStream(s.Context(), "gone", catalog.Policy{})
	s.NoError(err)
	_, err = s.cat.DeleteStream(s.Context(), gone.ID)
	s.NoError(err)
	return map[string]func(ctx context.Context) error{
		"create": func(ctx context.Context) error {
			_, _, err := s.cat.CreateStream(ctx, "new", catalog.Policy{})
			return err
		},
		"policy": func(ctx context.Context) error {
			_, err := s.cat.SetPolicy(ctx, id, catalog.Policy{MaxAgeMS: 1000})
			return err
		},
		"trim": func(ctx context.Context) error {
			_, err := s.cat.TrimStream(ctx, id, 1)
			return err
		},
		"delete": func(ctx context.Context) error {
			_, err := s.cat.DeleteStream(ctx, id)
			return err
		},
		"undelete": func(ctx context.Context) error {
			_, err := s.cat.UndeleteStream(ctx, gone.ID)
			return err
		},
	}
}

// A try is lost, the next ones find no leader, and the caller goes away: the lost one may land later, whatever the last
// one met.
func TestALostTryIsUnknownWhateverComesAfter(t *testing.T) {
	for name := range changes(newSetup(t, 128)) {
		t.Run(name, func(t *testing.T) {
			s := newSetup(t, 128)
			change := changes(s)[name]
			ctx, cancel := context.WithCancel(s.Context())
			s.during("commit", 2, cancel)
			s.store.plan = []fault{lostLate, unavailable, unavailable, unavailable}
			err := change(ctx)
			s.ErrorIs(err, metastore.ErrUnknown)
			s.ErrorIs(err, context.Canceled)
			s.Equal(1, s.store.landAll())
		})
	}
}

// A try is lost and lands, the next one conflicts with it, and the read that would tell so fails.
func TestALostTryIsUnknownWhereItCannotBeRead(t *testing.T) {
	for name := range changes(newSetup(t, 128)) {
		t.Run(name, func(t *testing.T) {
			s := newSetup(t, 128)
			change := changes(s)[name]
			s.during("commit", 1, func() { s.store.readFails = func(string) bool { return true } })
			s.store.plan = []fault{lostWithEffect}
			err := change(s.Context())
			s.ErrorIs(err, metastore.ErrUnavailable)
			s.ErrorIs(err, metastore.ErrUnknown)
		})
	}
}
