// Package buckettest is the conformance suite of objstore.Bucket: every sentence of
// its contract, checked on every implementation, the simulated one included.
//
// Out of scope: a key that is a leading path of another, as p and p/a, cannot exist beside it
// on a bucket of files and folders. Nova never makes such keys, so the suite does not either.
package buckettest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/nova-store/nova/objstore"
)

// Harness tells the suite how to use an implementation.
type Harness struct {
	// Open returns an empty bucket that lasts as long as the test.
	Open func(t *testing.T) objstore.Bucket

	// Do runs f where b may be called, and returns when f has: in the simulator f is
	// a task, elsewhere Do just calls it. f fails no test: it hands results out.
	Do func(t *testing.T, b objstore.Bucket, f func(ctx context.Context))

	// Parallel runs f for 0 to n-1, all at the same time, and returns when all have.
	Parallel func(t *testing.T, b objstore.Bucket, n int, f func(ctx context.Context, i int))

	// Reopen crashes the process that uses b and opens what it left. Nil: cannot.
	Reopen func(t *testing.T, b objstore.Bucket) objstore.Bucket

	// Horizon tells that every put must have a NotAfter. Where it is false a put without one
	// is legal; one that is given is honoured everywhere.
	Horizon bool

	// LosePut makes the next put of b have no effect, and its answer get lost. Nil: a put's answer is never lost.
	LosePut func(b objstore.Bucket)

	// Now is the bucket's time. Nil: time.Now.
	Now func() time.Time
}

// putTime is how long a put of the suite may take at most, where it has to say so.
const putTime = 10 * time.Minute

// Run runs the suite.
func Run(t *testing.T, h Harness) {
	if h.Now == nil {
		h.Now = time.Now
	}
	for _, c := range []struct {
		name string
		run  func(*suite)
	}{
		{"PutIfAbsent", testPutIfAbsent},
		{"PutOverwrites", testPutOverwrites},
		{"PutAfterDelete", testPutAfterDelete},
		{"RaceIfAbsent", testRaceIfAbsent},
		{"RaceAfterDelete", testRaceAfterDelete},
		{"WholeOrNothing", testWholeOrNothing},
		{"Ranges", testRanges},
		{"EmptyObject", testEmptyObject},
		{"NegativeOffset", testNegativeOffset},
		{"Stat", testStat},
		{"NotFound", testNotFound},
		{"Delete", testDelete},
		{"DeleteLimit", testDeleteLimit},
		{"LegalKeys", testLegalKeys},
		{"IllegalKeys", testIllegalKeys},
		{"Size", testSize},
		{"NotAfter", testNotAfter},
		{"LostPut", testLostPut},
		{"List", testList},
		{"ListPages", testListPages},
		{"Durable", testDurable},
		{"Model", testModel},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.run(&suite{Harness: h, t: t, b: h.Open(t)})
		})
	}
}

// suite is one test on one bucket. Its methods make one call each and hand out what
// it gave, so that all judging happens outside of Harness.Do.
type suite struct {
	Harness
	t *testing.T
	b objstore.Bucket
}

// options are those of a put that is in good time.
func (s *suite) options(ifAbsent bool) objstore.PutOptions {
	opt := objstore.PutOptions{IfAbsent: ifAbsent}
	if s.Horizon {
		opt.NotAfter = s.Now().Add(putTime)
	}
	return opt
}

func (s *suite) do(f func(ctx context.Context)) { s.Do(s.t, s.b, f) }

func (s *suite) putWith(key string, body []byte, opt objstore.PutOptions) (err error) {
	s.do(func(ctx context.Context) { err = s.b.Put(ctx, key, body, opt) })
	require.LessOrEqual(s.t, len(Matches(err)), 1, "put %q: %v", key, err)
	return err
}

// Matches returns those of objstore's errors that err matches. An error of Put matches one at most.
func Matches(err error) (typed []error) {
	for _, e := range []error{
		objstore.ErrExists, objstore.ErrNotFound, objstore.ErrUnknown, objstore.ErrThrottled, objstore.ErrUnavailable,
		objstore.ErrExpired, objstore.ErrNoBucket, objstore.ErrBadKey, objstore.ErrTooLarge,
	} {
		if errors.Is(err, e) {
			typed = append(typed, e)
		}
	}
	return typed
}

func (s *suite) put(key, body string) error {
	return s.putWith(key, []byte(body), s.options(false))
}

func (s *suite) putIfAbsent(key, body string) error {
	return s.putWith(key, []byte(body), s.options(true))
}

func (s *suite) getRange(key string, off, n int64) (body []byte, err error) {
	s.do(func(ctx context.Context) { body, err = s.b.Get(ctx, key, off, n) })
	return body, err
}

func (s *suite) stat(key string) (info objstore.Info, err error) {
	s.do(func(ctx context.Context) { info, err = s.b.Stat(ctx, key) })
	return info, err
}

func (s *suite) delete(keys ...string) (errs []error) {
	s.do(func(ctx context.Context) { errs = s.b.Delete(ctx, keys) })
	return errs
}

// list makes no difference between no list and an empty one.
func (s *suite) list(prefix, after string, limit int) (infos []objstore.Info, err error) {
	s.do(func(ctx context.Context) { infos, err = s.b.List(ctx, prefix, after, limit) })
	return append([]objstore.Info{}, infos...), err
}

// reopen crashes and reopens, where the harness can.
func (s *suite) reopen() {
	if s.Reopen != nil {
		s.b = s.Reopen(s.t, s.b)
	}
}

// requireBody checks an object by all that reads it whole.
func (s *suite) requireBody(key, want string) {
	s.t.Helper()
	got, err := s.getRange(key, 0, -1)
	require.NoError(s.t, err, "get %q", key)
	require.True(s.t, want == string(got), "get %q: %s, not %s", key, brief(string(got)), brief(want))
	info, err := s.stat(key)
	require.NoError(s.t, err, "stat %q", key)
	require.Equal(s.t, objstore.Info{Key: key, Size: int64(len(want))}, info)
}

// requireAbsent checks that nothing shows an object.
func (s *suite) requireAbsent(key string) {
	s.t.Helper()
	_, err := s.getRange(key, 0, -1)
	require.ErrorIs(s.t, err, objstore.ErrNotFound, "get %q", key)
	_, err = s.stat(key)
	require.ErrorIs(s.t, err, objstore.ErrNotFound, "stat %q", key)
	infos, err := s.list(key, "", 1)
	require.NoError(s.t, err)
	for _, info := range infos {
		require.NotEqual(s.t, key, info.Key)
	}
}

// requireGone deletes and checks that every key was confirmed.
func (s *suite) requireGone(keys ...string) {
	s.t.Helper()
	errs := s.delete(keys...)
	require.Len(s.t, errs, len(keys))
	for i, err := range errs {
		require.NoError(s.t, err, "delete %q", keys[i])
	}
}
