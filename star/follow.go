package star

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/nova-store/nova/catalog"
	"github.com/nova-store/nova/clock"
)

// The poll of a followed stream's head: from this interval after news up to that one.
const (
	pollFirst = 50 * time.Millisecond
	pollMost  = time.Second
)

// follows are the streams that somebody follows. Whatever the number of a
// stream's followers, one task polls its head, for the records that other stars append;
// what this star absorbs it is told at once. Neither is more than a hint that a read
// may find something: what it finds the store's records say, so that a lost or a
// late hint costs time and nothing else.
type follows struct {
	most  int
	polls *clock.Group

	mu      sync.Mutex
	closed  bool
	count   int // followers of all streams
	streams map[catalog.StreamID]*watch
}

// watch is one followed stream. What changes is guarded by follows.mu.
type watch struct {
	stream    catalog.StreamID
	news      *clock.Signal // raised after each change of next and gone
	stop      context.CancelFunc
	followers int
	next      uint64 // largest next offset known
	gone      error  // why there will be no more
}

func (f *follows) init(clk clock.Clock, most int) {
	f.most = most
	f.polls = clock.NewGroup(clk, 0)
	f.streams = make(map[catalog.StreamID]*watch)
}

// Follower waits for the records of one stream. It must be closed.
type Follower struct {
	s *Star
	w *watch
}

// Follow begins to follow a stream, which the caller has just read. The poll lives until the last of
// a stream's followers is closed, whatever becomes of ctx.
//
// Errors: [ErrOverloaded], where as many follow as may; [ErrShuttingDown].
func (s *Star) Follow(ctx context.Context, id catalog.StreamID) (*Follower, error) {
	f := &s.follows
	polling, stop := s.clk.WithCancel(context.WithoutCancel(ctx)) // of a poll, should it begin one
	f.mu.Lock()
	switch {
	case f.closed:
		f.mu.Unlock()
		stop()
		return nil, ErrShuttingDown
	case f.count >= f.most:
		f.mu.Unlock()
		stop()
		return nil, fmt.Errorf("%w: %d readers follow streams, as many as may", ErrOverloaded, f.most)
	}
	f.count++
	w := f.streams[id]
	begins := w == nil
	if begins {
		w = &watch{stream: id, news: clock.NewSignal(s.clk), stop: stop}
		f.streams[id] = w
	}
	w.followers++
	f.mu.Unlock()
	if !begins {
		stop()
		return &Follower{s, w}, nil
	}
	// The group has no limit: it neither waits nor fails.
	_ = f.polls.Go(polling, "star.poll", func(ctx context.Context) error {
		s.poll(ctx, w)
		return nil
	})
	return &Follower{s, w}, nil
}

// Wait returns nil once the stream's next offset is beyond next, so that there is, or was, a record
// at next. Errors: [catalog.ErrNoStream] once the stream is deleted; [ErrShuttingDown] once
// the star ends waits; ctx's error.
func (f *Follower) Wait(ctx context.Context, next uint64) error {
	for {
		gen := f.w.news.Generation()
		f.s.follows.mu.Lock()
		known, gone := f.w.next, f.w.gone
		f.s.follows.mu.Unlock()
		switch {
		case gone != nil:
			return gone
		case known > next:
			return nil
		}
		if err := f.w.news.Wait(ctx, gen); err != nil {
			return err
		}
	}
}

// Close ends the following; the last one of a stream ends its poll. It may be called once.
func (f *Follower) Close() {
	all := &f.s.follows
	all.mu.Lock()
	all.count--
	f.w.followers--
	last := f.w.followers == 0
	if last && all.streams[f.w.stream] == f.w {
		delete(all.streams, f.w.stream)
	}
	all.mu.Unlock()
	if last {
		f.w.stop()
	}
}

// EndFollows ends all waits of followers, and refuses new ones: the process is about to stop, and its
// clients should go elsewhere.
func (s *Star) EndFollows() {
	f := &s.follows
	f.mu.Lock()
	f.closed = true
	ids := slices.Sorted(maps.Keys(f.streams))
	ended := make([]*watch, 0, len(ids))
	for _, id := range ids {
		w := f.streams[id]
		w.gone = ErrShuttingDown
		ended = append(ended, w)
	}
	clear(f.streams)
	f.mu.Unlock()
	for _, w := range ended {
		w.stop()
		w.news.Raise()
	}
}

// advanced tells the followers of a stream of its next offset, and returns whether that was
// news.
func (f *follows) advanced(id catalog.StreamID, next uint64) bool {
	f.mu.Lock()
	w := f.streams[id]
	news := w != nil && next > w.next
	if news {
		w.next = next
	}
	f.mu.Unlock()
	if news {
		w.news.Raise()
	}
	return news
}

// end tells a stream's followers that there will be no more. Who comes later looks
// for himself.
func (f *follows) end(w *watch, err error) {
	f.mu.Lock()
	if w.gone == nil {
		w.gone = err
	}
	if f.streams[w.stream] == w {
		delete(f.streams, w.stream)
	}
	f.mu.Unlock()
	w.news.Raise()
}

// poll is the task that looks at a followed stream's head.
func (s *Star) poll(ctx context.Context, w *watch) {
	for delay := pollFirst; ; delay = min(2*delay, pollMost) {
		if s.clk.Sleep(ctx, clock.Jitter(s.clk, delay)) != nil {
			return
		}
		view, err := s.cat.ReadStream(ctx, w.stream)
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			if s.follows.advanced(w.stream, view.Head.Next) {
				delay = pollFirst / 2 // which the loop doubles
			}
		case !transient(err): // deleted, or unreadable
			s.follows.end(w, err)
			return
		}
	}
}
