package main

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nova-store/nova/api/service"
	"github.com/nova-store/nova/auditor"
	"github.com/nova-store/nova/catalog"
	"github.com/nova-store/nova/clock"
	"github.com/nova-store/nova/metastore"
	"github.com/nova-store/nova/metrics"
	"github.com/nova-store/nova/objstore"
	"github.com/nova-store/nova/star"
)

// nodeConfig is what a node is made of.
type nodeConfig struct {
	Dir     string // holds meta/ and bucket/, where Storage does not say otherwise
	Storage storageConfig
	Timing  catalog.Timing
	Star    star.Options
	Auditor auditor.Options
	Audit   bool
	Serve   bool
	Listen  string // the address of its HTTP interface, as it was given
	// InFlightBytes bounds what the HTTP interface holds; 0: its default.
	InFlightBytes int64
	// DiskReserve is the free space that is kept for what frees more; 0: the store's own last reserve alone.
	DiskReserve int64
	Logger      *slog.Logger
}

// node is a star, or an auditor, or both on one store and one bucket, in this process.
type node struct {
	lock    *dataLock // nil: nothing here is this node's alone
	store   closingStore
	bucket  closingBucket
	cat     *catalog.Catalog
	star    *star.Star       // nil: auditing only
	auditor *auditor.Auditor // nil: serving only
	timings *timings         // nil: nobody else can be on its metadata
	metrics *metrics.Metrics
	log     *slog.Logger

	inFlight int64 // see nodeConfig.InFlightBytes

	minted      chan struct{} // closed once the star minted its first chain
	mintOnce    sync.Once
	starDone    chan error    // what the star's Run returned
	auditorDone chan struct{} // closed once the auditor's Run returned
	stopStar    context.CancelFunc
	stopAuditor context.CancelFunc

	onDrain   func() // told when a drain begins; nil: nobody
	drainOnce sync.Once
	draining  atomic.Bool
	drained   chan struct{} // closed once the node is drained
	drainErr  error         // of then
}

// openNode opens metastore and bucket. Whatever it refuses is a refusal at start-up.
func openNode(ctx context.Context, cfg nodeConfig) (*node, error) {
	cfg.Storage = cfg.Storage.under(cfg.Dir)
	if err := cfg.Timing.Validate(cfg.Storage.embedded()); err != nil {
		return nil, &usageError{err}
	}
	if err := cfg.Storage.apart(); err != nil {
		return nil, &usageError{err}
	}
	n := &node{log: cfg.Logger, inFlight: cfg.InFlightBytes, minted: make(chan struct{}), drained: make(chan struct{})}
	var fresh []string
	if cfg.Storage.etcd == nil {
		var err error
		switch n.lock, err = lockData(cfg.Dir, cfg.Storage.meta, true); {
		case errors.Is(err, errHeld):
			return nil, usagef("%s is in use by another process: a node that runs, or a restore under way (%w)", cfg.Storage.meta, err)
		case err != nil:
			return nil, &usageError{err}
		}
		fresh = missing(filepath.Join(cfg.Dir, "meta"), filepath.Join(cfg.Dir, "bucket"))
	}
	err := n.openStorage(ctx, &cfg)
	made := folders(fresh)
	if err == nil {
		err = n.assemble(ctx, cfg)
	}
	if err != nil {
		return nil, errors.Join(&usageError{err}, n.forget(made))
	}
	return n, nil
}

// missing are those of some folders that are not there.
func missing(dirs ...string) []string {
	return slices.DeleteFunc(dirs, func(dir string) bool {
		_, err := os.Lstat(dir)
		return !errors.Is(err, fs.ErrNotExist)
	})
}

// folders looks at folders, by their paths. One that can't be looked at is left out.
func folders(dirs []string) map[string]fs.FileInfo {
	found := make(map[string]fs.FileInfo, len(dirs))
	for _, dir := range dirs {
		if info, err := os.Lstat(dir); err == nil {
			found[dir] = info
		}
	}
	return found
}

// forget closes a node that was refused before it ran, and leaves of a data directory what was there before: nothing that
// it made has been served, and the lock keeps it its own until it is gone. A path that leads to another folder than the one made leads to a
// volume, perhaps, that was mounted over it while the start waited for the bucket: that stays.
func (n *node) forget(made map[string]fs.FileInfo) error {
	errs := []error{n.closeStorage()}
	for _, dir := range slices.Sorted(maps.Keys(made)) {
		if info, err := os.Lstat(dir); err == nil && os.SameFile(info, made[dir]) {
			errs = append(errs, os.RemoveAll(dir))
		}
	}
	return errors.Join(append(errs, n.lock.abandon())...)
}

// checkMetadata refuses a data directory that has objects but lost its metadata: the ids of streams and
// chains would be given out again, and old records come up in new streams. A first start makes the
// metadata before any object.
func checkMetadata(dir, meta, bucket string) error {
	if files, err := os.ReadDir(meta); len(files) > 0 || err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil // opening it tells more
	}
	for _, kind := range objectKinds() {
		err := filepath.WalkDir(filepath.Join(bucket, kind), func(path string, d fs.DirEntry, err error) error {
			if err == nil && !d.IsDir() {
				err = fmt.Errorf("data directory %s has objects (%s) but no metadata: restore %s from a backup, or take an empty directory", dir, path, meta)
			}
			return err
		})
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// checkBucket refuses a data directory whose metadata was used and whose bucket is gone or empty, as where
// its volume is not mounted: chains would go on in a bucket that is not theirs, and once theirs is back it
// would lack what was acknowledged meanwhile. A first start makes the bucket, whose lock file stays, before
// the format is written; a crash in between leaves no format, and the next start begins anew.
func checkBucket(ctx context.Context, store metastore.Store, dir, bucket string) error {
	recs, err := store.Get(ctx, catalog.FormatKey)
	if err != nil {
		return fmt.Errorf("data directory %s: reading %s: %w", dir, catalog.FormatKey, err)
	}
	if !recs[0].Exists() {
		return nil
	}
	if f, err := catalog.DecodeFormat(recs[0].Value); err != nil || f.Version != catalog.FormatVersion {
		return nil // another version's: EnsureFormat tells
	}
	switch files, err := os.ReadDir(bucket); {
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("data directory %s: %w", dir, err)
	case len(files) == 0:
		return fmt.Errorf("data directory %s has metadata but no objects: mount %s, or restore it from a backup, or take an empty directory", dir, bucket)
	}
	return nil
}

// freshMetadata: nothing was ever written to the store by Nova.
func freshMetadata(ctx context.Context, store metastore.Store) (bool, error) {
	recs, err := store.Get(ctx, catalog.FormatKey)
	if err != nil {
		return false, fmt.Errorf("reading %s: %w", catalog.FormatKey, err)
	}
	return !recs[0].Exists(), nil
}

// refuseUsedBucket refuses fresh metadata for a bucket that has objects, as where the volume of the metadata was lost or etcd's prefix
// is mistyped: the ids of streams and chains would be given out again, and old records come up in new streams. It is asked once in the
// life of a metastore, before its format is written, and reads one key of each kind (docs/adr/0023-one-look-at-a-used-bucket.md).
//
// Another node may make the same metadata, and objects, meanwhile. Then its format was written before its first
// object, and is found by a second look.
func refuseUsedBucket(ctx context.Context, store metastore.Store, bucket objstore.Bucket, at storageConfig) error {
	for _, kind := range objectKinds() {
		found, err := bucket.List(ctx, kind+"/", "", 1)
		if err != nil {
			return fmt.Errorf("is %s in use already? %w", at.objects(), err)
		}
		if len(found) == 0 {
			continue
		}
		switch fresh, err := freshMetadata(ctx, store); {
		case err != nil:
			return fmt.Errorf("%s: %w", at.where(), err)
		case !fresh:
			return nil
		}
		return fmt.Errorf("%s has objects (%s), but %s has nothing of theirs: restore the metadata from a backup, or correct --metastore, or take an empty prefix or directory for the objects",
			at.objects(), found[0].Key, at.where())
	}
	return nil
}

// objectKinds begin the keys of all objects that hold records.
func objectKinds() []string { return []string{"slot", "bundle", "settled"} }

func (n *node) assemble(ctx context.Context, cfg nodeConfig) error {
	clk := clock.NewReal()
	var err error
	if n.metrics, err = metrics.New(clk); err != nil {
		return err
	}
	if s, ok := n.bucket.(interface{ ClockBehind() time.Duration }); ok {
		if err := n.metrics.StoreClock(s.ClockBehind); err != nil {
			return err
		}
	}
	store := &armWatch{n.store, n.armed}
	n.cat = catalog.New(n.metrics.Store(store, metrics.Serving), clk, cfg.Timing, nil)
	fresh, err := freshMetadata(ctx, n.store)
	if err == nil && !fresh {
		err = n.cat.EnsureFormat(ctx)
	}
	if errors.Is(err, catalog.ErrBeginning) {
		again := "restore the backup again, with novad restore"
		if cfg.Storage.etcd != nil {
			again = "repeat novad restore --begin-timeline, with this --metastore"
		}
		err = fmt.Errorf("%w: %s", err, again)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", cfg.Storage.where(), err)
	}
	name, probe := cfg.Star.Name, cfg.Star.Name
	if !cfg.Serve {
		name, probe = memberName(clk), probeName(cfg.Listen)
	} else {
		// The mint would refuse it, too, and does where somebody retires the star right now.
		switch at, err := n.cat.ReadStar(ctx, name); {
		case err != nil:
			return err
		case at.Star.Retired:
			return fmt.Errorf("star %s was decommissioned, and its name can't be used again: choose another with --star", name)
		}
	}
	if err := objstore.Probe(ctx, clk, n.bucket, probe, cfg.Logger); err != nil {
		return err
	}
	if fresh {
		if err := refuseUsedBucket(ctx, n.store, n.bucket, cfg.Storage); err != nil {
			return err
		}
		if err := n.cat.EnsureFormat(ctx); err != nil {
			return fmt.Errorf("%s: %w", cfg.Storage.where(), err)
		}
	}
	if cfg.Storage.etcd != nil {
		if n.timings, err = joinTimings(ctx, n.cat, clk, cfg.Logger, name); err != nil {
			return err
		}
	}
	cfg.Auditor.Member, cfg.Auditor.Version = name, version()
	cfg.Auditor.Embedded, cfg.Star.Embedded = cfg.Storage.embedded(), cfg.Storage.embedded()
	cfg.Auditor.Logger, cfg.Star.Logger = cfg.Logger, cfg.Logger
	if cfg.Audit {
		if cfg.Auditor.Events == nil {
			cfg.Auditor.Events = auditLog{cfg.Logger}
		}
		cfg.Auditor.Events = n.metrics.AuditorEvents(cfg.Auditor.Events)
		cat := catalog.New(n.metrics.Store(store, metrics.Auditing), clk, cfg.Timing, nil)
		if n.auditor, err = auditor.New(cat, n.metrics.Bucket(n.bucket, metrics.Auditing), clk, cfg.Auditor); err != nil {
			return err
		}
		if err = n.metrics.Auditor(n.auditor); err != nil {
			return err
		}
	}
	if !cfg.Serve {
		return nil
	}
	cfg.Star.Events = n.metrics.StarEvents(starEvents{log: cfg.Logger, minted: n.starMinted})
	n.star, err = star.New(n.cat, n.metrics.Bucket(n.bucket, metrics.Serving), clk, cfg.Star)
	return err
}

// memberName makes up a name for a member of the ring that is no star. It is another at each start, so that
// what an earlier process of this machine has announced is never this one's.
func memberName(clk clock.Clock) string { return fmt.Sprintf("auditor-%016x", clk.Rand()) }

// probeNames is how many names there are for the probes of nodes that are no stars.
const probeNames = 64

// probeName is what a member of the ring that is no star probes the bucket under. The name of a probe that was killed must come back, or its
// object would stay for ever: so it follows from the machine and the address, which the next process has too, and is one of a few, for machines that
// never come back. Two that start at once under one meet as a surprise, which a probe tries again.
func probeName(listen string) string {
	host, _ := os.Hostname() // without one they share a name the sooner
	h := fnv.New64a()
	fmt.Fprintf(h, "%s %s", host, listen)
	return fmt.Sprintf("auditor-%02d", h.Sum64()%probeNames)
}

// starMinted: the star serves now. The mint has re-announced what earlier epochs left,
// so that the auditor looks at once.
func (n *node) starMinted() {
	n.mintOnce.Do(func() { close(n.minted) })
	if n.auditor != nil {
		n.auditor.Wake()
	}
}

// armed tells the auditor, once there is one, of a key that a commit of this process put.
func (n *node) armed(key string) {
	if n.auditor != nil {
		n.auditor.Armed(key)
	}
}

// start runs the star and the auditor, whichever there is.
func (n *node) start() {
	n.timings.start()
	if n.star != nil {
		n.startStar()
	}
	if n.auditor != nil {
		n.startAuditor()
	}
}

func (n *node) startStar() {
	ctx, stop := context.WithCancel(context.Background())
	n.stopStar, n.starDone = stop, make(chan error, 1)
	go func() { n.starDone <- n.star.Run(ctx) }()
}

func (n *node) startAuditor() {
	ctx, stop := context.WithCancel(context.Background())
	n.stopAuditor, n.auditorDone = stop, make(chan struct{})
	go func() {
		defer close(n.auditorDone)
		if err := n.auditor.Run(ctx); err != nil {
			n.log.Error("auditor stopped", "error", err)
		}
	}()
}

// ready returns once the star serves, or with the error that it stopped with. Without a star there is nothing to wait
// for: /readyz tells when the auditor is on the ring.
func (n *node) ready(ctx context.Context) error {
	if n.star == nil {
		return nil
	}
	select {
	case <-n.minted:
		return nil
	case err := <-n.starDone:
		n.starDone <- err
		return errors.Join(errors.New("the star stopped before it served"), err)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// service is the inner half of the interface.
func (n *node) service() *service.Service {
	if n.star == nil {
		return service.New(service.AuditOnly(n.auditor), n.cat, clock.NewReal())
	}
	return service.New(n.star, n.cat, clock.NewReal())
}

// dealt is the auditor's seat in the ring.
func dealt(member string, roster, stars []string) (shards []int, settles []string) {
	seat := auditor.Deal(member, roster, stars)
	return seat.Shards, seat.Stars
}

// stop ends a node that was started: it is drained, and everything is closed. It takes until then; whoever cannot wait
// ends the process, which loses nothing acknowledged.
func (n *node) stop() error { return errors.Join(n.drain(), n.close()) }

func (n *node) close() error { return errors.Join(n.closeStorage(), n.lock.release()) }

// leaveTimings takes the node's timing back, if that can be done soon: else it goes by itself.
func (n *node) leaveTimings() {
	ctx, cancel := context.WithTimeout(context.Background(), leaveTimeout)
	defer cancel()
	if err := n.timings.close(ctx); err != nil {
		n.log.Warn("the node's timing flags bind other nodes a while longer", "error", err)
	}
}

// leaveTimeout bounds how long a node that ends waits for what others do not need.
const leaveTimeout = 5 * time.Second

func (n *node) closeStorage() error {
	var errs []error
	n.leaveTimings()
	if n.bucket != nil {
		errs = append(errs, n.bucket.Close())
	}
	if n.store != nil {
		errs = append(errs, n.store.Close())
	}
	return errors.Join(errs...)
}
