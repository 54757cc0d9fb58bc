package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os/signal"
	"strconv"
	"syscall"
	"time"
	"unicode/utf8"

	"github.com/nova-store/nova/api"
	"github.com/nova-store/nova/api/service"
)

// readCmd reads a stream up to where its end was when it began.
type readCmd struct {
	serverFlag
	Stream string `arg:"" help:"Name of the stream."`
	From   string `help:"Where to begin: an offset, tail (after the last record), or -N (the last N records). Absent: the first readable record." env:"-" placeholder:"OFFSET|tail|-N"`
	Limit  uint64 `help:"Records at most; 0 is no limit." env:"-"`
	Output string `help:"raw: each record's bytes and a newline; json: an object a line, the bytes in base64; table: for people." enum:"raw,json,table" default:"raw" env:"-"`
}

// Help is shown by novad read --help.
func (readCmd) Help() string {
	return `Reads up to the end of the stream as it was when the command began. A damaged object ends the output with
an error that names it; what was printed until then is right.`
}

// Run prints the records, page by page.
func (c *readCmd) Run(p *process) error {
	if err := checkStream(c.Stream); err != nil {
		return err
	}
	from, err := service.ParsePosition(c.From)
	if err != nil {
		return usagef("--from: %w", err)
	}
	client, err := c.client()
	if err != nil {
		return err
	}
	defer client.Close()
	// A closed pipe is then an error of a write, which ends the output quietly.
	signal.Ignore(syscall.SIGPIPE)
	out := bufio.NewWriterSize(p.stdout, 256<<10)
	print := recordPrinter(c.Output, out)
	err = readStream(p.ctx, client, c.Stream, from, c.Limit, func(r service.Record) error { return print(r) })
	if ferr := out.Flush(); ferr != nil && (err == nil || !errors.Is(err, ferr)) {
		err = errors.Join(err, ferr)
	}
	switch {
	case errors.Is(err, syscall.EPIPE):
		return nil
	case isProblem(err, api.ProblemNoStream):
		return fmt.Errorf("stream %q does not exist", c.Stream)
	}
	return err
}

// readStream hands the records from a position on to f, up to where the stream ended
// when it began, limit at most (0: all).
func readStream(ctx context.Context, client *api.Client, stream string, from service.Position, limit uint64, f func(service.Record) error) error {
	end := uint64(0)
	for first := true; ; first = false {
		opts := api.ReadOptions{From: from, MaxRecords: service.MaxReadRecords, MaxBytes: service.DefaultReadBytes}
		if limit > 0 && limit < service.MaxReadRecords {
			opts.MaxRecords = int(limit)
		}
		page, err := client.Read(ctx, stream, opts)
		if err != nil {
			return err
		}
		if first {
			end = page.End
		}
		for _, r := range page.Records {
			if r.Offset >= end {
				return nil
			}
			if err := f(r); err != nil {
				return err
			}
		}
		if limit > 0 {
			if limit -= min(limit, uint64(len(page.Records))); limit == 0 {
				return nil
			}
		}
		if page.Next >= end || len(page.Records) == 0 {
			return nil
		}
		from = service.FromOffset(page.Next)
	}
}

// recordPrinter returns what prints a record in the given way.
func recordPrinter(output string, w *bufio.Writer) func(service.Record) error {
	switch output {
	case "json":
		return func(r service.Record) error {
			if r.Data == nil {
				r.Data = []byte{}
			}
			return printJSON(w, api.Record(r))
		}
	case "table":
		headed := false
		return func(r service.Record) error {
			if !headed {
				headed = true
				fmt.Fprintf(w, "%12s  %-24s  %9s  %s\n", "OFFSET", "TIME", "BYTES", "RECORD")
			}
			_, err := fmt.Fprintf(w, "%12d  %-24s  %9d  %s\n", r.Offset,
				time.UnixMilli(r.Timestamp).UTC().Format("2006-01-02T15:04:05.000Z"), len(r.Data), preview(r.Data))
			return err
		}
	}
	return func(r service.Record) error { return printRaw(w, r.Data) }
}

func printRaw(w io.Writer, data []byte) error {
	if _, err := w.Write(data); err != nil {
		return err
	}
	_, err := w.Write([]byte{'\n'})
	return err
}

// previewRunes is how much of a record a table shows.
const previewRunes = 96

// preview is the beginning of a record, safe for a terminal.
func preview(data []byte) string {
	cut := data
	for n, i := 0, 0; i < len(data); n++ {
		if n == previewRunes {
			cut = data[:i]
			break
		}
		_, size := utf8.DecodeRune(data[i:])
		i += size
	}
	text := strconv.Quote(string(cut))
	text = text[1 : len(text)-1]
	if len(cut) < len(data) {
		text += "…"
	}
	return text
}
