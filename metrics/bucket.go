package metrics

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"go.opentelemetry.io/otel/metric"

	"github.com/nova-store/nova/objstore"
)

// settledPrefix begins the keys of the objects that the auditor's rewrites make.
const settledPrefix = "settled/"

// Bucket wraps a bucket for the use of one role: its requests are counted. A Delete of many keys
// is one request, which failed if one of its keys did.
func (m *Metrics) Bucket(b objstore.Bucket, role Role) objstore.Bucket {
	w := &bucket{b: b, m: m, role: role}
	for op := range bucketOps {
		for out := range bucketOutcomes {
			w.outcomes[op][out] = labels("op", bucketOp(op).String(), "outcome", bucketOutcome(out).String(), "role", string(role))
		}
		w.ops[op] = labels("op", bucketOp(op).String(), "role", string(role))
	}
	return w
}

// StoreClock has how far the clock of the bucket's store is behind read at each scrape.
func (m *Metrics) StoreClock(behind func() time.Duration) error {
	_, err := m.meter.Float64ObservableGauge(ObjstoreClock, metric.WithUnit("s"),
		metric.WithDescription("How far the clock of the bucket's store is behind this node's."),
		metric.WithFloat64Callback(func(_ context.Context, o metric.Float64Observer) error {
			o.Observe(behind().Seconds())
			return nil
		}))
	if err != nil {
		return fmt.Errorf("metrics: %w", err)
	}
	return nil
}

type bucketOp int

const (
	opPut bucketOp = iota
	opGetRange
	opStat
	opDelete
	opList
	bucketOps
)

func (o bucketOp) String() string { return [...]string{"put", "get", "stat", "delete", "list"}[o] }

type bucketOutcome int

const (
	bucketOK bucketOutcome = iota
	bucketExists
	bucketNotFound
	bucketUnknown
	bucketThrottled
	bucketExpired
	bucketCancelled
	bucketFailed
	bucketOutcomes
)

func (o bucketOutcome) String() string {
	return [...]string{"ok", "exists", "not-found", "unknown", "throttled", "expired", "cancelled", "failed"}[o]
}

func bucketOutcomeOf(err error) bucketOutcome {
	switch {
	case err == nil:
		return bucketOK
	case errors.Is(err, objstore.ErrExists):
		return bucketExists
	case errors.Is(err, objstore.ErrNotFound):
		return bucketNotFound
	case errors.Is(err, objstore.ErrUnknown):
		return bucketUnknown
	case errors.Is(err, objstore.ErrThrottled):
		return bucketThrottled
	case errors.Is(err, objstore.ErrExpired):
		return bucketExpired
	case cancelled(err):
		return bucketCancelled
	}
	return bucketFailed
}

type bucket struct {
	b        objstore.Bucket
	m        *Metrics
	role     Role
	outcomes [bucketOps][bucketOutcomes]metric.MeasurementOption
	ops      [bucketOps]metric.MeasurementOption
}

func (b *bucket) done(ctx context.Context, op bucketOp, start time.Time, bytes int, err error) {
	opt := b.outcomes[op][bucketOutcomeOf(err)]
	b.m.bucketRequests.Add(ctx, 1, opt)
	b.m.bucketLatency.Record(ctx, b.m.clk.Now().Sub(start).Seconds(), b.ops[op])
	if bytes > 0 {
		b.m.bucketBytes.Add(ctx, int64(bytes), opt)
	}
}

// Put counts the bytes of the body whatever became of it: they were sent.
func (b *bucket) Put(ctx context.Context, key string, body []byte, opt objstore.PutOptions) error {
	start, n := b.m.clk.Now(), len(body)
	err := b.b.Put(ctx, key, body, opt)
	b.done(ctx, opPut, start, n, err)
	if err == nil && b.role == Auditing && strings.HasPrefix(key, settledPrefix) {
		b.m.rewritten.Add(ctx, int64(n))
	}
	return err
}

func (b *bucket) Get(ctx context.Context, key string, off, n int64) ([]byte, error) {
	start := b.m.clk.Now()
	body, err := b.b.Get(ctx, key, off, n)
	b.done(ctx, opGetRange, start, len(body), err)
	return body, err
}

func (b *bucket) Stat(ctx context.Context, key string) (objstore.Info, error) {
	start := b.m.clk.Now()
	info, err := b.b.Stat(ctx, key)
	b.done(ctx, opStat, start, 0, err)
	return info, err
}

func (b *bucket) Delete(ctx context.Context, keys []string) []error {
	start := b.m.clk.Now()
	errs := b.b.Delete(ctx, keys)
	var failed error
	for _, err := range errs {
		if err != nil {
			failed = err
			break
		}
	}
	b.done(ctx, opDelete, start, 0, failed)
	return errs
}

func (b *bucket) List(ctx context.Context, prefix, after string, limit int) ([]objstore.Info, error) {
	start := b.m.clk.Now()
	infos, err := b.b.List(ctx, prefix, after, limit)
	b.done(ctx, opList, start, 0, err)
	return infos, err
}
