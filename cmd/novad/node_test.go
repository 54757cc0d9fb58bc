package main

import (
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
	"github.com/stretchr/testify/require"

	"github.com/nova-store/nova/auditor"
	"github.com/nova-store/nova/catalog"
	"github.com/nova-store/nova/clock"
	"github.com/nova-store/nova/metastore/pebblestore"
	"github.com/nova-store/nova/objstore"
	"github.com/nova-store/nova/objstore/dirbucket"
)

// served opens the node that novad serve with these flags would run.
func served(t *testing.T, events auditor.Events, flags ...string) *node {
	t.Helper()
	n, err := openWith(t, events, flags...)
	require.NoError(t, err)
	return n
}

func openWith(t *testing.T, events auditor.Events, flags ...string) (*node, error) {
	t.Helper()
	return openNode(t.Context(), testConfig(t, events, flags...))
}

// testConfig is the configuration of that node.
func testConfig(t *testing.T, events auditor.Events, flags ...string) nodeConfig {
	t.Helper()
	var c cli
	parser, err := kong.New(&c, serveDefaults(), kong.Vars{"version": "test"})
	require.NoError(t, err)
	_, err = parser.Parse(append([]string{"serve", "--data", t.TempDir()}, flags...))
	require.NoError(t, err)
	cfg, err := c.Serve.config(slog.New(slog.NewTextHandler(io.Discard, nil)))
	require.NoError(t, err)
	cfg.Auditor.Events = events
	return cfg
}

// A bucket that is not there is not made anew beside the metadata of another one.
func TestADirectoryWhoseBucketIsGoneIsRefused(t *testing.T) {
	dir := t.TempDir()
	bucket := filepath.Join(dir, "bucket")
	flags := []string{"--data", dir}
	require.NoError(t, served(t, nil, flags...).close())
	require.NoError(t, served(t, nil, flags...).close(), "a second start")

	require.NoError(t, os.RemoveAll(bucket))
	_, err := openWith(t, nil, flags...)
	var usage *usageError
	require.ErrorAs(t, err, &usage)
	require.ErrorContains(t, err, "has metadata but no objects")
	require.NoDirExists(t, bucket)

	require.NoError(t, os.Mkdir(bucket, 0o750), "the place of a volume that is not mounted")
	_, err = openWith(t, nil, flags...)
	require.ErrorContains(t, err, "has metadata but no objects")
}

// Fresh metadata on a bucket in use would give out its names again, wherever either of them is.
func TestFreshMetadataOnAUsedBucketIsRefused(t *testing.T) {
	for _, kind := range []string{"slot/a/1/0", "bundle/a/1/0", "settled/A"} {
		store, err := pebblestore.Open(filepath.Join(t.TempDir(), "meta"), pebblestore.Options{})
		require.NoError(t, err)
		bucket, err := dirbucket.Open(t.TempDir(), dirbucket.Options{})
		require.NoError(t, err)
		at := storageConfig{meta: "here", dir: "there"}
		require.NoError(t, refuseUsedBucket(t.Context(), store, bucket, at))
		require.NoError(t, bucket.Put(t.Context(), kind, []byte("x"), objstore.PutOptions{}))
		err = refuseUsedBucket(t.Context(), store, bucket, at)
		require.EqualError(t, err, "bucket there has objects ("+kind+"), but metadata in here has nothing of theirs: "+
			"restore the metadata from a backup, or correct --metastore, or take an empty prefix or directory for the objects")

		// Another node made the same metadata meanwhile, and began to serve.
		require.NoError(t, catalog.New(store, clock.NewReal(), catalog.DefaultTiming(true), nil).EnsureFormat(t.Context()))
		require.NoError(t, refuseUsedBucket(t.Context(), store, bucket, at))
		require.NoError(t, errors.Join(bucket.Close(), store.Close()))
	}
}

// A start that was refused has made nothing, wherever it was refused; what was there before stays.
func TestARefusedStartLeavesNothing(t *testing.T) {
	data := filepath.Join(t.TempDir(), "above", "data")
	elsewhere := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(elsewhere, "slot", "a"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(elsewhere, "slot", "a", "0"), nil, 0o600))
	_, err := openWith(t, nil, "--data", data, "--bucket", "dir:"+elsewhere)
	require.Error(t, err)
	require.NoDirExists(t, filepath.Dir(data))

	require.NoError(t, os.MkdirAll(data, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(data, "bucket"), nil, 0o600))
	_, err = openWith(t, nil, "--data", data)
	require.Error(t, err)
	left, err := os.ReadDir(data)
	require.NoError(t, err)
	require.Len(t, left, 1)
}

// A volume may be mounted over what a start made, while it waits for its bucket: refused then, it leaves the volume alone.
func TestARefusedStartLeavesWhatItDidNotMake(t *testing.T) {
	data := t.TempDir()
	meta, bucket := filepath.Join(data, "meta"), filepath.Join(data, "bucket")
	require.NoError(t, os.Mkdir(meta, 0o700))
	require.NoError(t, os.Mkdir(bucket, 0o700))
	made := folders([]string{meta, bucket, filepath.Join(data, "none")})
	require.NoError(t, os.Rename(meta, filepath.Join(data, "covered")))
	require.NoError(t, os.Mkdir(meta, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(meta, "kept"), nil, 0o600))
	n := &node{}
	var err error
	n.lock, err = lockData(data, meta, true)
	require.NoError(t, err)
	require.NoError(t, n.forget(made))
	require.FileExists(t, filepath.Join(meta, "kept"))
	require.NoDirExists(t, bucket)
}

// A first start that ended before the bucket was made has written no format yet.
func TestAFirstStartThatEndedBeforeTheBucketIsResumed(t *testing.T) {
	dir := t.TempDir()
	store, err := pebblestore.Open(filepath.Join(dir, "meta"), pebblestore.Options{Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	require.NoError(t, store.Close())
	require.NoError(t, served(t, nil, "--data", dir).close())
}

func TestBothRolesRunByDefault(t *testing.T) {
	n := served(t, nil)
	require.NotNil(t, n.star)
	require.NotNil(t, n.auditor)
	require.NoError(t, n.close())

	n = served(t, nil, "--no-audit")
	require.NotNil(t, n.star)
	require.Nil(t, n.auditor)
	require.NoError(t, n.close())
}

// leaving watches an auditor leave the ring.
type leaving struct{ withdrawn func() }

func (l *leaving) Event(e auditor.Event) {
	if e.Action == auditor.Withdrawn {
		l.withdrawn()
	}
}

// A stop ends only after the auditor has left the ring: while that is under way it waits.
func TestTheAuditorLeavesTheRingBeforeTheStopEnds(t *testing.T) {
	l := &leaving{}
	n := served(t, l)
	stopped := make(chan struct{})
	early, waited := false, false
	l.withdrawn = func() {
		// It has left, and its Run has not returned yet: either the stop waits for that, or it ends.
		for !early && !waited {
			select {
			case <-stopped:
				early = true
			default:
				waited = waits(".(*node).drainAll(")
			}
			runtime.Gosched()
		}
	}
	n.start()
	require.NoError(t, n.ready(t.Context()))
	var err error
	go func() {
		err = n.stop()
		close(stopped)
	}()
	<-stopped
	<-n.auditorDone
	require.NoError(t, err)
	require.False(t, early, "the stop ended before the auditor had left")
	require.True(t, waited)
	require.False(t, n.auditor.Announced())
}

// waits tells whether a goroutine waits for a channel in that very function.
func waits(function string) bool {
	buf := make([]byte, 1<<20)
	for g := range strings.SplitSeq(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
		state, rest, _ := strings.Cut(g, "\n")
		top, _, _ := strings.Cut(rest, "\n")
		if strings.Contains(state, "[chan receive") && strings.Contains(top, function) {
			return true
		}
	}
	return false
}
