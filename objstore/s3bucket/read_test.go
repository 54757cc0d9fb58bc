package s3bucket

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/nova-store/nova/objstore"
)

// reading opens a bucket of a store in memory whose n-th read of an object, from 1, is answered by fault, or by the
// store where that returns false.
func reading(t *testing.T, fault func(w http.ResponseWriter, r *http.Request, next http.Handler, n int64) bool) *Bucket {
	t.Helper()
	var gets atomic.Int64
	return openTest(t, optionsAt(t, memoryServer(t, func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method != http.MethodGet || !fault(w, r, next, gets.Add(1)) {
				next.ServeHTTP(w, r)
			}
		})
	})))
}

// An object that is overwritten between two ranges of a read is read as one of the two, whole, and not as a mixture.
func TestReadNextToAnOverwrite(t *testing.T) {
	old, anew := bytes.Repeat([]byte("a"), 3*partBytes), bytes.Repeat([]byte("b"), 3*partBytes)
	var b *Bucket
	var once sync.Once
	b = reading(t, func(_ http.ResponseWriter, r *http.Request, _ http.Handler, _ int64) bool {
		if !strings.HasPrefix(r.Header.Get("Range"), "bytes=0-") {
			once.Do(func() { _ = b.Put(r.Context(), "settled/x", anew, inTime(false)) }) // what is read tells
		}
		return false
	})
	require.NoError(t, b.Put(t.Context(), "settled/x", old, inTime(false)))
	got, err := b.Get(t.Context(), "settled/x", 0, -1)
	require.NoError(t, err)
	require.True(t, bytes.Equal(anew, got), "%d of %d bytes are the old object's", bytes.Count(got, []byte("a")), len(got))
}

// An answer that breaks off is asked for again, and never taken for the whole.
func TestAnswerThatBreaksOff(t *testing.T) {
	for _, times := range []int64{readTries - 1, readTries} {
		b := reading(t, func(w http.ResponseWriter, r *http.Request, next http.Handler, n int64) bool {
			if n > times {
				return false
			}
			rec := httptest.NewRecorder()
			next.ServeHTTP(rec, r)
			for name, values := range rec.Header() {
				w.Header()[name] = values
			}
			w.WriteHeader(rec.Code)
			_, _ = w.Write(rec.Body.Bytes()[:rec.Body.Len()/2])
			panic(http.ErrAbortHandler)
		})
		body := bytes.Repeat([]byte("0123456789"), 100_000)
		require.NoError(t, b.Put(t.Context(), "settled/x", body, inTime(true)))
		got, err := b.Get(t.Context(), "settled/x", 0, -1)
		if times == readTries {
			require.ErrorIs(t, err, errBrokenOff)
			require.ErrorIs(t, err, objstore.ErrUnavailable)
			continue
		}
		require.NoError(t, err)
		require.True(t, bytes.Equal(body, got))
	}
}

// Reads that the store refuses for its load, or that may not be made, are no missing objects.
func TestRefusedReads(t *testing.T) {
	for code, want := range map[string]error{
		"SlowDown": objstore.ErrThrottled, "AccessDenied": nil,
		"InternalError": objstore.ErrUnavailable, "ServiceUnavailable": objstore.ErrUnavailable,
	} {
		b := reading(t, func(w http.ResponseWriter, _ *http.Request, _ http.Handler, _ int64) bool {
			answer(w, http.StatusForbidden, code, "")
			return true
		})
		_, err := b.Get(t.Context(), "settled/x", 0, -1)
		require.ErrorContains(t, err, code)
		require.NotErrorIs(t, err, objstore.ErrNotFound)
		_, lerr := b.List(t.Context(), "", "", 1)
		require.ErrorContains(t, lerr, code)
		if want != nil {
			require.ErrorIs(t, err, want)
			require.ErrorIs(t, lerr, want)
			continue
		}
		require.NotErrorIs(t, err, objstore.ErrUnavailable)
	}
}

// A store that is away is no damage: who reads may come back.
func TestReadsWhileTheStoreIsAway(t *testing.T) {
	b := reading(t, func(http.ResponseWriter, *http.Request, http.Handler, int64) bool { panic(http.ErrAbortHandler) })
	_, err := b.Get(t.Context(), "settled/x", 0, -1)
	require.ErrorIs(t, err, objstore.ErrUnavailable)
	_, err = b.Stat(t.Context(), "settled/x")
	require.ErrorIs(t, err, objstore.ErrUnavailable)
	_, err = b.List(t.Context(), "", "", 1)
	require.ErrorIs(t, err, objstore.ErrUnavailable)
}
