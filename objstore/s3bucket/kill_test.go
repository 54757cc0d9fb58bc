package s3bucket

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
	"github.com/stretchr/testify/require"

	"github.com/nova-store/nova/clock"
	"github.com/nova-store/nova/objstore"
)

// mortal is a store that a test may kill and start again at the same endpoint.
type mortal struct {
	endpoint    string
	kill, start func()
}

// startMortal starts a store of the kind that the tests run against.
func startMortal(t *testing.T) *mortal {
	t.Helper()
	if os.Getenv(serverVariable) == "" {
		return mortalInMemory(t)
	}
	dir := t.TempDir()
	script := func(args ...string) string {
		out, err := exec.Command("../../testdata/scripts/s3server.sh", args...).Output()
		require.NoError(t, err)
		return strings.TrimSpace(string(out))
	}
	m := &mortal{endpoint: script("start", dir)}
	u, err := url.Parse(m.endpoint)
	require.NoError(t, err)
	m.kill = func() {
		text, err := os.ReadFile(filepath.Join(dir, "pid"))
		require.NoError(t, err)
		pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
		require.NoError(t, err)
		require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
	}
	m.start = func() { script("start", dir, u.Port()) }
	t.Cleanup(func() { script("stop", dir) })
	return m
}

// mortalInMemory loses its connections when it is killed, and keeps its objects.
func mortalInMemory(t *testing.T) *mortal {
	handler := gofakes3.New(s3mem.New(), gofakes3.WithLogger(gofakes3.DiscardLog())).Server()
	var srv *httptest.Server
	m := &mortal{}
	addr := "127.0.0.1:0"
	m.start = func() {
		listener, err := net.Listen("tcp", addr)
		require.NoError(t, err)
		srv = &httptest.Server{Listener: listener, Config: &http.Server{Handler: handler}}
		srv.Start()
		addr, m.endpoint = listener.Addr().String(), srv.URL
	}
	m.kill = func() {
		srv.CloseClientConnections()
		srv.Close()
	}
	m.start()
	t.Cleanup(m.kill)
	return m
}

// The store is killed amid puts, twice, and started again: each put that was answered is there, byte by byte, and
// each that was not is decided by trying again.
func TestServerKilled(t *testing.T) {
	const writers, each, size = 4, 60, 64 << 10
	m := startMortal(t)
	b := openTest(t, optionsAt(t, m.endpoint))
	key := func(w, i int) string { return fmt.Sprintf("slot/%d/1/%d", w, i) }
	body := func(w, i int) []byte { return bytes.Repeat([]byte{byte(w + 1), byte(i)}, size/2) }
	var answered, unknown atomic.Int64
	var failed [writers]error
	var all sync.WaitGroup
	for w := range writers {
		all.Go(func() {
			for i := 0; i < each && failed[w] == nil; i++ {
				if failed[w] = putUntilDecided(t.Context(), b, key(w, i), body(w, i), &unknown); failed[w] == nil {
					answered.Add(1)
				}
			}
		})
	}
	for _, after := range []int64{writers * each / 3, writers * each * 2 / 3} {
		require.Eventually(t, func() bool { return answered.Load() >= after }, time.Minute, time.Millisecond)
		before := unknown.Load()
		m.kill()
		// A put that meets it finds nobody to read back from, as long as it takes.
		require.Eventually(t, func() bool { return unknown.Load() > before || answered.Load() == writers*each }, time.Minute, time.Millisecond)
		m.start()
	}
	all.Wait()
	require.NoError(t, errors.Join(failed[:]...))
	require.EqualValues(t, writers*each, answered.Load())
	require.NotZero(t, unknown.Load(), "nobody met the kill")
	for w := range writers {
		for i := range each {
			got, err := b.Get(t.Context(), key(w, i), 0, -1)
			require.NoError(t, err)
			require.True(t, bytes.Equal(body(w, i), got), "%s is not what was put", key(w, i))
		}
	}
}

// putUntilDecided is how a star puts a slot.
func putUntilDecided(ctx context.Context, b *Bucket, key string, body []byte, unknown *atomic.Int64) error {
	for {
		err := b.Put(ctx, key, body, inTime(true))
		switch {
		case err == nil:
			return nil
		case errors.Is(err, objstore.ErrExists):
			same, err := b.holds(ctx, key, body)
			if err == nil && !same {
				return fmt.Errorf("%s: another body is there", key)
			}
			if err == nil {
				return nil
			}
		case errors.Is(err, objstore.ErrUnknown):
			unknown.Add(1)
		case !errors.Is(err, objstore.ErrThrottled):
			return err
		}
		if err := clock.NewReal().Sleep(ctx, 20*time.Millisecond); err != nil {
			return err
		}
	}
}
