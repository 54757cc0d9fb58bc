package soak

import (
	"context"
	"fmt"
	"time"

	"github.com/nova-store/nova/api"
	"github.com/nova-store/nova/api/service"
)

// batchMost bounds the records of one append.
const batchMost = 8

// writer appends to one stream until ctx ends or the stream is deleted. What it began it brings to an end, as long as s.hard
// goes on, so that little stays unknown.
type writer struct {
	task
	l        *ledger
	client   uint32
	every    time.Duration     // a record
	producer *service.Producer // of the idempotent ones; nil before the first append and after a failure
	plain    bool
}

func (w *writer) run(ctx context.Context) {
	for {
		n := 1 + w.r.IntN(batchMost)
		if !w.pause(ctx, time.Duration(n)*w.every) || w.l.dying() || !w.prepare(ctx) {
			return
		}
		seq := w.l.send(w.client, n)
		records := make([][]byte, n)
		for i := range records {
			records[i] = payload(w.s.o.Seed, identity{w.l.number, w.client, seq + uint64(i)})
		}
		o, first, gone := w.append(records)
		w.l.settle(o, w.client, seq, n, first)
		if gone {
			return
		}
	}
}

// prepare makes a new producer where one is needed.
func (w *writer) prepare(ctx context.Context) bool {
	if w.plain || w.producer != nil {
		return true
	}
	var since uint64
	ok, _ := w.insist(ctx, "describing a stream", func(ctx context.Context, c *api.Client) error {
		s, err := c.Stream(ctx, w.l.id)
		since = s.NextOffset
		return err
	})
	w.producer = &service.Producer{ID: fmt.Sprintf("soak-%016x%016x", w.r.Uint64(), w.r.Uint64()), Since: since}
	return ok
}

// append appends once, or, of an idempotent one, until the outcome is known. gone tells that there is no such stream any more.
func (w *writer) append(records [][]byte) (o outcome, first *uint64, gone bool) {
	uncertain := false
	for {
		var res api.AppendResult
		err := w.call(w.s.hard, func(ctx context.Context, c *api.Client) (err error) {
			res, err = c.Append(ctx, w.l.id, records, api.AppendOptions{Producer: w.producer})
			return err
		})
		if err == nil {
			if w.producer != nil {
				w.producer.Sequence++
			}
			return acknowledged, res.FirstOffset, false
		}
		v, effect := judge(w.s.hard, err)
		uncertain = uncertain || effect
		if v == again && !w.plain {
			sleep(w.s.hard, callPause)
			continue
		}
		switch v {
		case noStream:
			gone = true
			if !w.l.dying() {
				w.l.vanished("an append")
			}
		case odd:
			w.s.surprise("appending to %s: %v", w.l.id, err)
		}
		w.producer = nil
		sleep(w.s.hard, callPause) // also where it was refused, as for want of space
		if uncertain {
			return unknown, nil, gone
		}
		return refused, nil, gone
	}
}
