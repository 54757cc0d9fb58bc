package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/nova-store/nova/api/service"
	"github.com/nova-store/nova/auditor"
	"github.com/nova-store/nova/clock"
)

const (
	foregroundTasks   = 4                    // that append, and as many that read
	foregroundPause   = 2 * time.Millisecond // of each, between two calls
	foregroundBacklog = 4                    // times the volume
	foregroundRecords = 8                    // of 1 KiB, of a read
)

// latencies are the 99th percentiles of what clients wait for.
type latencies struct{ append, read time.Duration }

// foreground measures what an append of 1 KiB and a read of a few older records wait, first while the auditor
// does not run, then while it has more to settle than it gets done. The backlog is there from the beginning, so that
// nothing else differs. It ends early where the auditor does get done.
func (b *bench) foreground(volume int64, requestRate, rewriteRate float64) (idle, busy latencies, err error) {
	budgets := func(o *auditor.Options) { o.RequestRate, o.RewriteRate = requestRate, rewriteRate }
	err = b.withBudgets(budgets, func(n *node) error {
		if err := createStreams(b.ctx, n, settleStreams+foregroundTasks); err != nil {
			return err
		}
		if _, err := fillBacklog(b.ctx, n, foregroundBacklog*volume); err != nil {
			return err
		}
		forever := func() (bool, error) { return false, nil }
		if idle, err = b.latencies(n, forever); err != nil {
			return err
		}
		n.startAuditor()
		defer func() {
			n.stopAuditor()
			<-n.auditorDone
		}()
		busy, err = b.latencies(n, func() (bool, error) { return settled(b.ctx, n) })
		return err
	})
	return idle, busy, err
}

// fillBacklog appends so many bytes, or a little more, to the first streams, in batches.
func fillBacklog(ctx context.Context, n *node, volume int64) (appended int64, err error) {
	svc := n.service()
	for i := 0; appended < volume; i++ {
		records := make([][]byte, settleBatch)
		for j := range records {
			records[j] = benchRecord(i*settleBatch + j)
			appended += int64(len(records[j]))
		}
		if _, err := svc.Append(ctx, service.AppendRequest{Stream: benchStream(i % settleStreams), Records: records}); err != nil {
			return appended, err
		}
	}
	return appended, nil
}

// settled tells whether every slot that was absorbed is rewritten. The chain's own rewritten cursor
// follows only at the trim-check, a grace later.
func settled(ctx context.Context, n *node) (bool, error) {
	chain, _, _ := n.star.Chain()
	at, err := n.cat.ReadChain(ctx, chain)
	if err != nil {
		return false, err
	}
	frontier, err := n.cat.Frontier(ctx, chain)
	return frontier >= at.Chain.Checkpoint, err
}

// latencies runs clients for the duration, or until over says so.
func (b *bench) latencies(n *node, over func() (bool, error)) (latencies, error) {
	ctx, cancel := context.WithTimeout(b.ctx, b.duration)
	defer cancel()
	svc, clk := n.service(), clock.NewReal()
	record := benchRecord(1)
	var ends [settleStreams]uint64
	for i := range ends {
		info, err := svc.Stream(b.ctx, benchStream(i))
		if err != nil {
			return latencies{}, err
		}
		ends[i] = info.NextOffset
	}
	var all sync.WaitGroup
	samples, errs := make([][]time.Duration, 2*foregroundTasks), make([]error, 2*foregroundTasks+1)
	client := func(task int, call func() error) {
		all.Go(func() {
			for len(samples[task]) == 0 || ctx.Err() == nil {
				began := time.Now()
				if errs[task] = call(); errs[task] != nil {
					cancel()
					return
				}
				samples[task] = append(samples[task], time.Since(began))
				_ = clk.Sleep(ctx, foregroundPause) // its end ends the loop
			}
		})
	}
	for i := range foregroundTasks {
		client(i, func() error {
			_, err := svc.Append(b.ctx, service.AppendRequest{Stream: benchStream(settleStreams + i), Records: [][]byte{record}})
			return err
		})
		r := rand.New(rand.NewPCG(uint64(i), 7))
		client(foregroundTasks+i, func() error {
			stream := i % settleStreams
			_, err := svc.Read(b.ctx, service.ReadRequest{
				Stream: benchStream(stream), From: service.FromOffset(r.Uint64N(ends[stream])), MaxRecords: foregroundRecords,
			})
			return err
		})
	}
	for ctx.Err() == nil {
		done, err := over()
		if done || err != nil {
			errs[2*foregroundTasks] = err
			cancel()
		}
		_ = clk.Sleep(ctx, 10*settlePoll)
	}
	all.Wait()
	return latencies{p99(samples[:foregroundTasks]), p99(samples[foregroundTasks:])}, errors.Join(errs...)
}

// p99 is what 99 of 100 calls took at most.
func p99(samples [][]time.Duration) time.Duration {
	all := slices.Concat(samples...)
	slices.Sort(all)
	return all[(len(all)*99)/100]
}
