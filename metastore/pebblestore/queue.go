package pebblestore

import (
	"context"
	"fmt"
	"runtime"
	"sync"

	"github.com/nova-store/nova/metastore"
)

// request is a call that waits for the committer: a commit, or the opening or
// the end of a session.
type request struct {
	kind  requestKind
	batch metastore.Batch
	bytes int

	// session is the one to be ended, or, in the answer, the one that was opened.
	session metastore.SessionID

	// judged and givenUp are guarded by committer.mu: whether the committer has
	// taken the request, and whether its caller has left.
	judged  bool
	givenUp bool

	version metastore.Version
	err     error
	// done gets a token once version, session and err hold the answer.
	done chan struct{}
}

// answer is called once.
func (r *request) answer(err error) {
	r.err = err
	r.done <- struct{}{}
}

type requestKind uint8

const (
	requestCommit requestKind = iota
	requestOpenSession
	requestEndSession
)

// maxGroupBytes bounds the sum of the batches of a group of more than one.
const maxGroupBytes = 1 << 20

// queue holds the requests that the committer has not taken yet.
type queue struct {
	mu      sync.Mutex
	waiting []*request
	closed  error
	// wake holds a token while there may be something to do.
	wake chan struct{}
}

func (q *queue) push(r *request) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed != nil {
		return q.closed
	}
	q.waiting = append(q.waiting, r)
	q.signal()
	return nil
}

// ended returns why the queue takes no more requests, nil while it does.
func (q *queue) ended() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.closed
}

func (q *queue) signal() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// close refuses all later requests with err, and ends the committer.
func (q *queue) close(err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed == nil {
		q.closed = err
	}
	q.signal()
}

// take returns the requests of the next group: at least one, and then as many as
// stay within maxGroupBytes. It waits for the first. Once the queue is closed
// it returns those that never began, and why.
func (q *queue) take() ([]*request, error) {
	q.gather()
	q.mu.Lock()
	defer q.mu.Unlock()
	n, bytes := 0, 0
	for ; n < len(q.waiting); n++ {
		if bytes += q.waiting[n].bytes; bytes > maxGroupBytes && n > 0 && q.closed == nil {
			break
		}
	}
	taken := q.waiting[:n:n]
	q.waiting = q.waiting[n:]
	return taken, q.closed
}

// gather waits for the first request, and then lets those go ahead that are about to come:
// callers that were just answered tend to call again at once. Without it a
// few of them would make a group of their own, and the others wait for one more sync.
func (q *queue) gather() {
	for before := 0; ; {
		q.mu.Lock()
		n, closed := len(q.waiting), q.closed
		q.mu.Unlock()
		switch {
		case closed != nil || n > 0 && n == before:
			return
		case n == 0:
			<-q.wake
		default:
			before = n
			runtime.Gosched()
		}
	}
}

// call has the committer do r and waits for the answer, which is then in r. When
// ctx ends before the committer took it, nothing happened and the error is the context's;
// afterwards it is ErrUnknown. Either way the committer no longer looks
// at the caller's slices when call returns.
func (s *Store) call(ctx context.Context, r *request) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	r.done = make(chan struct{}, 1)
	if err := s.queue.push(r); err != nil {
		return err
	}
	select {
	case <-r.done:
		return r.err
	case <-ctx.Done():
	}
	s.committer.mu.Lock()
	r.givenUp = true
	judged := r.judged
	s.committer.mu.Unlock()
	if !judged {
		return ctx.Err()
	}
	select {
	case <-r.done:
		return r.err
	default:
		// Not wrapped: whoever looks for the context's error takes it for "nothing happened".
		return fmt.Errorf("%w: %v", metastore.ErrUnknown, ctx.Err())
	}
}
