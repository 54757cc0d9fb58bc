package catalog_test

import (
	"errors"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/nova-store/nova/catalog"
)

// The duties in miniature: each as few calls of transitions as it takes.

// complete resolves the lowest n batches of a chain of whose slots no span is left.
func (w *world) complete(c catalog.ChainID, n int) error {
	batches, err := w.cat.OwedBatches(w.ctx, c, 0, n)
	if err != nil {
		return err
	}
	var done []catalog.BatchAt
	for _, b := range batches {
		held := false
		for _, it := range b.Batch.Inventory {
			spans, more, err := w.cat.Spans(w.ctx, it.Stream, it.First, int(it.Count)+1)
			if err != nil {
				return err
			}
			for _, s := range spans {
				held = held || isOf(s.Span.Object, c, it.Slot)
			}
			if more && len(spans) <= int(it.Count) {
				held = true // a short page proves nothing
			}
		}
		if !held {
			done = append(done, b)
		}
	}
	if len(done) == 0 {
		return nil
	}
	return w.cat.CompleteBatches(w.ctx, c, done)
}

// trimCheck runs the duty on one marker.
func (w *world) trimCheck(m catalog.MarkerAt) error {
	c := must(catalog.ParseChainSubject(m.Due.Subject))
	upTo := must(catalog.DecodeTrimCheckMarker(m.Value)).UpTo
	f, err := w.cat.Frontier(w.ctx, c)
	if err != nil {
		return err
	}
	if k := w.store.read(); f > k.frontier(c) && k.chains[c].Window > 0 { // a retired chain has no record
		w.fail("the frontier of %v was given as %d and is %d", c, f, k.frontier(c))
	}
	at, err := w.cat.AdvanceTrim(w.ctx, c, f, 0)
	if errors.Is(err, catalog.ErrMoved) {
		return w.cat.ResolveMarker(w.ctx, m)
	} else if err != nil {
		return err
	}
	end := min(f, upTo)
	for slot := at.Trim.Trimmed; slot < end; slot++ {
		w.delete(catalog.SlotKey(c, slot))
	}
	if at, err = w.cat.AdvanceTrim(w.ctx, c, 0, end); err != nil {
		return err
	}
	if at.Trim.Trimmed >= upTo {
		return w.cat.ResolveMarker(w.ctx, m)
	}
	return w.cat.RearmTrimCheck(w.ctx, m, upTo, time.Minute)
}

// settle runs the duty on one chain's settle marker.
func (w *world) settle(m catalog.MarkerAt) error {
	if !strings.Contains(m.Due.Subject, "~") {
		return w.sweep(m)
	}
	c := must(catalog.ParseChainSubject(m.Due.Subject))
	dead, err := w.cat.ReadDead(w.ctx, c)
	if err != nil {
		return err
	}
	at, err := w.cat.ReadChain(w.ctx, c)
	if err != nil {
		return err
	}
	if !dead.Dead || at.Version == 0 {
		return w.cat.RearmSettle(w.ctx, m, c, time.Minute)
	}
	if at.Chain.State != catalog.ChainSealed {
		if at, err = w.sealUp(at, dead); err != nil {
			return err
		}
		return w.cat.RearmSettle(w.ctx, m, c, 5*time.Second)
	}
	trim, err := w.cat.ReadTrim(w.ctx, c)
	if err != nil {
		return err
	}
	ripe := w.clk.Now().Sub(time.UnixMilli(at.Chain.SealedAt)) > w.cat.Timing().RetireGrace
	if trim.Version == 0 || trim.Trim.Trimmed < at.Chain.Seal || !ripe {
		return w.cat.RearmSettle(w.ctx, m, c, 10*time.Second)
	}
	for slot := trim.Trim.Trimmed; slot < at.Chain.WindowEnd; slot++ {
		w.delete(catalog.SlotKey(c, slot))
	}
	return w.cat.Retire(w.ctx, m, at, trim)
}

// sweep runs the duty on a retired star's marker.
func (w *world) sweep(m catalog.MarkerAt) error {
	star, err := w.cat.ReadStar(w.ctx, m.Due.Subject)
	if err != nil || !star.Star.Retired {
		return err
	}
	left, err := w.cat.HasChains(w.ctx, star.Name)
	if err != nil || left {
		return errors.Join(err, w.cat.RearmSweep(w.ctx, m, catalog.SweepMarker{}, time.Minute))
	}
	v := catalog.DecodeSweepMarker(m.Value)
	if v.Empty == 0 {
		return w.cat.RearmSweep(w.ctx, m, catalog.SweepMarker{Empty: w.clk.Now().UnixMilli()}, w.cat.Timing().RetireGrace)
	}
	var keys []string
	for _, prefix := range catalog.StarPrefixes(star.Name) {
		for key := range w.objects {
			if strings.HasPrefix(key, prefix) {
				keys = append(keys, key)
			}
		}
	}
	slices.Sort(keys)
	if keys, err = w.cat.Unnamed(w.ctx, keys); err != nil {
		return err
	}
	for _, key := range keys {
		w.delete(key)
	}
	return w.cat.ResolveSweep(w.ctx, m, star)
}

// sealUp fences a dead chain, seals it and absorbs what lies below the seal.
func (w *world) sealUp(at catalog.ChainAt, dead catalog.Dead) (catalog.ChainAt, error) {
	c := at.ID
	f, err := w.cat.TakeFence(w.ctx, at, dead)
	if err != nil {
		return at, err
	}
	seal := func(slot uint64) bool { // tells whether a seal lies there now
		key := catalog.SlotKey(c, slot)
		if o := w.get(key); o != nil {
			return o.seal
		}
		if w.clk.Now().After(f.NotAfter) {
			return false
		}
		w.put(key, &object{seal: true, values: map[catalog.StreamID][]uint64{}})
		return true
	}
	at = f.Chain
	var slots []catalog.SlotIn
	end := at.Chain.Checkpoint
	for ; !seal(end); end++ {
		o := w.get(catalog.SlotKey(c, end))
		if o == nil {
			return at, errors.New("the run is past its deadline")
		}
		slots = append(slots, catalog.SlotIn{Slot: end, Size: o.size(), Footer: &o.footer})
	}
	for slot := end + 1; slot < end+at.Chain.Window; slot++ {
		if !seal(slot) && w.objects[catalog.SlotKey(c, slot)] == nil {
			return at, errors.New("the run is past its deadline")
		}
	}
	for len(slots) > 0 {
		out, err := w.cat.Absorb(w.ctx, catalog.AbsorbRequest{Chain: c, Slots: slots, Fence: &f})
		if err != nil {
			return at, err
		}
		w.checkVerdicts(slots, out)
		at, slots = out.Chain, slots[out.Slots:]
	}
	return w.cat.SealChain(w.ctx, at, end, end+at.Chain.Window)
}

// orphan runs the duty on one intent.
func (w *world) orphan(objectKey string) error {
	in, ok, err := w.cat.ReadIntent(w.ctx, objectKey)
	if err != nil || !ok || !in.Readable || w.clk.Now().Sub(time.UnixMilli(in.Birth)) <= w.cat.Timing().OrphanGrace {
		return err
	}
	if in.Chain.Star != "" {
		at, err := w.cat.ReadChain(w.ctx, in.Chain)
		sealed := at.Chain.State == catalog.ChainSealed && at.Chain.Seal <= in.Slot
		if err != nil || at.Version != 0 && at.Chain.Checkpoint <= in.Slot && !sealed {
			return err
		}
	}
	refs, _, err := w.cat.Refs(w.ctx, objectKey, 1)
	if err != nil {
		return err
	}
	if len(refs) > 0 {
		return w.cat.ResolveIntent(w.ctx, objectKey, in.Version, false)
	}
	v, err := w.cat.Condemn(w.ctx, in)
	if err != nil {
		return err
	}
	if refs, _, err = w.cat.Refs(w.ctx, objectKey, 1); err != nil || len(refs) > 0 {
		return err
	}
	w.delete(objectKey)
	return w.cat.ResolveCondemned(w.ctx, objectKey, v)
}

// reap runs the duty on one reap-check.
func (w *world) reap(m catalog.MarkerAt) error {
	r := catalog.ReapAt{Key: m.Due.Key, Object: m.Due.Object(), Marker: catalog.DecodeReapMarker(m.Value), Version: m.Version}
	_, ok, err := w.cat.ReadIntent(w.ctx, r.Object)
	if err != nil {
		return err
	}
	refs, _, err := w.cat.Refs(w.ctx, r.Object, 4)
	switch {
	case err != nil:
		return err
	case len(refs) > 0:
		return w.cat.StandDownReap(w.ctx, r, refs, w.reclaim(r.Object, refs))
	case ok:
		return w.cat.RearmReap(w.ctx, r, 2*w.cat.Timing().ReapGrace)
	}
	w.delete(r.Object)
	return w.cat.ResolveReaps(w.ctx, []catalog.ReapAt{r})[0]
}

// reclaim is what the refs leave dead of a settled object, where that is half of it.
func (w *world) reclaim(object string, refs []catalog.RefAt) uint64 {
	size, alive := refs[0].Ref.ObjectSize, uint64(0)
	for _, r := range refs {
		alive += r.Ref.Bytes
	}
	if !catalog.IsSettled(object) || 2*alive > size {
		return 0
	}
	return size - alive
}

// collect does what gc does, but for the rewrite, which publishers do: it moves what is left by a new
// publisher, or resolves.
func (w *world) collect(m catalog.MarkerAt) error {
	g := catalog.GCAt{Key: m.Due.Key, Object: m.Due.Object(), Marker: catalog.DecodeGCMarker(m.Value), Version: m.Version}
	refs, _, err := w.cat.Refs(w.ctx, g.Object, 16)
	if err != nil {
		return err
	}
	if len(refs) == 0 {
		return w.cat.ResolveGC(w.ctx, g, true)
	}
	spans, err := w.cat.SpansOf(w.ctx, refs)
	if err != nil {
		return err
	}
	var runs [][]catalog.SpanAt
	for _, s := range spans {
		// An object of this model has one section a stream: of several spans the others stay.
		twice := slices.ContainsFunc(runs, func(r []catalog.SpanAt) bool { return r[0].Stream == s.Stream })
		if s.Span.Object == g.Object && !twice {
			runs = append(runs, []catalog.SpanAt{s})
		}
	}
	if len(runs) > 0 {
		p := w.publish(runs)
		for range 20 {
			if p == nil || p.gone || p.busy {
				break
			}
			w.step(p, 3)
		}
	}
	return w.cat.ResolveGC(w.ctx, g, false)
}

// merge joins what lies beside one another of a stream, in the object of one of its spans.
func (w *world) merge(id catalog.StreamID, from uint64) error {
	spans, _, err := w.cat.Spans(w.ctx, id, from, 1)
	if err != nil || len(spans) == 0 {
		return err
	}
	return w.cat.MergeRange(w.ctx, id, spans[0].Span.Object, from, math.MaxUint64)
}

// ripe tells whether a time-ordered marker's time has come.
func (w *world) ripe(m catalog.MarkerAt) bool { return m.Due.PastDue(w.clk.Now()) >= 0 }

// kill moves a stream's watermark up to an offset and kills what lies below it.
func (w *world) kill(id catalog.StreamID, upTo uint64) error {
	w.killed[id] = max(w.killed[id], upTo)
	spans, _, err := w.cat.Spans(w.ctx, id, 0, 16)
	if err != nil {
		return err
	}
	below := func(s catalog.SpanAt) bool { return s.Span.Last() < w.killed[id] }
	var doomed []catalog.SpanAt
	for _, s := range spans {
		if below(s) {
			doomed = append(doomed, s)
		}
	}
	_, err = w.cat.Kill(w.ctx, doomed, below)
	return err
}

// retain runs the retention duty on one marker.
func (w *world) retain(m catalog.MarkerAt) error {
	id := must(catalog.ParseStreamID(m.Due.Subject))
	v, err := w.cat.ReadAnyStream(w.ctx, id)
	switch {
	case errors.Is(err, catalog.ErrNoStream):
		return w.cat.ResolveStrayRetention(w.ctx, m, catalog.StreamView{ID: id})
	case err != nil:
		return err
	case v.Mark.RetentionKey != m.Due.Key:
		return w.cat.ResolveStrayRetention(w.ctx, m, v)
	case v.Stream.State != catalog.StreamActive:
		return w.cat.ResolveRetention(w.ctx, m, v, 0)
	}
	r, err := w.cat.Readable(w.ctx, v, w.clk.Now())
	if err != nil {
		return err
	}
	if v, err = w.cat.AdvanceWatermark(w.ctx, v, r.First, r.FirstBytes); err != nil {
		return err
	}
	if err := w.killBelow(id, v.Mark.Watermark); err != nil {
		return err
	}
	left, _, err := w.cat.Spans(w.ctx, id, v.Mark.Watermark, 1)
	if err != nil {
		return err
	}
	var next catalog.Expiring
	if len(left) > 0 {
		next = v.Expiring(left[0].Span)
	}
	if next.At.IsZero() {
		return w.cat.ResolveRetention(w.ctx, m, v, next.Bytes)
	}
	return w.cat.RearmRetention(w.ctx, m, v, next.At, next.Bytes, false)
}

// killBelow kills spans of a stream that end below an offset, until none is left.
func (w *world) killBelow(id catalog.StreamID, end uint64) error {
	below := func(s catalog.SpanAt) bool { return s.Span.Last() < end }
	for {
		spans, _, err := w.cat.Spans(w.ctx, id, 0, 4)
		if err != nil {
			return err
		}
		spans = slices.DeleteFunc(spans, func(s catalog.SpanAt) bool { return !below(s) })
		if len(spans) == 0 {
			return nil
		}
		if _, err := w.cat.Kill(w.ctx, spans, below); err != nil {
			return err
		}
	}
}

// tearDown runs the teardown duty on one marker.
func (w *world) tearDown(m catalog.MarkerAt) error {
	id := must(catalog.ParseStreamID(m.Due.Subject))
	v, err := w.cat.BeginTeardown(w.ctx, m, id)
	if errors.Is(err, catalog.ErrNoStream) {
		return w.cat.ResolveStrayTeardown(w.ctx, m, v, id)
	} else if err != nil {
		return err
	}
	for _, l := range v.Head.Chains {
		f, err := w.cat.FrontierOf(w.ctx, l.Chain, id)
		if err != nil {
			return err
		}
		if l.Slot >= f {
			_, _, _ = w.cat.RipenOwed(w.ctx, l.Chain, 0, l.Slot+1)
			return w.cat.RearmTeardown(w.ctx, m, 0)
		}
	}
	if err := w.killBelow(id, math.MaxUint64); err != nil {
		return err
	}
	return w.cat.FinishTeardown(w.ctx, m, v)
}

// leftovers lists what would be left behind once nothing is owed any more.
func (w *world) leftovers() []string {
	var out []string
	for _, prefix := range []string{"chain/", "trim/", "schedule/", "pending/", "gc/", "auditor/", "cluster/routes/"} {
		for _, key := range w.store.keys(prefix) {
			if strings.Count(key, "/") > 1 {
				out = append(out, key)
			}
		}
	}
	for _, key := range w.store.keys("due/") {
		// Only a max age keeps a marker standing.
		if p := strings.Split(key, "~"); !strings.HasPrefix(key, "due/retention/") || w.last.streams[catalog.StreamID(hexNumber(p[1]))].Policy.MaxAgeMS == 0 {
			out = append(out, key)
		}
	}
	for id, s := range w.store.read().streams {
		if s.State != catalog.StreamActive {
			out = append(out, catalog.StreamKey(id))
		}
	}
	refs := w.store.read().refs
	for key := range w.objects {
		if len(refs[key]) == 0 {
			out = append(out, key)
		}
	}
	slices.Sort(out)
	return out
}
