package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/nova-store/nova/api"
	"github.com/nova-store/nova/api/service"
	"github.com/nova-store/nova/clock"
)

// appendCmd appends lines, each exactly once and in order, however often an answer is lost.
type appendCmd struct {
	serverFlag
	Stream       string        `arg:"" help:"Name of the stream."`
	Create       bool          `help:"Create the stream if it does not exist." env:"-"`
	File         string        `help:"Read from this file instead of standard input." env:"-" placeholder:"FILE"`
	Output       string        `help:"How to tell the result: text or json." enum:"text,json" default:"text" env:"-"`
	Batch        byteSize      `help:"Payload of one request, at most 16MiB; a larger record goes alone." default:"1MiB"`
	BatchRecords int           `help:"Records of one request, at most 65536." default:"8192"`
	RetryFor     time.Duration `help:"How long one request may take, with all its tries; 0: it is tried once, for as long as that takes." default:"15s"`
}

// Help is shown by novad append --help.
func (appendCmd) Help() string {
	return `The bytes of a line without its newline are the record: empty lines, carriage returns and bytes that are
not UTF-8 are kept. A last line without a newline is a record too. A record has 16 MiB at most.

Requests are idempotent: one whose answer is lost is repeated and appears once. If it fails
half-way it says how many records are durable and with which offsets, and exits with status 1. What takes long shows its
progress on a terminal.`
}

// appendReport is the output as JSON.
type appendReport struct {
	Stream      string  `json:"stream"`
	Records     int     `json:"records"`
	FirstOffset *uint64 `json:"first_offset"`
	LastOffset  *uint64 `json:"last_offset"`
	Error       string  `json:"error,omitempty"`
	// Unknown counts the records after those that may have been appended or not.
	Unknown int `json:"outcome_unknown,omitempty"`
}

// add counts what one request appended.
func (r *appendReport) add(n int, res api.AppendResult) {
	r.Records += n
	if r.FirstOffset == nil {
		r.FirstOffset = res.FirstOffset
	}
	if res.LastOffset != nil {
		r.LastOffset = res.LastOffset
	}
}

// String tells what is durable.
func (r *appendReport) String() string {
	if r.Records == 0 || r.FirstOffset == nil || r.LastOffset == nil {
		return fmt.Sprintf("%d records of stream %q are durable", r.Records, r.Stream)
	}
	text := fmt.Sprintf("%d records of stream %q are durable, with offsets %d to %d", r.Records, r.Stream, *r.FirstOffset, *r.LastOffset)
	if *r.LastOffset-*r.FirstOffset+1 != uint64(r.Records) {
		text += ", others' records in between"
	}
	return text
}

// Run appends, and reports what is durable, also of a failure.
func (c *appendCmd) Run(p *process) error {
	if err := checkStream(c.Stream); err != nil {
		return err
	}
	switch {
	case c.Batch < 1 || c.Batch > service.MaxAppendBytes:
		return usagef("--batch=%v: it must be 1B to 16MiB", c.Batch)
	case c.BatchRecords < 1 || c.BatchRecords > service.MaxAppendRecords:
		return usagef("--batch-records=%d: it must be 1 to %d", c.BatchRecords, service.MaxAppendRecords)
	case c.RetryFor < 0:
		return usagef("--retry-for=%v must not be below 0", c.RetryFor)
	}
	client, err := c.client()
	if err != nil {
		return err
	}
	defer client.Close()
	in := p.stdin
	if c.File != "" {
		f, err := os.Open(c.File)
		if err != nil {
			return err
		}
		defer f.Close()
		in = f
	}
	producer, err := c.producer(p.ctx, client)
	if err != nil {
		return err
	}
	bar := newProgress(p.stderr, in)
	report, err := appendLines(p.ctx, producer, in, c.Stream, int(c.Batch), c.BatchRecords, bar)
	bar.clear()
	if c.Output == "json" {
		if err != nil {
			report.Error = err.Error()
		}
		err = errors.Join(err, printJSON(p.stdout, report))
	} else if err == nil {
		err = printLine(p.stdout, report)
	}
	if err == nil {
		return nil
	}
	text := report.String()
	if report.Unknown > 0 {
		text += fmt.Sprintf("; whether the %d after them are is not known", report.Unknown)
	}
	return fmt.Errorf("%w: %s", err, text)
}

func (c *appendCmd) producer(ctx context.Context, client *api.Client) (*api.Producer, error) {
	if c.Create {
		if _, _, err := client.CreateStream(ctx, c.Stream, nil); err != nil {
			return nil, err
		}
	}
	producer, err := client.NewProducer(ctx, clock.NewReal(), c.Stream)
	if isProblem(err, api.ProblemNoStream) {
		return nil, fmt.Errorf("stream %q does not exist; add --create to make it", c.Stream)
	}
	if err != nil {
		return nil, err
	}
	producer.RetryFor = c.RetryFor
	return producer, nil
}

// appendLines appends the lines of in, while it reads ahead. The report is right also
// where it fails.
func appendLines(ctx context.Context, producer *api.Producer, in io.Reader, stream string, maxBytes, maxRecords int, bar *progress) (*appendReport, error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	report := &appendReport{Stream: stream}
	batches := make(chan [][]byte)
	readErr := make(chan error, 1)
	go func() {
		readErr <- readBatches(ctx, in, maxBytes, maxRecords, batches)
		close(batches)
	}()
	for {
		var batch [][]byte
		var more bool
		// The reader may be stuck in its input when the command is interrupted.
		select {
		case batch, more = <-batches:
		case <-ctx.Done():
			return report, errInterrupted
		}
		if !more {
			return report, <-readErr
		}
		res, err := producer.Append(ctx, batch)
		if err == nil {
			report.add(len(batch), res)
			for _, line := range batch {
				bar.add(len(line) + 1)
			}
			continue
		}
		var ae *api.AppendError
		if errors.As(err, &ae) && ae.Unknown {
			report.Unknown = len(batch)
		}
		if ctx.Err() != nil {
			err = errInterrupted
		}
		return report, err
	}
}

var errInterrupted = errors.New("interrupted")

// readBatches cuts lines into batches. A batch goes on its way as soon as the sender waits; until
// then it grows, and once it is full the input waits. No complete line waits for more input.
func readBatches(ctx context.Context, in io.Reader, maxBytes, maxRecords int, out chan<- [][]byte) error {
	chunks := make(chan [][]byte)
	failed := make(chan error, 1)
	go func() {
		failed <- readChunks(ctx, in, maxBytes, chunks)
		close(chunks)
	}()
	var batch [][]byte
	size := 0
	send := func() bool {
		if len(batch) == 0 {
			return true
		}
		select {
		case out <- batch:
			batch, size = nil, 0
			return true
		case <-ctx.Done():
			return false
		}
	}
	for {
		var waiting chan<- [][]byte
		if len(batch) > 0 {
			waiting = out
		}
		select {
		case chunk, more := <-chunks:
			if !more {
				if !send() {
					return nil
				}
				return <-failed
			}
			for _, line := range chunk {
				if (size+len(line) > maxBytes || len(batch) == maxRecords) && !send() {
					return nil
				}
				batch = append(batch, line)
				size += len(line)
			}
		case waiting <- batch:
			batch, size = nil, 0
		case <-ctx.Done():
			return nil
		}
	}
}

// readChunks hands over the lines that are at hand, about maxBytes of them at most.
func readChunks(ctx context.Context, in io.Reader, maxBytes int, chunks chan<- [][]byte) error {
	lines := newLineReader(in)
	for {
		var chunk [][]byte
		var err error
		for size := 0; err == nil && size <= maxBytes && (len(chunk) == 0 || lines.ready()); {
			var line []byte
			if line, err = lines.next(); err == nil {
				chunk = append(chunk, line)
				size += len(line)
			}
		}
		if len(chunk) > 0 {
			select {
			case chunks <- chunk:
			case <-ctx.Done():
				return nil
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
	}
}

// lineReader reads lines of any bytes, up to the largest record.
type lineReader struct {
	r    *bufio.Reader
	line int
}

func newLineReader(in io.Reader) *lineReader { return &lineReader{r: bufio.NewReaderSize(in, 256<<10)} }

// next returns the next line without its newline, in memory of its own; io.EOF after
// the last one.
func (l *lineReader) next() ([]byte, error) {
	l.line++
	var line []byte
	for {
		part, err := l.r.ReadSlice('\n')
		part, ended := bytes.CutSuffix(part, []byte{'\n'})
		if len(line)+len(part) > service.MaxRecordBytes {
			return nil, fmt.Errorf("line %d has more than %d bytes, the largest a record can have", l.line, service.MaxRecordBytes)
		}
		line = append(line, part...)
		switch {
		case ended:
			return line[:len(line):len(line)], nil
		case errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF):
			if len(line) == 0 {
				return nil, io.EOF
			}
			return line, nil
		default:
			return nil, fmt.Errorf("reading line %d: %w", l.line, err)
		}
	}
}

// ready tells that the next line need not be waited for.
func (l *lineReader) ready() bool {
	buffered, _ := l.r.Peek(l.r.Buffered()) // never more than there is: no error
	return bytes.IndexByte(buffered, '\n') >= 0
}
