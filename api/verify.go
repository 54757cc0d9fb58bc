package api

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"reflect"
	"strconv"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/nova-store/nova/verify"
)

// VerifyEvent is a line of the answer to a verify: progress again and again, then, last, the
// report or why there is none.
type VerifyEvent struct {
	Progress *verify.Progress `json:"progress,omitempty" doc:"How far it is."`
	Report   *verify.Report   `json:"report,omitempty" doc:"What was found. The last line."`
	Error    string           `json:"error,omitempty" doc:"Why it could not be finished. The last line."`
}

// verifyLineTimeout bounds how long one line may take to be taken by the client.
const verifyLineTimeout = time.Minute

type verifyInput struct {
	Abreast int `query:"abreast" minimum:"0" maximum:"64" doc:"Objects read at once, at most; 0 is the default, 4."`
}

func (s *server) registerVerify(h huma.API) {
	op := operation(h, "verify", http.MethodGet, "/v1/verify", "Check everything",
		"Reads all records and all recorded objects, and says what is amiss. It takes as long as reading everything does; the answer's lines tell how far it is. One runs at a time.",
		http.StatusUnprocessableEntity, http.StatusTooManyRequests, http.StatusNotFound)
	op.Responses["200"] = &huma.Response{
		Description: "Lines of JSON.",
		Content: map[string]*huma.MediaType{
			TypeNDJSON: {Schema: h.OpenAPI().Components.Schemas.Schema(reflect.TypeFor[VerifyEvent](), true, "VerifyEvent")},
		},
	}
	huma.Register(h, op, func(ctx context.Context, in *verifyInput) (*huma.StreamResponse, error) {
		switch {
		case s.verify == nil:
			return nil, problem(http.StatusNotFound, ProblemNoRoute, "Not found", "this server has no verify")
		case !s.checks.TryAcquire(1):
			return nil, problem(http.StatusTooManyRequests, ProblemVerifying, "Verify is running",
				"this server is being verified already: try again when that is done")
		}
		return &huma.StreamResponse{Body: func(hc huma.Context) {
			free := sync.OnceFunc(func() { s.checks.Release(1) })
			defer free()
			s.streamVerify(hc, in.Abreast, free)
		}}, nil
	})
}

// streamVerify answers with lines. It calls free before the last one: who has read that may ask for the next verify.
func (s *server) streamVerify(hc huma.Context, abreast int, free func()) {
	_, w := humago.Unwrap(hc)
	hc.SetHeader("Content-Type", TypeNDJSON)
	hc.SetStatus(http.StatusOK)
	control, lines := http.NewResponseController(w), json.NewEncoder(w)
	send := func(e VerifyEvent) error {
		// The server's own limit on writing an answer is for answers that are short.
		err := control.SetWriteDeadline(time.Now().Add(verifyLineTimeout))
		if errors.Is(err, http.ErrNotSupported) {
			err = nil
		}
		return errors.Join(err, lines.Encode(e), control.Flush())
	}
	ctx, cancel := context.WithCancel(hc.Context())
	defer cancel()
	rep, err := s.verify(ctx, verify.Options{Abreast: abreast, Progress: func(p verify.Progress) {
		if send(VerifyEvent{Progress: &p}) != nil {
			cancel() // nobody listens
		}
	}})
	free()
	last := VerifyEvent{Report: &rep}
	if err != nil {
		s.log.WarnContext(ctx, "verify did not finish", "error", err)
		last = VerifyEvent{Error: err.Error()}
	} else if rep.Amiss > 0 {
		s.log.ErrorContext(ctx, "verify found something amiss", "findings", rep.Amiss, "first_kind", string(rep.Findings[0].Kind), "first_key", rep.Findings[0].Key)
	}
	if err := send(last); err != nil {
		s.log.DebugContext(ctx, "answer not delivered", "operation", "verify", "error", err)
	}
}

// maxVerifyLine bounds a line of the answer: a report holds a thousand findings at most.
const maxVerifyLine = 16 << 20

// Verify has the server check everything, at most abreast (0: its default) objects at once, and
// calls progress, if not nil, as it goes on.
func (c *Client) Verify(ctx context.Context, abreast int, progress func(verify.Progress)) (verify.Report, error) {
	q := url.Values{}
	if abreast > 0 {
		q.Set("abreast", strconv.Itoa(abreast))
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.server+"/v1/verify?"+q.Encode(), nil)
	if err != nil {
		return verify.Report{}, fmt.Errorf("verify: %w", err)
	}
	resp, err := c.roundTrip(req)
	if err != nil {
		return verify.Report{}, c.unreachable(ctx, err)
	}
	defer resp.Body.Close()
	a := &answer{server: c.server}
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, maxVerifyLine)
	for lines.Scan() {
		if resp.StatusCode != http.StatusOK {
			p := &Problem{}
			if err := json.Unmarshal(lines.Bytes(), p); err != nil || p.Type == "" {
				return verify.Report{}, a.unreadable(fmt.Errorf("%s without a problem document", resp.Status))
			}
			return verify.Report{}, p
		}
		var e VerifyEvent
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			return verify.Report{}, a.unreadable(err)
		}
		switch {
		case e.Report != nil:
			return *e.Report, nil
		case e.Error != "":
			return verify.Report{}, errors.New(e.Error)
		case e.Progress != nil && progress != nil:
			progress(*e.Progress)
		}
	}
	if err := lines.Err(); err != nil {
		return verify.Report{}, c.unreachable(ctx, err)
	}
	return verify.Report{}, a.unreadable(errors.New("it ends before the report"))
}
