package main

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/nova-store/nova/api"
	"github.com/nova-store/nova/catalog"
	"github.com/nova-store/nova/clock"
	"github.com/nova-store/nova/objstore"
)

// shaped assembles a node of a shape on storage that is one process's alone, where start-up would refuse an auditor
// without a star: what a node is made of does not depend on what it is stored in.
func shaped(t *testing.T, serve, audit bool) *node {
	t.Helper()
	cfg := testConfig(t, nil)
	cfg.Serve, cfg.Audit = serve, audit
	n, err := openNode(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, n.close()) })
	return n
}

func TestAnAuditOnlyNodeHasANameOfItsOwnAndNoChain(t *testing.T) {
	n := shaped(t, false, true)
	n.start()
	require.NoError(t, n.ready(t.Context()))
	require.Regexp(t, "^auditor-[0-9a-f]{16}$", n.auditor.Member(), "and not the star's")
	require.NotEqual(t, memberName(clock.NewReal()), memberName(clock.NewReal()), "another at each start")
	require.NoError(t, n.drain())
	chains, err := n.cat.Chains(t.Context())
	require.NoError(t, err)
	require.Empty(t, chains)
}

// What a probe leaves that was killed, the next one of that machine and address takes away, and others at the latest where theirs is the same of a few.
func TestTheProbeOfAnAuditorComesBack(t *testing.T) {
	require.Equal(t, probeName("127.0.0.1:1"), probeName("127.0.0.1:1"))
	names := make(map[string]bool)
	for port := range 10_000 {
		names[probeName(fmt.Sprintf("127.0.0.1:%d", port))] = true
	}
	require.Len(t, names, probeNames)

	cfg := testConfig(t, nil)
	cfg.Serve, cfg.Audit, cfg.Listen = false, true, "127.0.0.1:1"
	n, err := openNode(t.Context(), cfg)
	require.NoError(t, err)
	left := "probe/" + probeName(cfg.Listen)
	require.NoError(t, n.bucket.Put(t.Context(), left, []byte("of a probe that was killed"), objstore.PutOptions{}))
	require.NoError(t, n.close())
	n, err = openNode(t.Context(), cfg)
	require.NoError(t, err)
	_, err = n.bucket.Stat(t.Context(), left)
	require.ErrorIs(t, err, objstore.ErrNotFound)
	require.NoError(t, n.close())
}

func TestAnAuditOnlyNodeIsReadyWhileItsAnnouncementIsLive(t *testing.T) {
	n := shaped(t, false, true)
	h := api.New(n.service(), clock.NewReal(), api.Options{AuditOnly: true, Drain: n.drainFor, Deal: dealt})
	status := func(method, path string) int {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), method, path, nil))
		return w.Code
	}
	require.Equal(t, http.StatusServiceUnavailable, status("GET", "/readyz"), "it has not announced itself")
	require.Equal(t, http.StatusOK, status("GET", "/livez"))
	n.start()
	require.Eventually(t, func() bool { return status("GET", "/readyz") == http.StatusOK }, 10*time.Second, time.Millisecond)
	roster, err := n.cat.Roster(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{n.auditor.Member()}, roster)

	for _, path := range []string{"/v1/streams", "/v1/streams/s", "/v1/streams/s/records"} {
		require.Equal(t, http.StatusNotFound, status("GET", path), "it serves no data")
		require.Equal(t, http.StatusNotFound, status("POST", path))
	}
	for _, path := range []string{"/v1/ring", "/v1/chains", "/v1/due"} {
		require.Equal(t, http.StatusOK, status("GET", path))
	}

	require.Equal(t, http.StatusOK, status("POST", "/v1/drain"))
	roster, err = n.cat.Roster(t.Context())
	require.NoError(t, err)
	require.Empty(t, roster, "it has left the ring before the drain was over")
	require.Equal(t, http.StatusServiceUnavailable, status("GET", "/readyz"))
}

// A drain that takes longer than whoever asks goes on, and tells so.
func TestADrainGoesOnWithoutItsAsker(t *testing.T) {
	n := shaped(t, true, true)
	n.start()
	require.NoError(t, n.ready(t.Context()))
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if done, err := n.drainFor(gone); !done {
		require.NoError(t, err)
	}
	<-n.drained
	done, err := n.drainFor(t.Context())
	require.NoError(t, err)
	require.True(t, done)
	holds, err := n.cat.HoldsRoute(t.Context(), catalog.ChainID{Star: "nova", Epoch: 1})
	require.NoError(t, err)
	require.False(t, holds)
	require.False(t, n.auditor.Announced())
}
