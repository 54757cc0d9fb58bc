package main

import (
	"log/slog"
	"net/http"
	"time"
)

// httpLimits are what a slow or hostile client can hold of a server, at most.
type httpLimits struct {
	Head      time.Duration // until a request's head is read
	Read      time.Duration // until its body is read; following a stream lifts it
	Write     time.Duration // until the answer is taken; following a stream has bounds of its own
	Idle      time.Duration // between two requests of one connection
	HeadBytes int           // of a request's head, and the standard library's 4 KiB; beyond it the answer is 431
}

func defaultHTTPLimits() httpLimits {
	return httpLimits{Head: 10 * time.Second, Read: 2 * time.Minute, Write: 5 * time.Minute, Idle: 2 * time.Minute, HeadBytes: 64 << 10}
}

// newHTTPServer returns a server that cuts slow clients off.
func newHTTPServer(h http.Handler, log *slog.Logger, limits httpLimits) *http.Server {
	return &http.Server{
		Handler:           h,
		ReadHeaderTimeout: limits.Head,
		ReadTimeout:       limits.Read,
		WriteTimeout:      limits.Write,
		IdleTimeout:       limits.Idle,
		MaxHeaderBytes:    limits.HeadBytes,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	}
}
