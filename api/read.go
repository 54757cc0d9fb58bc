package api

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strconv"

	"github.com/danielgtaylor/huma/v2"

	"github.com/nova-store/nova/api/service"
	"github.com/nova-store/nova/star"
)

// Headers of a read's answer.
const (
	HeaderNextOffset  = "Nova-Next-Offset"
	HeaderFirstOffset = "Nova-First-Offset"
	HeaderEndOffset   = "Nova-End-Offset"
)

// Record is a record as read, in JSON.
type Record struct {
	Offset    uint64 `json:"offset" doc:"The record's offset."`
	Timestamp int64  `json:"timestamp" doc:"When it was appended, in Unix milliseconds."`
	Data      []byte `json:"data" doc:"The record's bytes in base64."`
}

// Page is the answer to a read, in JSON.
type Page struct {
	Stream      string   `json:"stream" doc:"The stream's name."`
	FirstOffset uint64   `json:"first_offset" doc:"The first readable offset of the stream."`
	NextOffset  uint64   `json:"next_offset" doc:"Where to read on."`
	EndOffset   uint64   `json:"end_offset" doc:"The offset that the stream's next record gets; equal to next_offset once the end is reached."`
	Records     []Record `json:"records"`
}

type readInput struct {
	Name     string `path:"name" doc:"The stream's name, percent-encoded."`
	From     string `query:"from" doc:"Where to begin: an offset, tail (after the last record), or -N (the last N records). Absent: the first readable offset." example:"-10"`
	Limit    int    `query:"limit" minimum:"0" maximum:"10000" doc:"Records at most; 0 is the default, 1000."`
	MaxBytes int    `query:"max_bytes" minimum:"0" maximum:"16777216" doc:"Payload at most, unless the first record alone is larger; 0 is the default, 4 MiB."`
	Accept   string `header:"Accept" hidden:"true" doc:"application/json, application/x-ndjson or application/vnd.nova.entries."`
}

func (s *server) registerRead(h huma.API) {
	op := operation(h, "read", http.MethodGet, "/v1/streams/{name}/records", "Read records",
		"A page of the stream, in order and without gaps. Fewer records than asked for do not mean the end: compare next_offset with end_offset.",
		http.StatusBadRequest, http.StatusNotFound, http.StatusNotAcceptable, http.StatusGone, http.StatusRequestedRangeNotSatisfiable,
		http.StatusUnprocessableEntity, http.StatusServiceUnavailable)
	op.Responses["200"] = readAnswer(h)
	huma.Register(h, op, func(ctx context.Context, in *readInput) (*huma.StreamResponse, error) {
		out, err := s.read(ctx, in)
		if err != nil {
			return nil, s.fail(ctx, "read", err)
		}
		return out, nil
	})
}

func (s *server) read(ctx context.Context, in *readInput) (*huma.StreamResponse, error) {
	mediaType := negotiate(in.Accept, TypeJSON, TypeNDJSON, TypeEntries)
	if mediaType == "" {
		return nil, problem(http.StatusNotAcceptable, ProblemNotAcceptable, "Not acceptable",
			"Accept %q allows none of %s, %s and %s", in.Accept, TypeJSON, TypeNDJSON, TypeEntries)
	}
	name, err := nameOf(in.Name)
	if err != nil {
		return nil, err
	}
	from, err := service.ParsePosition(in.From)
	if err != nil {
		return nil, err
	}
	size := int64(cmp.Or(in.MaxBytes, service.DefaultReadBytes))
	if !s.pages.TryAcquire(size) {
		return nil, fmt.Errorf("%w: the server holds as many bytes of pages as it may", star.ErrOverloaded)
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	page, err := s.svc.Read(ctx, service.ReadRequest{Stream: name, From: from, MaxRecords: in.Limit, MaxBytes: in.MaxBytes})
	if err != nil {
		s.pages.Release(size)
		return nil, err
	}
	return &huma.StreamResponse{Body: func(hc huma.Context) {
		defer s.pages.Release(size) // only now the page is let go
		hc.SetHeader("Content-Type", mediaType)
		hc.SetHeader(HeaderFirstOffset, strconv.FormatUint(page.First, 10))
		hc.SetHeader(HeaderNextOffset, strconv.FormatUint(page.Next, 10))
		hc.SetHeader(HeaderEndOffset, strconv.FormatUint(page.End, 10))
		if mediaType == TypeEntries {
			// A length, since an answer cut short would not show in the framing.
			hc.SetHeader("Content-Length", strconv.Itoa(entriesSize(page.Records)))
		}
		hc.SetStatus(http.StatusOK)
		if err := writePage(hc.BodyWriter(), mediaType, name, page); err != nil {
			s.log.DebugContext(hc.Context(), "answer not delivered", "operation", "read", "error", err)
		}
	}}, nil
}

func writePage(w io.Writer, mediaType, stream string, page service.ReadResult) error {
	switch mediaType {
	case TypeEntries:
		return encodeEntries(w, page.Records)
	case TypeNDJSON:
		buf := bufio.NewWriterSize(w, 64<<10)
		e := json.NewEncoder(buf)
		for _, r := range page.Records {
			if err := e.Encode(recordOf(r)); err != nil {
				return err
			}
		}
		return buf.Flush()
	}
	out := Page{Stream: stream, FirstOffset: page.First, NextOffset: page.Next, EndOffset: page.End, Records: make([]Record, len(page.Records))}
	for i, r := range page.Records {
		out.Records[i] = recordOf(r)
	}
	return json.NewEncoder(w).Encode(out)
}

func recordOf(r service.Record) Record {
	if r.Data == nil {
		r.Data = []byte{} // "", not null
	}
	return Record(r)
}

// readAnswer describes the answer to OpenAPI.
func readAnswer(h huma.API) *huma.Response {
	registry := h.OpenAPI().Components.Schemas
	offset := func(doc string) *huma.Param {
		return &huma.Param{Description: doc, Schema: &huma.Schema{Type: huma.TypeInteger, Format: "int64"}}
	}
	return &huma.Response{
		Description: "A page of the stream.",
		Headers: map[string]*huma.Param{
			HeaderFirstOffset: offset("The first readable offset of the stream."),
			HeaderNextOffset:  offset("Where to read on."),
			HeaderEndOffset:   offset("The offset that the stream's next record gets."),
		},
		Content: map[string]*huma.MediaType{
			TypeJSON:   {Schema: registry.Schema(reflect.TypeFor[Page](), true, "Page")},
			TypeNDJSON: {Schema: registry.Schema(reflect.TypeFor[Record](), true, "Record")},
			TypeEntries: {Schema: &huma.Schema{Type: huma.TypeString, Format: "binary",
				Description: "Records one after the other: each its offset (unsigned varint), timestamp (zigzag varint, Unix milliseconds), length (unsigned varint), then its bytes."}},
		},
	}
}
