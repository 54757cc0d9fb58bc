package api_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/nova-store/nova/api"
	"github.com/nova-store/nova/api/service"
	"github.com/nova-store/nova/clock"
)

// announced is an auditor whose announcement comes and goes.
type announced bool

func (a *announced) Live() bool { return bool(*a) }

// A node that only audits is ready from its announcement until it withdraws, and serves no data even then.
func TestAnAuditOnlyNodeIsReadyWhileItIsAnnounced(t *testing.T) {
	var live announced
	clk := clock.NewReal()
	h := api.New(service.New(service.AuditOnly(&live), nil, clk), clk, api.Options{AuditOnly: true})
	status := func(method, path string) int {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(method, path, nil))
		return w.Code
	}
	for _, now := range []bool{false, true, false} {
		live = announced(now)
		want := http.StatusServiceUnavailable
		if now {
			want = http.StatusOK
		}
		require.Equal(t, want, status(http.MethodGet, "/readyz"))
		require.Equal(t, http.StatusOK, status(http.MethodGet, "/livez"))
		require.Equal(t, http.StatusNotFound, status(http.MethodGet, "/v1/streams/s/records?from=0"))
		require.Equal(t, http.StatusNotFound, status(http.MethodPost, "/v1/streams/s/records"))
	}
}
