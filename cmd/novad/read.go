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
	"github.com/nova-store/nova/clock"
)

// readCmd reads a stream up to where its end was when it began, or for ever.
type readCmd struct {
	serverFlag
	Stream string `arg:"" help:"Name of the stream, or id: and its id."`
	From   string `help:"Where to begin: start (the first readable record), an offset, tail (after the last record), -N (the last N records), or a time like 2026-01-31T12:00:00Z." default:"start" env:"-" placeholder:"start|OFFSET|tail|-N|TIME"`
	Follow bool   `help:"Go on with the records to come." env:"-"`
	Limit  uint64 `help:"Records at most; 0 is no limit." env:"-"`
	Output string `help:"raw: each record's bytes and a newline; json: an object a line, the bytes in base64; table: for people." enum:"raw,json,table" default:"raw" env:"-"`
}

// Help is shown by novad read --help.
func (readCmd) Help() string {
	return `Reads up to the end of the stream as it was when the command began; with --follow until it is interrupted, --limit is
reached, or the stream is deleted. A follower waits up to 15 seconds for a server that is away.

A damaged object ends the output with an error that names it; what was printed until then is right. An offset below the
first readable one is an error that names that one; start begins there.`
}

// followRetry is how long --follow waits for a server that is away.
const followRetry = 15 * time.Second

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
	if c.Follow {
		err = followStream(p.ctx, client, c.Stream, from, c.Limit, print, out.Flush)
	} else {
		err = readStream(p.ctx, client, c.Stream, from, c.Limit, print)
	}
	if ferr := out.Flush(); ferr != nil && (err == nil || !errors.Is(err, ferr)) {
		err = errors.Join(err, ferr)
	}
	switch {
	case errors.Is(err, syscall.EPIPE):
		return nil
	case c.Follow && p.ctx.Err() != nil && errors.Is(err, p.ctx.Err()):
		return nil // that is how it ends
	}
	return noStream(c.Stream, err)
}

// errEnough ends a follow that reached its limit.
var errEnough = errors.New("enough")

// followStream hands the records from a position on to f, those to come included, limit at most (0: all); flushed
// after each page.
func followStream(ctx context.Context, client *api.Client, stream string, from service.Position, limit uint64, f func(service.Record) error, flush func() error) error {
	left := limit
	err := client.Follow(ctx, clock.NewReal(), stream, api.FollowOptions{From: from, RetryFor: followRetry}, func(page service.ReadResult) error {
		for _, r := range page.Records {
			if err := f(r); err != nil {
				return err
			}
			if left--; limit > 0 && left == 0 {
				return errEnough
			}
		}
		return flush()
	})
	if errors.Is(err, errEnough) {
		return nil
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
		stream, from = service.ByID(page.Stream), service.FromOffset(page.Next)
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
