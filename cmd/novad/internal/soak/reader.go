package soak

import (
	"context"
	"errors"
	"time"

	"github.com/nova-store/nova/api"
	"github.com/nova-store/nova/api/service"
)

const (
	followWait  = 3 * time.Second
	pageRecords = 1000
	probeMost   = 60
	probeEvery  = 150 * time.Millisecond
)

// follower reads a stream from its begin on as it grows, page by page from this star and that.
type follower struct {
	task
	l     *ledger
	begin uint64 // the first readable offset when it began
	next  uint64
	met   bool // next is where it goes on, not where it begins
}

func (f *follower) run(ctx context.Context) {
	for ctx.Err() == nil {
		if !f.page(ctx, followWait, func(service.ReadResult) {}) {
			return
		}
	}
}

// page reads one page. It is over when there is no such stream.
func (f *follower) page(ctx context.Context, wait time.Duration, each func(service.ReadResult)) bool {
	trimmed, _ := f.l.bounds()
	opts := api.ReadOptions{MaxRecords: pageRecords, Wait: wait}
	if f.met {
		opts.From = service.FromOffset(f.next)
	}
	var page service.ReadResult
	err := f.call(ctx, func(ctx context.Context, c *api.Client) (err error) {
		page, err = c.Read(ctx, f.l.id, opts)
		return err
	})
	if err == nil {
		f.take(page, trimmed)
		each(page)
		return true
	}
	var p *api.Problem
	if errors.As(err, &p) && p.Type == api.ProblemTrimmed && p.FirstOffset != nil {
		f.l.mayBegin(*p.FirstOffset)
		f.next, f.begin = *p.FirstOffset, *p.FirstOffset
		return true
	}
	switch v, _ := judge(ctx, err); v {
	case noStream:
		if !f.l.dying() {
			f.l.vanished("a read")
		}
		return false
	case odd:
		f.s.surprise("reading %s from %d: %v", f.l.id, f.next, err)
	}
	sleep(ctx, callPause)
	return true
}

// take checks that a page goes on where the last one ended, without a gap, and hands its records to the ledger.
func (f *follower) take(page service.ReadResult, trimmed uint64) {
	if !f.met {
		f.begin, f.met = page.First, true
		if len(page.Records) > 0 && f.l.maxBytes > 0 { // further ones may be expired
			f.begin = page.Records[0].Offset
		}
		f.l.mayBegin(f.begin)
		f.next = f.begin
	}
	for _, r := range page.Records {
		if r.Offset != f.next {
			f.l.gap(f.next, r.Offset)
		}
		if r.Offset < trimmed {
			f.l.served(r.Offset, trimmed)
		}
		f.next = r.Offset + 1
	}
	if page.Next != f.next {
		f.l.gap(f.next, page.Next)
		f.next = page.Next
	}
	f.l.observe(page.Records)
}

// probe reads a few records here and there, of settled objects as well as of slots, and below what is trimmed.
func (s *soak) probe(ctx context.Context) {
	t := s.task("probe", 0)
	for t.pause(ctx, probeEvery) {
		if l := s.anyLedger(t.r); l != nil {
			t.probe(ctx, l)
		}
	}
}

func (t *task) probe(ctx context.Context, l *ledger) {
	trimmed, end := l.bounds()
	deletions := l.deletions()
	below := trimmed > 0 && t.r.IntN(4) == 0
	var from uint64
	switch {
	case below:
		from = t.r.Uint64N(trimmed)
	case end > trimmed:
		from = trimmed + t.r.Uint64N(end-trimmed)
	default:
		return
	}
	var page service.ReadResult
	err := t.call(ctx, func(ctx context.Context, c *api.Client) (err error) {
		page, err = c.Read(ctx, l.id, api.ReadOptions{From: service.FromOffset(from), MaxRecords: 1 + t.r.IntN(probeMost)})
		return err
	})
	var p *api.Problem
	switch {
	case err == nil:
		f := follower{task: *t, l: l, next: from, met: true}
		f.take(page, trimmed)
		return
	case errors.As(err, &p) && p.Type == api.ProblemTrimmed && p.FirstOffset != nil:
		l.mayBegin(*p.FirstOffset)
		return
	}
	switch v, _ := judge(ctx, err); v {
	case noStream:
		if !l.dying() && l.deletions() == deletions { // it may have been undeleted since
			l.vanished("a read")
		}
	case odd:
		t.s.surprise("reading %s from %d: %v", l.id, from, err)
	}
}
