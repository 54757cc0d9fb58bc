package api

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/nova-store/nova/api/service"
	"github.com/nova-store/nova/star"
)

// Media types of records on the wire.
//
// An append's body is one of:
//
//   - application/octet-stream: the body is the one record, byte for byte;
//   - application/vnd.nova.records: records one after the other, each its length as an
//     unsigned varint (LEB128, as protobuf's) and its bytes;
//   - application/x-ndjson: one JSON object a line, {"data":"…base64…"} or
//     {"text":"…UTF-8…"};
//   - application/json: {"records":[…the same objects…]}.
//
// A read answers with one of:
//
//   - application/json and application/x-ndjson: objects with offset, timestamp (Unix
//     milliseconds) and data (base64);
//   - application/vnd.nova.entries: records one after the other, each its offset
//     (unsigned varint), timestamp (zigzag varint, Unix milliseconds), length
//     (unsigned varint) and bytes;
//   - text/event-stream: an event for each record, those to come included.
const (
	TypeRaw     = "application/octet-stream"
	TypeRecords = "application/vnd.nova.records"
	TypeEntries = "application/vnd.nova.entries"
	TypeNDJSON  = "application/x-ndjson"
	TypeJSON    = "application/json"
	TypeEvents  = "text/event-stream"
	TypeProblem = "application/problem+json"
)

// Bounds of one request.
const (
	// MaxAppendBody bounds the body of an append: 16 MiB of payload in base64, and room for
	// what is around it. [service.MaxAppendBytes] bounds the payload.
	MaxAppendBody = 24 << 20
	// MaxBody bounds every other body.
	MaxBody = 64 << 10
)

// AppendRecord adds a record in the framing of TypeRecords.
func AppendRecord(dst, record []byte) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(record)))
	return append(dst, record...)
}

// errSyntax: a body is not what its media type says.
var errSyntax = errors.New("malformed body")

// tooMany: a body holds more records than one append may.
func tooMany() error {
	return fmt.Errorf("%w: more than %d records in one append", star.ErrTooLarge, service.MaxAppendRecords)
}

func tooLarge(record int, size uint64) error {
	return &star.TooLargeError{Record: record, Bytes: int(min(size, math.MaxInt)), Most: service.MaxRecordBytes}
}

// decodeRecords reads the records of an append's body. They share its memory where
// the media type allows. Bounds that only the whole append shows are the service's.
func decodeRecords(mediaType string, body []byte) ([][]byte, error) {
	switch mediaType {
	case TypeRaw:
		return [][]byte{body}, nil
	case TypeRecords:
		return decodeFramed(body)
	case TypeNDJSON:
		return decodeNDJSON(body)
	case TypeJSON:
		return decodeJSON(body)
	}
	return nil, fmt.Errorf("unknown media type %q", mediaType)
}

func decodeFramed(body []byte) ([][]byte, error) {
	var records [][]byte
	for len(body) > 0 {
		n, k := binary.Uvarint(body)
		if k <= 0 {
			return nil, fmt.Errorf("%w: the length of record %d is cut short or too long", errSyntax, len(records))
		}
		// Before "cut short": a client that sends too large a record is told so.
		if n > service.MaxRecordBytes {
			return nil, tooLarge(len(records), n)
		}
		if n > uint64(len(body)-k) {
			return nil, fmt.Errorf("%w: record %d is cut short", errSyntax, len(records))
		}
		if len(records) == service.MaxAppendRecords {
			return nil, tooMany()
		}
		end := k + int(n)
		records = append(records, body[k:end:end])
		body = body[end:]
	}
	return records, nil
}

// jsonRecord is a record in JSON: exactly one of the two.
type jsonRecord struct {
	Data *[]byte `json:"data"`
	Text *string `json:"text"`
}

func (r *jsonRecord) bytes() ([]byte, error) {
	switch {
	case (r.Data == nil) == (r.Text == nil):
		return nil, errors.New(`a record has exactly one of "data" (base64) and "text"`)
	case r.Data != nil:
		return *r.Data, nil
	}
	return []byte(*r.Text), nil
}

// errNotText: encoding/json would put U+FFFD where a string is not UTF-8 or escapes half of a
// surrogate pair, other bytes than those sent.
var errNotText = errors.New("not UTF-8, or half of a surrogate pair")

// errUseData says how a record may hold such bytes.
var errUseData = fmt.Errorf(`%w; send such bytes as "data" in base64`, errNotText)

// wholeText tells whether encoding/json keeps every string of a JSON text as it is.
func wholeText(text []byte) bool {
	if !utf8.Valid(text) {
		return false
	}
	for {
		i := bytes.IndexByte(text, '\\')
		if i < 0 || i+1 == len(text) {
			return true
		}
		r, ok := escapedRune(text[i:])
		switch {
		case !ok: // another escape, two bytes of it at least
			text = text[i+2:]
		case !utf16.IsSurrogate(r):
			text = text[i+6:]
		default:
			low, _ := escapedRune(text[i+6:])
			if utf16.DecodeRune(r, low) == utf8.RuneError {
				return false
			}
			text = text[i+12:]
		}
	}
}

// escapedRune is the \uXXXX that text begins with.
func escapedRune(text []byte) (rune, bool) {
	if len(text) < 6 || text[0] != '\\' || text[1] != 'u' {
		return 0, false
	}
	n, err := strconv.ParseUint(string(text[2:6]), 16, 16)
	return rune(n), err == nil
}

// strictJSON decodes one JSON value and refuses anything else.
func strictJSON(text []byte, v any) error {
	if !wholeText(text) {
		return errUseData
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return err
	}
	return jsonEnd(d)
}

func jsonEnd(d *json.Decoder) error {
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("more after the JSON value")
	}
	return nil
}

// jsonDelim takes the next token, which must be want.
func jsonDelim(d *json.Decoder, want json.Delim) error {
	t, err := d.Token()
	switch {
	case errors.Is(err, io.EOF):
		return io.ErrUnexpectedEOF
	case err != nil:
		return err
	case t != want:
		return fmt.Errorf("%v where %v should be", t, want)
	}
	return nil
}

// decodeJSON takes the records one by one, so that too many are refused before they take memory.
func decodeJSON(body []byte) ([][]byte, error) {
	malformed := func(err error) error { return fmt.Errorf("%w: %w", errSyntax, err) }
	if !wholeText(body) {
		return nil, malformed(errUseData)
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	if err := jsonDelim(d, '{'); err != nil {
		return nil, malformed(err)
	}
	var records [][]byte
	for given := false; d.More(); given = true {
		key, err := d.Token()
		if err == nil && (given || key != "records") {
			err = fmt.Errorf(`field %q; the one field, once, is "records"`, key)
		}
		if err == nil {
			err = jsonDelim(d, '[')
		}
		if err != nil {
			return nil, malformed(err)
		}
		for d.More() {
			if len(records) == service.MaxAppendRecords {
				return nil, tooMany()
			}
			var r jsonRecord
			err := d.Decode(&r)
			var b []byte
			if err == nil {
				b, err = r.bytes()
			}
			if err != nil {
				return nil, malformed(fmt.Errorf("record %d: %w", len(records), err))
			}
			records = append(records, b)
		}
		if err := jsonDelim(d, ']'); err != nil {
			return nil, malformed(err)
		}
	}
	err := jsonDelim(d, '}')
	if err == nil {
		err = jsonEnd(d)
	}
	if err != nil {
		return nil, malformed(err)
	}
	return records, nil
}

func decodeNDJSON(body []byte) ([][]byte, error) {
	var records [][]byte
	for line := range bytes.Lines(body) {
		line = bytes.TrimSpace(line)
		if len(line) == 0 {
			continue
		}
		if len(records) == service.MaxAppendRecords {
			return nil, tooMany()
		}
		var r jsonRecord
		err := strictJSON(line, &r)
		var b []byte
		if err == nil {
			b, err = r.bytes()
		}
		if err != nil {
			return nil, fmt.Errorf("%w: record %d: %w", errSyntax, len(records), err)
		}
		records = append(records, b)
	}
	return records, nil
}

// entriesSize is the length of encodeEntries' output, for Content-Length.
func entriesSize(records []service.Record) int {
	n := 0
	var scratch [binary.MaxVarintLen64]byte
	for _, r := range records {
		n += binary.PutUvarint(scratch[:], r.Offset)
		n += binary.PutVarint(scratch[:], r.Timestamp)
		n += binary.PutUvarint(scratch[:], uint64(len(r.Data)))
		n += len(r.Data)
	}
	return n
}

// encodeEntries writes records in the framing of TypeEntries.
func encodeEntries(w io.Writer, records []service.Record) error {
	buf := bufio.NewWriterSize(w, 64<<10)
	var head []byte
	for _, r := range records {
		head = binary.AppendUvarint(head[:0], r.Offset)
		head = binary.AppendVarint(head, r.Timestamp)
		head = binary.AppendUvarint(head, uint64(len(r.Data)))
		if _, err := buf.Write(head); err != nil {
			return err
		}
		if _, err := buf.Write(r.Data); err != nil {
			return err
		}
	}
	return buf.Flush()
}

// decodeEntries reads what encodeEntries wrote. The records share body's memory.
func decodeEntries(body []byte) ([]service.Record, error) {
	var records []service.Record
	for len(body) > 0 {
		var r service.Record
		var k int
		if r.Offset, k = binary.Uvarint(body); k <= 0 {
			return nil, fmt.Errorf("%w: entry %d is cut short", errSyntax, len(records))
		}
		body = body[k:]
		if r.Timestamp, k = binary.Varint(body); k <= 0 {
			return nil, fmt.Errorf("%w: entry %d is cut short", errSyntax, len(records))
		}
		body = body[k:]
		n, k := binary.Uvarint(body)
		if k <= 0 || n > uint64(len(body)-k) {
			return nil, fmt.Errorf("%w: entry %d is cut short", errSyntax, len(records))
		}
		end := k + int(n)
		r.Data = body[k:end:end]
		body = body[end:]
		records = append(records, r)
	}
	return records, nil
}
