package api_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/nova-store/nova/api"
	"github.com/nova-store/nova/api/service"
	"github.com/nova-store/nova/clock"
)

func TestMetricsAreServedWhereThereAreSome(t *testing.T) {
	get := func(opts api.Options) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		api.New(service.New(nil, nil, clock.NewReal()), clock.NewReal(), opts).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
		return w
	}
	require.Equal(t, http.StatusNotFound, get(api.Options{}).Code)
	w := get(api.Options{Metrics: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "some") })})
	require.Equal(t, http.StatusOK, w.Code)
	require.Equal(t, "some", w.Body.String())
}
