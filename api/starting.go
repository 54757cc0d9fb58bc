package api

import (
	"io"
	"net/http"
)

// Starting is what a node answers before it serves: /livez as ever, /readyz and all else with 503 and what it waits for. It tells
// nobody anything else, and needs no guard.
func Starting(what func() string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/livez" && (r.Method == http.MethodGet || r.Method == http.MethodHead) {
			w.Header().Set("Content-Type", TypeJSON)
			_, _ = io.WriteString(w, `{"status":"ok"}`+"\n")
			return
		}
		w.Header().Set("Retry-After", "1")
		writeProblem(w, problem(http.StatusServiceUnavailable, ProblemUnavailable, "Starting", "the node starts: %s", what()))
	})
}
