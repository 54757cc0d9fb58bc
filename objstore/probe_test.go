package objstore_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/nova-store/nova/clock"
	"github.com/nova-store/nova/objstore"
	"github.com/nova-store/nova/objstore/dirbucket"
)

// pausedClock notes how long it was to sleep, and instead goes forward by that.
type pausedClock struct {
	clock.Real
	slept []time.Duration
	ahead time.Duration
}

func (c *pausedClock) Now() time.Time { return c.Real.Now().Add(c.ahead) }

func (c *pausedClock) Sleep(ctx context.Context, d time.Duration) error {
	c.slept = append(c.slept, d)
	c.ahead += d
	return ctx.Err()
}

// flawedBucket is a bucket in a map, less whatever a test takes from it.
type flawedBucket struct {
	objects map[string][]byte
	calls   map[string]int
	// flaw may change what a call is about to answer; effect tells whether it is to have its effect.
	flaw func(call string, opt objstore.PutOptions, n int) (effect bool, err error)
	get  func(body []byte, off, n int64) []byte
}

var _ objstore.Bucket = (*flawedBucket)(nil)

func newFlawed(flaw func(call string, opt objstore.PutOptions, n int) (bool, error)) *flawedBucket {
	return &flawedBucket{objects: map[string][]byte{}, calls: map[string]int{}, flaw: flaw}
}

func (b *flawedBucket) ask(call string, opt objstore.PutOptions) (bool, error) {
	b.calls[call]++
	if b.flaw == nil {
		return true, nil
	}
	return b.flaw(call, opt, b.calls[call])
}

func (b *flawedBucket) Put(_ context.Context, key string, body []byte, opt objstore.PutOptions) error {
	effect, err := b.ask("put", opt)
	if opt.NotAfter.IsZero() {
		return errors.New("a put without NotAfter")
	}
	if err != nil || !effect {
		return err
	}
	if _, there := b.objects[key]; there && opt.IfAbsent {
		return objstore.ErrExists
	}
	b.objects[key] = body
	return nil
}

func (b *flawedBucket) Get(_ context.Context, key string, off, n int64) ([]byte, error) {
	call := "get"
	if off > 0 {
		call = "range"
	}
	if _, err := b.ask(call, objstore.PutOptions{}); err != nil {
		return nil, err
	}
	body, there := b.objects[key]
	switch {
	case !there:
		return nil, objstore.ErrNotFound
	case b.get != nil:
		return b.get(body, off, n), nil
	case n < 0:
		return body[off:], nil
	}
	return body[off : off+n], nil
}

func (b *flawedBucket) Stat(_ context.Context, key string) (objstore.Info, error) {
	effect, err := b.ask("stat", objstore.PutOptions{})
	if err != nil || !effect {
		return objstore.Info{}, err
	}
	return objstore.Info{Key: key, Size: int64(len(b.objects[key]))}, nil
}

func (b *flawedBucket) Delete(_ context.Context, keys []string) []error {
	effect, err := b.ask("delete", objstore.PutOptions{})
	errs := make([]error, len(keys))
	for i, key := range keys {
		errs[i] = err
		if effect {
			delete(b.objects, key)
		}
	}
	return errs
}

func (b *flawedBucket) List(context.Context, string, string, int) ([]objstore.Info, error) {
	return nil, errors.New("a probe does not list")
}

func TestProbeSound(t *testing.T) {
	clk := &pausedClock{}
	b := newFlawed(nil)
	b.objects["probe/star-1"] = []byte("left over by a probe that was killed")
	b.objects["slot/a/1/0"] = []byte("kept")
	require.NoError(t, objstore.Probe(t.Context(), clk, b, "star-1", slog.New(slog.DiscardHandler)))
	require.Equal(t, map[string][]byte{"slot/a/1/0": []byte("kept")}, b.objects)
	require.Empty(t, clk.slept)
}

func TestProbeDirectory(t *testing.T) {
	b, err := dirbucket.Open(t.TempDir(), dirbucket.Options{})
	require.NoError(t, err)
	for range 2 {
		require.NoError(t, objstore.Probe(t.Context(), clock.NewReal(), b, "star-1", slog.New(slog.DiscardHandler)))
	}
	infos, err := b.List(t.Context(), "", "", 10)
	require.NoError(t, err)
	require.Empty(t, infos)
	require.NoError(t, b.Close())
}

func TestProbeRefuses(t *testing.T) {
	denied := errors.New("AccessDenied")
	deny := func(what string) *flawedBucket {
		return newFlawed(func(call string, _ objstore.PutOptions, _ int) (bool, error) {
			if call == what {
				return false, denied
			}
			return true, nil
		})
	}
	noCondition := newFlawed(nil)
	for name, c := range map[string]struct {
		bucket objstore.Bucket
		step   string
		needs  string
		err    error
	}{
		"may not write":       {deny("put"), "put", "s3:PutObject", denied},
		"no bucket":           {newFlawed(func(string, objstore.PutOptions, int) (bool, error) { return false, objstore.ErrNoBucket }), "put", "create it", objstore.ErrNoBucket},
		"expires at once":     {newFlawed(func(string, objstore.PutOptions, int) (bool, error) { return false, objstore.ErrExpired }), "put", "clocks", objstore.ErrExpired},
		"clock behind":        {lateClock{newFlawed(nil)}, "clock of the store", "clocks", errLateClock},
		"may not read":        {deny("get"), "read", "s3:GetObject", denied},
		"may not read ranges": {deny("range"), "ranged read", "byte ranges", denied},
		"may not stat":        {deny("stat"), "stat", "s3:GetObject", denied},
		"may not delete":      {deny("delete"), "delete", "s3:DeleteObject", denied},
		"condition ignored":   {ignoresCondition{noCondition}, "put if-absent over an object", "If-None-Match", nil},
		"condition unknown": {newFlawed(func(_ string, opt objstore.PutOptions, _ int) (bool, error) {
			if opt.IfAbsent {
				return false, errors.New("NotImplemented")
			}
			return true, nil
		}), "put if-absent over an object", "If-None-Match", nil},
		"everything exists": {newFlawed(func(_ string, opt objstore.PutOptions, _ int) (bool, error) {
			if opt.IfAbsent {
				return false, objstore.ErrExists
			}
			return true, nil
		}), "put if-absent", "If-None-Match", objstore.ErrExists},
		"ranges ignored": {withGet(func(body []byte, _, _ int64) []byte { return body }), "ranged read", "byte ranges", nil},
		"ranges shifted": {withGet(func(body []byte, off, n int64) []byte {
			if off == 0 {
				return body
			}
			return body[off-1 : off-1+n]
		}), "ranged read", "byte ranges", nil},
		"stale reads": {withGet(func(body []byte, _, _ int64) []byte { return body[:len(body)-1] }), "read", "last write", nil},
		"delete without effect": {newFlawed(func(call string, _ objstore.PutOptions, _ int) (bool, error) {
			return call != "delete", nil
		}), "read after the delete", "last write or delete", nil},
		"absence hidden": {&hidesAbsence{newFlawed(nil)}, "read after the delete", "s3:ListBucket", nil},
		"no size": {newFlawed(func(call string, _ objstore.PutOptions, _ int) (bool, error) {
			return call != "stat", nil
		}), "stat", "size", nil},
	} {
		t.Run(name, func(t *testing.T) {
			clk := &pausedClock{}
			err := objstore.Probe(t.Context(), clk, c.bucket, "star-1", slog.New(slog.DiscardHandler))
			var refusal *objstore.ProbeError
			require.ErrorAs(t, err, &refusal)
			require.Equal(t, c.step, refusal.Step)
			require.Contains(t, refusal.Needs, c.needs)
			require.ErrorContains(t, err, refusal.Needs)
			if c.err != nil {
				require.ErrorIs(t, err, c.err)
			}
			require.Len(t, clk.slept, 9, "ten tries")
			for _, d := range clk.slept {
				require.GreaterOrEqual(t, d, time.Duration(0))
				require.Less(t, d, time.Second)
			}
		})
	}
}

// lateClock is a bucket of a store whose clock is behind.
type lateClock struct{ *flawedBucket }

var errLateClock = errors.New("it is 3h behind")

func (lateClock) CheckClock() error { return errLateClock }

// ignoresCondition overwrites whatever is there.
type ignoresCondition struct{ *flawedBucket }

func (b ignoresCondition) Put(ctx context.Context, key string, body []byte, opt objstore.PutOptions) error {
	opt.IfAbsent = false
	return b.flawedBucket.Put(ctx, key, body, opt)
}

// hidesAbsence tells who may not list a bucket no more of a missing object than that it may not be read, as S3 does.
type hidesAbsence struct{ *flawedBucket }

func (b *hidesAbsence) Get(ctx context.Context, key string, off, n int64) ([]byte, error) {
	body, err := b.flawedBucket.Get(ctx, key, off, n)
	if errors.Is(err, objstore.ErrNotFound) {
		err = errors.New("AccessDenied")
	}
	return body, err
}

func withGet(get func(body []byte, off, n int64) []byte) *flawedBucket {
	b := newFlawed(nil)
	b.get = get
	return b
}

// Another process that starts under the same name, and a bad connection, pass.
func TestProbeRetriesSurprises(t *testing.T) {
	clk := &pausedClock{}
	var b *flawedBucket
	b = newFlawed(func(call string, opt objstore.PutOptions, n int) (bool, error) {
		switch {
		case call == "put" && n == 1:
			return true, objstore.ErrUnknown
		case call == "put" && n < 4:
			return false, objstore.ErrThrottled
		case call == "get" && n == 1:
			b.objects["probe/star-1"] = []byte("another process's, of its own")
		}
		return true, nil
	})
	require.NoError(t, objstore.Probe(t.Context(), clk, b, "star-1", slog.New(slog.DiscardHandler)))
	require.NotEmpty(t, clk.slept)
	require.Empty(t, b.objects)
}

// A store that is away while its nodes start is waited for, longer than for a surprise, and each try is told of.
func TestProbeWaitsForAStore(t *testing.T) {
	clk := &pausedClock{}
	var log bytes.Buffer
	away := newFlawed(func(string, objstore.PutOptions, int) (bool, error) {
		if clk.ahead < 15*time.Second {
			return false, fmt.Errorf("%w: connection refused", objstore.ErrUnknown)
		}
		return true, nil
	})
	require.NoError(t, objstore.Probe(t.Context(), clk, away, "star-1", slog.New(slog.NewTextHandler(&log, nil))))
	require.Greater(t, len(clk.slept), 20)
	require.Equal(t, len(clk.slept), strings.Count(log.String(), "has no answer, trying again"))

	clk = &pausedClock{}
	gone := newFlawed(func(string, objstore.PutOptions, int) (bool, error) { return false, objstore.ErrUnavailable })
	err := objstore.Probe(t.Context(), clk, gone, "star-1", slog.New(slog.DiscardHandler))
	require.ErrorIs(t, err, objstore.ErrUnavailable)
	require.ErrorContains(t, err, "the store to answer")
	require.GreaterOrEqual(t, clk.ahead, 20*time.Second)
	require.Less(t, clk.ahead, 22*time.Second)
}

func TestProbeEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	b := newFlawed(func(string, objstore.PutOptions, int) (bool, error) {
		cancel()
		return false, errors.New("unreachable")
	})
	require.ErrorIs(t, objstore.Probe(ctx, &pausedClock{}, b, "star-1", slog.New(slog.DiscardHandler)), context.Canceled)
	require.Equal(t, 1, b.calls["put"])

	sound := newFlawed(nil)
	require.ErrorIs(t, objstore.Probe(t.Context(), &pausedClock{}, sound, "no good", slog.New(slog.DiscardHandler)), objstore.ErrBadKey)
	require.Empty(t, sound.calls)
}
