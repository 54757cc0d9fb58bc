package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/schollz/progressbar/v3"

	"github.com/nova-store/nova/catalog"
	"github.com/nova-store/nova/clock"
	"github.com/nova-store/nova/metastore/etcdstore"
	"github.com/nova-store/nova/metastore/pebblestore"
	"github.com/nova-store/nova/objstore/dirbucket"
	"github.com/nova-store/nova/verify"
)

// verifyCmd checks everything.
type verifyCmd struct {
	serverFlag
	DataDir   string `name:"data-dir" help:"Check this data directory of a stopped node, instead of asking a server." placeholder:"DIR" env:"-"`
	Metastore string `help:"Check what nodes that are all stopped left in this metastore, etcd://HOST,HOST/PREFIX, and in --bucket; or, with --data-dir, where its metadata lives, if not in meta/ of it: pebble:DIR." placeholder:"WHERE" env:"-"`
	Bucket    string `help:"With --data-dir or --metastore: where the objects live, if not in bucket/ of the data directory: dir:PATH or s3://BUCKET/PREFIX." placeholder:"WHERE"`
	List      bool   `help:"With --data-dir or --metastore: also list the bucket, and report every object that no record names." env:"-"`
	Inventory string `help:"With --data-dir or --metastore: also write to this file each object that the metadata records, and its size, as a line of JSON." placeholder:"FILE" type:"path" env:"-"`
	Abreast   int    `help:"Objects read at once, at most." default:"4" env:"-"`
	Output    string `help:"How to print: table or json." enum:"table,json" default:"table" env:"-"`

	etcdFlags
	s3Flags
}

// Help is shown by novad verify --help.
func (verifyCmd) Help() string {
	return `Reads every record and every recorded object, checks checksums, references, markers and that every
object is watched, and says what is amiss and what to do. It changes nothing. Against a running
server a fault is reported only when it was seen twice unchanged.

Exit status 1: something is amiss, or it could not be finished.`
}

// errAmiss: the report, which was printed, has findings.
var errAmiss = errors.New("something is amiss")

// Run checks a server or a directory, and prints the report.
func (c *verifyCmd) Run(p *process) error {
	meta, pebble := strings.CutPrefix(c.Metastore, "pebble:")
	etcd := strings.HasPrefix(c.Metastore, etcdstore.Scheme)
	switch {
	case c.Abreast < 1 || c.Abreast > 64:
		return usagef("--abreast=%d: it must be 1 to 64", c.Abreast)
	case c.Metastore != "" && !etcd && (!pebble || meta == ""):
		return usagef("--metastore=%s: it must be pebble:DIR or etcd://HOST,HOST/PREFIX", c.Metastore)
	case pebble && c.DataDir == "":
		return usagef("--metastore=%s: give the node's --data-dir, too", c.Metastore)
	case c.DataDir != "" && etcd:
		return usagef("--data-dir and --metastore=etcd://…: give one of them")
	case c.List && c.DataDir == "" && c.Metastore == "":
		return usagef("--list needs --data-dir or --metastore: while a server runs, objects rightly exist a moment before their records do")
	}
	if c.Inventory != "" && c.DataDir == "" && c.Metastore == "" {
		return usagef("--inventory needs --data-dir or --metastore: while a server runs, what it records changes all the time")
	}
	o := verify.Options{Abreast: c.Abreast, List: c.List}
	finish, err := c.inventory(&o)
	if err != nil {
		return err
	}
	var done func()
	o.Progress, done = verifyProgress(p.stderr)
	rep, err := c.check(p.ctx, o)
	done()
	err = errors.Join(err, finish())
	if err != nil {
		return err
	}
	if c.Output == "json" {
		err = printJSON(p.stdout, rep)
	} else {
		err = printReport(p.stdout, rep)
	}
	if err == nil && rep.Amiss > 0 {
		err = fmt.Errorf("%w: %d findings", errAmiss, rep.Amiss)
	}
	return err
}

// inventory has the objects that the metadata records written to a file, which is complete once finish returned without an error.
func (c *verifyCmd) inventory(o *verify.Options) (finish func() error, err error) {
	if c.Inventory == "" {
		return func() error { return nil }, nil
	}
	f, err := os.Create(c.Inventory)
	if err != nil {
		return nil, usagef("--inventory: %w", err)
	}
	w := bufio.NewWriter(f)
	enc := json.NewEncoder(w)
	var failed error
	o.Recorded = func(r verify.Recorded) {
		if failed == nil {
			failed = enc.Encode(r)
		}
	}
	return func() error {
		if err := errors.Join(failed, w.Flush(), f.Close()); err != nil {
			return fmt.Errorf("--inventory: %w", err)
		}
		return nil
	}, nil
}

func (c *verifyCmd) check(ctx context.Context, o verify.Options) (verify.Report, error) {
	if c.DataDir != "" {
		at := storageConfig{meta: strings.TrimPrefix(c.Metastore, "pebble:")}
		if err := at.bucketAt(c.Bucket, &c.s3Flags); err != nil {
			return verify.Report{}, err
		}
		at = at.under(c.DataDir)
		if err := at.apart(); err != nil {
			return verify.Report{}, err
		}
		return verifyDir(ctx, c.DataDir, at, o)
	}
	if c.Metastore != "" {
		return c.shared(ctx, o)
	}
	client, err := c.client()
	if err != nil {
		return verify.Report{}, err
	}
	defer client.Close()
	return client.Verify(ctx, c.Abreast, o.Progress)
}

// shared checks storage that nodes share. With a listing no node may run, of which those are known that
// have a session.
func (c *verifyCmd) shared(ctx context.Context, o verify.Options) (rep verify.Report, err error) {
	flags := storageFlags{Metastore: c.Metastore, Bucket: c.Bucket, etcdFlags: c.etcdFlags, s3Flags: c.s3Flags}
	at, err := flags.storage(true, "")
	if err != nil {
		return rep, err
	}
	log := slog.New(slog.DiscardHandler)
	store, err := at.etcd.open(ctx, log)
	if err != nil {
		return rep, err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	bucket, err := at.openBucket(ctx, catalog.DefaultTiming(false).MaxClockSkew, log, nil)
	if err != nil {
		return rep, err
	}
	defer func() { err = errors.Join(err, bucket.Close()) }()
	clk := clock.NewReal()
	cat := catalog.New(store, clk, catalog.DefaultTiming(false), nil)
	if o.List {
		switch running, err := whoRuns(ctx, cat); {
		case err != nil:
			return rep, err
		case len(running) > 0:
			return rep, usagef("--list: %s run, or did until a moment ago: while a node runs, objects rightly exist a moment before their records do", strings.Join(running, ", "))
		}
	}
	return verify.Run(ctx, cat, bucket, clk, o)
}

// whoRuns names the nodes that have a session, or had one until a moment ago.
func whoRuns(ctx context.Context, cat *catalog.Catalog) ([]string, error) {
	names, err := cat.Roster(ctx)
	if err != nil {
		return nil, err
	}
	chains, err := cat.Chains(ctx)
	if err != nil {
		return nil, err
	}
	for _, c := range chains {
		if c.Live {
			names = append(names, c.ID.Star)
		}
	}
	return names, nil
}

// verifyDir checks the data directory of a node that does not run. It takes the locks that a node
// takes, so that none can start meanwhile. Opening recovers what a crash left in the air, as a
// start does; nothing else is written.
func verifyDir(ctx context.Context, dir string, at storageConfig, o verify.Options) (rep verify.Report, err error) {
	for _, part := range []string{at.meta, at.dir} {
		if _, err := os.Stat(part); part != "" && errors.Is(err, fs.ErrNotExist) {
			return rep, usagef("%s is no data directory: there is no %s; where metadata or objects live elsewhere give --metastore or --bucket, as for novad serve", dir, part)
		}
	}
	// Opening would make one.
	switch there, err := pebblestore.Exists(at.meta); {
	case err != nil:
		return rep, &usageError{err}
	case !there:
		return rep, usagef("%s holds no metadata of a node: look at --data-dir and --metastore", at.meta)
	}
	log := slog.New(slog.DiscardHandler)
	refused := func(err error) (verify.Report, error) {
		var meta *pebblestore.LockedError
		var bucket *dirbucket.LockedError
		if errors.As(err, &meta) || errors.As(err, &bucket) {
			return rep, usagef("data directory %s is in use by a running node: stop it, or ask it (novad verify --server URL)", dir)
		}
		return rep, &usageError{err}
	}
	store, err := pebblestore.Open(at.meta, pebblestore.Options{Logger: log})
	if err != nil {
		return refused(err)
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	bucket, err := at.openBucket(ctx, 0, log, nil)
	if err != nil {
		return refused(err)
	}
	defer func() { err = errors.Join(err, bucket.Close()) }()
	if local, ok := bucket.(*dirbucket.Bucket); ok {
		o.Strays = func(ctx context.Context) ([]verify.Stray, error) {
			found, err := local.Strays(ctx, straysMost)
			out := make([]verify.Stray, len(found))
			for i, s := range found {
				out[i] = verify.Stray(s)
			}
			return out, err
		}
	}
	clk := clock.NewReal()
	return verify.Run(ctx, catalog.New(store, clk, catalog.DefaultTiming(true), nil), bucket, clk, o)
}

// straysMost bounds how much of what is no object a report names.
const straysMost = 1000

// verify is what the interface's verify does, until stopping ends: a shutdown does not wait for it. It never lists.
func (n *node) verify(stopping context.Context) func(context.Context, verify.Options) (verify.Report, error) {
	return func(ctx context.Context, o verify.Options) (verify.Report, error) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(stopping, cancel)()
		o.List = false
		return verify.Run(ctx, n.cat, n.bucket, clock.NewReal(), o)
	}
}

// verifyProgress shows progress on a terminal; done takes it away again.
func verifyProgress(w io.Writer) (show func(verify.Progress), done func()) {
	if !isTerminal(w) {
		return nil, func() {}
	}
	bar := progressbar.NewOptions64(-1, progressbar.OptionSetWriter(w), progressbar.OptionShowBytes(true), progressbar.OptionClearOnFinish(),
		progressbar.OptionThrottle(100*time.Millisecond))
	return func(p verify.Progress) {
			bar.Describe(fmt.Sprintf("%s: %d streams, %d spans, %d objects, %d amiss", p.Phase, p.Streams, p.Spans, p.Objects, p.Amiss))
			_ = bar.Set64(int64(p.Bytes)) // what is drawn is no reason to stop
		}, func() {
			_ = bar.Finish()
		}
}

func printReport(w io.Writer, rep verify.Report) error {
	rows := []table.Row{
		{"streams", rep.Streams}, {"spans", rep.Spans}, {"records", rep.Records}, {"payload bytes", rep.Bytes},
		{"references", rep.Refs}, {"objects", rep.Objects}, {"chains", rep.Chains}, {"entries by stream", rep.Pending},
	}
	for _, q := range rep.Queues {
		rows = append(rows, table.Row{"markers of " + string(q.Queue), q.Markers})
	}
	if rep.Listed > 0 {
		rows = append(rows, table.Row{"objects listed", rep.Listed})
	}
	if err := renderTable(w, 1, table.Row{"checked", "count"}, rows); err != nil {
		return err
	}
	if rep.Restless > 0 {
		if err := printLine(w, fmt.Sprintf("%d records kept changing while they were looked at; run it again at a quieter time to have them checked.", rep.Restless)); err != nil {
			return err
		}
	}
	if rep.Amiss == 0 {
		return printLine(w, fmt.Sprintf("nothing is amiss (%v)", rep.Took.Round(time.Millisecond)))
	}
	for _, f := range rep.Findings {
		if err := printLine(w, fmt.Sprintf("%s %s\n  %s\n  %s", f.Kind, f.Key, f.Detail, f.Advice)); err != nil {
			return err
		}
	}
	if more := rep.Amiss - len(rep.Findings); more > 0 {
		return printLine(w, fmt.Sprintf("and %d more", more))
	}
	return nil
}
