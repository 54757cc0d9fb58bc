package api

import (
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// What a web page could make a browser do. A browser sends what a page of anybody's tells it to, also to this machine's own addresses, and
// with the client certificates that it has; only the answers are kept from the page.
const (
	ProblemCrossOrigin = problemBase + "cross-origin-request"
	ProblemWrongHost   = problemBase + "wrong-host"
)

// sameOrigin refuses what a page of another origin had a browser send, where it could change something: by the header
// Sec-Fetch-Site, or by Origin, of which a page can forge neither. Programs send neither, and pass.
func sameOrigin(next http.Handler) http.Handler {
	c := http.NewCrossOriginProtection()
	c.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		writeProblem(w, problem(http.StatusForbidden, ProblemCrossOrigin, "Another origin", "a web page of another origin had this request sent, which this server does not take"))
	}))
	return c.Handler(next)
}

// loopbackHosts refuses requests that name a host which is not this machine for itself. A page whose name its owner makes
// resolve to 127.0.0.1 is of the same origin as what listens there: only the name tells. Probes pass, which may name any.
func loopbackHosts(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if isProbe(r) || loopbackHost(r.Host) {
			next.ServeHTTP(w, r)
			return
		}
		writeProblem(w, problem(http.StatusMisdirectedRequest, ProblemWrongHost, "Another host",
			"nothing guards this server, so that it answers to localhost and to loopback addresses alone, not to %q: start it with --auth-token-file, --tls-client-ca or --insecure", r.Host))
	})
}

// isProbe: the request asks for /livez or /readyz.
func isProbe(r *http.Request) bool { return r.URL.Path == "/livez" || r.URL.Path == "/readyz" }

func loopbackHost(host string) bool {
	name, _, err := net.SplitHostPort(host)
	if err != nil {
		name = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	}
	ip, err := netip.ParseAddr(name)
	return strings.EqualFold(name, "localhost") || err == nil && ip.IsLoopback()
}
