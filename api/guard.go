package api

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
)

// Bounds of bearer tokens. One shorter than MinTokenBytes can be guessed.
const (
	MinTokenBytes = 16
	MaxTokenBytes = 4096
	maxTokens     = 64
)

// Guard tells who may use the interface. /livez and /readyz are open to all, since who asks
// there (an orchestrator, a load balancer) has no credentials, and learns one bit.
type Guard struct {
	tokens func() []string // nil: none
	// Certificates lets in who came with a certificate that the TLS layer verified.
	certificates bool
}

// NewGuard lets in requests that carry one of the bearer tokens (RFC 6750), in the header Authorization alone, and, with
// certificates, those over a connection whose client certificate was verified. Where both are given, either will do.
func NewGuard(tokens []string, certificates bool) *Guard {
	if len(tokens) == 0 {
		return NewGuardOf(nil, certificates)
	}
	return NewGuardOf(func() []string { return tokens }, certificates)
}

// NewGuardOf is NewGuard with tokens that may change while it guards: they are asked for with each request. Nil: there are never any.
func NewGuardOf(tokens func() []string, certificates bool) *Guard {
	return &Guard{tokens: tokens, certificates: certificates}
}

// ErrBadTokens: a token file does not hold what one must.
var ErrBadTokens = errors.New("unusable token file")

// ReadTokens reads a file of bearer tokens, one a line: two of them while one replaces the other. Empty lines and
// those that begin with # are skipped. The file's bytes never come up in an error.
//
// Errors: ErrBadTokens, and those of the reading.
func ReadTokens(file string) ([]string, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("token file: %w", err)
	}
	return readTokens(file, string(b))
}

// readTokens reads what a token file holds.
func readTokens(file, text string) ([]string, error) {
	var tokens []string
	line := 0
	for t := range strings.SplitSeq(text, "\n") {
		line++
		t = strings.TrimSpace(t)
		if t == "" || t[0] == '#' {
			continue
		}
		if err := checkToken(t); err != nil {
			return nil, fmt.Errorf("%w: %s, line %d: %w", ErrBadTokens, file, line, err)
		}
		tokens = append(tokens, t)
	}
	switch {
	case len(tokens) == 0:
		return nil, fmt.Errorf("%w: %s holds no token: write one of %d characters or more into it", ErrBadTokens, file, MinTokenBytes)
	case len(tokens) > maxTokens:
		return nil, fmt.Errorf("%w: %s holds %d tokens; %d at most", ErrBadTokens, file, len(tokens), maxTokens)
	}
	return tokens, nil
}

func checkToken(t string) error {
	switch {
	case len(t) < MinTokenBytes:
		return fmt.Errorf("a token of %d characters is too short: %d at least", len(t), MinTokenBytes)
	case len(t) > MaxTokenBytes:
		return fmt.Errorf("a token of %d characters is too long: %d at most", len(t), MaxTokenBytes)
	}
	for _, c := range []byte(t) {
		if c <= ' ' || c > '~' {
			return errors.New("a token is made of visible ASCII characters, without spaces")
		}
	}
	return nil
}

// admits tells whether the request may pass. Every token is compared, each in constant time and by its hash, so that the
// answer's time tells neither which one was near nor how long it is.
func (g *Guard) admits(r *http.Request) bool {
	if g.certificates && r.TLS != nil && len(r.TLS.VerifiedChains) > 0 {
		return true
	}
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	given := sha256.Sum256([]byte(strings.TrimSpace(token)))
	match := 0
	if g.tokens != nil {
		for _, t := range g.tokens() {
			one := sha256.Sum256([]byte(t))
			match |= subtle.ConstantTimeCompare(given[:], one[:])
		}
	}
	return strings.EqualFold(scheme, "Bearer") && match == 1
}

// guarded refuses what the guard does not admit, before anything of the request but its head is looked at.
func guarded(g *Guard, next http.Handler) http.Handler {
	if g == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if isProbe(r) || g.admits(r) {
			next.ServeHTTP(w, r)
			return
		}
		w.Header().Set("WWW-Authenticate", `Bearer realm="nova"`)
		what := "send a bearer token of the server's token file (Authorization: Bearer …; novad: --token-file or NOVA_TOKEN_FILE)"
		switch {
		case g.certificates && g.tokens == nil:
			what = "connect with a client certificate that the server's --tls-client-ca signed (novad: --tls-cert and --tls-key)"
		case g.certificates:
			what += ", or connect with a client certificate"
		}
		writeProblem(w, problem(http.StatusUnauthorized, ProblemUnauthorized, "Not authorised", "this server wants to know who asks: %s", what))
	})
}
