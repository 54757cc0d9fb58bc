package api

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"reflect"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/nova-store/nova/api/service"
	"github.com/nova-store/nova/catalog"
)

// Policy is a stream's retention. A record that it expires is never read again, and destroyed soon after.
type Policy struct {
	MaxAgeMS int64  `json:"max_age_ms,omitempty" minimum:"0" maximum:"3153600000000" doc:"How old a record gets before it is expired, in milliseconds; 0 or absent: no bound."`
	MaxBytes uint64 `json:"max_bytes,omitempty" maximum:"4611686018427387904" doc:"How many bytes of payload may lie behind a record before it is expired; 0 or absent: no bound."`
}

func policyOf(p service.Policy) Policy {
	return Policy{MaxAgeMS: p.MaxAge.Milliseconds(), MaxBytes: p.MaxBytes}
}

func (p Policy) service() service.Policy {
	return service.Policy{MaxAge: time.Duration(p.MaxAgeMS) * time.Millisecond, MaxBytes: p.MaxBytes}
}

// PolicyChange is the body of PATCH /v1/streams/{name}/policy.
type PolicyChange struct {
	MaxAgeMS *int64  `json:"max_age_ms,omitempty" minimum:"0" maximum:"3153600000000" doc:"How old a record gets before it is expired, in milliseconds; 0: no bound; absent: as it is."`
	MaxBytes *uint64 `json:"max_bytes,omitempty" maximum:"4611686018427387904" doc:"How many bytes of payload may lie behind a record before it is expired; 0: no bound; absent: as it is."`
}

func (c PolicyChange) service() service.PolicyChange {
	out := service.PolicyChange{MaxBytes: c.MaxBytes}
	if c.MaxAgeMS != nil {
		age := time.Duration(*c.MaxAgeMS) * time.Millisecond
		out.MaxAge = &age
	}
	return out
}

// Stream describes a stream.
type Stream struct {
	Name        string    `json:"name" doc:"The stream's name."`
	ID          string    `json:"id" doc:"The stream's id: 16 hex digits, never given to another stream."`
	Created     time.Time `json:"created" doc:"When the stream was made."`
	Policy      Policy    `json:"policy" doc:"What of it is kept."`
	FirstOffset uint64    `json:"first_offset" doc:"The first readable offset; in a list, where a policy expires records, a bound below which none is readable."`
	NextOffset  uint64    `json:"next_offset" doc:"The offset that the next record gets."`
	Bytes       uint64    `json:"bytes" doc:"Payload of the readable records, and at most of those that are stored together with the first of them."`
}

func streamOf(i service.StreamInfo) Stream {
	return Stream{Name: i.Name, ID: i.ID.String(), Created: i.Created, Policy: policyOf(i.Policy),
		FirstOffset: i.FirstOffset, NextOffset: i.NextOffset, Bytes: i.Bytes}
}

// CreateStreamRequest is the body of POST /v1/streams.
type CreateStreamRequest struct {
	Name   string  `json:"name" doc:"1 to 200 bytes of UTF-8 without '!', '~' and control characters, not \".\" or \"..\", nor id: and 16 hex digits."`
	Policy *Policy `json:"policy,omitempty" doc:"What is to be kept; absent: everything, or what an existing stream keeps."`
}

// StreamList is the body of GET /v1/streams.
type StreamList struct {
	Streams []Stream `json:"streams"`
	More    bool     `json:"more" doc:"There are further ones: ask again with after = the last name."`
}

// TrimRequest is the body of POST /v1/streams/{name}/trim.
type TrimRequest struct {
	Before uint64 `json:"before" doc:"The first offset that stays readable; the stream's next offset at most."`
}

// DeletedStream is the answer to DELETE /v1/streams/{name}.
type DeletedStream struct {
	ID      string    `json:"id" doc:"The id of the stream that was deleted."`
	Deleted time.Time `json:"deleted" doc:"When."`
	Until   time.Time `json:"undelete_until" doc:"Until when its records are kept; they may be destroyed from then on. The same as deleted where the server keeps none."`
}

// PendingItem is one piece of background work.
type PendingItem struct {
	Queue   string     `json:"queue" doc:"The due queue: denorm, reap or gc."`
	Subject string     `json:"subject" doc:"An object's key, or the chain's coordinate star~epoch~slot of a batch."`
	Ready   *time.Time `json:"ready,omitempty" doc:"When it may be done; absent: now."`
	Bytes   uint64     `json:"bytes,omitempty" doc:"Bytes that it is about, of all streams; absent: not known."`
	Shared  bool       `json:"shared,omitempty" doc:"It concerns more streams than it could be attributed to, so that others' lists may lack it."`
	Damaged bool       `json:"damaged,omitempty" doc:"Some of what it needs can't be read."`
	Marker  string     `json:"marker" doc:"The key of its due marker."`
}

// PendingList is the body of GET /v1/streams/{name}/pending.
type PendingList struct {
	Items []PendingItem `json:"items"`
	More  bool          `json:"more" doc:"There are further ones than asked for."`
}

func pendingOf(items []service.PendingItem) []PendingItem {
	out := make([]PendingItem, 0, len(items))
	for _, i := range items {
		p := PendingItem{Queue: i.Queue, Subject: i.Subject, Bytes: i.Bytes, Shared: i.Shared, Damaged: i.Damaged, Marker: i.Key}
		if !i.Ready.IsZero() {
			p.Ready = &i.Ready
		}
		out = append(out, p)
	}
	return out
}

// streamInput names the stream of an operation.
type streamInput struct {
	Name string `path:"name" doc:"The stream's name, percent-encoded, or id: and its id."`
}

type streamOutput struct{ Body Stream }

func (s *server) registerStreams(h huma.API) {
	s.registerCreate(h)
	s.registerList(h)
	one := func(id, method, path, summary, description string, more ...int) huma.Operation {
		return operation(h, id, method, "/v1/streams/{name}"+path, summary, description,
			append([]int{http.StatusBadRequest, http.StatusNotFound, http.StatusUnprocessableEntity, http.StatusServiceUnavailable}, more...)...)
	}
	// described answers with the stream as an operation left it.
	described := func(ctx context.Context, op, segment string, f func(name string) (service.StreamInfo, error)) (*streamOutput, error) {
		name, err := nameOf(segment)
		if err != nil {
			return nil, s.fail(ctx, op, err)
		}
		info, err := f(name)
		if err != nil {
			return nil, s.fail(ctx, op, err)
		}
		return &streamOutput{Body: streamOf(info)}, nil
	}

	huma.Register(h, one("get-stream", http.MethodGet, "", "Describe a stream", "As it is now, whichever star appended last."),
		func(ctx context.Context, in *streamInput) (*streamOutput, error) {
			return described(ctx, "get-stream", in.Name, func(name string) (service.StreamInfo, error) { return s.svc.Stream(ctx, name) })
		})

	type putInput struct {
		Name string `path:"name" doc:"The stream's name, percent-encoded, or id: and its id."`
		Body Policy
	}
	huma.Register(h, one("put-policy", http.MethodPut, "/policy", "Replace a stream's policy",
		"What the old policy expired stays unreadable."),
		func(ctx context.Context, in *putInput) (*streamOutput, error) {
			whole := PolicyChange{MaxAgeMS: &in.Body.MaxAgeMS, MaxBytes: &in.Body.MaxBytes}
			return described(ctx, "put-policy", in.Name, func(name string) (service.StreamInfo, error) {
				return s.svc.SetPolicy(ctx, name, whole.service())
			})
		})

	type patchInput struct {
		Name string `path:"name" doc:"The stream's name, percent-encoded, or id: and its id."`
		Body PolicyChange
	}
	huma.Register(h, one("patch-policy", http.MethodPatch, "/policy", "Change a stream's policy",
		"What is absent stays as it is. What the old policy expired stays unreadable."),
		func(ctx context.Context, in *patchInput) (*streamOutput, error) {
			return described(ctx, "patch-policy", in.Name, func(name string) (service.StreamInfo, error) {
				return s.svc.SetPolicy(ctx, name, in.Body.service())
			})
		})

	type trimInput struct {
		Name string `path:"name" doc:"The stream's name, percent-encoded, or id: and its id."`
		Body TrimRequest
	}
	huma.Register(h, one("trim-stream", http.MethodPost, "/trim", "Trim a stream",
		"Makes all records below an offset unreadable, for ever. An offset at or below the first readable one changes nothing.",
		http.StatusRequestedRangeNotSatisfiable),
		func(ctx context.Context, in *trimInput) (*streamOutput, error) {
			return described(ctx, "trim-stream", in.Name, func(name string) (service.StreamInfo, error) {
				return s.svc.Trim(ctx, name, in.Body.Before)
			})
		})

	type deleteOutput struct{ Body DeletedStream }
	huma.Register(h, one("delete-stream", http.MethodDelete, "", "Delete a stream",
		"At once it cannot be read or appended to, and its name is free for another stream with another id. Keep the id: the name does not lead to it any more."),
		func(ctx context.Context, in *streamInput) (*deleteOutput, error) {
			name, err := nameOf(in.Name)
			if err != nil {
				return nil, s.fail(ctx, "delete-stream", err)
			}
			d, err := s.svc.DeleteStream(ctx, name)
			if err != nil {
				return nil, s.fail(ctx, "delete-stream", err)
			}
			return &deleteOutput{Body: DeletedStream{ID: d.ID.String(), Deleted: d.Deleted, Until: d.Until}}, nil
		})

	huma.Register(h, one("undelete-stream", http.MethodPost, "/undelete", "Undo the deletion of a stream",
		"By its id, as id:0123456789abcdef: the name does not lead to it any more. It has its name again and all that it had when it was deleted. "+
			"As long as its teardown has not begun, which it does once undelete_until is over. Of a stream that is not deleted nothing changes.",
		http.StatusConflict, http.StatusGone),
		func(ctx context.Context, in *streamInput) (*streamOutput, error) {
			return described(ctx, "undelete-stream", in.Name, func(name string) (service.StreamInfo, error) { return s.svc.UndeleteStream(ctx, name) })
		})

	type pendingInput struct {
		Name  string `path:"name" doc:"The stream's name, percent-encoded, or id: and its id."`
		Limit int    `query:"limit" minimum:"0" maximum:"1000" doc:"Items at most; 0 is the default, 100."`
	}
	type pendingOutput struct{ Body PendingList }
	huma.Register(h, one("list-pending", http.MethodGet, "/pending", "Background work of a stream",
		"What the auditor has still to do about a stream's data: batches to settle, objects to probe and to compact. By its id also of a stream that is deleted or gone."),
		func(ctx context.Context, in *pendingInput) (*pendingOutput, error) {
			name, err := nameOf(in.Name)
			if err != nil {
				return nil, s.fail(ctx, "list-pending", err)
			}
			items, more, err := s.svc.Pending(ctx, name, in.Limit)
			if err != nil {
				return nil, s.fail(ctx, "list-pending", err)
			}
			return &pendingOutput{Body: PendingList{Items: pendingOf(items), More: more}}, nil
		})
}

func (s *server) registerCreate(h huma.API) {
	type input struct {
		Body    CreateStreamRequest
		RawBody []byte
	}
	type output struct {
		Status   int
		Location string `header:"Location"`
		Body     Stream
	}
	op := operation(h, "create-stream", http.MethodPost, "/v1/streams", "Create a stream",
		"Idempotent: a stream of that name that exists already is found, with status 200 instead of 201. One whose policy is another than the one given is left as it is, with status 409.",
		http.StatusBadRequest, http.StatusConflict, http.StatusUnprocessableEntity, http.StatusServiceUnavailable)
	op.DefaultStatus = http.StatusCreated
	op.Responses["200"] = &huma.Response{
		Description: "It exists already.",
		Content:     map[string]*huma.MediaType{TypeJSON: {Schema: h.OpenAPI().Components.Schemas.Schema(reflect.TypeFor[Stream](), true, "Stream")}},
	}
	huma.Register(h, op, func(ctx context.Context, in *input) (*output, error) {
		if !wholeText(in.RawBody) {
			return nil, s.fail(ctx, "create-stream", fmt.Errorf("%w: %w", catalog.ErrBadName, errNotText))
		}
		var policy *service.Policy
		if in.Body.Policy != nil {
			p := in.Body.Policy.service()
			policy = &p
		}
		info, created, err := s.svc.CreateStream(ctx, in.Body.Name, policy)
		if err != nil {
			return nil, s.fail(ctx, "create-stream", err)
		}
		out := &output{Status: http.StatusOK, Location: streamPath(info.Name), Body: streamOf(info)}
		if created {
			out.Status = http.StatusCreated
		}
		return out, nil
	})
	// huma takes the raw body, which is looked at beside the decoded one, for a second media type.
	delete(h.OpenAPI().Paths[op.Path].Post.RequestBody.Content, TypeRaw)
}

func (s *server) registerList(h huma.API) {
	type input struct {
		Prefix string `query:"prefix" doc:"Only streams whose names begin so."`
		After  string `query:"after" doc:"Only streams whose names come after this one, in the order of their bytes."`
		Limit  int    `query:"limit" minimum:"0" maximum:"1000" doc:"Streams at most; 0 is the default, 100."`
	}
	type output struct{ Body StreamList }
	huma.Register(h, operation(h, "list-streams", http.MethodGet, "/v1/streams", "List streams",
		"In the order of their names' bytes, a page at a time.",
		http.StatusBadRequest, http.StatusUnprocessableEntity, http.StatusServiceUnavailable),
		func(ctx context.Context, in *input) (*output, error) {
			infos, more, err := s.svc.ListStreams(ctx, in.Prefix, in.After, in.Limit)
			if err != nil {
				return nil, s.fail(ctx, "list-streams", err)
			}
			out := &output{Body: StreamList{Streams: make([]Stream, 0, len(infos)), More: more}}
			for _, i := range infos {
				out.Body.Streams = append(out.Body.Streams, streamOf(i))
			}
			return out, nil
		})
}

// streamPath is the path of a stream.
func streamPath(name string) string { return streamsPrefix + url.PathEscape(name) }
