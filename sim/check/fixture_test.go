package check_test

import (
	"context"
	"encoding/binary"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/nova-store/nova/catalog"
	"github.com/nova-store/nova/metastore"
	"github.com/nova-store/nova/objstore"
	"github.com/nova-store/nova/objstore/format"
	"github.com/nova-store/nova/sim"
	"github.com/nova-store/nova/sim/check"
)

// fixture is a world in which all is well, made by the production code: one stream of five
// records, the first three of them in a settled object, the others in slot 1 of the one
// chain. Slot 0 waits to be trimmed, slot 2 to be absorbed.
type fixture struct {
	t     *testing.T
	w     *sim.World
	c     *check.Checker
	ctx   context.Context
	inc   *sim.Incarnation
	cat   *catalog.Catalog
	id    catalog.StreamID
	other catalog.StreamID
	chain catalog.ChainID
}

const (
	window  = 3
	settled = "settled/0"
	size    = 40 // of a record
)

// plant runs do in a task of a node of the fixture's world, and returns what was found. The
// finding ends the task.
func plant(t *testing.T, do func(x *fixture)) *sim.Finding {
	t.Helper()
	return plantIn(t, (*fixture).build, do)
}

func plantIn(t *testing.T, build, do func(x *fixture)) *sim.Finding {
	t.Helper()
	w := sim.New(sim.Config{Seed: 1})
	t.Cleanup(w.Close)
	x := &fixture{t: t, w: w, c: check.New(w)}
	built, done := false, false
	w.Node("n").Start(func(ctx context.Context, inc *sim.Incarnation) {
		x.ctx, x.inc = ctx, inc
		build(x)
		built = true
		do(x)
		done = true
	})
	w.RunUntil(func() bool { return done }, time.Hour)
	if f := w.Found(); !built && f != nil {
		t.Fatalf("before anything was planted:\n%s", f.Report())
	}
	require.True(t, built)
	return w.Found()
}

// empty is a world that has converged: two streams, and a live chain without a slot.
func (x *fixture) empty() {
	t, ctx := x.t, x.ctx
	x.cat = catalog.New(x.inc.Store(), x.inc.Clock(), catalog.DefaultTiming(false), nil)
	require.NoError(t, x.cat.EnsureFormat(ctx))
	v, _, err := x.cat.CreateStream(ctx, "s", catalog.Policy{})
	require.NoError(t, err)
	x.id = v.ID
	v, _, err = x.cat.CreateStream(ctx, "other", catalog.Policy{})
	require.NoError(t, err)
	x.other = v.ID
	session, err := x.inc.Store().OpenSession(ctx, time.Hour)
	require.NoError(t, err)
	x.chain, err = x.cat.Mint(ctx, catalog.MintRequest{Star: "n", Address: "n", Window: window, Session: session.ID(), Incarnation: 1})
	require.NoError(t, err)
}

func (x *fixture) build() {
	x.empty()
	x.c.Sending(1, "s", 2, false)
	x.c.Sending(2, "s", 1, false)
	x.c.Sending(3, "s", 2, false)
	x.absorb(0, x.slot(0, part{x.id, 1, 2}, part{x.id, 2, 1}))
	x.absorb(1, x.slot(1, part{x.id, 3, 2}))
	x.settle()
	x.c.Sending(4, "s", 1, false)
	x.slot(2, part{x.id, 4, 1})
}

// part is an append in an object: number id, of count records.
type part struct {
	stream catalog.StreamID
	id     uint64
	count  uint32
}

func data(id uint64, index, count uint32) []byte {
	return check.AppendPayload(nil, id, index, count, size)
}

// body builds an object; of a settled one the sections begin at offset 0.
func (x *fixture) body(kind format.Kind, c catalog.ChainID, slot uint64, parts ...part) ([]byte, *format.Footer) {
	w := format.NewWriter(kind, format.Stored())
	if kind == format.KindSlot {
		w.SetSlot(c.Star, c.Epoch, slot, [16]byte{1})
	}
	for i, p := range parts {
		if i == 0 || parts[i-1].stream != p.stream {
			w.Begin(uint64(p.stream), 0)
		}
		for j := range p.count {
			w.Add(int64(1000*p.id), data(p.id, j, p.count))
		}
		if kind == format.KindSlot {
			w.EndAppend(format.Append{})
		}
	}
	b, f, err := w.Finish()
	require.NoError(x.t, err)
	return b, &f
}

// put puts an object, over another too.
func (x *fixture) put(key string, body []byte) {
	require.NoError(x.t, x.inc.Bucket().Put(x.ctx, key, body, objstore.PutOptions{NotAfter: x.inc.Clock().Now().Add(time.Hour)}))
}

func (x *fixture) remove(key string) {
	require.NoError(x.t, x.inc.Bucket().Delete(x.ctx, []string{key})[0])
}

// slot puts a slot of the chain.
func (x *fixture) slot(slot uint64, parts ...part) catalog.SlotIn {
	b, f := x.body(format.KindSlot, x.chain, slot, parts...)
	x.put(catalog.SlotKey(x.chain, slot), b)
	return catalog.SlotIn{Slot: slot, Size: int64(len(b)), Footer: f}
}

func (x *fixture) absorb(slot uint64, in catalog.SlotIn) {
	_, err := x.cat.Absorb(x.ctx, catalog.AbsorbRequest{Chain: x.chain, Slots: []catalog.SlotIn{in}})
	require.NoErrorf(x.t, err, "slot %d", slot)
}

// settle moves the records of slot 0 to a settled object, and completes its batch.
func (x *fixture) settle() {
	t, ctx := x.t, x.ctx
	b, f := x.body(format.KindSettled, catalog.ChainID{}, 0, part{x.id, 1, 2}, part{x.id, 2, 1})
	armed, err := x.cat.ArmIntent(ctx, settled)
	require.NoError(t, err)
	x.put(settled, b)
	old, _, err := x.cat.Spans(ctx, x.id, 0, 1)
	require.NoError(t, err)
	_, err = x.cat.Swap(ctx, catalog.Publish{Object: settled, Size: int64(len(b)), Intent: armed.Version},
		[]catalog.Run{{Stream: x.id, Old: old, Section: &f.Sections[0]}})
	require.NoError(t, err)
	require.NoError(t, x.cat.ResolveIntent(ctx, settled, armed.Version, true))
	batch, _, err := x.cat.ReadBatch(ctx, x.chain, 0)
	require.NoError(t, err)
	require.NoError(t, x.cat.CompleteBatches(ctx, x.chain, []catalog.BatchAt{batch}))
}

// commit changes the store as no transition would.
func (x *fixture) commit(ops ...metastore.Op) {
	_, err := x.inc.Store().Commit(x.ctx, metastore.Batch{Ops: ops})
	require.NoError(x.t, err)
}

func (x *fixture) delete(key string) { x.commit(metastore.Delete(key)) }

// standing returns the first key of a prefix.
func (x *fixture) standing(prefix string) string {
	r := x.w.StoreView().First(metastore.Prefix(prefix))
	require.True(x.t, r.Exists(), prefix)
	return r.Key
}

func (x *fixture) span(last uint64) catalog.Span {
	s, ok, err := x.cat.ReadSpan(x.ctx, x.id, last)
	require.NoError(x.t, err)
	require.True(x.t, ok)
	return s.Span
}

// respan puts another span in the place of the one that ends at that offset.
func (x *fixture) respan(last uint64, change func(s *catalog.Span)) {
	s := x.span(last)
	change(&s)
	x.commit(metastore.Put(catalog.SpanKey(x.id, last), s.Encode()))
}

// value builds the value of a record whose encoder is the catalog's own.
type value []byte

func newValue() *value { return &value{1} }

func (v *value) uint(ns ...uint64) *value {
	for _, n := range ns {
		*v = binary.AppendUvarint(*v, n)
	}
	return v
}

func (v *value) int(n int64) *value {
	*v = binary.AppendVarint(*v, n)
	return v
}

func (v *value) string(s string) *value {
	*v = append(binary.AppendUvarint(*v, uint64(len(s))), s...)
	return v
}

// rechain puts a changed chain record.
func (x *fixture) rechain(change func(c *catalog.Chain)) {
	at, err := x.cat.ReadChain(x.ctx, x.chain)
	require.NoError(x.t, err)
	c := at.Chain
	change(&c)
	v := newValue().uint(uint64(c.State), c.Window, c.Checkpoint, c.AbsorbedBytes, c.Nonce, c.SettleNonce, c.Seal, c.WindowEnd).int(c.SealedAt)
	x.commit(metastore.Put(catalog.ChainKey(x.chain), *v))
}

// retrim puts a changed trim record.
func (x *fixture) retrim(change func(c *catalog.Trim)) {
	at, err := x.cat.ReadTrim(x.ctx, x.chain)
	require.NoError(x.t, err)
	c := at.Trim
	change(&c)
	x.commit(metastore.Put(catalog.TrimKey(x.chain), *newValue().uint(c.Rewritten, c.Trimmed, c.SettledBytes).string(c.SettleKey)))
}

// rehead is the operation that puts a head without producers.
func (x *fixture) rehead(change func(h *catalog.Head)) metastore.Op {
	v, err := x.cat.ReadStream(x.ctx, x.id)
	require.NoError(x.t, err)
	h := v.Head
	change(&h)
	e := newValue().uint(h.Next, h.Bytes).int(h.MaxTimestamp).uint(h.EvictedUpTo, 0, 0)
	return metastore.Put(catalog.HeadKey(x.id), *e)
}

// remark puts a mark with that watermark.
func (x *fixture) remark(watermark uint64) {
	v, err := x.cat.ReadStream(x.ctx, x.id)
	require.NoError(x.t, err)
	x.commit(metastore.Put(catalog.MarkKey(x.id), *newValue().uint(watermark, 0).string(v.Mark.RetentionKey)))
}
