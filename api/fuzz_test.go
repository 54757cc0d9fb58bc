package api

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/nova-store/nova/api/service"
	"github.com/nova-store/nova/internal/allocation"
	"github.com/nova-store/nova/star"
)

// asJSON writes a record as a client does that knows base64 only.
func asJSON(record []byte) string {
	return `{"data":"` + base64.StdEncoding.EncodeToString(record) + `"}`
}

// rewritten is a body of the media type that holds the records.
func rewritten(mediaType string, records [][]byte) []byte {
	var b bytes.Buffer
	switch mediaType {
	case TypeRaw:
		b.Write(records[0])
	case TypeRecords:
		for _, r := range records {
			b.Write(AppendRecord(nil, r))
		}
	case TypeNDJSON:
		for _, r := range records {
			b.WriteString(asJSON(r) + "\n")
		}
	case TypeJSON:
		b.WriteString(`{"records":[`)
		for i, r := range records {
			if i > 0 {
				b.WriteByte(',')
			}
			b.WriteString(asJSON(r))
		}
		b.WriteString(`]}`)
	}
	return b.Bytes()
}

// FuzzAppendBody: whatever the body, of whatever media type, its records are read without a panic, in memory in
// proportion to it, or it is refused as malformed or too large. The same records are read from what a client
// writes of them, in each media type, and text is what encoding/json reads.
func FuzzAppendBody(f *testing.F) {
	records := [][]byte{[]byte("one"), {}, {0xff, 0}}
	for kind, mediaType := range []string{TypeRecords, TypeNDJSON, TypeJSON, TypeRaw} {
		f.Add(uint8(kind), rewritten(mediaType, records))
	}
	f.Add(uint8(0), binary.AppendUvarint(nil, math.MaxUint64))
	f.Add(uint8(1), []byte(`{"text":"é\u00e9\ud83d\ude00"}`))
	f.Add(uint8(1), []byte(`{"text":"\ud83d"}`))
	f.Add(uint8(1), []byte("{\"text\":\"a\",\"data\":\"YQ==\"}\n\n{\"Text\":null}"))
	f.Add(uint8(2), []byte(`{"records":[{"text":"a"}],"records":[]}`))
	f.Add(uint8(2), []byte(`{"records":[]} 1`))
	f.Fuzz(func(t *testing.T, kind uint8, body []byte) {
		mediaType := []string{TypeRecords, TypeNDJSON, TypeJSON, TypeRaw}[kind%4]
		var got [][]byte
		var err error
		// A framed record takes a byte and a slice's header in memory, which is copied as the list grows.
		allocation.Bounded(t, 128*len(body), func() { got, err = decodeRecords(mediaType, body) })
		if err != nil {
			if !errors.Is(err, errSyntax) && !errors.Is(err, star.ErrTooLarge) {
				t.Fatalf("an undocumented error: %v", err)
			}
			return
		}
		if len(got) > service.MaxAppendRecords {
			t.Fatalf("%d records in one append", len(got))
		}
		if len(got) == 0 && mediaType == TypeRaw {
			t.Fatal("a body that is one record holds none")
		}
		for _, other := range []string{TypeRecords, TypeNDJSON, TypeJSON, mediaType} {
			again, err := decodeRecords(other, rewritten(other, got))
			if err != nil {
				t.Fatalf("the records of %s, written as %s: %v", mediaType, other, err)
			}
			if !sameRecords(got, again) {
				t.Fatalf("%q of %s are %q of %s", got, mediaType, again, other)
			}
		}
		if mediaType == TypeJSON {
			var plain struct{ Records []jsonRecord }
			if err := json.Unmarshal(body, &plain); err != nil || len(plain.Records) != len(got) {
				t.Fatalf("encoding/json reads %d records where %d were: %v", len(plain.Records), len(got), err)
			}
			for i, r := range plain.Records {
				if b, err := r.bytes(); err != nil || !bytes.Equal(b, got[i]) {
					t.Fatalf("record %d is %q, encoding/json reads %q, %v", i, got[i], b, err)
				}
			}
		}
	})
}

func sameRecords(a, b [][]byte) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if !bytes.Equal(a[i], b[i]) {
			return false
		}
	}
	return true
}

// FuzzEntries: whatever the bytes of a page, a client reads them without a panic and in proportion to them, or
// refuses them; and what it reads it reads again from what the server would write of it.
func FuzzEntries(f *testing.F) {
	var page bytes.Buffer
	if err := encodeEntries(&page, []service.Record{{Offset: 7, Timestamp: -1, Data: []byte("a")}, {Offset: math.MaxUint64, Timestamp: math.MaxInt64}}); err != nil {
		f.Fatal(err)
	}
	f.Add(page.Bytes())
	f.Add(append([]byte{1, 2}, binary.AppendUvarint(nil, math.MaxUint64)...))
	f.Fuzz(func(t *testing.T, body []byte) {
		var got []service.Record
		var err error
		allocation.Bounded(t, 64*len(body), func() { got, err = decodeEntries(body) })
		if err != nil {
			if !errors.Is(err, errSyntax) {
				t.Fatalf("an undocumented error: %v", err)
			}
			return
		}
		var written bytes.Buffer
		if err := encodeEntries(&written, got); err != nil || written.Len() != entriesSize(got) {
			t.Fatalf("%d bytes written, %d announced: %v", written.Len(), entriesSize(got), err)
		}
		again, err := decodeEntries(written.Bytes())
		if err != nil || len(again) != len(got) {
			t.Fatalf("%d entries where %d were: %v", len(again), len(got), err)
		}
		for i, r := range again {
			if r.Offset != got[i].Offset || r.Timestamp != got[i].Timestamp || !bytes.Equal(r.Data, got[i].Data) {
				t.Fatalf("entry %d is %v, it was %v", i, r, got[i])
			}
		}
	})
}

// FuzzHeaders: whatever stands in the head of a request, it is read without a panic and refused with the error
// that its client is told; and what is read is what would be written of it. value stands for each header in turn:
// the conditions of an append, where a read begins, what it goes on behind, media types and tokens.
func FuzzHeaders(f *testing.F) {
	for _, v := range []string{
		"", "0", "18446744073709551615", "18446744073709551616", "4294967296", "-10", "-0", "+1", "tail", "start", "1e3", "0x10", " 1",
		"2026-01-31T12:00:00Z", "2026-01-31T12:00:00.123456789+01:00", "9999-12-31T23:59:60Z", "0000-01-01T00:00:00-23:59",
		eventID(1<<56, 3), eventID(1, math.MaxUint64), "0100000000000000-", "00-1",
		"application/json", "application/json; charset=utf-8", "text/event-stream;q=0.5, */*;q=1e9", "*/*;q=nan", "application/vnd.nova.records;a",
		"Bearer 0123456789abcdef", "bearer  0123456789abcdef", "Basic 0123456789abcdef",
		"%2F", "a%zz", "id:0100000000000000",
	} {
		f.Add(v)
	}
	const token = "0123456789abcdef"
	guard := NewGuard([]string{token}, false)
	f.Fuzz(func(t *testing.T, value string) {
		refused := func(what string, err error) bool {
			if err == nil {
				return false
			}
			p, known := problemOf(err)
			if !known || p.Status < 400 || p.Status >= 500 {
				t.Fatalf("%s %q: %v is answered with %d", what, value, err, p.Status)
			}
			return true
		}
		in := appendInput{ProducerID: "p", Epoch: value, Sequence: value, Since: value, Expected: value,
			r: &http.Request{Header: http.Header{http.CanonicalHeaderKey(HeaderExpectedOffset): {value}}}}
		var req service.AppendRequest
		if !refused("conditions", in.conditions(&req)) {
			if n, err := headerUint("", value, 32); err != nil || req.Expected == nil || *req.Expected != n ||
				*req.Producer != (service.Producer{ID: "p", Epoch: uint32(n), Sequence: n, Since: n}) {
				t.Fatalf("conditions %q are read as %+v", value, req)
			}
		}
		if pos, err := service.ParsePosition(value); !refused("from", err) {
			if again, err := service.ParsePosition(pos.String()); err != nil || again.String() != pos.String() {
				t.Fatalf("from %q is written %q and read as %q: %v", value, pos, again, err)
			}
		}
		if stream, from, err := parseEventID(value); !refused("event", err) {
			id, ok := service.ParseID(stream)
			if !ok && !strings.HasPrefix(value, "0000000000000000-") { // no stream has that id, which its look-up says
				t.Fatalf("event %q is of the stream %q", value, stream)
			}
			if _, offset, _ := strings.Cut(value, "-"); ok && !strings.HasPrefix(value, id.String()) || from.String() == offset {
				t.Fatalf("event %q is read as %v of %v", value, from, id)
			}
		}
		if mediaType, err := appendMediaType(value); !refused("content type", err) {
			if again, err := appendMediaType(mediaType); err != nil || again != mediaType {
				t.Fatalf("content type %q is %q, and that is %q: %v", value, mediaType, again, err)
			}
		}
		offered := []string{TypeJSON, TypeNDJSON, TypeEntries, TypeEvents}
		if got := negotiate(value, offered...); got != "" && negotiate(got, offered...) != got {
			t.Fatalf("accept %q is answered with %q, which is not what it asks for itself", value, got)
		}
		if name, err := nameOf(value); !refused("name", err) && name == "" && value != "" {
			t.Fatalf("the name %q is none", value)
		}
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header["Authorization"] = []string{value}
		if guard.admits(r) && !strings.HasSuffix(strings.TrimSpace(value), token) {
			t.Fatalf("%q is let in", value)
		}
	})
}

// FuzzTokens: whatever a token file holds, it is read or refused, never with what stands in it; and the tokens
// read are those of a file of them alone.
func FuzzTokens(f *testing.F) {
	f.Add("0123456789abcdef\n")
	f.Add("# comment\r\n\r\n  0123456789abcdef  \r\nfedcba9876543210")
	f.Add("short\n")
	f.Add(strings.Repeat("0123456789abcdef\n", 65))
	f.Add("0123456789 abcdef\n")
	f.Fuzz(func(t *testing.T, text string) {
		var tokens []string
		var err error
		allocation.Bounded(t, 64*len(text), func() { tokens, err = readTokens("FILE", text) })
		if err != nil {
			if !errors.Is(err, ErrBadTokens) {
				t.Fatalf("an undocumented error: %v", err)
			}
			for line := range strings.Lines(text) {
				if line = strings.TrimSpace(line); len(line) >= MinTokenBytes && strings.Contains(err.Error(), line) {
					t.Fatalf("the error tells what the file holds: %v", err)
				}
			}
			return
		}
		again, err := readTokens("FILE", strings.Join(tokens, "\n"))
		if err != nil || strings.Join(again, "\n") != strings.Join(tokens, "\n") {
			t.Fatalf("%d tokens are read again as %d: %v", len(tokens), len(again), err)
		}
		guard := NewGuard(tokens, false)
		for _, token := range tokens {
			r := httptest.NewRequest(http.MethodGet, "/", nil)
			r.Header.Set("Authorization", "Bearer "+token)
			if !guard.admits(r) {
				t.Fatal("a token of the file is not let in")
			}
		}
	})
}
