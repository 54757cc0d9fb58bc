package api

import (
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"
	"strconv"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/nova-store/nova/api/service"
	"github.com/nova-store/nova/star"
)

// Headers of an append.
const (
	HeaderProducerID       = "Nova-Producer-Id"
	HeaderProducerEpoch    = "Nova-Producer-Epoch"
	HeaderProducerSequence = "Nova-Producer-Sequence"
	HeaderProducerSince    = "Nova-Producer-Since"
	HeaderExpectedOffset   = "Nova-Expected-Offset"
)

// AppendResult is the answer to an append.
type AppendResult struct {
	Stream      string  `json:"stream" doc:"The stream's name."`
	ID          string  `json:"id" doc:"Its id, which tells it from others that had the name before or have it after."`
	Records     int     `json:"records" doc:"How many records the request held."`
	FirstOffset *uint64 `json:"first_offset,omitempty" doc:"Offset of the first record; absent where a duplicate's is not known any more."`
	LastOffset  *uint64 `json:"last_offset,omitempty" doc:"Offset of the last record; absent likewise."`
	Duplicate   bool    `json:"duplicate,omitempty" doc:"An earlier try of the same producer and sequence had been appended already: these are its offsets."`
}

// appendInput reads the body itself, so that it is admitted before it takes memory. Numbers
// are strings, to tell an absent one from 0.
type appendInput struct {
	Name        string `path:"name" doc:"The stream's name, percent-encoded."`
	ContentType string `header:"Content-Type" hidden:"true" doc:"How the body holds the records."`
	ProducerID  string `header:"Nova-Producer-Id" maxLength:"128" doc:"Makes the append idempotent: a producer's own random id. The three further headers are then required."`
	Epoch       string `header:"Nova-Producer-Epoch" pattern:"^[0-9]{1,10}$" doc:"Grows whenever another process takes the producer's identity over."`
	Sequence    string `header:"Nova-Producer-Sequence" pattern:"^[0-9]{1,20}$" doc:"0 for the producer's first append to the stream, then one more for each."`
	Since       string `header:"Nova-Producer-Since" pattern:"^[0-9]{1,20}$" doc:"The stream's next offset, read before the first try of the producer's first append and unchanged ever after."`
	Expected    string `header:"Nova-Expected-Offset" pattern:"^[0-9]{1,20}$" doc:"Append only if the stream's next offset is this one."`

	r *http.Request
	w http.ResponseWriter
}

// Resolve keeps the request for the body.
func (in *appendInput) Resolve(ctx huma.Context) []error {
	in.r, in.w = humago.Unwrap(ctx)
	return nil
}

func (s *server) registerAppend(h huma.API) {
	type output struct{ Body AppendResult }
	op := operation(h, "append", http.MethodPost, "/v1/streams/{name}/records", "Append records",
		"All records of one request become visible together, at consecutive offsets, or none does. The answer comes once they are durable and visible. "+
			"Timestamps are the server's.",
		http.StatusBadRequest, http.StatusNotFound, http.StatusConflict, http.StatusPreconditionFailed, http.StatusRequestEntityTooLarge,
		http.StatusUnsupportedMediaType, http.StatusUnprocessableEntity, http.StatusServiceUnavailable)
	huma.Register(h, op, func(ctx context.Context, in *appendInput) (*output, error) {
		out, err := s.append(ctx, in)
		if err != nil {
			return nil, s.fail(ctx, "append", err)
		}
		return &output{Body: *out}, nil
	})
	// Set here and not above: huma would take a documented body for one that it has to read.
	h.OpenAPI().Paths["/v1/streams/{name}/records"].Post.RequestBody = appendBody()
}

func (s *server) append(ctx context.Context, in *appendInput) (*AppendResult, error) {
	mediaType, err := appendMediaType(in.ContentType)
	if err != nil {
		return nil, err
	}
	if coding := in.r.Header.Get("Content-Encoding"); coding != "" && coding != "identity" {
		return nil, problem(http.StatusUnsupportedMediaType, ProblemMediaType, "Unsupported content coding",
			"Content-Encoding %q: send the records without one", coding)
	}
	name, err := nameOf(in.Name)
	if err != nil {
		return nil, err
	}
	req := service.AppendRequest{Stream: name}
	if err := in.conditions(&req); err != nil {
		return nil, err
	}
	size := in.r.ContentLength
	switch {
	case mediaType == TypeRaw && size > service.MaxRecordBytes:
		return nil, tooLarge(0, uint64(size))
	case size > MaxAppendBody:
		return nil, bodyTooLarge()
	case size < 0:
		size = MaxAppendBody
	}
	if !s.bodies.TryAcquire(size) {
		return nil, fmt.Errorf("%w: the server holds as many bytes of appends as it may", star.ErrOverloaded)
	}
	defer s.bodies.Release(size)
	body, err := in.readBody()
	if err != nil {
		return nil, err
	}
	if req.Records, err = decodeRecords(mediaType, body); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	res, err := s.svc.Append(ctx, req)
	if err != nil {
		return nil, err
	}
	out := &AppendResult{Stream: name, ID: res.Stream.String(), Records: len(req.Records), Duplicate: res.Duplicate}
	if !res.OffsetsUnknown {
		out.FirstOffset, out.LastOffset = &res.First, &res.Last
	}
	return out, nil
}

// readBody reads the body into memory of its own, which the star keeps.
func (in *appendInput) readBody() ([]byte, error) {
	r := http.MaxBytesReader(in.w, in.r.Body, MaxAppendBody)
	var body []byte
	var err error
	if n := in.r.ContentLength; n >= 0 {
		body = make([]byte, n)
		_, err = io.ReadFull(r, body)
	} else {
		body, err = io.ReadAll(r)
	}
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return nil, bodyTooLarge()
	case err != nil:
		return nil, fmt.Errorf("%w: the body broke off: %w", errSyntax, err)
	}
	return body, nil
}

func bodyTooLarge() error {
	return fmt.Errorf("%w: the body of an append has %d bytes at most", star.ErrTooLarge, MaxAppendBody)
}

func appendMediaType(contentType string) (string, error) {
	mediaType, _, err := mime.ParseMediaType(contentType)
	if err == nil {
		switch mediaType {
		case TypeRaw, TypeRecords, TypeNDJSON, TypeJSON:
			return mediaType, nil
		}
	}
	return "", problem(http.StatusUnsupportedMediaType, ProblemMediaType, "Unsupported media type",
		"Content-Type %q is none of an append's; send %s (the body is one record), %s, %s or %s", contentType, TypeRaw, TypeRecords, TypeNDJSON, TypeJSON)
}

// conditions reads the headers of the expected offset and of the producer. One that is there without a
// value asked for a condition: it is refused, not taken for absent.
func (in *appendInput) conditions(req *service.AppendRequest) error {
	for _, name := range []string{HeaderExpectedOffset, HeaderProducerID, HeaderProducerEpoch, HeaderProducerSequence, HeaderProducerSince} {
		if slices.Contains(in.r.Header.Values(name), "") {
			return fmt.Errorf("%w: header %s has no value: give one or leave the header out", service.ErrBadRequest, name)
		}
	}
	if in.Expected != "" {
		n, err := headerUint(HeaderExpectedOffset, in.Expected, 64)
		if err != nil {
			return err
		}
		req.Expected = &n
	}
	given := 0
	for _, v := range []string{in.Epoch, in.Sequence, in.Since} {
		if v != "" {
			given++
		}
	}
	switch {
	case in.ProducerID == "" && given == 0:
		return nil
	case in.ProducerID == "" || given != 3:
		return fmt.Errorf("%w: the headers %s, %s, %s and %s come together or not at all", service.ErrBadRequest,
			HeaderProducerID, HeaderProducerEpoch, HeaderProducerSequence, HeaderProducerSince)
	}
	epoch, e1 := headerUint(HeaderProducerEpoch, in.Epoch, 32)
	seq, e2 := headerUint(HeaderProducerSequence, in.Sequence, 64)
	since, e3 := headerUint(HeaderProducerSince, in.Since, 64)
	if err := errors.Join(e1, e2, e3); err != nil {
		return err
	}
	req.Producer = &service.Producer{ID: in.ProducerID, Epoch: uint32(epoch), Sequence: seq, Since: since}
	return nil
}

func headerUint(name, value string, bits int) (uint64, error) {
	n, err := strconv.ParseUint(value, 10, bits)
	if err != nil {
		return 0, fmt.Errorf("%w: header %s: %q is not a number of %d bits", service.ErrBadRequest, name, value, bits)
	}
	return n, nil
}

// appendBody describes the body to OpenAPI.
func appendBody() *huma.RequestBody {
	one := 1
	record := &huma.Schema{
		Type:        huma.TypeObject,
		Description: "Exactly one of data (base64) and text (UTF-8).",
		Properties: map[string]*huma.Schema{
			"data": {Type: huma.TypeString, ContentEncoding: "base64"},
			"text": {Type: huma.TypeString},
		},
		AdditionalProperties: false,
		MinProperties:        &one,
		MaxProperties:        &one,
	}
	binary := func(doc string) *huma.MediaType {
		return &huma.MediaType{Schema: &huma.Schema{Type: huma.TypeString, Format: "binary", Description: doc}}
	}
	return &huma.RequestBody{
		Required:    true,
		Description: "The records, at most 16 MiB of payload.",
		Content: map[string]*huma.MediaType{
			TypeRaw:     binary("The body is the one record, byte for byte."),
			TypeRecords: binary("Records one after the other: each its length as an unsigned varint (LEB128), then its bytes."),
			TypeNDJSON:  {Schema: record},
			TypeJSON: {Schema: &huma.Schema{
				Type:                 huma.TypeObject,
				Properties:           map[string]*huma.Schema{"records": {Type: huma.TypeArray, Items: record}},
				Required:             []string{"records"},
				AdditionalProperties: false,
			}},
		},
	}
}
