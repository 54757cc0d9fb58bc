package api_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/nova-store/nova/api"
	"github.com/nova-store/nova/api/service"
	"github.com/nova-store/nova/star"
)

// nasty are records that something on the way might change.
func nasty() [][]byte {
	r := rand.New(rand.NewPCG(1, 2))
	large := make([]byte, 2<<20)
	for i := range large {
		large[i] = byte(r.Uint32())
	}
	return [][]byte{
		[]byte("plain"), {}, []byte("\r"), []byte("ends in CR\r"), []byte("a\x00b"), {0xff, 0xfe, 0xc3, 0x28}, []byte("\n\n"),
		[]byte(`{"data":"eA=="}`), []byte("<&>\u2028"), []byte("\xef\xbb\xbf"), large, bytes.Repeat([]byte{0}, 70000), {},
	}
}

// requireRecords compares bytes, which reflection would take seconds for.
func requireRecords(t *testing.T, want, got [][]byte) {
	t.Helper()
	require.Len(t, got, len(want))
	for i := range want {
		require.True(t, bytes.Equal(want[i], got[i]), "record %d", i)
	}
}

func TestRecordsComeBackByteForByte(t *testing.T) {
	n := startNode(t, io.Discard, star.Options{})
	records := nasty()

	var ndjson strings.Builder
	list := make([]string, 0, len(records))
	for _, r := range records {
		line := fmt.Sprintf(`{"data":%q}`, base64.StdEncoding.EncodeToString(r))
		ndjson.WriteString(line + "\r\n\n")
		list = append(list, line)
	}
	var framed []byte
	for _, r := range records {
		framed = api.AppendRecord(framed, r)
	}
	for mediaType, body := range map[string]string{
		api.TypeNDJSON:  ndjson.String(),
		api.TypeJSON:    `{"records":[` + strings.Join(list, ",") + `]}`,
		api.TypeRecords: string(framed),
	} {
		name := "in as " + mediaType
		n.create(t, name)
		a := n.ask(t, http.MethodPost, "/v1/streams/"+strings.NewReplacer("/", "%2F", " ", "%20").Replace(name)+"/records",
			http.Header{"Content-Type": {mediaType}}, strings.NewReader(body))
		require.Equal(t, http.StatusOK, a.status, string(a.body))
		var res api.AppendResult
		require.NoError(t, json.Unmarshal(a.body, &res))
		page, err := n.client.Read(t.Context(), name, api.ReadOptions{})
		require.NoError(t, err)
		require.Equal(t, api.AppendResult{Stream: name, ID: page.Stream.String(), Records: len(records), FirstOffset: ptr(uint64(0)), LastOffset: ptr(uint64(len(records) - 1))}, res)
		requireRecords(t, records, n.readAll(t, name))
	}

	n.create(t, "raw")
	for i, r := range records {
		a := n.ask(t, http.MethodPost, "/v1/streams/raw/records", http.Header{"Content-Type": {api.TypeRaw}}, bytes.NewReader(r))
		require.Equal(t, http.StatusOK, a.status, string(a.body))
		require.Contains(t, string(a.body), fmt.Sprintf(`"first_offset":%d`, i))
	}
	requireRecords(t, records, n.readAll(t, "raw"))
}

func TestEveryFormOfAReadHasTheSameRecords(t *testing.T) {
	n := startNode(t, io.Discard, star.Options{})
	n.create(t, "s")
	records := nasty()
	_, err := n.client.Append(t.Context(), "s", records, api.AppendOptions{})
	require.NoError(t, err)
	want, err := n.client.Read(t.Context(), "s", api.ReadOptions{MaxBytes: service.MaxReadBytes})
	require.NoError(t, err)
	require.Len(t, want.Records, len(records))
	require.Positive(t, want.Records[0].Timestamp)

	check := func(i int, r api.Record) {
		w := want.Records[i]
		require.True(t, w.Offset == r.Offset && w.Timestamp == r.Timestamp && bytes.Equal(w.Data, r.Data), i)
	}
	a := n.ask(t, http.MethodGet, "/v1/streams/s/records?max_bytes=16777216", nil, nil)
	require.Equal(t, api.TypeJSON, a.header.Get("Content-Type"))
	var page api.Page
	require.NoError(t, json.Unmarshal(a.body, &page))
	require.Len(t, page.Records, len(records))
	for i, r := range page.Records {
		check(i, r)
	}
	require.Equal(t, uint64(len(records)), page.NextOffset)
	require.Equal(t, page.EndOffset, page.NextOffset)
	require.NotContains(t, string(a.body), "null")

	a = n.ask(t, http.MethodGet, "/v1/streams/s/records?max_bytes=16777216", http.Header{"Accept": {api.TypeNDJSON}}, nil)
	require.Equal(t, api.TypeNDJSON, a.header.Get("Content-Type"))
	require.Equal(t, fmt.Sprint(len(records)), a.header.Get(api.HeaderNextOffset))
	d := json.NewDecoder(bytes.NewReader(a.body))
	for i := range records {
		var r api.Record
		require.NoError(t, d.Decode(&r))
		check(i, r)
	}
	require.False(t, d.More())
}

func TestReadBeginsAndEndsWhereAsked(t *testing.T) {
	n := startNode(t, io.Discard, star.Options{})
	n.create(t, "s")
	var records [][]byte
	for i := range 25 {
		records = append(records, fmt.Appendf(nil, "record %d", i))
	}
	_, err := n.client.Append(t.Context(), "s", records, api.AppendOptions{})
	require.NoError(t, err)
	for _, c := range []struct {
		from        string
		limit       int
		first, next uint64
	}{
		{"", 0, 0, 25}, {"0", 3, 0, 3}, {"7", 10, 7, 17}, {"25", 0, 25, 25}, {"tail", 0, 25, 25},
		{"-1", 0, 24, 25}, {"-10", 4, 15, 19}, {"-25", 0, 0, 25}, {"-1000", 0, 0, 25}, {"-0", 0, 25, 25},
	} {
		from, err := service.ParsePosition(c.from)
		require.NoError(t, err)
		page, err := n.client.Read(t.Context(), "s", api.ReadOptions{From: from, MaxRecords: c.limit})
		require.NoError(t, err)
		require.Equal(t, c.next, page.Next, c.from)
		require.Equal(t, uint64(25), page.End)
		require.Len(t, page.Records, int(c.next-c.first), c.from)
		for i, r := range page.Records {
			require.Equal(t, c.first+uint64(i), r.Offset)
			require.Equal(t, records[r.Offset], r.Data)
		}
	}
	page, err := n.client.Read(t.Context(), "s", api.ReadOptions{MaxBytes: 1})
	require.NoError(t, err)
	require.Len(t, page.Records, 1, "a record larger than the bound comes alone")

	for _, from := range []string{"x", "--1", "1.5", "18446744073709551616", "tail ", "+1"} {
		_, err := service.ParsePosition(from)
		require.ErrorIs(t, err, service.ErrBadRequest, from)
	}
	_, err = n.client.Read(t.Context(), "s", api.ReadOptions{From: service.FromOffset(26)})
	p := problemOf(t, err)
	require.Equal(t, api.ProblemBeyondEnd, p.Type)
	require.Equal(t, http.StatusRequestedRangeNotSatisfiable, p.Status)
	require.Equal(t, uint64(25), *p.NextOffset)
}

func TestNamesArePercentEncoded(t *testing.T) {
	n := startNode(t, io.Discard, star.Options{})
	names := []string{
		"plain", "a/b c", "/", "//", "a//b/", "..a", ".../..", "a?b#c", "%2F", "100%", "a+b&c=d;e", "日本/ünïcode", "\"'<>\\|`^{}[]",
		"a:b@c,d$e*", strings.Repeat("é", 100), "records", "a/records",
	}
	for i, name := range names {
		s, created, err := n.client.CreateStream(t.Context(), name, nil)
		require.NoError(t, err, name)
		require.True(t, created)
		require.Equal(t, name, s.Name)
		_, created, err = n.client.CreateStream(t.Context(), name, nil)
		require.NoError(t, err)
		require.False(t, created, "creating is idempotent")
		_, err = n.client.Append(t.Context(), name, [][]byte{[]byte(name)}, api.AppendOptions{})
		require.NoError(t, err, name)
		require.Equal(t, [][]byte{[]byte(name)}, n.readAll(t, name), i)
		got, err := n.client.Stream(t.Context(), name)
		require.NoError(t, err)
		require.Equal(t, s.ID, got.ID)
		require.Equal(t, uint64(1), got.NextOffset)
		require.Equal(t, uint64(len(name)), got.Bytes)
		require.False(t, got.Created.IsZero())
	}
}

func TestCreateAnswersWithTheStreamAndItsPlace(t *testing.T) {
	n := startNode(t, io.Discard, star.Options{})
	body := `{"name":"a/b"}`
	h := http.Header{"Content-Type": {api.TypeJSON}}
	a := n.ask(t, http.MethodPost, "/v1/streams", h, strings.NewReader(body))
	require.Equal(t, http.StatusCreated, a.status, string(a.body))
	require.Equal(t, "/v1/streams/a%2Fb", a.header.Get("Location"))
	again := n.ask(t, http.MethodPost, "/v1/streams", h, strings.NewReader(body))
	require.Equal(t, http.StatusOK, again.status)
	require.JSONEq(t, string(a.body), string(again.body))
	got := n.ask(t, http.MethodGet, a.header.Get("Location"), nil, nil)
	require.JSONEq(t, string(a.body), string(got.body))
}

func TestProducersAndExpectedOffsets(t *testing.T) {
	n := startNode(t, io.Discard, star.Options{})
	n.create(t, "s")
	one := [][]byte{[]byte("x")}
	send := func(p service.Producer) (api.AppendResult, error) {
		return n.client.Append(t.Context(), "s", one, api.AppendOptions{Producer: &p})
	}
	first, err := send(service.Producer{ID: "p"})
	require.NoError(t, err)
	require.False(t, first.Duplicate)
	again, err := send(service.Producer{ID: "p"})
	require.NoError(t, err)
	require.True(t, again.Duplicate)
	require.Equal(t, first.FirstOffset, again.FirstOffset)
	_, err = send(service.Producer{ID: "p", Sequence: 1})
	require.NoError(t, err)
	old, err := send(service.Producer{ID: "p"})
	require.NoError(t, err)
	require.True(t, old.Duplicate)
	require.Nil(t, old.FirstOffset, "the offsets of an older append are not known")

	_, err = send(service.Producer{ID: "p", Sequence: 3})
	p := problemOf(t, err)
	require.Equal(t, api.ProblemProducerGap, p.Type)
	require.Equal(t, http.StatusConflict, p.Status)
	require.Equal(t, uint64(2), *p.NextSequence)
	_, err = send(service.Producer{ID: "p", Epoch: 1})
	require.NoError(t, err)
	_, err = send(service.Producer{ID: "p", Sequence: 2})
	require.Equal(t, api.ProblemProducerFenced, problemOf(t, err).Type)
	_, err = send(service.Producer{ID: "stranger", Sequence: 5})
	require.Equal(t, api.ProblemProducerLost, problemOf(t, err).Type)

	_, err = n.client.Append(t.Context(), "s", one, api.AppendOptions{Expected: ptr(uint64(7))})
	p = problemOf(t, err)
	require.Equal(t, api.ProblemWrongOffset, p.Type)
	require.Equal(t, http.StatusPreconditionFailed, p.Status)
	require.Equal(t, uint64(3), *p.NextOffset)
	res, err := n.client.Append(t.Context(), "s", one, api.AppendOptions{Expected: p.NextOffset})
	require.NoError(t, err)
	require.Equal(t, uint64(3), *res.FirstOffset)
	require.Len(t, n.readAll(t, "s"), 4)
}
