package api_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/nova-store/nova/api"
	"github.com/nova-store/nova/clock"
)

// A page of anybody's can have a browser on this machine send a POST to it. Neither its own origin, nor a name that it makes
// resolve to loopback, gets it through.
func TestWebPagesOfOthersAreRefused(t *testing.T) {
	h := api.New(nil, clock.NewReal(), api.Options{LoopbackHosts: true})
	guarded := api.New(nil, clock.NewReal(), api.Options{Guard: api.NewGuard([]string{token}, false)})
	for _, c := range []struct {
		method, host, header, value string
		status                      int
	}{
		{"POST", "127.0.0.1:4466", "", "", 404}, // a program
		{"POST", "localhost:4466", "", "", 404},
		{"POST", "LOCALHOST", "", "", 404},
		{"POST", "[::1]:4466", "", "", 404},
		{"POST", "[::1]", "", "", 404},
		{"POST", "127.0.0.1:4466", "Origin", "http://127.0.0.1:4466", 404}, // its own page
		{"POST", "127.0.0.1:4466", "Sec-Fetch-Site", "same-origin", 404},
		{"POST", "127.0.0.1:4466", "Origin", "https://evil.example", 403},
		{"POST", "127.0.0.1:4466", "Origin", "null", 403},
		{"POST", "127.0.0.1:4466", "Sec-Fetch-Site", "cross-site", 403},
		{"DELETE", "127.0.0.1:4466", "Sec-Fetch-Site", "same-site", 403},
		{"GET", "127.0.0.1:4466", "Sec-Fetch-Site", "cross-site", 404}, // it changes nothing, and the page can't read it
		{"POST", "evil.example:4466", "", "", 421},
		{"GET", "evil.example:4466", "", "", 421},
		{"GET", "127.0.0.1.evil.example", "", "", 421},
		{"GET", "10.0.0.1:4466", "", "", 421},
		{"GET", "", "", "", 421},
	} {
		r := httptest.NewRequest(c.method, "/v1/nothing-here", nil)
		r.Host = c.host
		if c.header != "" {
			r.Header.Set(c.header, c.value)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		require.Equal(t, c.status, w.Code, "%+v", c)
		require.Equal(t, api.TypeProblem, w.Header().Get("Content-Type"))

		r.Header.Set("Authorization", "Bearer "+token)
		w = httptest.NewRecorder()
		guarded.ServeHTTP(w, r)
		if c.status == http.StatusMisdirectedRequest {
			c.status = http.StatusNotFound // its guard is enough
		}
		require.Equal(t, c.status, w.Code, "guarded: %+v", c)
	}
	r := httptest.NewRequest("GET", "/livez", nil)
	r.Host = "10.0.0.1:4466"
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	require.Equal(t, http.StatusOK, w.Code, "a probe names what it likes")
}

func TestStarting(t *testing.T) {
	h := api.Starting(func() string { return "the star mints its chain" })
	for target, status := range map[string]int{"GET /livez": 200, "POST /livez": 503, "GET /readyz": 503, "POST /v1/drain": 503, "GET /metrics": 503} {
		method, path, _ := strings.Cut(target, " ")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(method, path, nil))
		require.Equal(t, status, w.Code, target)
		if status == http.StatusServiceUnavailable {
			require.Contains(t, w.Body.String(), "the node starts: the star mints its chain")
			require.Equal(t, "1", w.Header().Get("Retry-After"))
		}
	}
}
