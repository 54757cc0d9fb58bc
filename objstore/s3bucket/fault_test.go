package s3bucket

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/nova-store/nova/clock"
	"github.com/nova-store/nova/objstore"
	"github.com/nova-store/nova/objstore/buckettest"
)

// restless is a clock whose sleeps are over at once.
type restless struct{ clock.Real }

func (restless) Sleep(ctx context.Context, _ time.Duration) error { return ctx.Err() }

// faulty opens a bucket of a store in memory whose n-th put, from 1, is answered by fault. Where fault
// returns false the store answers it.
func faulty(t *testing.T, fault func(w http.ResponseWriter, r *http.Request, next http.Handler, n int64) bool) (b *Bucket, puts *atomic.Int64) {
	t.Helper()
	puts = new(atomic.Int64)
	o := optionsAt(t, memoryServer(t, func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if !isPut(r) || !fault(w, r, next, puts.Add(1)) {
				next.ServeHTTP(w, r)
			}
		})
	}))
	o.Clock = restless{}
	return openTest(t, o), puts
}

// cutOff ends the connection without an answer.
func cutOff(w http.ResponseWriter) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err == nil {
		_ = conn.Close() // the client sees it end
	}
}

// takeEffect lets the store do what is asked, and drops its answer.
func takeEffect(r *http.Request, next http.Handler) { next.ServeHTTP(httptest.NewRecorder(), r) }

// What each answer to a put comes to: of one with an effect, of one without, and of one that another was before.
func TestPutOutcomes(t *testing.T) {
	say := func(status int, code, message string) func(http.ResponseWriter) {
		return func(w http.ResponseWriter) { answer(w, status, code, message) }
	}
	for name, c := range map[string]struct {
		answer func(w http.ResponseWriter)
		tries  int64
		// What Put gives where the put had its effect, had none, and where another's object was there before. errAny: some
		// other error, which says that there is no effect.
		effect, none, other error
	}{
		"cut off":          {cutOff, 1, nil, objstore.ErrUnknown, objstore.ErrExists},
		"internal error":   {say(500, "InternalError", "We encountered an internal error"), 1, nil, objstore.ErrUnknown, objstore.ErrExists},
		"unavailable":      {say(503, "ServiceUnavailable", "later"), 1, nil, objstore.ErrUnknown, objstore.ErrExists},
		"a proxy's":        {func(w http.ResponseWriter) { w.WriteHeader(http.StatusBadGateway) }, 1, nil, objstore.ErrUnknown, objstore.ErrExists},
		"412 without code": {func(w http.ResponseWriter) { w.WriteHeader(http.StatusPreconditionFailed) }, 1, nil, objstore.ErrUnknown, objstore.ErrExists},
		"unheard of":       {say(500, "Surprise", "of a 5xx"), 1, nil, objstore.ErrUnknown, objstore.ErrExists},
		"idle":             {say(400, "RequestTimeout", "Your socket connection was not read from"), 1, nil, objstore.ErrUnknown, objstore.ErrExists},
		"precondition":     {say(412, "PreconditionFailed", "At least one"), 1, objstore.ErrExists, objstore.ErrExists, objstore.ErrExists},
		"slow down":        {say(503, "SlowDown", "Please reduce"), 1, objstore.ErrThrottled, objstore.ErrThrottled, objstore.ErrThrottled},
		"too many":         {say(429, "TooManyRequests", "Please reduce"), 1, objstore.ErrThrottled, objstore.ErrThrottled, objstore.ErrThrottled},
		"expired":          {say(403, "AccessDenied", "Request has expired."), 1, objstore.ErrExpired, objstore.ErrExpired, objstore.ErrExpired},
		"no bucket":        {say(404, "NoSuchBucket", "The specified bucket does not exist"), 1, objstore.ErrNoBucket, objstore.ErrNoBucket, objstore.ErrNoBucket},
		"forbidden":        {say(403, "AccessDenied", "Access Denied"), 1, errAny, errAny, errAny},
		"no such header":   {say(501, "NotImplemented", "A header you provided"), 1, errAny, errAny, errAny},
		"conflict":         {say(409, "ConditionalRequestConflict", "try again"), busyTries, objstore.ErrThrottled, objstore.ErrThrottled, objstore.ErrThrottled},
		"a folder":         {say(409, "ExistingObjectIsDirectory", "passing"), busyTries, objstore.ErrThrottled, objstore.ErrThrottled, objstore.ErrThrottled},
	} {
		t.Run(name, func(t *testing.T) {
			for what, want := range map[string]error{"effect": c.effect, "none": c.none, "other": c.other} {
				on := atomic.Bool{}
				b, puts := faulty(t, func(w http.ResponseWriter, r *http.Request, next http.Handler, _ int64) bool {
					if !on.Load() {
						return false
					}
					if what == "effect" {
						takeEffect(r, next)
					} else {
						_, _ = io.Copy(io.Discard, r.Body)
					}
					c.answer(w)
					return true
				})
				if what == "other" {
					require.NoError(t, b.Put(t.Context(), "slot/a/1/0", []byte("another's"), inTime(true)))
				}
				before := puts.Load()
				on.Store(true)
				err := b.Put(t.Context(), "slot/a/1/0", []byte("mine"), inTime(true))
				require.Equal(t, c.tries, puts.Load()-before, "requests sent, %s", what)
				switch {
				case want == nil:
					require.NoError(t, err, what)
				case errors.Is(want, errAny):
					require.Error(t, err, what)
					require.Empty(t, buckettest.Matches(err), "%s: %v", what, err)
				default:
					require.Equal(t, []error{want}, buckettest.Matches(err), "%s: %v", what, err)
				}
				if err != nil {
					require.NotContains(t, err.Error(), "Signature", "a log must not hold what signs the request")
				}
			}
		})
	}
}

var errAny = errors.New("some error")

// An overwrite that got no answer is not settled by another's body: it may still land.
func TestOverwriteWithoutAnAnswer(t *testing.T) {
	on := atomic.Bool{}
	b, _ := faulty(t, func(w http.ResponseWriter, _ *http.Request, _ http.Handler, _ int64) bool {
		if on.Load() {
			cutOff(w)
		}
		return on.Load()
	})
	require.NoError(t, b.Put(t.Context(), "probe/a", []byte("old"), inTime(false)))
	on.Store(true)
	require.ErrorIs(t, b.Put(t.Context(), "probe/a", []byte("new"), inTime(false)), objstore.ErrUnknown)
	require.NoError(t, b.Put(t.Context(), "probe/a", []byte("old"), inTime(false)))
}

// A conflict passes, and the put is sent again; what then says that it exists may be the first try.
func TestConflictThenExists(t *testing.T) {
	for _, own := range []bool{true, false} {
		b, puts := faulty(t, func(w http.ResponseWriter, r *http.Request, next http.Handler, n int64) bool {
			if n > 1 {
				return false
			}
			if own {
				takeEffect(r, next)
			}
			answer(w, http.StatusConflict, codeConflict, "try again")
			return true
		})
		require.NoError(t, b.Put(t.Context(), "slot/a/1/0", []byte("mine"), inTime(true)))
		require.EqualValues(t, 2, puts.Load())
		require.ErrorIs(t, b.Put(t.Context(), "slot/a/1/0", []byte("mine"), inTime(true)), objstore.ErrExists)
	}
}

// A request that hangs is given up, and the caller's end is not taken for the store's.
func TestPutThatHangs(t *testing.T) {
	hang := make(chan struct{})
	on := atomic.Bool{}
	b, _ := faulty(t, func(http.ResponseWriter, *http.Request, http.Handler, int64) bool {
		if on.Load() {
			<-hang
		}
		return on.Load()
	})
	t.Cleanup(func() { close(hang) })
	b.timeout = 50 * time.Millisecond
	on.Store(true)
	require.ErrorIs(t, b.Put(t.Context(), "slot/a/1/0", []byte("x"), inTime(true)), objstore.ErrUnknown)
	b.timeout = time.Minute
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	err := b.Put(ctx, "slot/a/1/0", []byte("x"), inTime(true))
	require.ErrorIs(t, err, objstore.ErrUnknown)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	cancel()
	err = b.Put(ctx, "slot/a/1/0", []byte("x"), inTime(true))
	require.Error(t, err)
	require.NotErrorIs(t, err, objstore.ErrUnknown, "nothing was sent")
}

// The expiry that is signed is never past NotAfter, whatever the fractions of a second.
func TestNeverSignedPastNotAfter(t *testing.T) {
	var last atomic.Pointer[http.Request]
	b, _ := faulty(t, func(_ http.ResponseWriter, r *http.Request, _ http.Handler, _ int64) bool {
		last.Store(r)
		return false
	})
	for _, ms := range []int{1000, 1001, 1500, 1999, 2000, 2001, 2345, 60_000, 61_999} {
		notAfter := time.Now().Add(time.Duration(ms) * time.Millisecond)
		last.Store(nil)
		err := b.Put(t.Context(), fmt.Sprint("slot/a/1/", ms), nil, objstore.PutOptions{IfAbsent: true, NotAfter: notAfter})
		if err != nil {
			require.ErrorIs(t, err, objstore.ErrExpired)
			require.Less(t, ms, 2000)
			continue
		}
		q := last.Load().URL.Query()
		at, err := time.Parse("20060102T150405Z", q.Get("X-Amz-Date"))
		require.NoError(t, err)
		lasts, err := time.ParseDuration(q.Get("X-Amz-Expires") + "s")
		require.NoError(t, err)
		require.False(t, at.Add(lasts).After(notAfter), "signed to be good until %v, past %v", at.Add(lasts), notAfter)
		require.Less(t, notAfter.Sub(at.Add(lasts)), time.Second)
		require.Contains(t, strings.Split(q.Get("X-Amz-SignedHeaders"), ";"), "if-none-match")
		require.Equal(t, "*", last.Load().Header.Get("If-None-Match"))
	}
	require.ErrorIs(t, b.Put(t.Context(), "slot/b", nil, objstore.PutOptions{}), errNoDeadline)
}

// A store whose clock is behind takes puts for too long: that is told, once, and a clock ahead is not.
func TestClockOfTheStore(t *testing.T) {
	var late atomic.Int64
	b, _ := faulty(t, func(w http.ResponseWriter, _ *http.Request, _ http.Handler, _ int64) bool {
		w.Header().Set("Date", time.Now().Add(-time.Duration(late.Load())).UTC().Format(http.TimeFormat))
		w.WriteHeader(http.StatusOK)
		return true
	})
	var log strings.Builder
	b.log, b.skew = slog.New(slog.NewTextHandler(&log, nil)), 2*time.Second
	for _, c := range []struct {
		late     time.Duration
		warnings int
		behind   bool
	}{{0, 0, false}, {time.Second, 0, false}, {-time.Hour, 0, false}, {6 * time.Second, 1, true}, {time.Hour, 1, true}, {0, 1, false}, {time.Minute, 2, true}} {
		late.Store(int64(c.late))
		require.NoError(t, b.Put(t.Context(), "a", nil, inTime(false)))
		require.Equal(t, c.warnings, strings.Count(log.String(), "clock is behind"), "%v late", c.late)
		require.Equal(t, c.behind, b.CheckClock() != nil)
		require.InDelta(t, max(c.late-dateResolution, 0), b.ClockBehind(), float64(dateResolution))
	}
}

// At start-up it is refused.
func TestProbeRefusesAClockBehind(t *testing.T) {
	for late, refused := range map[time.Duration]bool{3 * time.Hour: true, 0: false, -10 * time.Minute: false} {
		o := optionsAt(t, memoryServer(t, func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Date", time.Now().Add(-late).UTC().Format(http.TimeFormat))
				next.ServeHTTP(w, r)
			})
		}))
		o.MaxClockSkew = 2 * time.Second
		err := objstore.Probe(t.Context(), restless{}, openTest(t, o), "star-1", slog.New(slog.DiscardHandler))
		if !refused {
			require.NoError(t, err, "%v late", late)
			continue
		}
		require.ErrorContains(t, err, "clock of the store: it is 2h59m")
		require.ErrorContains(t, err, "the clock skew allows 2s")
		require.NotContains(t, err.Error(), "\n")
	}
}

// Whoever runs the store finds a request by what it calls it.
func TestErrorsNameTheRequest(t *testing.T) {
	b, _ := faulty(t, func(w http.ResponseWriter, r *http.Request, _ http.Handler, _ int64) bool {
		w.Header().Set("x-amz-request-id", "4442587FB7D0A2F9")
		w.Header().Set("x-amz-id-2", "vlR7PnpV2Ce81l0PRw6jlUpck7Jo5ZsQjryTjKlc5aLWGVHPZLj5NeC6qMa0emYBDXOo6QBU0Wo=")
		answer(w, http.StatusForbidden, codeDenied, "Access Denied")
		return true
	})
	err := b.Put(t.Context(), "a", nil, inTime(true))
	require.ErrorContains(t, err, "AccessDenied: Access Denied (status 403, request id 4442587FB7D0A2F9, host id vlR7PnpV2Ce81l0")
}

// A store that ignores the condition is refused at start-up, and so is one without ranges.
func TestProbeRefusesAStoreWithout(t *testing.T) {
	for name, c := range map[string]struct{ header, needs string }{
		"conditions": {"If-None-Match", "If-None-Match"},
		"ranges":     {"Range", ""},
	} {
		t.Run(name, func(t *testing.T) {
			o := optionsAt(t, memoryServer(t, func(next http.Handler) http.Handler {
				return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					r.Header.Del(c.header)
					next.ServeHTTP(w, r)
				})
			}))
			var refusal *objstore.ProbeError
			err := objstore.Probe(t.Context(), restless{}, openTest(t, o), "star-1", slog.New(slog.DiscardHandler))
			require.ErrorAs(t, err, &refusal)
			require.Contains(t, refusal.Needs, c.needs)
		})
	}
	require.NoError(t, objstore.Probe(t.Context(), clock.NewReal(), openTest(t, testOptions(t)), "star-1", slog.New(slog.DiscardHandler)))
}

// Each key of a delete has the store's own answer for it; a key without one may be there or not.
func TestDeleteAnswersEachKey(t *testing.T) {
	var reply atomic.Value
	o := optionsAt(t, memoryServer(t, func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if reply, ok := reply.Load().(func(http.ResponseWriter)); ok && r.Method == http.MethodPost {
				reply(w)
				return
			}
			next.ServeHTTP(w, r)
		})
	}))
	b := openTest(t, o)
	key := func(k string) string { return o.Prefix + "/" + k }
	reply.Store(func(w http.ResponseWriter) {
		fmt.Fprintf(w, `<DeleteResult><Deleted><Key>%s</Key></Deleted>
			<Error><Key>%s</Key><Code>AccessDenied</Code><Message>no</Message></Error>
			<Error><Key>%s</Key><Code>SlowDown</Code><Message>later</Message></Error>
			<Error><Key>%s</Key><Code>InternalError</Code><Message>perhaps</Message></Error>
			<Error><Key>%s</Key><Code>NoSuchKey</Code><Message>gone</Message></Error></DeleteResult>`, key("a"), key("b"), key("c"), key("d"), key("e"))
	})
	errs := b.Delete(t.Context(), []string{"f", "e", "d", "c", "b", "a"})
	require.ErrorIs(t, errs[0], objstore.ErrUnknown)
	require.NoError(t, errs[1])
	require.ErrorIs(t, errs[2], objstore.ErrUnknown)
	require.ErrorIs(t, errs[3], objstore.ErrThrottled)
	require.ErrorContains(t, errs[4], "AccessDenied")
	require.NotErrorIs(t, errs[4], objstore.ErrUnknown)
	require.NoError(t, errs[5])

	for code, want := range map[string]error{"SlowDown": objstore.ErrThrottled, "InternalError": objstore.ErrUnknown} {
		reply.Store(func(w http.ResponseWriter) { answer(w, http.StatusServiceUnavailable, code, "") })
		for _, err := range b.Delete(t.Context(), []string{"a", "b"}) {
			require.ErrorIs(t, err, want)
		}
	}
}

// A missing bucket is no missing object: what it held may be there again.
func TestMissingBucketIsNoMissingObject(t *testing.T) {
	o := testOptions(t)
	o.Bucket = "nova-no-such-bucket"
	b := openTest(t, o)
	_, err := b.Get(t.Context(), "a", 0, -1)
	require.ErrorContains(t, err, "NoSuchBucket")
	require.ErrorIs(t, err, objstore.ErrNoBucket)
	require.NotErrorIs(t, err, objstore.ErrNotFound)
	_, err = b.Stat(t.Context(), "a")
	require.ErrorContains(t, err, "NoSuchBucket")
	require.ErrorIs(t, err, objstore.ErrNoBucket)
	require.NotErrorIs(t, err, objstore.ErrNotFound)
}

func TestParseURL(t *testing.T) {
	for text, want := range map[string][2]string{
		"s3://b": {"b", ""}, "s3://b/": {"b", ""}, "s3://b/p": {"b", "p"}, "s3://b/p/q/": {"b", "p/q"},
	} {
		bucket, prefix, err := ParseURL(text)
		require.NoError(t, err)
		require.Equal(t, want, [2]string{bucket, prefix})
	}
	for _, bad := range []string{"", "dir:x", "s3://", "s3:///p", "s3://b//p", "s3://b/../p", "s3://b c", "s3://b/" + strings.Repeat("p", maxPrefix+1)} {
		_, _, err := ParseURL(bad)
		require.Error(t, err, bad)
	}
}

func TestOpenRefuses(t *testing.T) {
	good := testOptions(t)
	for name, change := range map[string]func(*Options){
		"no bucket":      func(o *Options) { o.Bucket = "" },
		"prefix":         func(o *Options) { o.Prefix = "a//b" },
		"endpoint":       func(o *Options) { o.Endpoint = "localhost:9000" },
		"password":       func(o *Options) { o.Endpoint = "http://user:password@localhost:9000" },
		"upload timeout": func(o *Options) { o.UploadTimeout = -1 },
		"connections":    func(o *Options) { o.Connections = -1 },
	} {
		o := good
		change(&o)
		_, err := Open(t.Context(), o)
		require.Error(t, err, name)
		require.NotContains(t, err.Error(), "password")
	}
}
