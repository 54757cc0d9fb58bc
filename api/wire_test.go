package api

import (
	"bytes"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/nova-store/nova/api/service"
	"github.com/nova-store/nova/star"
)

// A body may hold millions of tiny records: they are counted as they are decoded, and not after.
func TestRecordsAreCountedBeforeTheyTakeMemory(t *testing.T) {
	record := `{"text":""},`
	body := []byte(`{"records":[` + strings.Repeat(record, MaxAppendBody/len(record)-10) + `{"text":""}]}`)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := decodeRecords(TypeJSON, body)
	runtime.ReadMemStats(&after)
	require.ErrorIs(t, err, star.ErrTooLarge)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(5*len(body)))
}

func TestFramedRecordsRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		records := rapid.SliceOfN(rapid.SliceOfN(rapid.Byte(), 0, 300), 1, 20).Draw(t, "records")
		var body []byte
		for _, r := range records {
			body = AppendRecord(body, r)
		}
		got, err := decodeRecords(TypeRecords, body)
		require.NoError(t, err)
		require.Len(t, got, len(records))
		for i := range records {
			require.True(t, bytes.Equal(records[i], got[i]))
			require.Equal(t, len(got[i]), cap(got[i]), "a record must not grow into the next one")
		}
		// Cut anywhere inside it, a body is refused or is a shorter list of whole records.
		cut := rapid.IntRange(0, len(body)-1).Draw(t, "cut")
		got, err = decodeRecords(TypeRecords, body[:cut])
		if err != nil {
			require.ErrorIs(t, err, errSyntax)
			return
		}
		require.Less(t, len(got), len(records))
	})
}

func TestEntriesRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var records []service.Record
		for range rapid.IntRange(0, 20).Draw(t, "n") {
			records = append(records, service.Record{
				Offset:    rapid.Uint64().Draw(t, "offset"),
				Timestamp: rapid.Int64().Draw(t, "timestamp"),
				Data:      append([]byte{}, rapid.SliceOfN(rapid.Byte(), 0, 300).Draw(t, "data")...),
			})
		}
		var body bytes.Buffer
		require.NoError(t, encodeEntries(&body, records))
		require.Equal(t, entriesSize(records), body.Len())
		got, err := decodeEntries(body.Bytes())
		require.NoError(t, err)
		require.Equal(t, records, got)
	})
}

// TestDecodersTakeAnyBytes looks for a panic and for memory beyond the input's.
func TestDecodersTakeAnyBytes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		body := rapid.SliceOfN(rapid.Byte(), 0, 100).Draw(t, "body")
		for _, mediaType := range []string{TypeRecords, TypeNDJSON, TypeJSON} {
			records, err := decodeRecords(mediaType, body)
			require.True(t, err == nil || len(records) == 0)
		}
		_, err := decodeEntries(body)
		if err != nil {
			require.ErrorIs(t, err, errSyntax)
		}
	})
}

func TestTextIsWholeOrRefused(t *testing.T) {
	for text, whole := range map[string]bool{
		`"é😀"`:                 true,
		`"\u00e9\ud83d\ude00"`: true,
		`"\\ud800"`:            true, // an escaped backslash, and letters
		`"\n\ufffd"`:           true,
		`"\`:                   true, // no JSON, which its decoder says
		`"\u12`:                true,
		`"\ud83d"`:             false,
		`"\ude00"`:             false,
		`"\ud83d\n"`:           false,
		`"\ud83d\ud83d\ude00"`: false,
		`"\\\ud83d"`:           false,
		"\"\xff\"":             false,
	} {
		require.Equal(t, whole, wholeText([]byte(text)), text)
	}
}
