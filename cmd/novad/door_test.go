package main

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/nova-store/nova/api"
	"github.com/nova-store/nova/clock"
)

// Probes are answered from the listen on, before there is a node; who kept a connection to one that is drained loses it.
func TestTheDoorIsAnsweredBeforeANodeIsThere(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	d := openDoor(l, nil, slog.New(slog.DiscardHandler))
	ask := func(method, path string) (status int, last bool, body string) {
		r, err := http.NewRequestWithContext(t.Context(), method, "http://"+d.address.String()+path, nil)
		require.NoError(t, err)
		res, err := http.DefaultClient.Do(r)
		require.NoError(t, err)
		b, err := io.ReadAll(res.Body)
		require.NoError(t, err)
		require.NoError(t, res.Body.Close())
		return res.StatusCode, res.Close, string(b)
	}
	status, _, _ := ask("GET", "/livez")
	require.Equal(t, http.StatusOK, status)
	status, _, why := ask("GET", "/readyz")
	require.Equal(t, http.StatusServiceUnavailable, status)
	require.Contains(t, why, "the node starts: it opens its metadata and its bucket")

	n := served(t, nil)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	told, tell := io.Pipe()
	go func() {
		ended <- n.serve(&process{ctx: ctx, stdin: os.Stdin, stdout: io.Discard, stderr: tell}, d, security{loopback: true}, false)
	}()
	_, err = told.Read(make([]byte, 100)) // that it listens
	require.NoError(t, err)
	status, last, _ := ask("GET", "/readyz")
	require.Equal(t, http.StatusOK, status)
	require.False(t, last)
	status, _, _ = ask("POST", "/v1/drain")
	require.Equal(t, http.StatusOK, status)
	status, last, _ = ask("GET", "/livez")
	require.Equal(t, http.StatusOK, status)
	require.True(t, last, "the connection ends with the answer")
	stop()
	require.NoError(t, <-ended)
}

// Profiles are there with a flag only, and for nobody whom the guard does not admit.
func TestProfiles(t *testing.T) {
	const token = "open-sesame-0123456789"
	for _, on := range []bool{false, true} {
		o := api.Options{Guard: api.NewGuard([]string{token}, false)}
		if on {
			o.Profiles = profileHandler()
		}
		h := api.New(nil, clock.NewReal(), o)
		for _, path := range []string{"/debug/pprof/", "/debug/pprof/heap", "/debug/pprof/cmdline"} {
			r := httptest.NewRequest("GET", path, nil)
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			require.Equal(t, http.StatusUnauthorized, w.Code)
			r.Header.Set("Authorization", "Bearer "+token)
			w = httptest.NewRecorder()
			h.ServeHTTP(w, r)
			require.Equal(t, map[bool]int{false: http.StatusNotFound, true: http.StatusOK}[on], w.Code, path)
		}
	}
}

// A token file that everybody on the machine can read is told of.
func TestATokenFileOpenToAllIsToldOf(t *testing.T) {
	file := filepath.Join(t.TempDir(), "tokens")
	require.NoError(t, os.WriteFile(file, []byte("open-sesame-0123456789\n"), 0o600))
	for mode, told := range map[os.FileMode]bool{0o600: false, 0o440: false, 0o644: true, 0o604: true} {
		require.NoError(t, os.Chmod(file, mode))
		var log bytes.Buffer
		_, err := (&securityFlags{AuthTokenFile: file}).open(slog.New(slog.NewTextHandler(&log, nil)))
		require.NoError(t, err)
		require.Equal(t, told, strings.Contains(log.String(), "open to every user"), mode.String())
	}
}
