package api

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/nova-store/nova/api/service"
	"github.com/nova-store/nova/catalog"
	"github.com/nova-store/nova/star"
)

// A stream is followed as server-sent events. Each record is an event of type record, whose data is the
// record as in JSON and whose id names it; so a client that comes back with Last-Event-ID goes on behind
// it, of the very same stream: one that was deleted and made anew is not found. An event of type problem, whose
// data is a problem document, is the last one. Comments keep an idle connection alive.
const (
	heartbeat = 15 * time.Second
	// eventsTimeout is how long a client may take to accept what is written at once, 64 KiB at most, before
	// it is cut off.
	eventsTimeout = 30 * time.Second
)

// eventID names a record of a stream.
func eventID(stream catalog.StreamID, offset uint64) string {
	return stream.String() + "-" + strconv.FormatUint(offset, 10)
}

// parseEventID reads what eventID gives, as the stream and the position behind the record.
func parseEventID(id string) (stream string, from service.Position, err error) {
	bad := fmt.Errorf("%w: Last-Event-ID %q is not the id of an event of this server", star.ErrBadRequest, id)
	hex, offset, ok := strings.Cut(id, "-")
	n, err := strconv.ParseUint(hex, 16, 64)
	if !ok || err != nil || catalog.StreamID(n).String() != hex {
		return "", service.Position{}, bad
	}
	at, err := strconv.ParseUint(offset, 10, 64)
	if err != nil || at+1 == 0 {
		return "", service.Position{}, bad
	}
	return service.ByID(catalog.StreamID(n)), service.FromOffset(at + 1), nil
}

// follow answers with events until the client leaves, the limit is reached, the server stops or the stream ends. What fails
// before the first event is an ordinary answer.
func (s *server) follow(ctx context.Context, in *readInput, req service.ReadRequest) (*huma.StreamResponse, error) {
	if in.LastEventID != "" {
		var err error
		if req.Stream, req.From, err = parseEventID(in.LastEventID); err != nil {
			return nil, err
		}
	}
	first, release, err := s.page(ctx, req, s.pages.TryAcquire)
	if err != nil {
		return nil, err
	}
	follower, err := s.svc.Follow(ctx, first.Stream)
	if err != nil {
		release()
		return nil, err
	}
	return &huma.StreamResponse{Body: func(hc huma.Context) {
		defer follower.Close()
		_, w := humago.Unwrap(hc)
		e := newEvents(w, first.Stream)
		hc.SetHeader("Content-Type", TypeEvents)
		hc.SetHeader("Cache-Control", "no-store")
		hc.SetHeader("X-Accel-Buffering", "no") // or a proxy would hold events back
		hc.SetHeader(HeaderStreamID, first.Stream.String())
		hc.SetStatus(http.StatusOK)
		err := s.events(hc.Context(), e, follower, first, release, req, in.Limit)
		switch {
		case err == nil, hc.Context().Err() != nil:
		case errors.Is(err, star.ErrShuttingDown):
			err = e.comment("the server stops")
		case errors.Is(err, errNotDelivered):
		default:
			var p *Problem
			if errors.As(s.fail(hc.Context(), "follow", err), &p) {
				err = e.problem(p)
			}
		}
		if err != nil {
			s.log.DebugContext(hc.Context(), "answer not delivered", "operation", "follow", "error", err)
		}
	}}, nil
}

// events writes the records from a first page on; limit is above 0 or there is none.
func (s *server) events(ctx context.Context, e *events, follower *star.Follower, page service.ReadResult, release func(), req service.ReadRequest, limit int) error {
	req.Stream = service.ByID(page.Stream)
	left := limit
	for {
		for _, r := range page.Records {
			if err := e.record(r); err != nil {
				release()
				return err
			}
		}
		release()
		if left -= len(page.Records); limit > 0 && left <= 0 {
			return e.flush()
		}
		if err := e.comment("next " + strconv.FormatUint(page.Next, 10)); err != nil {
			return err
		}
		for page.Next == page.End {
			waiting, cancel := context.WithTimeout(ctx, heartbeat)
			err := follower.Wait(waiting, page.Next)
			cancel()
			if err == nil {
				break
			}
			if ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded) {
				return err
			}
			if err := e.comment("alive"); err != nil {
				return err
			}
		}
		req.From, req.MaxRecords = service.FromOffset(page.Next), max(left, 0)
		var err error
		page, release, err = s.page(ctx, req, func(n int64) bool { return s.pages.Acquire(ctx, n) == nil })
		if err != nil {
			return err
		}
	}
}

// errNotDelivered: the client did not take what was written.
var errNotDelivered = errors.New("not delivered")

// events writes server-sent events, each write with a deadline of its own.
type events struct {
	buf    *bufio.Writer
	conn   *http.ResponseController
	stream catalog.StreamID
}

func newEvents(w http.ResponseWriter, stream catalog.StreamID) *events {
	e := &events{conn: http.NewResponseController(w), stream: stream}
	e.buf = bufio.NewWriterSize(timedWriter{w, e.conn}, 64<<10)
	// The server's bound of a request's time is not for this one. Where there is no connection to
	// bound, as in a test, nothing is.
	_ = e.conn.SetReadDeadline(time.Time{})
	return e
}

func (e *events) record(r service.Record) error {
	data, err := json.Marshal(recordOf(r))
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(e.buf, "id: %s\nevent: record\ndata: %s\n\n", eventID(e.stream, r.Offset), data)
	return delivered(err)
}

func (e *events) problem(p *Problem) error {
	data, err := json.Marshal(p)
	if err != nil {
		return err
	}
	fmt.Fprintf(e.buf, "event: problem\ndata: %s\n\n", data)
	return e.flush()
}

func (e *events) comment(text string) error {
	fmt.Fprintf(e.buf, ": %s\n\n", text)
	return e.flush()
}

// flush sends what is written; an error of an earlier write shows here, too.
func (e *events) flush() error {
	if err := e.buf.Flush(); err != nil {
		return delivered(err)
	}
	return delivered(e.conn.Flush())
}

func delivered(err error) error {
	if err != nil {
		return fmt.Errorf("%w: %w", errNotDelivered, err)
	}
	return nil
}

// timedWriter gives each write its deadline.
type timedWriter struct {
	w    io.Writer
	conn *http.ResponseController
}

func (t timedWriter) Write(b []byte) (int, error) {
	_ = t.conn.SetWriteDeadline(time.Now().Add(eventsTimeout))
	return t.w.Write(b)
}
