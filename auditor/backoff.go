package auditor

import (
	"sync"
	"time"
)

const (
	backoffFirst = 5 * time.Second
	backoffMost  = 5 * time.Minute
	// backoffMarkers bounds the markers remembered; beyond, those whose wait is over are forgotten.
	backoffMarkers = 4096
)

// backoff remembers which markers failed at this member, so that it does not offer
// them again at once: after 5 s, doubling to 5 min. It is memory alone; another
// member, or a restart, tries at once.
type backoff struct {
	mu sync.Mutex
	by map[string]failing
}

type failing struct {
	until time.Time
	wait  time.Duration
}

func newBackoff() *backoff { return &backoff{by: make(map[string]failing)} }

// failed notes a failure and returns how long the marker now rests.
func (b *backoff) failed(marker string, now time.Time) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.by) >= backoffMarkers {
		for k, f := range b.by {
			if !now.Before(f.until) {
				delete(b.by, k)
			}
		}
	}
	wait := backoffFirst
	if f, ok := b.by[marker]; ok {
		wait = min(2*f.wait, backoffMost)
	}
	if _, ok := b.by[marker]; ok || len(b.by) < backoffMarkers {
		b.by[marker] = failing{now.Add(wait), wait}
	}
	return wait
}

func (b *backoff) succeeded(marker string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.by, marker)
}

// rests tells whether the marker is not to be offered yet. A clock that went back
// does not lengthen the wait.
func (b *backoff) rests(marker string, now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	f, ok := b.by[marker]
	return ok && now.Before(f.until) && f.until.Sub(now) <= f.wait
}
