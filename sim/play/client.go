package play

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nova-store/nova/catalog"
	"github.com/nova-store/nova/objstore/format"
	"github.com/nova-store/nova/sim"
	"github.com/nova-store/nova/sim/check"
	"github.com/nova-store/nova/star"
)

// appendArgs is one append of a client.
type appendArgs struct {
	id       uint64
	stream   string
	records  []format.Record
	expected *uint64
	producer *format.Producer
	lives    lives // of the stream, when its producer began
}

// newAppend makes an append of n records of about size bytes, and tells the checker, also whether
// it will be sent until its outcome is definite.
func (g *game) newAppend(stream string, n, size int, repeated bool) appendArgs {
	g.nextID++
	return g.numberedAppend(g.nextID, stream, n, size, repeated)
}

func (g *game) numberedAppend(number uint64, stream string, n, size int, repeated bool) appendArgs {
	a := appendArgs{id: number, stream: stream}
	ts := g.w.Time().UnixMilli()
	for i := range n {
		a.records = append(a.records, format.Record{Timestamp: ts, Data: check.AppendPayload(nil, a.id, uint32(i), uint32(n), max(size, check.PayloadMin))})
	}
	g.check.Sending(a.id, stream, n, repeated)
	return a
}

type appendAnswer struct {
	res star.AppendResult
	err error
}

// send calls a star once.
func (g *game) send(ctx context.Context, c *sim.Client, p *Process, a appendArgs) (star.AppendResult, error) {
	req := star.AppendRequest{Name: a.stream, Records: a.records, Expected: a.expected}
	if a.producer != nil {
		pr := *a.producer
		req.Producer, req.SinceKnown = &pr, true
	}
	ans, err := sim.Call(ctx, c, p.Inc, "append", func(ctx context.Context) appendAnswer {
		res, err := p.Star.Append(ctx, req)
		return appendAnswer{res, err}
	})
	if err != nil {
		return star.AppendResult{}, err
	}
	return ans.res, ans.err
}

// definitelyNot tells whether an answer says that the append did not happen and never
// will: one that also says that the outcome is unknown does not.
func definitelyNot(err error) bool {
	if errors.Is(err, star.ErrOutcomeUnknown) {
		return false
	}
	for _, e := range []error{star.ErrOverloaded, star.ErrNotReady, star.ErrShuttingDown, star.ErrBadRequest, star.ErrTooLarge,
		star.ErrWrongOffset, star.ErrProducerGap, star.ErrProducerFenced, catalog.ErrNoStream, sim.ErrDown} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// appendOnce sends an append once. It returns whether the outcome is known, and
// whether the records are there.
func (g *game) appendOnce(ctx context.Context, c *sim.Client, a appendArgs, pick int) (known, there bool) {
	p := g.serving(pick)
	if p == nil {
		g.check.Refused(a.id, a.stream)
		return true, false
	}
	lives := g.lives(a.stream)
	res, err := g.send(ctx, c, p, a)
	g.found(a.stream, lives, err)
	switch {
	case err == nil:
		g.check.Acknowledged(a.id, res.Stream, res.First, res.Last, res.OffsetsKnown)
		return true, true
	case definitelyNot(err) && (a.producer == nil || !errors.Is(err, catalog.ErrNoStream)):
		// Where the stream is gone an idempotent append may have been there until then.
		g.check.Refused(a.id, a.stream)
		return true, false
	}
	g.w.Mark("client/unknown")
	return false, false
}

// appendUntil sends an idempotent append until its outcome is definite. Only a
// producer whose state was lost leaves it unknown: false.
func (g *game) appendUntil(ctx context.Context, c *sim.Client, a appendArgs) bool {
	for try := 0; ; try++ {
		if p := g.serving(c.Rand.N(len(g.order))); p != nil {
			lives := g.lives(a.stream)
			res, err := g.send(ctx, c, p, a)
			g.found(a.stream, lives, err)
			switch {
			case err == nil:
				if try > 0 {
					g.w.Mark("client/retried")
				}
				g.check.Acknowledged(a.id, res.Stream, res.First, res.Last, res.OffsetsKnown)
				return true
			case errors.Is(err, star.ErrProducerLost):
				g.w.Mark("client/producer-lost")
				return false
			case errors.Is(err, catalog.ErrNoStream):
				g.w.Mark("client/stream-gone")
				return false
			case g.lives(a.stream) != a.lives || a.lives.deleting:
				if errors.Is(err, star.ErrProducerGap) || errors.Is(err, star.ErrProducerFenced) {
					// The name leads to another stream by now, which knows nothing of this producer.
					g.w.Mark("client/stream-replaced")
					return false
				}
			case errors.Is(err, star.ErrProducerGap), errors.Is(err, star.ErrProducerFenced), errors.Is(err, star.ErrBadRequest):
				g.w.Finding(check.Lost, a.stream, fmt.Sprintf("the next append of a lone producer, %d, was refused: %v", a.id, err))
				return false
			}
		}
		if ctx.Err() != nil || g.w.Found() != nil {
			return false
		}
		_ = c.Clock().Sleep(ctx, c.Rand.Between(50*time.Millisecond, time.Second))
	}
}

// producer is an idempotent producer of one stream, as a client keeps it.
type producer struct {
	id    string
	epoch uint32
	seq   uint64
	since uint64
	fresh bool // since is not read yet
	lives lives

	// numbered producers number their appends themselves, from next on, so that the
	// numbers are the same in every play of a script.
	numbered bool
	next     uint64
}

// readAll reads a stream from its first offset to its end.
func (g *game) readAll(ctx context.Context, c *sim.Client, p *Process, name string) error {
	least := g.check.Next(name)
	at := uint64(0)
	for {
		next, end, err := g.readOnce(ctx, c, p, name, at, 1000, 1<<20)
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
		passing := err == nil || errors.Is(err, sim.ErrLost) || errors.Is(err, sim.ErrDown) || errors.Is(err, star.ErrNotReady)
		if !passing || tries > 1000 {
			return fmt.Errorf("after %d tries: %w", tries+1, err)
		}
		if err := c.Clock().Sleep(ctx, 50*time.Millisecond); err != nil {
			return err
		}
	}
}

type readAnswer struct {
	res star.ReadResult
	err error
}

// readOnce reads from an offset and judges what it was given; it returns where to go
// on, and the stream's end.
func (g *game) readOnce(ctx context.Context, c *sim.Client, p *Process, name string, from uint64, records int, bytes int64) (next, end uint64, err error) {
	began := g.check.Reading(name)
	ans, err := sim.Call(ctx, c, p.Inc, "read", func(ctx context.Context) readAnswer {
		res, err := p.Star.Read(ctx, star.ReadRequest{Name: name, From: from, MaxRecords: records, MaxBytes: bytes})
		return readAnswer{res, err}
	})
	if err == nil {
		err = ans.err
	}
	var trimmed *star.TrimmedError
	if errors.As(err, &trimmed) {
		g.check.ToldTrimmed(began, trimmed.Stream, from, trimmed.First)
		return trimmed.First, max(trimmed.First, g.check.Next(name)), nil
	}
	var beyond *star.BeyondEndError
	if errors.As(err, &beyond) && beyond.Stream == began.ID && from <= began.Next {
		g.w.Finding(check.Lost, name, fmt.Sprintf("a read from offset %d, which was absorbed, is beyond the end", from))
	}
	if err != nil {
		return 0, 0, err
	}
	r := &ans.res
	payloads := make([][]byte, len(r.Records))
	for i := range r.Records {
		payloads[i] = r.Records[i].Data
	}
	if r.First != from && len(r.Records) > 0 || r.Next != r.First+uint64(len(r.Records)) && len(r.Records) > 0 {
		g.w.Finding(check.Lost, name, fmt.Sprintf("a read from %d answers from %d, %d records, next %d", from, r.First, len(r.Records), r.Next))
	}
	if len(r.Records) == 0 && from < r.End {
		g.w.Finding(check.Lost, name, fmt.Sprintf("a read from %d gives nothing; the end is %d", from, r.End))
	}
	if r.Stream == began.ID && r.End < began.Next {
		g.w.Finding(check.Lost, name, fmt.Sprintf("a read is told that the end is %d, and %d were absorbed when it began", r.End, began.Next))
	}
	g.check.Read(began, r.Stream, r.First, payloads)
	return max(r.Next, from), r.End, nil
}
