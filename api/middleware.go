package api

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/nova-store/nova/catalog"
)

const streamsPrefix = "/v1/streams/"

// wholeNames encodes the name in a path once more, for nameOf to decode. ServeMux decodes segments
// before it matches them, and takes %2F for the path's end: a stream of the name / would
// have no path.
func wholeNames(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rest, ok := strings.CutPrefix(r.URL.EscapedPath(), streamsPrefix)
		name, tail, more := strings.Cut(rest, "/")
		if ok && (name == "." || name == ".." || name == "" && more) {
			// ServeMux would clean the path and send the client to another stream.
			p, _ := problemOf(catalog.CheckStreamName(name))
			writeProblem(w, p)
			return
		}
		if !ok || !strings.Contains(name, "%") {
			next.ServeHTTP(w, r)
			return
		}
		u := *r.URL
		u.RawPath = streamsPrefix + url.PathEscape(name)
		if more {
			u.RawPath += "/" + tail
		}
		var err error
		if u.Path, err = url.PathUnescape(u.RawPath); err != nil {
			writeProblem(w, problem(http.StatusBadRequest, ProblemBadRequest, "Invalid request", "the path is not percent-encoded: %v", err))
			return
		}
		inner := *r
		inner.URL = &u
		next.ServeHTTP(w, &inner)
	})
}

// nameOf is the stream's name, of its segment in the path.
func nameOf(segment string) (string, error) {
	name, err := url.PathUnescape(segment)
	if err != nil {
		return "", fmt.Errorf("%w: stream name %q: %w", errSyntax, segment, err)
	}
	return name, nil
}

// problemsOnly answers with problem documents where the mux itself would answer in
// plain text: for paths and methods that no operation has.
func problemsOnly(mux *http.ServeMux) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h, pattern := mux.Handler(r)
		if pattern != "" {
			mux.ServeHTTP(w, r)
			return
		}
		said := &statusWriter{ResponseWriter: discard{w.Header()}}
		h.ServeHTTP(said, r)
		if said.status >= 300 && said.status < 400 {
			w.WriteHeader(said.status) // the cleaned path is in the headers
			return
		}
		p := problem(http.StatusNotFound, ProblemNoRoute, "Not found",
			"there is nothing at this path; /v1/openapi.json lists what there is (a stream's name is percent-encoded, as one segment)")
		if said.status == http.StatusMethodNotAllowed {
			p = problem(said.status, ProblemMethod, "Method not allowed", "the path takes %s, not %s", w.Header().Get("Allow"), r.Method)
		}
		writeProblem(w, p)
	})
}

func writeProblem(w http.ResponseWriter, p *Problem) {
	w.Header().Set("Content-Type", TypeProblem)
	w.Header().Del("X-Content-Type-Options")
	w.WriteHeader(p.Status)
	// The status is sent: an error here is the client's connection, which nobody is left to tell about.
	_ = json.NewEncoder(w).Encode(p)
}

// discard keeps the headers of an answer only.
type discard struct{ h http.Header }

func (d discard) Header() http.Header         { return d.h }
func (d discard) Write(b []byte) (int, error) { return len(b), nil }
func (d discard) WriteHeader(int)             {}

// statusWriter notes the status and the size of an answer.
type statusWriter struct {
	http.ResponseWriter
	status int
	bytes  int64
}

func (w *statusWriter) WriteHeader(status int) {
	if w.status == 0 {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *statusWriter) Write(b []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	n, err := w.ResponseWriter.Write(b)
	w.bytes += int64(n)
	return n, err
}

// Unwrap lets http.ResponseController reach the connection.
func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// logged logs each request at level debug.
func (s *server) logged(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		began := time.Now()
		sw := &statusWriter{ResponseWriter: w}
		next.ServeHTTP(sw, r)
		s.log.DebugContext(r.Context(), "request", "method", r.Method, "path", r.URL.EscapedPath(),
			"status", sw.status, "bytes", sw.bytes, "elapsed", time.Since(began))
	})
}
