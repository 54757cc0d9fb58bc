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
	strange  bool  // the producer's epoch and sequence are not its next ones
	again    bool  // it was sent before, and what became of that may be unknown
	lives    lives // of the stream, when its producer began
}

// newAppend makes an append of n records of about size bytes, and tells the checker, also whether
// it will be sent until its outcome is definite.
func (g *game) newAppend(stream string, n, size int, repeated bool) appendArgs {
	g.nextID++
	return g.numberedAppend(g.nextID, stream, n, size, repeated, g.backdate.Between(0, g.backdateMost))
}

// numberedAppend makes an append of that number, whose records say that they are so old.
func (g *game) numberedAppend(number uint64, stream string, n, size int, repeated bool, ago time.Duration) appendArgs {
	a := appendArgs{id: number, stream: stream}
	ts := g.w.Time().Add(-ago).UnixMilli()
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

// appendError judges an append's error: that a producer is out of turn or an expectation wrong, where there is one,
// those who know of it judge.
func (g *game) appendError(a *appendArgs, lives lives, err error) {
	g.found(a.stream, lives, err)
	may := []error{catalog.ErrNoStream, star.ErrOutcomeUnknown}
	if a.expected != nil {
		may = append(may, star.ErrWrongOffset)
	}
	if a.producer != nil {
		may = append(may, star.ErrProducerGap, star.ErrProducerFenced, star.ErrProducerLost)
	}
	if a.strange {
		may = append(may, star.ErrBadRequest)
	}
	g.expected(fmt.Sprintf("append %d", a.id), a.stream, err, may...)
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
	asked := g.histories.Append(a.stream, len(a.records), a.expected)
	res, err := g.send(ctx, c, p, a)
	g.appendError(&a, lives, err)
	answered(asked, a, &res, err)
	switch {
	case err == nil:
		g.check.Acknowledged(a.id, res.Stream, res.First, res.Last, res.OffsetsKnown)
		g.check.Final(a.id)
		return true, true
	case definitelyNot(err) && (a.producer == nil || !errors.Is(err, catalog.ErrNoStream)):
		// Where the stream is gone an idempotent append may have been there until then.
		g.check.Refused(a.id, a.stream)
		return true, false
	}
	g.w.Mark("client/unknown")
	return false, false
}

// answered notes what a client was told of an append.
func answered(asked *check.Asked, a appendArgs, res *star.AppendResult, err error) {
	switch {
	case err == nil && res.OffsetsKnown:
		asked.Landed(res.First)
	case err == nil:
		asked.Present()
	case errors.Is(err, star.ErrWrongOffset) && !errors.Is(err, star.ErrOutcomeUnknown):
		asked.Wrong()
	case definitelyNot(err) && a.producer == nil:
		asked.Void()
	default:
		asked.Unknown()
	}
}

// errGivenUp: an append is not sent again, since the run is over or the stream is another by now.
var errGivenUp = errors.New("given up")

// appendUntil sends an idempotent append until its outcome is definite, and returns nil if it is there. Only a
// producer whose state was lost leaves it unknown: star.ErrProducerLost.
func (g *game) appendUntil(ctx context.Context, c *sim.Client, a appendArgs) error {
	asked := g.histories.Append(a.stream, len(a.records), a.expected)
	defer asked.Unknown() // unless it was answered
	for try := 0; ; try++ {
		if p := g.serving(c.Rand.N(len(g.order))); p != nil {
			lives := g.lives(a.stream)
			res, err := g.send(ctx, c, p, a)
			g.appendError(&a, lives, err)
			switch {
			case err == nil:
				if try > 0 {
					g.w.Mark("client/retried")
				}
				g.check.Acknowledged(a.id, res.Stream, res.First, res.Last, res.OffsetsKnown)
				if try == 0 && !a.again {
					g.check.Final(a.id)
				}
				answered(asked, a, &res, nil)
				return nil
			case errors.Is(err, star.ErrProducerLost):
				g.w.Mark("client/producer-lost")
				return star.ErrProducerLost
			case errors.Is(err, catalog.ErrNoStream):
				g.w.Mark("client/stream-gone")
				return catalog.ErrNoStream
			case errors.Is(err, star.ErrWrongOffset) && !errors.Is(err, star.ErrOutcomeUnknown):
				g.w.Mark("client/wrong-offset")
				asked.Wrong()
				return star.ErrWrongOffset
			case a.strange && errors.Is(err, star.ErrProducerGap):
				return star.ErrProducerGap
			case a.strange && errors.Is(err, star.ErrProducerFenced):
				return star.ErrProducerFenced
			case g.lives(a.stream) != a.lives || a.lives.deleting:
				if errors.Is(err, star.ErrProducerGap) || errors.Is(err, star.ErrProducerFenced) {
					// The name leads to another stream by now, which knows nothing of this producer.
					g.w.Mark("client/stream-replaced")
					return errGivenUp
				}
			case errors.Is(err, star.ErrProducerGap), errors.Is(err, star.ErrProducerFenced), errors.Is(err, star.ErrBadRequest):
				g.w.Finding(check.Lost, a.stream, fmt.Sprintf("the next append of a lone producer, %d, was refused: %v", a.id, err))
				return errGivenUp
			}
		}
		if ctx.Err() != nil || g.w.Found() != nil {
			return errGivenUp
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

	ago      time.Duration // its records say that they are so old
	expected *uint64       // the offset at which its appends are to be, or not at all
	strange  bool          // its epoch and sequence are what a script says
	// numbered producers number their appends themselves, from next on, so that the
	// numbers are the same in every play of a script.
	numbered bool
	next     uint64
	// Of the statements that append by it: how many there were, and which may.
	turns, turn int
}
