package main

import (
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"
)

// reloadEvery is how often files that may be replaced while a server runs are looked at, at most.
const reloadEvery = 2 * time.Second

// reloaded is what some files hold, read again when one of them changed. While they are unreadable, as where one of a
// pair was replaced and the other not yet, what they held before stays in use, and that is told once for each change.
type reloaded[T any] struct {
	what  string // of the logs
	files []string
	load  func() (T, error)
	now   func() time.Time
	log   *slog.Logger

	mu     sync.Mutex
	looked time.Time
	state  string // of the files when they were read last
	value  T
}

// reload reads the files for the first time.
func reload[T any](what string, log *slog.Logger, now func() time.Time, load func() (T, error), files ...string) (*reloaded[T], error) {
	r := &reloaded[T]{what: what, files: files, load: load, now: now, log: log}
	r.looked, r.state = now(), r.stat()
	var err error
	r.value, err = load()
	return r, err
}

// get returns what the files hold, or held last.
func (r *reloaded[T]) get() T {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.now()
	if now.Sub(r.looked) < reloadEvery {
		return r.value
	}
	r.looked = now
	// The state comes first: what changes while it is read is another state at the next look.
	state := r.stat()
	if state == r.state {
		return r.value
	}
	r.state = state
	value, err := r.load()
	if err != nil {
		r.log.Warn("what was replaced can't be used, and what was there before stays in use", "what", r.what, "files", strings.Join(r.files, " "), "error", err)
		return r.value
	}
	r.value = value
	r.log.Info("read again, since it was replaced", "what", r.what, "files", strings.Join(r.files, " "))
	return r.value
}

// stat tells one content of the files from another, as far as their times and sizes do.
func (r *reloaded[T]) stat() string {
	var b strings.Builder
	for _, file := range r.files {
		fi, err := os.Stat(file)
		if err != nil {
			fmt.Fprintln(&b, err)
			continue
		}
		fmt.Fprintln(&b, fi.ModTime().UnixNano(), fi.Size())
	}
	return b.String()
}
