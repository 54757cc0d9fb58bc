package main

import (
	"bytes"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/nova-store/nova/api/service"
)

func TestSizes(t *testing.T) {
	for text, want := range map[string]byteSize{"0": 0, "1": 1, "1048576": 1 << 20, "1MiB": 1 << 20, "512KiB": 512 << 10, "2 GiB": 2 << 30, "3B": 3} {
		var b byteSize
		require.NoError(t, b.parse(text), text)
		require.Equal(t, want, b)
		var again byteSize
		require.NoError(t, again.parse(b.String()))
		require.Equal(t, b, again)
	}
	for _, text := range []string{"", "MiB", "-1", "1.5MiB", "1MB", "9223372036854775807GiB", "one"} {
		var b byteSize
		require.Error(t, b.parse(text), text)
	}
}

func TestNegativePositionsAreNoFlags(t *testing.T) {
	require.Equal(t, []string{"read", "s", "--from=-10", "--limit", "2"}, joinNegative([]string{"read", "s", "--from", "-10", "--limit", "2"}))
	require.Equal(t, []string{"read", "--", "--from", "-10"}, joinNegative([]string{"read", "--", "--from", "-10"}))
	require.Equal(t, []string{"--from", "-x", "--from"}, joinNegative([]string{"--from", "-x", "--from"}))
}

// TestLinesAreCutAtNewlinesAlone: whatever the batches, the records are the lines.
func TestLinesAreCutAtNewlinesAlone(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		alphabet := rapid.SampledFrom([]byte{'\n', '\r', 0, 'a', 0xff})
		input := rapid.SliceOfN(alphabet, 0, 200).Draw(t, "input")
		maxBytes := rapid.IntRange(1, 20).Draw(t, "bytes")
		maxRecords := rapid.IntRange(1, 5).Draw(t, "records")
		out := make(chan [][]byte)
		failed := make(chan error, 1)
		go func() {
			failed <- readBatches(t.Context(), bytes.NewReader(input), maxBytes, maxRecords, out)
			close(out)
		}()
		var got [][]byte
		for batch := range out {
			size := 0
			for _, r := range batch {
				size += len(r)
			}
			if len(batch) > maxRecords || len(batch) > 1 && size > maxBytes {
				t.Fatalf("a batch of %d records and %d bytes", len(batch), size)
			}
			got = append(got, batch...)
		}
		require.NoError(t, <-failed)
		want := bytes.Split(input, []byte{'\n'})
		if len(want[len(want)-1]) == 0 {
			want = want[:len(want)-1] // behind the last newline there is no line
		}
		require.Len(t, got, len(want))
		for i := range want {
			require.True(t, bytes.Equal(want[i], got[i]))
		}
	})
}

// A line goes on its way although the sender was busy when it came, and although the next one is not complete.
func TestNoLineWaitsForMoreInput(t *testing.T) {
	in, source := io.Pipe()
	out := make(chan [][]byte)
	failed := make(chan error, 1)
	go func() { failed <- readBatches(t.Context(), in, 1<<20, 100, out) }()
	write := func(text string) {
		_, err := io.WriteString(source, text) // returns once it is read
		require.NoError(t, err)
	}
	takes := func(want string) {
		select {
		case batch := <-out:
			require.Equal(t, want, string(bytes.Join(batch, []byte("|"))))
		case <-time.After(time.Minute):
			t.Fatalf("%s is held back", want)
		}
	}
	write("a\nb\nunfi")
	takes("a|b")
	write("nished\n")
	write("c")
	takes("unfinished")
	require.NoError(t, source.Close())
	takes("c")
	require.NoError(t, <-failed)
}

func TestTheLargestLineIsTakenAndALargerOneNamed(t *testing.T) {
	largest := strings.Repeat("x", service.MaxRecordBytes)
	lines := newLineReader(strings.NewReader("a\n" + largest + "\n" + largest + "y\n"))
	for _, want := range []string{"a", largest} {
		got, err := lines.next()
		require.NoError(t, err)
		require.True(t, want == string(got))
	}
	_, err := lines.next()
	require.ErrorContains(t, err, "line 3 has more than 16777216 bytes")
}

func TestPreviewsAreSafeForATerminal(t *testing.T) {
	require.Equal(t, `a\x1b[31m\r\xff\x00`, preview([]byte("a\x1b[31m\r\xff\x00")))
	require.Equal(t, strings.Repeat("é", previewRunes)+"…", preview([]byte(strings.Repeat("é", previewRunes+1))))
	require.Empty(t, preview(nil))
}

func TestTheDemoTellsWhatTheLogSays(t *testing.T) {
	for line, want := range map[string]string{
		`{"level":"INFO","msg":"audit","action":"trimmed","chain":"d~1","from":0,"to":3}`: "deleted slots 0 to 2 of d~1",
		`{"level":"INFO","msg":"audit","action":"object-reaped","object":"settled/A"}`:    "deleted settled/A, which nothing named any more",
		`{"level":"WARN","msg":"job failed","error":"why"}`:                               "warn: job failed why",
		`{"level":"INFO","msg":"stopped"}`:                                                "",
		`no JSON`:                                                                         "",
	} {
		require.Equal(t, want, parseLogLine(line).tell(), line)
	}
}
