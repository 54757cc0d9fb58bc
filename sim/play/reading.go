package play

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nova-store/nova/catalog"
	"github.com/nova-store/nova/objstore"
	"github.com/nova-store/nova/objstore/format"
	"github.com/nova-store/nova/sim"
	"github.com/nova-store/nova/sim/check"
	"github.com/nova-store/nova/star"
)

// read reads streams again and again, until the writers are done: on from where it is, old records,
// from a time, from the start, and as a follower, who waits at the end.
func (g *game) read(ctx context.Context, c *sim.Client, streams []string, rounds int, pause time.Duration) {
	at := make(map[string]uint64)
	of := make(map[string]catalog.StreamID)
	for i := 0; i < rounds && ctx.Err() == nil && g.w.Found() == nil; i++ {
		_ = c.Clock().Sleep(ctx, c.Rand.Between(pause/4, pause))
		stream := streams[c.Rand.N(len(streams))]
		p := g.serving(c.Rand.N(len(g.order)))
		if p == nil {
			continue
		}
		if id := g.check.Stream(stream); id != of[stream] {
			at[stream], of[stream] = 0, id // another stream of that name
		}
		req := star.ReadRequest{Name: stream, From: at[stream], MaxRecords: 1 + c.Rand.N(200), MaxBytes: int64(1 + c.Rand.N(64<<10))}
		follow := false
		switch c.Rand.N(8) {
		case 0, 1:
			if req.From > 0 {
				req.From = uint64(c.Rand.N(int(req.From))) // old records: slots and settled objects
			}
		case 2:
			req.Start = true
		case 3:
			req.Since = g.w.Time().Add(-c.Rand.Between(0, time.Minute))
		case 4:
			follow = true
		}
		var next uint64
		var err error
		if follow {
			next, err = g.follow(ctx, c, p, req, c.Rand.Between(0, 4*time.Second))
		} else {
			next, _, err = g.readOnce(ctx, c, p, req)
		}
		switch {
		case err == nil:
			at[stream] = max(at[stream], next)
		default:
			g.w.Mark("client/read-failed")
		}
	}
}

type readAnswer struct {
	res star.ReadResult
	err error
}

// readOnce reads from a position and judges what it was given; it returns where to go
// on, and the stream's end.
func (g *game) readOnce(ctx context.Context, c *sim.Client, p *Process, req star.ReadRequest) (next, end uint64, err error) {
	began, lives, damage := g.check.Reading(req.Name), g.lives(req.Name), g.damage()
	asked := g.histories.Look(req.Name)
	ans, err := sim.Call(ctx, c, p.Inc, "read", func(ctx context.Context) readAnswer {
		res, err := p.Star.Read(ctx, req)
		return readAnswer{res, err}
	})
	if err == nil {
		err = ans.err
	}
	if err == nil {
		asked.Landed(ans.res.End)
	}
	g.readError(fmt.Sprintf("a read from offset %d", req.From), req.Name, lives, damage, err)
	return g.judgeRead(began, &req, &ans.res, err)
}

// follow waits as a long poll does: until there is a record at the offset, or for so long at most;
// then it reads. Who was told that there is one must be given one, unless it went meanwhile.
func (g *game) follow(ctx context.Context, c *sim.Client, p *Process, req star.ReadRequest, most time.Duration) (next uint64, err error) {
	began, lives, damage := g.check.Reading(req.Name), g.lives(req.Name), g.damage()
	told := false
	ans, err := sim.Call(ctx, c, p.Inc, "follow", func(ctx context.Context) readAnswer {
		res, err := p.Star.Read(ctx, req)
		if err != nil || len(res.Records) > 0 {
			return readAnswer{res, err}
		}
		f, err := p.Star.Follow(ctx, res.Stream)
		if err != nil {
			return readAnswer{err: err}
		}
		defer f.Close()
		wctx, cancel := p.Inc.Clock().WithTimeout(ctx, most)
		defer cancel()
		if f.Wait(wctx, res.Next) != nil {
			return readAnswer{res: res}
		}
		told = true
		again := req
		again.Stream, again.From = res.Stream, res.Next
		res, err = p.Star.Read(ctx, again)
		return readAnswer{res, err}
	})
	if err == nil {
		err = ans.err
	}
	if told {
		g.w.Mark("client/followed")
		if err == nil && len(ans.res.Records) == 0 {
			g.w.Finding(check.Lost, req.Name, fmt.Sprintf("a follower at offset %d was told of a record, and given none", req.From))
		}
	}
	g.readError(fmt.Sprintf("a read from offset %d", req.From), req.Name, lives, damage, err)
	next, _, err = g.judgeRead(began, &req, &ans.res, err)
	return next, err
}

// damage is how often the bucket has answered a read with other bytes than those put, so far.
func (g *game) damage() (n int) {
	marks := g.w.Marks()
	for _, m := range []string{"fault/corrupt-read", "fault/truncate-read", "inject/corrupt", "inject/short", "inject/missing"} {
		n += marks[m]
	}
	return n
}

// readError judges a read's error. Damage is told only where the bucket gave damaged bytes while it was under way, and
// that there is no such stream only where one was deleted. What was trimmed, or is beyond the end, judgeRead judges.
func (g *game) readError(what, stream string, lives lives, damage int, err error) {
	g.found(stream, lives, err)
	may := []error{catalog.ErrNoStream, star.ErrTrimmed, star.ErrBeyondEnd}
	if g.damage() != damage {
		may = append(may, format.ErrCorrupt, objstore.ErrNotFound)
	}
	g.expected(what, stream, err, may...)
}

// judgeRead judges a read's answer.
func (g *game) judgeRead(began check.Reading, req *star.ReadRequest, r *star.ReadResult, err error) (next, end uint64, _ error) {
	defer g.check.Judged(began)
	name, from := req.Name, req.From
	fixed := !req.Start && req.Since.IsZero()
	var trimmed *star.TrimmedError
	if errors.As(err, &trimmed) {
		g.check.ToldTrimmed(began, trimmed.Stream, trimmed.From, trimmed.First)
		return trimmed.First, max(trimmed.First, g.check.Next(name)), nil
	}
	var beyond *star.BeyondEndError
	if errors.As(err, &beyond) && beyond.Stream == began.ID && from <= began.Next {
		g.w.Finding(check.Lost, name, fmt.Sprintf("a read from offset %d, which was absorbed, is beyond the end", from))
	}
	if err != nil {
		return 0, 0, err
	}
	payloads := make([][]byte, len(r.Records))
	for i := range r.Records {
		payloads[i] = r.Records[i].Data
	}
	n := len(r.Records)
	switch {
	case fixed && n > 0 && r.First != from, n > 0 && r.Next != r.First+uint64(n):
		g.w.Finding(check.Lost, name, fmt.Sprintf("a read from %d answers from %d, %d records, next %d", from, r.First, n, r.Next))
	case n == 0 && r.First < r.End:
		g.w.Finding(check.Lost, name, fmt.Sprintf("a read from %d gives nothing; the end is %d", r.First, r.End))
	case r.Stream == began.ID && r.End < began.Next:
		g.w.Finding(check.Lost, name, fmt.Sprintf("a read is told that the end is %d, and %d were absorbed when it began", r.End, began.Next))
	}
	switch {
	case req.Start:
		g.w.Mark("client/read-start")
		g.check.BeganAt(began, r.Stream, 0, r.First)
	case !req.Since.IsZero():
		g.w.Mark("client/read-since")
		g.check.BeganAt(began, r.Stream, g.check.Since(r.Stream, ceilMS(req.Since)), r.First)
	}
	g.check.Read(began, r.Stream, r.First, payloads)
	return max(r.Next, from), r.End, nil
}

// readAll reads a stream from its first offset to its end.
func (g *game) readAll(ctx context.Context, c *sim.Client, p *Process, name string) error {
	least := g.check.Next(name)
	at := uint64(0)
	for {
		next, end, err := g.readOnce(ctx, c, p, star.ReadRequest{Name: name, From: at, MaxRecords: 1000, MaxBytes: 1 << 20})
		if err != nil {
			return err
		}
		if end < least {
			return fmt.Errorf("it ends at offset %d, and %d were absorbed before", end, least)
		}
		if at = next; at >= end {
			return nil
		}
	}
}

// readUntil is readAll, begun again on another process as long as its star dies
// or does not serve yet.
func (g *game) readUntil(ctx context.Context, c *sim.Client, name string) error {
	for tries := 0; ; tries++ {
		var err error
		if p := g.serving(c.Rand.N(len(g.order))); p != nil {
			if err = g.readAll(ctx, c, p, name); err == nil {
				return nil
			}
		}
		if err != nil && !passes(err) || tries > 1000 {
			return fmt.Errorf("after %d tries: %w", tries+1, err)
		}
		if err := c.Clock().Sleep(ctx, 50*time.Millisecond); err != nil {
			return err
		}
	}
}

// ceilMS is a time in Unix milliseconds, rounded up: a record of the millisecond in which it lies is older.
func ceilMS(t time.Time) int64 {
	ms := t.UnixMilli()
	if t.After(time.UnixMilli(ms)) {
		ms++
	}
	return ms
}
