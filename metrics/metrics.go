// Package metrics counts what a process of Nova does, with OpenTelemetry instruments, and serves
// the counts to Prometheus.
//
// Nothing else in the module knows of it: the auditor and the star tell their events to whoever
// listens ([Metrics.AuditorEvents], [Metrics.StarEvents]), and wrappers around the store
// and the bucket ([Metrics.Store], [Metrics.Bucket]) see what passes. A process that makes no
// Metrics pays nothing.
//
// docs/metrics.md says what each metric means; a test holds the two together.
package metrics

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.opentelemetry.io/otel/attribute"
	exporter "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/metric"
	sdk "go.opentelemetry.io/otel/sdk/metric"

	"github.com/nova-store/nova/auditor"
	"github.com/nova-store/nova/clock"
)

// Role is the part of the process that made a call.
type Role string

// The two roles.
const (
	Serving  Role = "serving"
	Auditing Role = "auditor"
)

// observeTimeout bounds the reads of one scrape.
const observeTimeout = 5 * time.Second

// Metrics are the instruments of one process. All methods are safe for concurrent use.
type Metrics struct {
	clk      clock.Clock
	registry *prometheus.Registry
	provider *sdk.MeterProvider
	meter    metric.Meter
	failed   error // of the instruments: the first

	storeOps, storeBytes         metric.Int64Counter
	storeLatency                 metric.Float64Histogram
	bucketRequests, bucketBytes  metric.Int64Counter
	bucketLatency                metric.Float64Histogram
	armed, resolved              metric.Int64Counter
	jobs, skips, discards        metric.Int64Counter
	stepLatency, jobLatency      metric.Float64Histogram
	rewritten                    metric.Int64Counter
	reclaimed, reclaimedObjects  metric.Int64Counter
	appendLatency, readLatency   metric.Float64Histogram
	appendRecords, appendBytes   metric.Int64Counter
	readRecords, readBytes       metric.Int64Counter
	slotLatency                  metric.Float64Histogram
	slotsAbsorbed, minted, ended metric.Int64Counter
}

// New returns the instruments, all at nothing. Latencies are measured by the clock.
func New(clk clock.Clock) (*Metrics, error) {
	m := &Metrics{clk: clk, registry: prometheus.NewRegistry()}
	m.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	reader, err := exporter.New(exporter.WithRegisterer(m.registry), exporter.WithoutScopeInfo(), exporter.WithoutTargetInfo())
	if err != nil {
		return nil, fmt.Errorf("metrics: %w", err)
	}
	m.provider = sdk.NewMeterProvider(sdk.WithReader(reader))
	m.meter = m.provider.Meter("github.com/nova-store/nova")

	m.storeOps = m.counter(MetastoreOps, "{operation}", "Calls of the metadata store.")
	m.storeBytes = m.counter(MetastoreBytes, "By", "Bytes of keys and values read from and committed to the metadata store.")
	m.storeLatency = m.histogram(MetastoreLatency, "How long calls of the metadata store took.")
	m.bucketRequests = m.counter(ObjstoreRequests, "{request}", "Requests to the bucket.")
	m.bucketBytes = m.counter(ObjstoreBytes, "By", "Bytes of objects read from and written to the bucket.")
	m.bucketLatency = m.histogram(ObjstoreLatency, "How long requests to the bucket took.")
	m.armed = m.counter(DueArmed, "{marker}", "Due markers written by this process.")
	m.resolved = m.counter(DueResolved, "{marker}", "Due markers removed by this process.")
	m.jobs = m.counter(Jobs, "{job}", "Markers that jobs worked on, by what became of them.")
	m.jobLatency = m.histogram(JobLatency, "How long jobs took, from their claim.")
	m.stepLatency = m.histogram(StepLatency, "How long steps of jobs took.")
	m.skips = m.counter(LeaseSkips, "{claim}", "Claims lost to another member.")
	m.discards = m.counter(Discards, "{marker}", "Malformed markers that were resolved away.")
	m.rewritten = m.counter(RewriteBytes, "By", "Bytes of settled objects written.")
	m.reclaimed = m.counter(ReclaimedBytes, "By", "Bytes of objects deleted, as far as their sizes were known.")
	m.reclaimedObjects = m.counter(ReclaimedObjects, "{object}", "Objects deleted.")
	m.appendLatency = m.histogram(AppendLatency, "How long appends took.")
	m.appendRecords = m.counter(AppendRecords, "{record}", "Records acknowledged.")
	m.appendBytes = m.counter(AppendBytes, "By", "Payload bytes acknowledged.")
	m.readLatency = m.histogram(ReadLatency, "How long reads took.")
	m.readRecords = m.counter(ReadRecords, "{record}", "Records served.")
	m.readBytes = m.counter(ReadBytes, "By", "Payload bytes served.")
	m.slotLatency = m.histogram(SlotLatency, "How long slots took to be known durable.")
	m.slotsAbsorbed = m.counter(SlotsAbsorbed, "{slot}", "Slots absorbed by the star.")
	m.minted = m.counter(ChainsMinted, "{chain}", "Chains minted.")
	m.ended = m.counter(ChainsFenced, "{chain}", "Chains abandoned.")
	if m.failed != nil {
		return nil, fmt.Errorf("metrics: %w", m.failed)
	}
	return m, nil
}

func (m *Metrics) note(err error) {
	if m.failed == nil {
		m.failed = err
	}
}

func (m *Metrics) counter(name, unit, help string) metric.Int64Counter {
	c, err := m.meter.Int64Counter(name, metric.WithUnit(unit), metric.WithDescription(help))
	m.note(err)
	return c
}

// seconds are the buckets of every latency: from a read in memory to a job's deadline.
func seconds() []float64 {
	return []float64{0.0001, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 600}
}

func (m *Metrics) histogram(name, help string) metric.Float64Histogram {
	h, err := m.meter.Float64Histogram(name, metric.WithUnit("s"), metric.WithDescription(help), metric.WithExplicitBucketBoundaries(seconds()...))
	m.note(err)
	return h
}

// Handler serves the metrics in Prometheus' text format.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError, EnableOpenMetrics: true})
}

// Auditor has what is read at each scrape read from a: its workers, how busy they are, and
// the age of its queues. A queue that is empty, or whose age could not be read, has no value.
func (m *Metrics) Auditor(a *auditor.Auditor) error {
	_, err := m.meter.Int64ObservableGauge(PoolBusy, metric.WithUnit("{job}"), metric.WithDescription("Jobs that run at the moment."),
		metric.WithInt64Callback(func(_ context.Context, o metric.Int64Observer) error {
			o.Observe(int64(a.Busy()))
			return nil
		}))
	if err != nil {
		return fmt.Errorf("metrics: %w", err)
	}
	_, err = m.meter.Int64ObservableGauge(PoolWorkers, metric.WithUnit("{job}"), metric.WithDescription("Jobs that can run at once."),
		metric.WithInt64Callback(func(_ context.Context, o metric.Int64Observer) error {
			o.Observe(int64(a.Workers()))
			return nil
		}))
	if err != nil {
		return fmt.Errorf("metrics: %w", err)
	}
	_, err = m.meter.Float64ObservableCounter(PoolWorked, metric.WithUnit("s"), metric.WithDescription("Time that workers have spent on jobs, added up over all of them."),
		metric.WithFloat64Callback(func(_ context.Context, o metric.Float64Observer) error {
			o.Observe(a.Worked().Seconds())
			return nil
		}))
	if err != nil {
		return fmt.Errorf("metrics: %w", err)
	}
	_, err = m.meter.Float64ObservableGauge(DueAge, metric.WithUnit("s"),
		metric.WithDescription("How far past its ready time the oldest pending marker is, in the shards that this member owns."),
		metric.WithFloat64Callback(func(ctx context.Context, o metric.Float64Observer) error {
			ctx, cancel := context.WithTimeout(ctx, observeTimeout)
			defer cancel()
			ages, err := a.DueAges(ctx)
			if err != nil {
				return err
			}
			for _, age := range ages {
				o.Observe(age.Age.Seconds(), metric.WithAttributes(attribute.String("queue", string(age.Queue))))
			}
			return nil
		}))
	if err != nil {
		return fmt.Errorf("metrics: %w", err)
	}
	return nil
}

// labels returns the option of one set of attributes, made once.
func labels(kv ...string) metric.MeasurementOption {
	attrs := make([]attribute.KeyValue, 0, len(kv)/2)
	for i := 0; i < len(kv); i += 2 {
		attrs = append(attrs, attribute.String(kv[i], kv[i+1]))
	}
	return metric.WithAttributeSet(attribute.NewSet(attrs...))
}
