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

// Stream describes a stream.
type Stream struct {
	Name        string    `json:"name" doc:"The stream's name."`
	ID          string    `json:"id" doc:"The stream's id: 16 hex digits, never given to another stream."`
	Created     time.Time `json:"created" doc:"When the stream was made."`
	FirstOffset uint64    `json:"first_offset" doc:"The first readable offset."`
	NextOffset  uint64    `json:"next_offset" doc:"The offset that the next record gets."`
	Bytes       uint64    `json:"bytes" doc:"Payload of the readable records."`
}

func streamOf(i service.StreamInfo) Stream {
	return Stream{Name: i.Name, ID: i.ID.String(), Created: i.Created, FirstOffset: i.FirstOffset, NextOffset: i.NextOffset, Bytes: i.Bytes}
}

// CreateStreamRequest is the body of POST /v1/streams.
type CreateStreamRequest struct {
	Name string `json:"name" doc:"1 to 200 bytes of UTF-8 without '!', '~' and control characters, not \".\" or \"..\"."`
}

func (s *server) registerStreams(h huma.API) {
	type createInput struct {
		Body    CreateStreamRequest
		RawBody []byte
	}
	type createOutput struct {
		Status   int
		Location string `header:"Location"`
		Body     Stream
	}
	op := operation(h, "create-stream", http.MethodPost, "/v1/streams", "Create a stream",
		"Idempotent: a stream of that name that exists already is found, with status 200 instead of 201.",
		http.StatusBadRequest, http.StatusUnprocessableEntity, http.StatusServiceUnavailable)
	op.DefaultStatus = http.StatusCreated
	op.Responses["200"] = &huma.Response{
		Description: "It exists already.",
		Content:     map[string]*huma.MediaType{TypeJSON: {Schema: h.OpenAPI().Components.Schemas.Schema(reflect.TypeFor[Stream](), true, "Stream")}},
	}
	huma.Register(h, op, func(ctx context.Context, in *createInput) (*createOutput, error) {
		if !wholeText(in.RawBody) {
			return nil, s.fail(ctx, "create-stream", fmt.Errorf("%w: %w", catalog.ErrBadName, errNotText))
		}
		info, created, err := s.svc.CreateStream(ctx, in.Body.Name)
		if err != nil {
			return nil, s.fail(ctx, "create-stream", err)
		}
		out := &createOutput{Status: http.StatusOK, Location: streamPath(info.Name), Body: streamOf(info)}
		if created {
			out.Status = http.StatusCreated
		}
		return out, nil
	})
	// huma takes the raw body, which is looked at beside the decoded one, for a second media type.
	delete(h.OpenAPI().Paths[op.Path].Post.RequestBody.Content, TypeRaw)

	type getInput struct {
		Name string `path:"name" doc:"The stream's name, percent-encoded."`
	}
	type getOutput struct{ Body Stream }
	huma.Register(h, operation(h, "get-stream", http.MethodGet, "/v1/streams/{name}", "Describe a stream", "As it is now, whichever star appended last.",
		http.StatusBadRequest, http.StatusNotFound, http.StatusUnprocessableEntity, http.StatusServiceUnavailable),
		func(ctx context.Context, in *getInput) (*getOutput, error) {
			name, err := nameOf(in.Name)
			if err != nil {
				return nil, s.fail(ctx, "get-stream", err)
			}
			info, err := s.svc.Stream(ctx, name)
			if err != nil {
				return nil, s.fail(ctx, "get-stream", err)
			}
			return &getOutput{Body: streamOf(info)}, nil
		})
}

// streamPath is the path of a stream.
func streamPath(name string) string { return streamsPrefix + url.PathEscape(name) }
