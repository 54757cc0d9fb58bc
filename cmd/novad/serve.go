package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"os"
	"os/signal"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/alecthomas/kong"

	"github.com/nova-store/nova/api"
	"github.com/nova-store/nova/auditor"
	"github.com/nova-store/nova/catalog"
	"github.com/nova-store/nova/clock"
	"github.com/nova-store/nova/objstore/format"
	"github.com/nova-store/nova/objstore/s3bucket"
	"github.com/nova-store/nova/star"
)

// defaultListen is where a node serves, and where clients look for it.
const defaultListen = "127.0.0.1:4466"

// serveCmd runs a node until a signal.
type serveCmd struct {
	Config string `help:"YAML file with values for these flags." placeholder:"FILE"`

	Data      string `help:"Data directory (./nova-data): metadata under meta/, objects under bucket/." default:"./nova-data" placeholder:"DIR"`
	Listen    string `help:"Address to serve HTTP on (${listen}); port 0 picks one." default:"${listen}" placeholder:"HOST:PORT"`
	Star      string `help:"Name of this star." default:"${star}"`
	NoAudit   bool   `help:"Serve only; somebody else must run an auditor."`
	AuditOnly bool   `help:"Run the auditor only: a member of the ring that serves no data. It needs a metastore that nodes share."`
	LogLevel  string `help:"Least level logged: debug, info, warn or error." enum:"debug,info,warn,error" default:"info"`
	LogFormat string `help:"Log as text, as json, or as text on a terminal only (auto)." enum:"auto,text,json" default:"auto"`

	storageFlags
	securityFlags

	Profiles bool `name:"pprof" help:"Serve profiles of the process beneath /debug/pprof/, guarded like the rest."`

	Linger       time.Duration `help:"How long a flight waits for more appends while another is in the air." default:"5ms"`
	Window       int           `help:"Slots being written at once, at most (W)." default:"16"`
	SlotDeadline time.Duration `help:"How long a slot may stay undecided before the chain is abandoned." default:"10s"`
	TailBytes    byteSize      `help:"Recent records kept in memory for reads." default:"64MiB"`

	InlineBytes     byteSize `help:"Payload that a slot itself holds, at most; that of a larger flight goes into a bundle. Up to 16MiB." default:"1MiB"`
	MaxPendingBytes byteSize `help:"Appends taken but not answered, at most, in memory." default:"128MiB"`
	MaxFollowers    int      `help:"Readers that wait for records to come, at most." default:"10000"`
	MaxConnections  int      `help:"HTTP connections open at once, at most; further ones wait." default:"16384"`
	InFlightBytes   byteSize `help:"Bodies of appends held at once, at most, and likewise pages of reads." default:"256MiB"`

	DiskReserve byteSize `help:"Free disk space that is kept for what frees more: below it appends are refused, below half of it rewrites." default:"1GiB"`

	SettleAgeCap    time.Duration `help:"How long absorbed slots wait for more before they are settled." default:"${settle_age_cap}"`
	SettleOwedBytes byteSize      `help:"How much a chain may owe before it is settled at once." default:"${settle_owed_bytes}"`
	SettleRecheck   time.Duration `help:"How often a live chain is looked at." default:"${settle_recheck}"`
	SettleObjectMin byteSize      `help:"From this size on a stream gets settled objects of its own; smaller ones share." default:"1MiB"`
	SettleObjectMax byteSize      `help:"Size of a settled object, at most 64MiB." default:"64MiB"`
	ReapGrace       byStorage     `help:"Wait before an unreferenced object is probed (${reap_grace}; ${shared_grace} where nodes share storage)." placeholder:"DURATION"`
	TrimGrace       byStorage     `help:"Wait before a rewritten slot is deleted (${trim_grace}; ${shared_grace} where nodes share storage)." placeholder:"DURATION"`
	RetireGrace     byStorage     `help:"Wait before a sealed chain is retired (${retire_grace}; ${shared_grace} where nodes share storage)." placeholder:"DURATION"`
	OrphanGrace     time.Duration `help:"Wait before an unresolved intent is judged." default:"${orphan_grace}"`
	PutHorizon      byStorage     `help:"How late a write may take effect (${shared_horizon} and the longest upload, --s3-upload-timeout + --s3-idle-timeout; 0, and nothing else, with Pebble and a local directory)." placeholder:"DURATION"`
	SessionTTL      time.Duration `name:"session-ttl" help:"How long a session outlives its last keep-alive." default:"${session_ttl}"`
	MaxClockSkew    time.Duration `help:"How far the clocks of two nodes differ." default:"${max_clock_skew}"`
	UndeleteWindow  time.Duration `help:"How long a deleted stream's data is kept." default:"${undelete_window}"`
	GCMinDeadRatio  float64       `name:"gc-min-dead-ratio" help:"How much of an object must be dead, of its size, before it is compacted." default:"0.5"`
	GCMinDeadBytes  byteSize      `name:"gc-min-dead-bytes" help:"How many bytes of an object must be dead before it is compacted." default:"1MiB"`

	JobDeadline           time.Duration `name:"auditor-job-deadline" help:"Bound of one job of the auditor." default:"${job_deadline}"`
	AuditorIdleInterval   time.Duration `help:"Wait after a pass that left nothing to do." default:"30s"`
	AuditorWorkers        int           `help:"Jobs that run at once." default:"2"`
	AuditorMarkersPerEra  int           `help:"Batch markers that one round of the settle rewrite takes." default:"256"`
	AuditorMemberParallel int           `help:"Objects that an era writes abreast." default:"2"`
	AuditorRequestRate    float64       `help:"Bucket requests a second; 0 is unlimited." default:"${auditor_request_rate}"`
	AuditorRewriteRate    byteSize      `help:"Bytes rewritten a second; 0 is unlimited." default:"${auditor_rewrite_rate}"`
	AuditorFetchCache     byteSize      `help:"Source objects that eras hold in memory, at most." default:"128MiB"`
}

// serveDefaults are the defaults that other packages own.
func serveDefaults() kong.Vars {
	t, shared := catalog.DefaultTiming(true), catalog.DefaultTiming(false)
	return kong.Vars{
		"shared_grace":         shared.TrimGrace.String(),
		"shared_horizon":       shared.PutHorizon.String(),
		"s3_upload_timeout":    s3bucket.DefaultUploadTimeout.String(),
		"s3_connections":       strconv.Itoa(s3bucket.DefaultConnections),
		"listen":               defaultListen,
		"star":                 defaultStar,
		"settle_age_cap":       t.SettleAgeCap.String(),
		"settle_owed_bytes":    byteSize(t.SettleOwedBytes).String(),
		"settle_recheck":       t.SettleRecheck.String(),
		"reap_grace":           t.ReapGrace.String(),
		"trim_grace":           t.TrimGrace.String(),
		"retire_grace":         t.RetireGrace.String(),
		"orphan_grace":         t.OrphanGrace.String(),
		"session_ttl":          t.SessionTTL.String(),
		"max_clock_skew":       t.MaxClockSkew.String(),
		"auditor_request_rate": "0",
		"auditor_rewrite_rate": "0",
		"job_deadline":         t.JobDeadline.String(),
		"undelete_window":      t.UndeleteWindow.String(),
	}
}

// config refuses what can't be used, before anything is opened.
func (c *serveCmd) config(log *slog.Logger) (nodeConfig, error) {
	for _, n := range []struct {
		flag  string
		value int
	}{
		{"window", c.Window}, {"auditor-workers", c.AuditorWorkers},
		{"auditor-markers-per-era", c.AuditorMarkersPerEra}, {"auditor-member-parallel", c.AuditorMemberParallel},
		{"max-followers", c.MaxFollowers}, {"max-connections", c.MaxConnections},
	} {
		if n.value < 1 {
			return nodeConfig{}, usagef("--%s=%d: it must be 1 at least", n.flag, n.value)
		}
	}
	if err := catalog.CheckNodeName(c.Star); err != nil {
		return nodeConfig{}, usagef("--star: %w", err)
	}
	switch {
	case c.AuditOnly && c.NoAudit:
		return nodeConfig{}, usagef("--audit-only with --no-audit leaves nothing to run; drop one of them")
	case c.Data == "":
		return nodeConfig{}, usagef("--data must name a directory")
	case c.Linger < 0 || c.SlotDeadline <= 0 || c.AuditorIdleInterval <= 0:
		return nodeConfig{}, usagef("--slot-deadline and --auditor-idle-interval must be above 0, --linger not below")
	case !(c.AuditorRequestRate >= 0) || math.IsInf(c.AuditorRequestRate, 1):
		return nodeConfig{}, usagef("--auditor-request-rate=%v: it must be a number of 0 or more", c.AuditorRequestRate)
	case c.SettleObjectMin < 1 || c.SettleObjectMax < c.SettleObjectMin || c.SettleObjectMax > 64<<20:
		return nodeConfig{}, usagef("--settle-object-min=%v and --settle-object-max=%v: they must be 1B to 64MiB, in this order", c.SettleObjectMin, c.SettleObjectMax)
	}
	for _, n := range []struct {
		flag  string
		value byteSize
	}{
		{"inline-bytes", c.InlineBytes}, {"max-pending-bytes", c.MaxPendingBytes}, {"in-flight-bytes", c.InFlightBytes},
		{"gc-min-dead-bytes", c.GCMinDeadBytes}, {"auditor-fetch-cache", c.AuditorFetchCache},
	} {
		if n.value < 1 {
			return nodeConfig{}, usagef("--%s=%v: it must be 1B at least", n.flag, n.value)
		}
	}
	if c.DiskReserve < minDiskReserve {
		return nodeConfig{}, usagef("--disk-reserve=%v: it must be %v at least, or a full disk could never be emptied again", c.DiskReserve, byteSize(minDiskReserve))
	}
	if c.InlineBytes > format.MaxRecordBytes {
		return nodeConfig{}, usagef("--inline-bytes=%v: it must be %v at most", c.InlineBytes, byteSize(format.MaxRecordBytes))
	}
	if !(c.GCMinDeadRatio > 0 && c.GCMinDeadRatio <= 1) {
		return nodeConfig{}, usagef("--gc-min-dead-ratio=%v: it must be above 0, and 1 at most", c.GCMinDeadRatio)
	}
	storage, err := c.storage(c.AuditOnly, c.Star)
	if err != nil {
		return nodeConfig{}, err
	}
	c.decide(storage)
	cfg := nodeConfig{
		Listen:  c.Listen,
		Dir:     c.Data,
		Storage: storage,
		Timing: catalog.Timing{
			PutHorizon: c.PutHorizon.Duration, LongestUpload: storage.longestUpload(), SessionTTL: c.SessionTTL, MaxClockSkew: c.MaxClockSkew, JobDeadline: c.JobDeadline,
			SettleAgeCap: c.SettleAgeCap, SettleOwedBytes: uint64(c.SettleOwedBytes), SettleRecheck: c.SettleRecheck,
			ReapGrace: c.ReapGrace.Duration, TrimGrace: c.TrimGrace.Duration, RetireGrace: c.RetireGrace.Duration, OrphanGrace: c.OrphanGrace,
			UndeleteWindow: c.UndeleteWindow,
		},
		Star: star.Options{
			Name: c.Star, Window: c.Window, Linger: c.Linger, SlotDeadline: c.SlotDeadline, TailBytes: int64(c.TailBytes),
			InlineBytes: int(c.InlineBytes), MaxPendingBytes: int64(c.MaxPendingBytes), MaxFollowers: c.MaxFollowers,
		},
		Auditor: auditor.Options{
			Workers: c.AuditorWorkers, IdleInterval: c.AuditorIdleInterval, MarkersPerEra: c.AuditorMarkersPerEra,
			MemberParallel: c.AuditorMemberParallel, SettleObjectMin: int64(c.SettleObjectMin), SettleObjectMax: int64(c.SettleObjectMax),
			GCMinDeadRatio: c.GCMinDeadRatio, GCMinDeadBytes: int64(c.GCMinDeadBytes), FetchCacheBytes: int64(c.AuditorFetchCache),
			RequestRate: c.AuditorRequestRate, RewriteRate: float64(c.AuditorRewriteRate), Codec: format.Zstd(),
		},
		Audit:         !c.NoAudit,
		Serve:         !c.AuditOnly,
		InFlightBytes: int64(c.InFlightBytes),
		DiskReserve:   int64(c.DiskReserve),
		Logger:        log,
	}
	// The star takes 0 for its default.
	if c.Linger == 0 {
		cfg.Star.Linger = -1
	}
	if c.TailBytes == 0 {
		cfg.Star.TailBytes = -1
	}
	if err := cfg.Timing.Validate(storage.embedded()); err != nil {
		return nodeConfig{}, timingRefusal(err)
	}
	return cfg, nil
}

// decide gives those waits their values that depend on where metadata and objects live.
func (c *serveCmd) decide(s storageConfig) {
	t := catalog.DefaultTiming(s.embedded())
	t.PutHorizon += s.longestUpload()
	c.PutHorizon.orElse(t.PutHorizon)
	c.ReapGrace.orElse(t.ReapGrace)
	c.TrimGrace.orElse(t.TrimGrace)
	c.RetireGrace.orElse(t.RetireGrace)
}

// timingRefusal names the flags that contradict one another.
func timingRefusal(err error) error {
	var unsafe *catalog.UnsafeTimingError
	if !errors.As(err, &unsafe) {
		return &usageError{err}
	}
	return usagef("%w (%s)", err, flagsOf(unsafe.Fields))
}

// flagsOf are the flags that set some fields of a timing.
func flagsOf(fields []string) string {
	t := reflect.TypeFor[serveCmd]()
	var flags []string
	for _, name := range fields {
		flag := kebab(name)
		if f, ok := t.FieldByName(name); ok {
			flag = cmp.Or(f.Tag.Get("name"), flag)
		}
		flags = append(flags, "--"+flag)
	}
	return strings.Join(flags, ", ")
}

// kebab is a flag's name as kong makes it of a field's: RetireGrace is retire-grace.
func kebab(field string) string {
	return strings.ToLower(upper.ReplaceAllString(field, "${1}-${2}"))
}

var upper = regexp.MustCompile("([a-z])([A-Z])")

// Run serves until a signal: then it stops accepting, finishes flights, absorbs, drains
// the pool, leaves the ring and closes. A second signal ends the process at once.
func (c *serveCmd) Run(p *process) error {
	var level slog.Level
	if err := level.UnmarshalText([]byte(c.LogLevel)); err != nil {
		return &usageError{err}
	}
	log := newLogger(p.stderr, c.LogFormat, level)
	cfg, err := c.config(log)
	if err != nil {
		return err
	}
	if err := c.checkListen(c.Listen); err != nil {
		return err
	}
	guard, err := c.open(log)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", c.Listen)
	if err != nil {
		return usagef("cannot serve on %s: %w", c.Listen, err)
	}
	// Probes are answered from now on: opening what may be far away and minting a chain take time.
	door := openDoor(boundConnections(listener, c.MaxConnections), guard.tls, log)
	n, err := openNode(p.ctx, cfg)
	if err != nil {
		return errors.Join(err, door.srv.Close())
	}
	return n.serve(p, door, guard, c.Profiles)
}

// serve runs an opened node and its interface until a signal, or until the star stops.
func (n *node) serve(p *process, door *door, secured security, profiles bool) error {
	srv := door.srv
	stopping, endVerify := context.WithCancel(context.Background())
	defer endVerify()
	srv.RegisterOnShutdown(endVerify)
	if n.star != nil {
		srv.RegisterOnShutdown(n.star.EndFollows) // or a shutdown would wait for those who wait for records
	}
	// Who keeps a connection to a node that is being drained would stay with it: each answer ends one.
	n.onDrain = func() { srv.SetKeepAlivesEnabled(false) }
	o := api.Options{
		Logger: n.log, Version: version(), InFlightBytes: n.inFlight, Verify: n.verify(stopping), Backup: n.backup(stopping), Metrics: n.metrics.Handler(),
		Guard: secured.guard, LoopbackHosts: secured.loopback, AuditOnly: n.star == nil, Drain: n.drainFor, Deal: dealt,
	}
	if profiles {
		o.Profiles = profileHandler()
	}
	h := api.New(n.service(), clock.NewReal(), o)
	door.wait("the star mints its chain")
	n.start()
	if err := n.ready(p.ctx); err != nil {
		return errors.Join(err, srv.Close(), n.stop())
	}
	door.open(h)
	// A line of its own and no log entry: programs wait for it, whatever the log looks like.
	fmt.Fprintf(p.stderr, "listening on %s\n", door.address)

	var failed error
	select {
	case <-p.ctx.Done():
		n.log.Info("stopping; another signal ends the process at once")
	case err := <-n.starStopped():
		failed = fmt.Errorf("the star stopped: %w", err)
	case err := <-door.served:
		failed = fmt.Errorf("the HTTP server stopped: %w", err)
	}
	defer endOnSignal()()
	// Requests under way get their answers: appends need the star for that.
	ctx, cancel := context.WithTimeout(context.Background(), shutdownTimeout)
	defer cancel()
	if err := srv.Shutdown(ctx); err != nil {
		n.log.Warn("requests were cut off", "error", errors.Join(err, srv.Close()))
	}
	err := n.stop()
	if failed != nil {
		// What ended it says it all: the stop repeats the star's error.
		return failed
	}
	if err == nil {
		n.log.Info("stopped")
	}
	return err
}

// shutdownTimeout bounds how long a stop waits for requests under way.
const shutdownTimeout = 15 * time.Second

// endOnSignal ends the process at the next signal, until the function it returns is called.
func endOnSignal() (cancel func()) {
	again := make(chan os.Signal, 1)
	done := make(chan struct{})
	signal.Notify(again, os.Interrupt, syscall.SIGTERM)
	go func() {
		select {
		case <-again:
			fmt.Fprintln(os.Stderr, "novad: stopped at once by a second signal")
			os.Exit(exitFailure)
		case <-done:
		}
	}()
	return func() {
		signal.Stop(again)
		close(done)
	}
}
