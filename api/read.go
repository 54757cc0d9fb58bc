package api

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"reflect"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/nova-store/nova/api/service"
	"github.com/nova-store/nova/star"
)

// Headers of a read's answer.
const (
	HeaderNextOffset  = "Nova-Next-Offset"
	HeaderFirstOffset = "Nova-First-Offset"
	HeaderEndOffset   = "Nova-End-Offset"
	HeaderStreamID    = "Nova-Stream-Id"
)

// Record is a record as read, in JSON.
type Record struct {
	Offset    uint64 `json:"offset" doc:"The record's offset."`
	Timestamp int64  `json:"timestamp" doc:"When it was appended, in Unix milliseconds."`
	Data      []byte `json:"data" doc:"The record's bytes in base64."`
}

// Page is the answer to a read, in JSON.
type Page struct {
	Stream      string   `json:"stream" doc:"The stream as it was named: its name, or id: and its id."`
	ID          string   `json:"id" doc:"The stream's id."`
	FirstOffset uint64   `json:"first_offset" doc:"The first readable offset of the stream; where a policy expires records, a bound below which none is readable."`
	NextOffset  uint64   `json:"next_offset" doc:"Where to read on."`
	EndOffset   uint64   `json:"end_offset" doc:"The offset that the stream's next record gets; equal to next_offset once the end is reached."`
	Records     []Record `json:"records"`
}

type readInput struct {
	Name        string  `path:"name" doc:"The stream's name, percent-encoded, or id: and its id."`
	From        string  `query:"from" doc:"Where to begin: start (the first readable record; also if absent), an offset, tail (after the last record), -N (the last N records), or a time of RFC 3339 (the first readable record from which on the stream had reached it)." example:"-10"`
	Limit       int     `query:"limit" minimum:"0" maximum:"10000" doc:"Records at most; 0 is the default, 1000, or without end where the stream is followed."`
	MaxBytes    int     `query:"max_bytes" minimum:"0" maximum:"16777216" doc:"Payload at most, unless the first record alone is larger; 0 is the default, 4 MiB. Where the stream is followed: of what is read at once."`
	Wait        float64 `query:"wait" minimum:"0" maximum:"60" doc:"Seconds to wait for a record, where there is none from there on."`
	Accept      string  `header:"Accept" hidden:"true" doc:"application/json, application/x-ndjson, application/vnd.nova.entries, or text/event-stream to follow the stream."`
	LastEventID string  `header:"Last-Event-ID" doc:"Of text/event-stream: go on behind the event of this id, instead of from."`
}

func (s *server) registerRead(h huma.API) {
	op := operation(h, "read", http.MethodGet, "/v1/streams/{name}/records", "Read records",
		"A page of the stream, in order and without gaps. Fewer records than asked for do not mean the end: compare next_offset with end_offset. "+
			"As text/event-stream the stream is followed: an event for each record, those to come included.",
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
	mediaType := negotiate(in.Accept, TypeJSON, TypeNDJSON, TypeEntries, TypeEvents)
	if mediaType == "" {
		return nil, problem(http.StatusNotAcceptable, ProblemNotAcceptable, "Not acceptable",
			"Accept %q allows none of %s, %s, %s and %s", in.Accept, TypeJSON, TypeNDJSON, TypeEntries, TypeEvents)
	}
	name, err := nameOf(in.Name)
	if err != nil {
		return nil, err
	}
	from, err := service.ParsePosition(in.From)
	if err != nil {
		return nil, err
	}
	if math.IsNaN(in.Wait) { // neither below the least nor above the most
		return nil, fmt.Errorf("%w: wait is not a number of seconds", service.ErrBadRequest)
	}
	req := service.ReadRequest{Stream: name, From: from, MaxRecords: in.Limit, MaxBytes: in.MaxBytes}
	if mediaType == TypeEvents {
		return s.follow(ctx, in, req)
	}
	page, release, err := s.page(ctx, req, s.pages.TryAcquire)
	if err == nil && in.Wait > 0 && len(page.Records) == 0 && page.Next == page.End {
		release() // who waits holds no page
		page, release, err = s.longPoll(ctx, req, page, time.Duration(in.Wait*float64(time.Second)))
	}
	if err != nil {
		return nil, err
	}
	return &huma.StreamResponse{Body: func(hc huma.Context) {
		defer release() // only now the page is let go
		hc.SetHeader("Content-Type", mediaType)
		hc.SetHeader(HeaderStreamID, page.Stream.String())
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

// page reads a page, for which room must be got first; release gives it back, once the page is let go.
func (s *server) page(ctx context.Context, req service.ReadRequest, room func(int64) bool) (page service.ReadResult, release func(), err error) {
	size := int64(cmp.Or(req.MaxBytes, service.DefaultReadBytes))
	if !room(size) {
		return service.ReadResult{}, nil, fmt.Errorf("%w: the server holds as many bytes of pages as it may", star.ErrOverloaded)
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	page, err = s.svc.Read(ctx, req)
	if err != nil {
		s.pages.Release(size)
		return service.ReadResult{}, nil, err
	}
	return page, func() { s.pages.Release(size) }, nil
}

// longPoll waits for a record behind an empty page at the stream's end, and reads on from there; the empty
// page is the answer where none comes in time, or the server stops.
func (s *server) longPoll(ctx context.Context, req service.ReadRequest, empty service.ReadResult, wait time.Duration) (service.ReadResult, func(), error) {
	nothing := func() {}
	follower, err := s.svc.Follow(ctx, empty.Stream)
	if err == nil {
		waiting, cancel := context.WithTimeout(ctx, wait)
		err = follower.Wait(waiting, empty.Next)
		cancel()
		follower.Close()
	}
	switch {
	case err == nil:
		req.Stream, req.From = service.ByID(empty.Stream), service.FromOffset(empty.Next)
		return s.page(ctx, req, s.pages.TryAcquire)
	case ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded), errors.Is(err, star.ErrShuttingDown):
		return empty, nothing, nil
	}
	return service.ReadResult{}, nil, err
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
	out := Page{Stream: stream, ID: page.Stream.String(), FirstOffset: page.First, NextOffset: page.Next, EndOffset: page.End, Records: make([]Record, len(page.Records))}
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
			HeaderStreamID:    {Description: "The stream's id.", Schema: &huma.Schema{Type: huma.TypeString}},
		},
		Content: map[string]*huma.MediaType{
			TypeJSON:   {Schema: registry.Schema(reflect.TypeFor[Page](), true, "Page")},
			TypeNDJSON: {Schema: registry.Schema(reflect.TypeFor[Record](), true, "Record")},
			TypeEntries: {Schema: &huma.Schema{Type: huma.TypeString, Format: "binary",
				Description: "Records one after the other: each its offset (unsigned varint), timestamp (zigzag varint, Unix milliseconds), length (unsigned varint), then its bytes."}},
			TypeEvents: {Schema: &huma.Schema{Type: huma.TypeString,
				Description: "Server-sent events. Of type record: id names the record for Last-Event-ID, data is the record as in JSON. Of type problem, the last one: data is a problem document. Comments in between."}},
		},
	}
}
