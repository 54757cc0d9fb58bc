package api_test

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/nova-store/nova/api"
	"github.com/nova-store/nova/clock"
)

const token, otherToken = "open-sesame-0123456789", "open-sesame-abcdefghij"

func TestGuard(t *testing.T) {
	verified := &tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{{}}}}
	both, certificates := api.NewGuard([]string{token, otherToken}, true), api.NewGuard(nil, true)
	tokens := api.NewGuard([]string{token, otherToken}, false)
	for _, c := range []struct {
		name          string
		guard         *api.Guard
		authorization string
		tls           *tls.ConnectionState
		admitted      bool
	}{
		{"nobody guards", nil, "", nil, true},
		{"nothing given", tokens, "", nil, false},
		{"a token", tokens, "Bearer " + token, nil, true},
		{"the other one", tokens, "bearer  " + otherToken, nil, true},
		{"a prefix", tokens, "Bearer " + token[:16], nil, false},
		{"more than a token", tokens, "Bearer " + token + "x", nil, false},
		{"another scheme", tokens, "Basic " + token, nil, false},
		{"no scheme", tokens, token, nil, false},
		{"a certificate where tokens are wanted", tokens, "", verified, false},
		{"a certificate", certificates, "", verified, true},
		{"TLS without a certificate", certificates, "", &tls.ConnectionState{}, false},
		{"an empty token where there are none", certificates, "Bearer ", nil, false},
		{"either will do: certificate", both, "", verified, true},
		{"either will do: token", both, "Bearer " + token, &tls.ConnectionState{}, true},
		{"neither", both, "Bearer x", &tls.ConnectionState{}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := api.New(nil, clock.NewReal(), api.Options{Guard: c.guard, Metrics: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})})
			for path, open := range map[string]bool{"/livez": true, "/metrics": false, "/v1/openapi.json": false, "/nowhere": false, "//livez": false} {
				r := httptest.NewRequest(http.MethodGet, "http://nova"+path, nil)
				r.TLS = c.tls
				if c.authorization != "" {
					r.Header.Set("Authorization", c.authorization)
				}
				w := httptest.NewRecorder()
				h.ServeHTTP(w, r)
				require.Equal(t, !open && !c.admitted, w.Code == http.StatusUnauthorized, "%s: %d", path, w.Code)
				if w.Code == http.StatusUnauthorized {
					p := answer{w.Code, w.Header(), w.Body.Bytes()}.problem(t)
					require.Equal(t, api.ProblemUnauthorized, p.Type)
					require.NotEmpty(t, w.Header().Get("WWW-Authenticate"))
				}
			}
		})
	}
}

func TestReadTokens(t *testing.T) {
	file := filepath.Join(t.TempDir(), "tokens")
	for _, c := range []struct{ name, text, fails string }{
		{"two", "# both\n" + token + "\r\n\n  " + otherToken, ""},
		{"empty", "\n# nothing\n", "holds no token"},
		{"short", token + "\nabcde\n", "line 2: a token of 5 characters is too short"},
		{"long", strings.Repeat("x", api.MaxTokenBytes+1), "too long"},
		{"with a space", "open sesame 0123456789", "without spaces"},
		{"many", strings.Repeat(token+"\n", 65), "65 tokens; 64 at most"},
	} {
		t.Run(c.name, func(t *testing.T) {
			require.NoError(t, os.WriteFile(file, []byte(c.text), 0o600))
			got, err := api.ReadTokens(file)
			if c.fails != "" {
				require.ErrorContains(t, err, c.fails)
				require.NotContains(t, err.Error(), "sesame")
				return
			}
			require.NoError(t, err)
			require.Equal(t, []string{token, otherToken}, got)
		})
	}
	_, err := api.ReadTokens(file + ".none")
	require.ErrorIs(t, err, os.ErrNotExist)
}

// Exactly the tokens of the file are admitted, whatever else is sent.
func TestGuardAdmitsItsTokensOnly(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tokens := rapid.SliceOfN(rapid.StringMatching(`[!-~]{16,40}`), 1, 5).Draw(t, "tokens")
		sent := rapid.OneOf(rapid.SampledFrom(tokens), rapid.StringMatching(`[!-~]{0,40}`)).Draw(t, "sent")
		h := api.New(nil, clock.NewReal(), api.Options{Guard: api.NewGuard(tokens, false)})
		r := httptest.NewRequest(http.MethodGet, "/v1/openapi.json", nil)
		r.Header.Set("Authorization", "Bearer "+sent)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		want := http.StatusUnauthorized
		for _, tk := range tokens {
			if tk == sent {
				want = http.StatusOK
			}
		}
		require.Equal(t, want, w.Code)
	})
}
