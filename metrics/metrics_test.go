package metrics_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/require"

	"github.com/nova-store/nova/auditor"
	"github.com/nova-store/nova/catalog"
	"github.com/nova-store/nova/clock"
	"github.com/nova-store/nova/metastore"
	"github.com/nova-store/nova/metastore/pebblestore"
	"github.com/nova-store/nova/metrics"
	"github.com/nova-store/nova/objstore"
	"github.com/nova-store/nova/objstore/dirbucket"
	"github.com/nova-store/nova/star"
)

// rig is a process's metrics over an embedded store and a directory.
type rig struct {
	*metrics.Metrics
	t      *testing.T
	store  metastore.Store
	bucket objstore.Bucket
	inner  metastore.Store
}

func newRig(t *testing.T) *rig {
	m, err := metrics.New(clock.NewReal())
	require.NoError(t, err)
	s, err := pebblestore.Open("store", pebblestore.Options{FS: vfs.NewMem(), MinFreeBytes: -1})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	b, err := dirbucket.Open(t.TempDir(), dirbucket.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	return &rig{m, t, m.Store(s, metrics.Auditing), m.Bucket(b, metrics.Auditing), s}
}

// scrape reads /metrics as Prometheus does.
func (r *rig) scrape() map[string]*dto.MetricFamily {
	w := httptest.NewRecorder()
	r.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	require.Equal(r.t, http.StatusOK, w.Code, w.Body)
	p := expfmt.NewTextParser(model.LegacyValidation)
	families, err := p.TextToMetricFamilies(w.Body)
	require.NoError(r.t, err)
	return families
}

// value is that of the one sample with these labels; a histogram's is its count.
func (r *rig) value(name string, labels ...string) (v float64, ok bool) {
	f := r.scrape()[name]
	if f == nil {
		return 0, false
	}
	for _, m := range f.Metric {
		var have []string
		for _, l := range m.Label {
			have = append(have, l.GetName()+"="+l.GetValue())
		}
		slices.Sort(have)
		if !slices.Equal(have, labels) {
			continue
		}
		switch {
		case m.Counter != nil:
			return m.Counter.GetValue(), true
		case m.Gauge != nil:
			return m.Gauge.GetValue(), true
		default:
			return float64(m.Histogram.GetSampleCount()), true
		}
	}
	return 0, false
}

func (r *rig) has(want float64, name string, labels ...string) {
	r.t.Helper()
	v, ok := r.value(name, labels...)
	require.True(r.t, ok, "%s%v has no value", name, labels)
	require.Equal(r.t, want, v, "%s%v", name, labels)
}

func TestStoreIsCounted(t *testing.T) {
	r, ctx := newRig(t), t.Context()
	due := func(q catalog.Queue, subject string) string { return catalog.DueKey(q, 1, subject) }
	reap := due(catalog.Reap, "settled!x")
	v, err := r.store.Commit(ctx, metastore.Batch{Ops: []metastore.Op{
		metastore.Put(reap, nil), metastore.Put(due(catalog.Reap, "settled!y"), nil), metastore.Put(catalog.IntentKey("settled/x"), nil), metastore.Put("head/1", []byte("v")),
	}})
	require.NoError(t, err)
	_, err = r.store.Commit(ctx, metastore.Batch{Conds: []metastore.Cond{metastore.Absent(reap)}, Ops: []metastore.Op{metastore.Delete(reap)}})
	require.ErrorIs(t, err, metastore.ErrConflict)
	_, err = r.store.Commit(ctx, metastore.Batch{Conds: []metastore.Cond{metastore.At(reap, v)}, Ops: []metastore.Op{metastore.Delete(reap)}})
	require.NoError(t, err)
	r.has(2, "nova_auditor_due_armed_total", "queue=reap")
	r.has(1, "nova_auditor_due_armed_total", "queue=orphan")
	r.has(1, "nova_auditor_due_resolved_total", "queue=reap")
	r.has(2, "nova_metastore_ops_total", "op=commit", "outcome=ok", "role=auditor")
	r.has(1, "nova_metastore_ops_total", "op=commit", "outcome=conflict", "role=auditor")
	r.has(3, "nova_metastore_latency_seconds", "op=commit", "role=auditor")

	_, err = r.store.Get(ctx, "head/1", "head/2")
	require.NoError(t, err)
	r.has(7, "nova_metastore_bytes_total", "op=get", "role=auditor")
	ended, cancel := context.WithCancel(ctx)
	cancel()
	_, err = r.store.Scan(ended, metastore.Prefix("due/"), 10)
	require.Error(t, err)
	r.has(1, "nova_metastore_ops_total", "op=scan", "outcome=cancelled", "role=auditor")

	s, err := r.store.OpenSession(ctx, time.Minute)
	require.NoError(t, err)
	require.NoError(t, s.KeepAlive(ctx))
	require.NoError(t, s.Close(ctx))
	require.ErrorIs(t, s.KeepAlive(ctx), metastore.ErrSessionGone)
	r.has(1, "nova_metastore_ops_total", "op=keep-alive", "outcome=session-gone", "role=auditor")
	r.has(1, "nova_metastore_ops_total", "op=close-session", "outcome=ok", "role=auditor")
}

func TestBucketIsCounted(t *testing.T) {
	r, ctx := newRig(t), t.Context()
	absent := objstore.PutOptions{IfAbsent: true}
	require.NoError(t, r.bucket.Put(ctx, "settled/x", make([]byte, 100), absent))
	require.ErrorIs(t, r.bucket.Put(ctx, "settled/x", make([]byte, 100), absent), objstore.ErrExists)
	require.NoError(t, r.bucket.Put(ctx, "slot/a/0/0", make([]byte, 7), absent))
	_, err := r.bucket.Get(ctx, "settled/x", 10, 20)
	require.NoError(t, err)
	_, err = r.bucket.Stat(ctx, "settled/y")
	require.ErrorIs(t, err, objstore.ErrNotFound)
	for _, err := range r.bucket.Delete(ctx, []string{"settled/x", "settled/y"}) {
		require.NoError(t, err)
	}
	r.has(2, "nova_objstore_requests_total", "op=put", "outcome=ok", "role=auditor")
	r.has(107, "nova_objstore_bytes_total", "op=put", "outcome=ok", "role=auditor")
	r.has(1, "nova_objstore_requests_total", "op=put", "outcome=exists", "role=auditor")
	r.has(20, "nova_objstore_bytes_total", "op=get", "outcome=ok", "role=auditor")
	r.has(1, "nova_objstore_requests_total", "op=stat", "outcome=not-found", "role=auditor")
	r.has(1, "nova_objstore_requests_total", "op=delete", "outcome=ok", "role=auditor")
	r.has(100, "nova_auditor_rewrite_bytes_total")
}

func TestAuditorEventsAreCounted(t *testing.T) {
	r := newRig(t)
	var passed []auditor.Event
	l := r.AuditorEvents(listener(func(e auditor.Event) { passed = append(passed, e) }))
	events := []auditor.Event{
		{Duty: "reap", Action: auditor.JobDone, Outcome: auditor.Resolved, Took: time.Second},
		{Duty: "reap", Action: auditor.JobDone, Outcome: auditor.Standing, Err: errors.New("bad")},
		{Duty: "reap", Action: auditor.JobDone, Outcome: auditor.Standing, Err: fmt.Errorf("it went: %w", catalog.ErrMoved)},
		{Duty: "reap", Action: auditor.StepDone, Step: "probe"},
		{Duty: "reap", Action: auditor.LeaseSkipped},
		{Duty: "reap", Action: auditor.Discarded},
		{Duty: "reap", Action: auditor.ObjectReaped, Bytes: 1000},
		{Duty: "trimcheck", Action: auditor.Trimmed, Count: 5, Bytes: 50},
		{Duty: "settle", Action: auditor.ChainRetired, From: 3, To: 7},
		{Duty: "settle", Action: auditor.StarSwept, Count: 2, Bytes: 30},
	}
	for _, e := range events {
		l.Event(e)
	}
	require.Equal(t, events, passed)
	for outcome, n := range map[string]float64{"resolved": 1, "failed": 1, "moved": 1} {
		r.has(n, "nova_auditor_jobs_total", "duty=reap", "outcome="+outcome)
	}
	r.has(3, "nova_auditor_job_latency_seconds", "duty=reap")
	r.has(1, "nova_auditor_step_latency_seconds", "duty=reap", "step=probe")
	r.has(1, "nova_auditor_lease_skips_total", "duty=reap")
	r.has(1, "nova_auditor_discards_total", "duty=reap")
	r.has(1000, "nova_auditor_reclaimed_bytes_total", "duty=reap")
	r.has(5, "nova_auditor_reclaimed_objects_total", "duty=trimcheck")
	r.has(6, "nova_auditor_reclaimed_objects_total", "duty=settle")
	r.has(30, "nova_auditor_reclaimed_bytes_total", "duty=settle")
}

type listener func(auditor.Event)

func (l listener) Event(e auditor.Event) { l(e) }

func TestStarEventsAreCounted(t *testing.T) {
	r := newRig(t)
	l := r.StarEvents(nil)
	l.Appended(3, 30, time.Millisecond, nil)
	for _, err := range []error{
		star.ErrOverloaded, star.ErrProducerLost, &star.WrongOffsetError{}, context.Canceled, metastore.ErrUnavailable,
		&objstore.NoRoomError{},
	} {
		l.Appended(1, 10, time.Millisecond, err)
	}
	l.Read(4, 40, time.Millisecond, nil)
	l.Minted(catalog.ChainID{})
	l.Fenced(catalog.ChainID{}, errors.New("fenced"))
	l.Landed(catalog.ChainID{}, 0, time.Millisecond)
	l.Absorbed(catalog.ChainID{}, 2, 2)
	l.Departed(catalog.ChainID{}, 0, 0, 1)
	l.Branch("any")
	for _, outcome := range []string{"ok", "overloaded", "no-room", "unknown", "refused", "cancelled", "failed"} {
		r.has(1, "nova_star_append_latency_seconds", "outcome="+outcome)
	}
	r.has(3, "nova_star_append_records_total")
	r.has(30, "nova_star_append_bytes_total")
	r.has(1, "nova_star_read_latency_seconds", "outcome=ok")
	r.has(4, "nova_star_read_records_total")
	r.has(40, "nova_star_read_bytes_total")
	r.has(1, "nova_star_chains_minted_total")
	r.has(1, "nova_star_chains_fenced_total")
	r.has(1, "nova_star_slot_latency_seconds")
	r.has(2, "nova_star_slots_absorbed_total")
}

// A running auditor tells its age of the queues that hold something, and nothing of the others; one that
// has left tells nothing at all.
func TestDueAgeOfARunningAuditor(t *testing.T) {
	r := newRig(t)
	clk := clock.NewReal()
	cat := catalog.New(r.store, clk, catalog.DefaultTiming(true), nil)
	passed := make(chan struct{}, 100)
	a, err := auditor.New(cat, r.bucket, clk, auditor.Options{Member: "m", Embedded: true, Events: r.AuditorEvents(listener(func(e auditor.Event) {
		if e.Action == auditor.JobDone {
			passed <- struct{}{}
		}
	}))})
	require.NoError(t, err)
	require.NoError(t, r.Auditor(a))
	require.NotContains(t, r.scrape(), "nova_auditor_due_age_seconds", "it is not on the ring yet")

	later := uint64(clk.Now().Add(time.Hour).UnixMilli())
	_, err = r.inner.Commit(t.Context(), metastore.Batch{Ops: []metastore.Op{
		metastore.Put(catalog.DueKey(catalog.Reap, later, "settled!x"), nil),
		metastore.Put(catalog.DueKey(catalog.Reap, 1, "settled!y"), nil),
	}})
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	<-passed // the ripe marker is gone, and the first pass over the boundary
	r.has(0, "nova_auditor_due_age_seconds", "queue=reap")
	require.Len(t, r.scrape()["nova_auditor_due_age_seconds"].Metric, 1, "an empty queue has no value")
	_, ok := r.value("nova_auditor_pool_busy")
	require.True(t, ok)
	r.has(float64(a.Workers()), "nova_auditor_pool_workers")
	worked, ok := r.value("nova_auditor_pool_worked_seconds_total")
	require.True(t, ok)
	require.Positive(t, worked)
	r.has(1, "nova_auditor_jobs_total", "duty=reap", "outcome=resolved")
	stop()
	require.NoError(t, <-done)
	require.NotContains(t, r.scrape(), "nova_auditor_due_age_seconds")
}

// docs/metrics.md lists every metric by its own name and by Prometheus', and none that does not exist.
func TestMetricsAreDocumented(t *testing.T) {
	text, err := os.ReadFile("../docs/metrics.md")
	require.NoError(t, err)
	row := regexp.MustCompile("(?m)^\\| `(nova\\.[a-z.]+)` \\| `(nova_[a-z_]+)` \\| (gauge|counter|histogram) \\|")
	documented := map[string]string{} // Prometheus' name to the kind
	var names []string
	for _, m := range row.FindAllStringSubmatch(string(text), -1) {
		documented[m[2]] = m[3]
		names = append(names, m[1])
		require.True(t, strings.HasPrefix(m[2], strings.ReplaceAll(m[1], ".", "_")), "%s is not %s", m[1], m[2])
	}
	slices.Sort(names)
	source, err := os.ReadFile("names.go")
	require.NoError(t, err)
	var declared []string
	for _, m := range regexp.MustCompile(`= "(nova\.[a-z.]+)"`).FindAllStringSubmatch(string(source), -1) {
		declared = append(declared, m[1])
	}
	slices.Sort(declared)
	require.Equal(t, declared, names)

	exported := map[string]string{}
	for name, f := range everything(t).scrape() {
		if strings.HasPrefix(name, "nova_") {
			exported[name] = strings.ToLower(f.GetType().String())
		}
	}
	require.Equal(t, documented, exported)
}

// everything makes each metric have a value.
func everything(t *testing.T) *rig {
	r, ctx := newRig(t), t.Context()
	clk := clock.NewReal()
	cat := catalog.New(r.store, clk, catalog.DefaultTiming(true), nil)
	announced := make(chan struct{}, 100)
	a, err := auditor.New(cat, r.bucket, clk, auditor.Options{Member: "m", Embedded: true, Events: listener(func(e auditor.Event) {
		if e.Action == auditor.JobDone {
			announced <- struct{}{}
		}
	})})
	require.NoError(t, err)
	require.NoError(t, r.Auditor(a))
	require.NoError(t, r.StoreClock(func() time.Duration { return 3 * time.Second }))
	ops := []metastore.Op{metastore.Put(catalog.DueKey(catalog.Reap, 1, "settled!y"), nil)}
	for i := range 10 {
		ops = append(ops, metastore.Put(catalog.DueKey(catalog.Reap, uint64(clk.Now().Add(time.Hour).UnixMilli()), fmt.Sprintf("settled!%d", i)), nil))
	}
	_, err = r.store.Commit(ctx, metastore.Batch{Ops: ops})
	require.NoError(t, err)
	running, stop := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- a.Run(running) }()
	t.Cleanup(func() {
		stop()
		require.NoError(t, <-done)
	})
	<-announced
	require.NoError(t, r.bucket.Put(ctx, "settled/x", make([]byte, 100), objstore.PutOptions{IfAbsent: true}))
	l := r.AuditorEvents(nil)
	for _, action := range []auditor.Action{auditor.JobDone, auditor.StepDone, auditor.LeaseSkipped, auditor.Discarded, auditor.ObjectReaped} {
		l.Event(auditor.Event{Duty: "reap", Action: action, Bytes: 1})
	}
	s := r.StarEvents(nil)
	s.Appended(1, 1, 1, nil)
	s.Read(1, 1, 1, nil)
	s.Minted(catalog.ChainID{})
	s.Fenced(catalog.ChainID{}, nil)
	s.Landed(catalog.ChainID{}, 0, 1)
	s.Absorbed(catalog.ChainID{}, 1, 1)
	return r
}
