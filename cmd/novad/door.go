package main

import (
	"crypto/tls"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"sync/atomic"

	"github.com/nova-store/nova/api"
)

// door is the listener of a node and what is answered there: that the node starts, and then its interface.
type door struct {
	address net.Addr
	srv     *http.Server
	served  chan error // what the server's end was

	behind  atomic.Pointer[http.Handler]
	waiting atomic.Pointer[string]
}

// openDoor begins to answer, over TLS where that is given.
func openDoor(l net.Listener, secure *tls.Config, log *slog.Logger) *door {
	d := &door{address: l.Addr(), served: make(chan error, 1)}
	d.wait("it opens its metadata and its bucket")
	d.open(api.Starting(func() string { return *d.waiting.Load() }))
	d.srv = newHTTPServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { (*d.behind.Load()).ServeHTTP(w, r) }), log, defaultHTTPLimits())
	d.srv.TLSConfig = secure
	go func() {
		if secure != nil {
			d.served <- d.srv.ServeTLS(l, "", "")
			return
		}
		d.served <- d.srv.Serve(l)
	}()
	return d
}

// wait says what the node waits for.
func (d *door) wait(what string) { d.waiting.Store(&what) }

// open puts the interface behind the door.
func (d *door) open(h http.Handler) { d.behind.Store(&h) }

// profileHandler serves the runtime's profiles, as the package does on a mux that this process does not serve.
func profileHandler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	return mux
}
