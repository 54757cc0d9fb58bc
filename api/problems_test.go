package api_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/nova-store/nova/api"
	"github.com/nova-store/nova/api/service"
	"github.com/nova-store/nova/catalog"
	"github.com/nova-store/nova/clock"
	"github.com/nova-store/nova/metastore"
	"github.com/nova-store/nova/objstore"
	"github.com/nova-store/nova/objstore/format"
	"github.com/nova-store/nova/star"
)

// fakeStar answers as the test says.
type fakeStar struct {
	append func(star.AppendRequest) (star.AppendResult, error)
	read   func(star.ReadRequest) (star.ReadResult, error)
	ready  error
}

func (f *fakeStar) Append(_ context.Context, r star.AppendRequest) (star.AppendResult, error) {
	return f.append(r)
}
func (f *fakeStar) Read(_ context.Context, r star.ReadRequest) (star.ReadResult, error) {
	return f.read(r)
}
func (f *fakeStar) Follow(context.Context, catalog.StreamID) (*star.Follower, error) {
	return nil, star.ErrOverloaded
}
func (f *fakeStar) FirstOffset(context.Context, catalog.StreamView) (uint64, error) { return 0, nil }
func (f *fakeStar) Ready() error                                                    { return f.ready }
func (f *fakeStar) Chain() (catalog.ChainID, uint64, bool)                          { return catalog.ChainID{}, 0, false }

func TestErrorsOfTheStarAreProblems(t *testing.T) {
	f := &fakeStar{}
	n := serve(t, api.New(service.New(f, nil, clock.NewReal()), clock.NewReal(), api.Options{}))
	for _, c := range []struct {
		err    error
		status int
		typ    string
	}{
		{catalog.ErrNoStream, 404, api.ProblemNoStream},
		{&star.TooLargeError{Record: 3, Bytes: 1 << 25, Most: 1 << 24}, 413, api.ProblemRecordTooLarge},
		{&star.TooLargeError{Record: -1, Bytes: 1 << 25, Most: 1 << 24}, 413, api.ProblemBodyTooLarge},
		{&star.WrongOffsetError{Expected: 1, Next: 2}, 412, api.ProblemWrongOffset},
		{&star.ProducerGapError{Seq: 4, Next: 2}, 409, api.ProblemProducerGap},
		{star.ErrProducerFenced, 409, api.ProblemProducerFenced},
		{star.ErrProducerLost, 409, api.ProblemProducerLost},
		{star.ErrOutcomeUnknown, 500, api.ProblemOutcomeUnknown},
		{fmt.Errorf("%w: %w", star.ErrOutcomeUnknown, context.DeadlineExceeded), 500, api.ProblemOutcomeUnknown},
		{star.ErrOverloaded, 503, api.ProblemOverloaded},
		{star.ErrNotReady, 503, api.ProblemUnavailable},
		{star.ErrShuttingDown, 503, api.ProblemUnavailable},
		{metastore.ErrUnavailable, 503, api.ProblemUnavailable},
		{objstore.ErrUnavailable, 503, api.ProblemUnavailable},
		{objstore.ErrThrottled, 503, api.ProblemUnavailable},
		{fmt.Errorf("%w: %w", star.ErrOutcomeUnknown, objstore.ErrUnavailable), 500, api.ProblemOutcomeUnknown},
		{catalog.ErrReplaced, 503, api.ProblemUnavailable},
		{catalog.ErrNoStar, 404, api.ProblemNoStar},
		{catalog.ErrStarLive, 409, api.ProblemStarLive},
		{context.DeadlineExceeded, 503, api.ProblemTimeout},
		{&star.TrimmedError{From: 1, First: 9}, 410, api.ProblemTrimmed},
		{&star.BeyondEndError{From: 9, Next: 4}, 416, api.ProblemBeyondEnd},
		{&format.CorruptError{Object: "settled/X", Offset: 12, Reason: "checksum"}, 500, api.ProblemCorruptedObject},
		{catalog.ErrCorruptValue, 500, api.ProblemCorruptedObject},
		{errors.New("the secret inside"), 500, api.ProblemInternal},
	} {
		f.append = func(star.AppendRequest) (star.AppendResult, error) {
			return star.AppendResult{}, fmt.Errorf("append: %w", c.err)
		}
		f.read = func(star.ReadRequest) (star.ReadResult, error) {
			return star.ReadResult{}, fmt.Errorf("read: %w", c.err)
		}
		for _, a := range []answer{
			n.ask(t, http.MethodPost, "/v1/streams/s/records", http.Header{"Content-Type": {api.TypeRaw}}, strings.NewReader("x")),
			n.ask(t, http.MethodGet, "/v1/streams/s/records?from=1", nil, nil),
		} {
			p := a.problem(t)
			require.Equal(t, c.status, a.status, c.err)
			require.Equal(t, c.typ, p.Type, c.err)
			require.NotContains(t, p.Detail, "secret")
			require.Equal(t, c.status == 503, a.header.Get("Retry-After") != "", "503 says when to come back")
		}
	}
	f.read = func(star.ReadRequest) (star.ReadResult, error) {
		return star.ReadResult{}, &star.TrimmedError{From: 1, First: 9}
	}
	require.Equal(t, uint64(9), *n.ask(t, http.MethodGet, "/v1/streams/s/records?from=1", nil, nil).problem(t).FirstOffset)
}

func TestBadRequestsAreRefusedClearly(t *testing.T) {
	n := startNode(t, io.Discard, star.Options{})
	n.create(t, "s")
	raw := http.Header{"Content-Type": {api.TypeRaw}}
	with := func(contentType string, more ...string) http.Header {
		h := http.Header{"Content-Type": {contentType}}
		for i := 0; i < len(more); i += 2 {
			h.Set(more[i], more[i+1])
		}
		return h
	}
	const records = "/v1/streams/s/records"
	for _, c := range []struct {
		what, method, path string
		header             http.Header
		body               string
		status             int
		typ                string
	}{
		{"no such stream", "GET", "/v1/streams/none", nil, "", 404, api.ProblemNoStream},
		{"no such stream", "GET", "/v1/streams/none/records", nil, "", 404, api.ProblemNoStream},
		{"no such stream", "POST", "/v1/streams/none/records", raw, "x", 404, api.ProblemNoStream},
		{"dot", "GET", "/v1/streams/%2E", nil, "", 400, api.ProblemBadName},
		{"dots", "POST", "/v1/streams/%2e%2e/records", raw, "x", 400, api.ProblemBadName},
		{"dot", "GET", "/v1/streams/.", nil, "", 400, api.ProblemBadName},
		{"dots", "GET", "/v1/streams/../records", nil, "", 400, api.ProblemBadName},
		{"empty name", "GET", "/v1/streams//records", nil, "", 400, api.ProblemBadName},
		{"not UTF-8", "POST", "/v1/streams", with(api.TypeJSON), "{\"name\":\"a\xff\"}", 400, api.ProblemBadName},
		{"half a pair", "POST", "/v1/streams", with(api.TypeJSON), `{"name":"\ud800"}`, 400, api.ProblemBadName},
		{"control character", "GET", "/v1/streams/a%0Ab", nil, "", 400, api.ProblemBadName},
		{"not UTF-8", "GET", "/v1/streams/%FF", nil, "", 400, api.ProblemBadName},
		{"exclamation mark", "POST", "/v1/streams/a!b/records", raw, "x", 400, api.ProblemBadName},
		{"tilde", "GET", "/v1/streams/~/records", nil, "", 400, api.ProblemBadName},
		{"long name", "GET", "/v1/streams/" + strings.Repeat("a", 201), nil, "", 400, api.ProblemBadName},
		{"dot", "POST", "/v1/streams", with(api.TypeJSON), `{"name":"."}`, 400, api.ProblemBadName},
		{"no name", "POST", "/v1/streams", with(api.TypeJSON), `{}`, 422, api.ProblemBadRequest},
		{"unknown field", "POST", "/v1/streams", with(api.TypeJSON), `{"name":"x","colour":1}`, 422, api.ProblemBadRequest},
		{"large body", "POST", "/v1/streams", with(api.TypeJSON), `{"name":"` + strings.Repeat("x", api.MaxBody) + `"}`, 413, api.ProblemBodyTooLarge},
		{"no such path", "GET", "/v2/streams", nil, "", 404, api.ProblemNoRoute},
		{"no such path", "GET", "/v1/streams/a/b/records", nil, "", 404, api.ProblemNoRoute},
		{"no such method", "PATCH", "/v1/streams/s", nil, "", 405, api.ProblemMethod},
		{"an id as a name", "POST", "/v1/streams", with(api.TypeJSON), `{"name":"id:0123456789abcdef"}`, 400, api.ProblemBadName},
		{"no such id", "GET", "/v1/streams/id:0123456789abcdef", nil, "", 404, api.ProblemNoStream},
		{"no such stream", "DELETE", "/v1/streams/none", nil, "", 404, api.ProblemNoStream},
		{"no such stream", "GET", "/v1/streams/none/pending", nil, "", 404, api.ProblemNoStream},
		{"no such stream", "POST", "/v1/streams/none/trim", with(api.TypeJSON), `{"before":0}`, 404, api.ProblemNoStream},
		{"no such stream", "PUT", "/v1/streams/none/policy", with(api.TypeJSON), `{}`, 404, api.ProblemNoStream},
		{"beyond the end", "POST", "/v1/streams/s/trim", with(api.TypeJSON), `{"before":1}`, 416, api.ProblemBeyondEnd},
		{"no offset", "POST", "/v1/streams/s/trim", with(api.TypeJSON), `{}`, 422, api.ProblemBadRequest},
		{"negative age", "PATCH", "/v1/streams/s/policy", with(api.TypeJSON), `{"max_age_ms":-1}`, 422, api.ProblemBadRequest},
		{"a century and more", "PUT", "/v1/streams/s/policy", with(api.TypeJSON), `{"max_age_ms":3153600000001}`, 422, api.ProblemBadRequest},
		{"unknown field", "PUT", "/v1/streams/s/policy", with(api.TypeJSON), `{"max_age":1}`, 422, api.ProblemBadRequest},
		{"list limit", "GET", "/v1/streams?limit=1001", nil, "", 422, api.ProblemBadRequest},
		{"parameter", "GET", "/v1/streams?prefx=a", nil, "", 422, api.ProblemBadRequest},
		{"pending limit", "GET", "/v1/streams/s/pending?limit=-1", nil, "", 422, api.ProblemBadRequest},
		{"wait", "GET", records + "?wait=NaN", nil, "", 400, api.ProblemBadRequest},
		{"wait", "GET", records + "?wait=61", nil, "", 422, api.ProblemBadRequest},
		{"event id", "GET", records, http.Header{"Accept": {api.TypeEvents}, "Last-Event-Id": {"7"}}, "", 400, api.ProblemBadRequest},
		{"no such stream", "GET", "/v1/streams/none/records", http.Header{"Accept": {api.TypeEvents}}, "", 404, api.ProblemNoStream},
		{"no media type", "POST", records, nil, "x", 415, api.ProblemMediaType},
		{"media type", "POST", records, with("text/plain"), "x", 415, api.ProblemMediaType},
		{"accept", "GET", records, http.Header{"Accept": {"text/html"}}, "", 406, api.ProblemNotAcceptable},
		{"from", "GET", records + "?from=yesterday", nil, "", 400, api.ProblemBadRequest},
		{"limit", "GET", records + "?limit=-1", nil, "", 422, api.ProblemBadRequest},
		{"limit", "GET", records + "?limit=10001", nil, "", 422, api.ProblemBadRequest},
		{"parameter", "GET", records + "?form=1", nil, "", 422, api.ProblemBadRequest},
		{"no records", "POST", records, with(api.TypeRecords), "", 400, api.ProblemBadRequest},
		{"no records", "POST", records, with(api.TypeJSON), `{"records":[]}`, 400, api.ProblemBadRequest},
		{"cut short", "POST", records, with(api.TypeRecords), "\x05abc", 400, api.ProblemBadRequest},
		{"bad varint", "POST", records, with(api.TypeRecords), "\x80", 400, api.ProblemBadRequest},
		{"bad base64", "POST", records, with(api.TypeNDJSON), `{"data":"?"}`, 400, api.ProblemBadRequest},
		{"both", "POST", records, with(api.TypeNDJSON), `{"data":"","text":""}`, 400, api.ProblemBadRequest},
		{"neither", "POST", records, with(api.TypeNDJSON), `{}`, 400, api.ProblemBadRequest},
		{"two on a line", "POST", records, with(api.TypeNDJSON), `{"text":"a"}{"text":"b"}`, 400, api.ProblemBadRequest},
		{"not UTF-8", "POST", records, with(api.TypeNDJSON), "{\"text\":\"\xff\"}", 400, api.ProblemBadRequest},
		{"not UTF-8", "POST", records, with(api.TypeJSON), "{\"records\":[{\"text\":\"\xff\"}]}", 400, api.ProblemBadRequest},
		{"half a pair", "POST", records, with(api.TypeNDJSON), `{"text":"\ud83d\u0041"}`, 400, api.ProblemBadRequest},
		{"half a pair", "POST", records, with(api.TypeJSON), `{"records":[{"text":"\\\udc00"}]}`, 400, api.ProblemBadRequest},
		{"coding", "POST", records, with(api.TypeRaw, "Content-Encoding", "gzip"), "x", 415, api.ProblemMediaType},
		{"more behind", "POST", records, with(api.TypeJSON), `{"records":[{"text":"a"}]} x`, 400, api.ProblemBadRequest},
		{"large record", "POST", records, with(api.TypeRecords), "\x00\x81\x80\x80\x08", 413, api.ProblemRecordTooLarge},
		{"half a producer", "POST", records, with(api.TypeRaw, api.HeaderProducerID, "p"), "x", 400, api.ProblemBadRequest},
		{"half a producer", "POST", records, with(api.TypeRaw, api.HeaderProducerEpoch, "0"), "x", 400, api.ProblemBadRequest},
		{"expected", "POST", records, with(api.TypeRaw, api.HeaderExpectedOffset, ""), "x", 400, api.ProblemBadRequest},
		{"producer", "POST", records, with(api.TypeRaw, api.HeaderProducerID, ""), "x", 400, api.ProblemBadRequest},
		{"expected", "POST", records, with(api.TypeRaw, api.HeaderExpectedOffset, "one"), "x", 422, api.ProblemBadRequest},
		{"expected", "POST", records, with(api.TypeRaw, api.HeaderExpectedOffset, "99999999999999999999"), "x", 400, api.ProblemBadRequest},
	} {
		a := n.ask(t, c.method, c.path, c.header, strings.NewReader(c.body))
		require.Equal(t, c.status, a.status, "%s: %s", c.what, a.body)
		require.Equal(t, c.typ, a.problem(t).Type, c.what)
	}
	a := n.ask(t, http.MethodPatch, "/v1/streams/s", nil, nil)
	require.Contains(t, a.header.Get("Allow"), http.MethodGet)
	require.Empty(t, n.readAll(t, "s"), "nothing refused was appended")
}

func TestTooLargeRecordsAreNamed(t *testing.T) {
	n := startNode(t, io.Discard, star.Options{})
	n.create(t, "s")
	large := make([]byte, service.MaxRecordBytes+1)
	_, err := n.client.Append(t.Context(), "s", [][]byte{[]byte("fits"), large}, api.AppendOptions{})
	p := problemOf(t, err)
	require.Equal(t, http.StatusRequestEntityTooLarge, p.Status)
	require.Equal(t, 1, *p.Record)

	a := n.ask(t, http.MethodPost, "/v1/streams/s/records", http.Header{"Content-Type": {api.TypeRaw}}, bytes.NewReader(large))
	require.Equal(t, 0, *a.problem(t).Record)
	a = n.ask(t, http.MethodPost, "/v1/streams/s/records", http.Header{"Content-Type": {api.TypeRecords}}, bytes.NewReader(make([]byte, api.MaxAppendBody+1)))
	require.Equal(t, api.ProblemBodyTooLarge, a.problem(t).Type)
	a = n.ask(t, http.MethodPost, "/v1/streams/s/records", http.Header{"Content-Type": {api.TypeRecords}}, bytes.NewReader(make([]byte, service.MaxAppendRecords+1)))
	require.Equal(t, api.ProblemBodyTooLarge, a.problem(t).Type)
	// A body of unknown length.
	r := io.MultiReader(bytes.NewReader(large), bytes.NewReader(large))
	a = n.ask(t, http.MethodPost, "/v1/streams/s/records", http.Header{"Content-Type": {api.TypeNDJSON}}, struct{ io.Reader }{r})
	require.Equal(t, api.ProblemBodyTooLarge, a.problem(t).Type)

	largest := large[:service.MaxRecordBytes]
	_, err = n.client.Append(t.Context(), "s", [][]byte{largest}, api.AppendOptions{})
	require.NoError(t, err, "the largest record is taken")
	requireRecords(t, [][]byte{largest}, n.readAll(t, "s"))
}

func TestBodiesHeldAtOnceAreBounded(t *testing.T) {
	entered, leave := make(chan struct{}), make(chan struct{})
	f := &fakeStar{append: func(star.AppendRequest) (star.AppendResult, error) {
		entered <- struct{}{}
		<-leave
		return star.AppendResult{OffsetsKnown: true}, nil
	}}
	n := serve(t, api.New(service.New(f, nil, clock.NewReal()), clock.NewReal(), api.Options{InFlightBytes: 100}))
	done := make(chan error)
	go func() {
		_, err := n.client.Append(t.Context(), "s", [][]byte{make([]byte, 60)}, api.AppendOptions{})
		done <- err
	}()
	<-entered
	_, err := n.client.Append(t.Context(), "s", [][]byte{make([]byte, 60)}, api.AppendOptions{})
	require.Equal(t, api.ProblemOverloaded, problemOf(t, err).Type)
	close(leave)
	require.NoError(t, <-done)
	go func() { <-entered }()
	_, err = n.client.Append(t.Context(), "s", [][]byte{make([]byte, 60)}, api.AppendOptions{})
	require.NoError(t, err, "what an append held is given back")
}

func TestPagesHeldAtOnceAreBounded(t *testing.T) {
	entered, leave := make(chan struct{}), make(chan struct{})
	f := &fakeStar{read: func(star.ReadRequest) (star.ReadResult, error) {
		entered <- struct{}{}
		<-leave
		return star.ReadResult{}, nil
	}}
	n := serve(t, api.New(service.New(f, nil, clock.NewReal()), clock.NewReal(), api.Options{InFlightBytes: 100}))
	opts := api.ReadOptions{MaxBytes: 60}
	done := make(chan error)
	go func() {
		_, err := n.client.Read(t.Context(), "s", opts)
		done <- err
	}()
	<-entered
	a := n.ask(t, http.MethodGet, "/v1/streams/s/records?max_bytes=60", nil, nil)
	require.Equal(t, api.ProblemOverloaded, a.problem(t).Type)
	close(leave)
	require.NoError(t, <-done)
	go func() { <-entered }()
	_, err := n.client.Read(t.Context(), "s", opts)
	require.NoError(t, err, "what a page held is given back")
}

func TestADamagedObjectIsNamedAndNothingOfItReturned(t *testing.T) {
	n := startNode(t, io.Discard, star.Options{TailBytes: -1}) // reads go to the bucket
	n.create(t, "s")
	_, err := n.client.Append(t.Context(), "s", [][]byte{bytes.Repeat([]byte("good "), 100)}, api.AppendOptions{})
	require.NoError(t, err)
	require.Len(t, n.readAll(t, "s"), 1)

	slots, err := filepath.Glob(filepath.Join(n.dir, "bucket", "slot", "test", "*", "*"))
	require.NoError(t, err)
	require.Len(t, slots, 1)
	object, err := os.ReadFile(slots[0])
	require.NoError(t, err)
	object[format.HeaderLength+format.BlockHeaderLength+3] ^= 1
	require.NoError(t, os.WriteFile(slots[0], object, 0o600))

	_, err = n.client.Read(t.Context(), "s", api.ReadOptions{})
	p := problemOf(t, err)
	require.Equal(t, api.ProblemCorruptedObject, p.Type)
	key, err := filepath.Rel(filepath.Join(n.dir, "bucket"), slots[0])
	require.NoError(t, err)
	require.Equal(t, key, p.Object)
	require.Contains(t, p.Detail, key)
}

func TestLogsNeverHoldRecords(t *testing.T) {
	var log bytes.Buffer
	n := startNode(t, &log, star.Options{})
	n.create(t, "s")
	const secret = "correct-horse-battery"
	_, err := n.client.Append(t.Context(), "s", [][]byte{[]byte(secret)}, api.AppendOptions{})
	require.NoError(t, err)
	n.readAll(t, "s")
	for _, body := range []string{`{"text":"` + secret, `{"` + secret + `":1}`, `{"data":"` + secret + `"}`} {
		a := n.ask(t, http.MethodPost, "/v1/streams/s/records", http.Header{"Content-Type": {api.TypeNDJSON}}, strings.NewReader(body))
		require.Equal(t, http.StatusBadRequest, a.status)
	}
	require.Contains(t, log.String(), "request")
	require.NotContains(t, log.String(), secret)
}

func TestHealth(t *testing.T) {
	f := &fakeStar{ready: star.ErrNotReady}
	n := serve(t, api.New(service.New(f, nil, clock.NewReal()), clock.NewReal(), api.Options{Logger: slog.New(slog.DiscardHandler)}))
	require.Equal(t, http.StatusOK, n.ask(t, http.MethodGet, "/livez", nil, nil).status)
	require.Equal(t, api.ProblemUnavailable, n.ask(t, http.MethodGet, "/readyz", nil, nil).problem(t).Type)
	require.Error(t, n.client.Ready(t.Context()))
	f.ready = nil
	require.NoError(t, n.client.Ready(t.Context()))
}

// Of clients that hang up, of which there may be many, no line at a usual level says anything; of what failed otherwise one does.
func TestClientsThatHaveGone(t *testing.T) {
	var log bytes.Buffer
	f := &fakeStar{read: func(star.ReadRequest) (star.ReadResult, error) { return star.ReadResult{}, context.Canceled }}
	h := api.New(service.New(f, nil, clock.NewReal()), clock.NewReal(), api.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	read := func(ctx context.Context) {
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, http.MethodGet, "/v1/streams/id:0000000000000001/records", nil))
	}
	read(t.Context())
	require.Contains(t, log.String(), "request failed")
	log.Reset()
	gone, hangUp := context.WithCancel(t.Context())
	hangUp()
	read(gone)
	require.Empty(t, log.String())
	f.read = func(star.ReadRequest) (star.ReadResult, error) { return star.ReadResult{}, objstore.ErrUnavailable }
	read(gone)
	require.Contains(t, log.String(), "request failed", "what fails is told, whoever has gone")
}
