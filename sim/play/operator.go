package play

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/nova-store/nova/api/service"
	"github.com/nova-store/nova/catalog"
	"github.com/nova-store/nova/sim"
	"github.com/nova-store/nova/sim/check"
)

// operate is a client that looks, as an operator does, through the service that the HTTP interface stands on: it describes streams,
// chains and queues while all else goes on, and reads by every kind of position.
func (g *game) operate(ctx context.Context, c *sim.Client, streams []string, rounds int, gap time.Duration) {
	next := make(map[catalog.StreamID]uint64) // offsets, as told
	for range rounds {
		_ = c.Clock().Sleep(ctx, c.Rand.Between(0, gap))
		if ctx.Err() != nil || g.w.Found() != nil {
			return
		}
		p := g.serving(c.Rand.N(len(g.order)))
		if p == nil {
			continue
		}
		s, name := service.New(p.Star, p.Cat, p.Inc.Clock()), streams[c.Rand.N(len(streams))]
		lives, damage := g.lives(name), g.damage()
		text, err := "", error(nil)
		switch c.Rand.N(4) {
		case 0:
			info, e := look1(ctx, c, p, "describe", func(ctx context.Context) (service.StreamInfo, error) { return s.Stream(ctx, name) })
			if err = e; err == nil {
				text = amissOf(&info, next[info.ID])
				next[info.ID] = info.NextOffset
			}
		case 1:
			chains, e := look1(ctx, c, p, "chains", s.Chains)
			if err = e; err == nil {
				text = amissIn(chains)
			}
		case 2:
			queues, e := look1(ctx, c, p, "due", s.Due)
			if err = e; err == nil && (len(queues) != len(catalog.Queues()) || slices.ContainsFunc(queues, func(q service.QueueInfo) bool { return q.Ripe > q.Standing })) {
				text = fmt.Sprintf("the queues are told to be %+v", queues)
			}
		default:
			from := []service.Position{{}, service.FromTail(), service.FromLast(1 + uint64(c.Rand.N(5))), service.FromTime(g.w.Time().Add(-c.Rand.Between(0, time.Minute)))}[c.Rand.N(4)]
			page, e := look1(ctx, c, p, "page", func(ctx context.Context) (service.ReadResult, error) {
				return s.Read(ctx, service.ReadRequest{Stream: name, From: from, MaxRecords: 20})
			})
			if err = e; err == nil {
				text = amissOn(&page, from)
			}
		}
		switch {
		case text != "":
			g.w.Finding(check.Lost, name, text)
		case err == nil:
			g.w.Mark("client/looked")
		default:
			g.readError("an operator's look", name, lives, damage, err)
		}
	}
}

// look1 makes one call of a node that has one answer.
func look1[T any](ctx context.Context, c *sim.Client, p *Process, what string, f func(context.Context) (T, error)) (T, error) {
	type answer struct {
		v   T
		err error
	}
	a, err := sim.Call(ctx, c, p.Inc, what, func(ctx context.Context) answer {
		v, err := f(ctx)
		return answer{v, err}
	})
	if err == nil {
		err = a.err
	}
	return a.v, err
}

// amissOf says what is wrong with a stream as described, of which the next offset was told before to be known, or "".
func amissOf(info *service.StreamInfo, known uint64) string {
	switch {
	case info.FirstOffset > info.NextOffset:
		return fmt.Sprintf("the first readable offset is told to be %d, the next one %d", info.FirstOffset, info.NextOffset)
	case info.NextOffset < known:
		return fmt.Sprintf("the next offset is told to be %d, %d before", info.NextOffset, known)
	}
	return ""
}

func amissIn(chains []service.ChainInfo) string {
	for _, ch := range chains {
		if ch.Trimmed > ch.Rewritten || ch.Rewritten > ch.Checkpoint || ch.Checkpoint > ch.Head || ch.DamagedFrom > ch.DamagedEnd {
			return fmt.Sprintf("the cursors of a chain are told to be %+v", ch)
		}
	}
	return ""
}

// amissOn says what is wrong with a page that was read from there, or "".
func amissOn(page *service.ReadResult, from service.Position) string {
	for i, r := range page.Records {
		if r.Offset != page.Records[0].Offset+uint64(i) {
			return fmt.Sprintf("a page from %s has record %d behind %d", from, r.Offset, page.Records[0].Offset)
		}
	}
	n := len(page.Records)
	switch {
	case page.Next > page.End, n > 0 && (page.Next != page.Records[n-1].Offset+1 || page.Records[0].Offset < page.First):
		return fmt.Sprintf("a page from %s of %d records says that the stream has [%d, %d), and that it is read on at %d", from, n, page.First, page.End, page.Next)
	}
	return ""
}
