package auditor

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/nova-store/nova/catalog"
	"github.com/nova-store/nova/clock"
	"github.com/nova-store/nova/metastore/pebblestore"
	"github.com/nova-store/nova/objstore"
	"github.com/nova-store/nova/objstore/dirbucket"
	"github.com/nova-store/nova/objstore/format"
)

// The whole of it on the embedded defaults, with goroutines and the wall clock: records of a
// dead chain and of a living one are settled, and their slots go.
func TestOnPebbleAndADirectory(t *testing.T) {
	store, err := pebblestore.Open(t.TempDir(), pebblestore.Options{})
	require.NoError(t, err)
	defer func() { require.NoError(t, store.Close()) }()
	bucket, err := dirbucket.Open(t.TempDir(), dirbucket.Options{})
	require.NoError(t, err)
	defer func() { require.NoError(t, bucket.Close()) }()

	clk, timing := clock.NewReal(), catalog.DefaultTiming(true)
	timing.SettleAgeCap, timing.TrimGrace, timing.RetireGrace, timing.ReapGrace =
		time.Millisecond, time.Millisecond, time.Millisecond, time.Millisecond
	cat := catalog.New(store, clk, timing, nil)
	ctx, stop := context.WithCancel(context.Background())
	defer stop()

	streams := make([]catalog.StreamID, 40)
	for i := range streams {
		v, _, err := cat.CreateStream(ctx, fmt.Sprint(i), catalog.Policy{})
		require.NoError(t, err)
		streams[i] = v.ID
	}
	session, err := store.OpenSession(ctx, time.Minute)
	require.NoError(t, err)
	a, err := New(cat, bucket, clk, Options{Member: "m", Workers: 4, IdleInterval: 5 * time.Millisecond,
		SettleObjectMin: 20 << 10, Embedded: true, Codec: format.Zstd(), MarkersPerEra: 5})
	require.NoError(t, err)
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()

	const slots = 20
	var chains []catalog.ChainID
	for epoch := range 2 {
		chain, err := cat.Mint(ctx, catalog.MintRequest{Star: "a", Incarnation: uint64(epoch + 1), Session: session.ID(), Window: 4})
		require.NoError(t, err)
		chains = append(chains, chain)
		for slot := range uint64(slots) {
			w := format.NewWriter(format.KindSlot, format.Stored())
			w.SetSlot("a", chain.Epoch, slot, [16]byte{1})
			for i, id := range streams {
				w.Begin(uint64(id), 0)
				w.Add(int64(slot), fmt.Appendf(nil, "%d/%d/%d/%0*d", epoch, slot, i, i*100, 7))
				w.EndAppend(format.Append{})
			}
			body, f, err := w.Finish()
			require.NoError(t, err)
			require.NoError(t, bucket.Put(ctx, catalog.SlotKey(chain, slot), body, objstore.PutOptions{IfAbsent: true}))
			_, err = cat.Absorb(ctx, catalog.AbsorbRequest{Chain: chain, Slots: []catalog.SlotIn{{Slot: slot, Size: int64(len(body)), Footer: &f}}})
			require.NoError(t, err)
		}
		a.Wake()
	}
	resolved := func() bool {
		for _, q := range []catalog.Queue{catalog.Denorm, catalog.TrimCheck, catalog.Orphan} {
			for shard := range catalog.Shards {
				page, err := store.Scan(ctx, catalog.ShardRange(q, shard), 1)
				require.NoError(t, err)
				if len(page.Records) > 0 {
					return false
				}
			}
		}
		return true
	}
	// The second mint has re-announced the first chain, which is dead by it.
	require.Eventually(t, func() bool {
		dead, err := cat.ReadChain(ctx, chains[0])
		require.NoError(t, err)
		trimmed := true
		for _, c := range chains {
			at, err := cat.ReadTrim(ctx, c)
			require.NoError(t, err)
			trimmed = trimmed && at.Trim.Trimmed == slots
		}
		return trimmed && dead.Chain.State == catalog.ChainSealed && resolved()
	}, 60*time.Second, 10*time.Millisecond, "the dead chain is sealed, both are trimmed, and nothing more is owed")
	stop()
	require.NoError(t, <-done)
	require.False(t, a.Announced())

	ctx = context.Background()
	infos, err := bucket.List(ctx, "slot/", "", 100)
	require.NoError(t, err)
	require.Len(t, infos, 4, "the seals of the dead chain's window stay until it retires")
	d := format.NewDecoder()
	for i, id := range streams {
		next := uint64(0)
		for next < 2*slots {
			spans, _, err := cat.Spans(ctx, id, next, 1)
			require.NoError(t, err)
			require.Len(t, spans, 1)
			s := spans[0].Span
			require.Equal(t, next, s.First)
			body, err := bucket.Get(ctx, s.Object, s.Offset, s.Length)
			require.NoError(t, err)
			require.NoError(t, d.Records(body, uint64(id), func(o uint32, rec format.Record) error {
				if o >= s.Ordinal && uint64(o) < uint64(s.Ordinal)+s.Count {
					require.Equal(t, fmt.Sprintf("%d/%d/%d/%0*d", next/slots, next%slots, i, i*100, 7), string(rec.Data))
					next++
				}
				return nil
			}))
		}
	}
}
