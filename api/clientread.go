package api

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/nova-store/nova/api/service"
	"github.com/nova-store/nova/catalog"
	"github.com/nova-store/nova/clock"
)

// ReadOptions say what to read. The zero value is a page from the first readable offset.
type ReadOptions struct {
	From       service.Position
	MaxRecords int // 0: the server's default
	MaxBytes   int // 0: the server's default
	// Wait is how long to wait for a record where there is none from there on, a minute at most.
	Wait time.Duration
}

// Read reads a page.
func (c *Client) Read(ctx context.Context, stream string, opts ReadOptions) (service.ReadResult, error) {
	if err := catalog.CheckStreamName(stream); err != nil {
		return service.ReadResult{}, err
	}
	q := url.Values{}
	if opts.From != (service.Position{}) {
		q.Set("from", opts.From.String())
	}
	if opts.MaxBytes > 0 {
		q.Set("max_bytes", strconv.Itoa(opts.MaxBytes))
	}
	if opts.Wait > 0 {
		q.Set("wait", strconv.FormatFloat(opts.Wait.Seconds(), 'f', -1, 64))
	}
	path := streamPath(stream) + "/records" + limited(q, opts.MaxRecords)
	resp, err := c.do(ctx, http.MethodGet, path, nil, http.Header{"Accept": {TypeEntries}})
	if err != nil {
		return service.ReadResult{}, err
	}
	page := service.ReadResult{}
	id, e0 := strconv.ParseUint(resp.header.Get(HeaderStreamID), 16, 64)
	page.Stream = catalog.StreamID(id)
	var e1, e2, e3, e4 error
	page.First, e1 = strconv.ParseUint(resp.header.Get(HeaderFirstOffset), 10, 64)
	page.Next, e2 = strconv.ParseUint(resp.header.Get(HeaderNextOffset), 10, 64)
	page.End, e3 = strconv.ParseUint(resp.header.Get(HeaderEndOffset), 10, 64)
	page.Records, e4 = decodeEntries(resp.body)
	if err := errors.Join(e0, e1, e2, e3, e4); err != nil {
		return service.ReadResult{}, resp.unreadable(err)
	}
	return page, nil
}

// followWait is how long one request of a Follow waits.
const followWait = 30 * time.Second

// FollowOptions say what to follow. The zero value is from the first readable offset, and gives up at the first failure.
type FollowOptions struct {
	From service.Position
	// RetryFor is how long requests that fail, though the server may come back, are repeated before Follow gives
	// up, counted from the first of them; 0: not at all.
	RetryFor time.Duration
}

// Follow hands f the pages of a stream, those to come included, each offset once and in order, until f or a
// request fails, or ctx ends. It follows the one stream that it finds first: once that is deleted it fails with
// ProblemNoStream, whatever comes to have its name. Once records that it has not seen are trimmed it fails with ProblemTrimmed.
func (c *Client) Follow(ctx context.Context, clk clock.Clock, stream string, opts FollowOptions, f func(service.ReadResult) error) error {
	from := opts.From
	var failing time.Time // since when
	for pause := 20 * time.Millisecond; ; {
		page, err := c.Read(ctx, stream, ReadOptions{From: from, MaxRecords: service.MaxReadRecords, Wait: followWait})
		if err != nil {
			_, again := JudgeFailure(err)
			if failing.IsZero() {
				failing = clk.Now()
			}
			if !again || ctx.Err() != nil || clk.Now().Add(pause).Sub(failing) > opts.RetryFor {
				return err
			}
			if err := clk.Sleep(ctx, clock.Jitter(clk, pause)); err != nil {
				return err
			}
			pause = min(2*pause, time.Second)
			continue
		}
		failing, pause = time.Time{}, 20*time.Millisecond
		stream, from = service.ByID(page.Stream), service.FromOffset(page.Next)
		if err := f(page); err != nil {
			return err
		}
	}
}
