package verify_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/nova-store/nova/catalog"
	"github.com/nova-store/nova/verify"
)

// A healthy server is never accused, however busy: beside appends, trims, deletions, re-creations, and an
// auditor that settles, trims, reaps and tears down at once, run after run finds nothing.
func TestBusyIsNeverAccused(t *testing.T) {
	w := newWorld(t)
	cat := w.catalog(time.Millisecond)
	s, drain := w.serve(cat)
	a, stop := w.audit(cat)
	ctx := context.Background()
	const streams, rounds = 6, 25
	var work sync.WaitGroup
	for i := range streams {
		name := fmt.Sprint("s", i)
		_, _, err := cat.CreateStream(ctx, name, catalog.Policy{})
		require.NoError(t, err)
		work.Go(func() {
			for round := range rounds {
				w.append(s, name, 1+i, 10+200*i)
				a.Wake()
				id, err := cat.FindStream(ctx, name)
				if !assertNoError(t, err) {
					return
				}
				v, err := cat.ReadStream(ctx, id)
				if !assertNoError(t, err) {
					return
				}
				if round%5 == 4 {
					_, err := cat.TrimStream(ctx, id, v.Head.Next-uint64(i%3))
					assertNoError(t, err)
				}
				if i%2 == 1 && round%8 == 7 {
					_, err := cat.DeleteStream(ctx, id)
					assertNoError(t, err)
					_, _, err = cat.CreateStream(ctx, name, catalog.Policy{})
					assertNoError(t, err)
				}
			}
		})
	}
	done := make(chan struct{})
	go func() { work.Wait(); close(done) }()
	runs := 0
	for busy := true; busy; runs++ {
		select {
		case <-done:
			busy = false
		default:
		}
		rep, err := verify.Run(ctx, cat, w.bucket, w.clk, verify.Options{PageSize: 1 + runs%7, Abreast: 3})
		require.NoError(t, err)
		require.Empty(t, rep.Findings, "run %d", runs)
	}
	require.Greater(t, runs, 1)
	drain()
	stop()
	rep := w.verify(verify.Options{List: true})
	require.Empty(t, rep.Findings)
	require.Zero(t, rep.Restless)
}

func assertNoError(t *testing.T, err error) bool {
	if err != nil {
		t.Error(err)
	}
	return err == nil
}
