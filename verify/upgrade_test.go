package verify_test

import (
	"archive/tar"
	"bufio"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/nova-store/nova/auditor"
	"github.com/nova-store/nova/catalog"
	"github.com/nova-store/nova/clock"
	"github.com/nova-store/nova/metastore/pebblestore"
	"github.com/nova-store/nova/objstore/dirbucket"
	"github.com/nova-store/nova/star"
	"github.com/nova-store/nova/verify"
)

// fast is a clock on which time passes faster, so that minutes of waiting take a second.
type fast struct {
	clock.Clock
	began time.Time
	by    time.Duration
}

func (c fast) Now() time.Time {
	now := c.Clock.Now()
	return now.Add(now.Sub(c.began) * (c.by - 1))
}

func (c fast) Sleep(ctx context.Context, d time.Duration) error { return c.Clock.Sleep(ctx, d/c.by) }

func (c fast) WithTimeout(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return c.Clock.WithTimeout(ctx, d/c.by)
}

// unpack unpacks an archive of testdata/upgrade.
func unpack(t *testing.T, name string) (dir string) {
	dir = t.TempDir()
	f, err := os.Open(filepath.Join("..", "testdata", "upgrade", name))
	require.NoError(t, err)
	defer f.Close()
	z, err := gzip.NewReader(f)
	require.NoError(t, err)
	for files := tar.NewReader(z); ; {
		h, err := files.Next()
		if errors.Is(err, io.EOF) {
			return dir
		}
		require.NoError(t, err)
		require.True(t, filepath.IsLocal(h.Name), h.Name)
		path := filepath.Join(dir, h.Name)
		if h.Typeflag == tar.TypeDir {
			require.NoError(t, os.MkdirAll(path, 0o700))
			continue
		}
		body, err := io.ReadAll(files)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(path, body, 0o600))
	}
}

// acknowledged reads what the old version acknowledged, by stream and offset.
func acknowledged(t *testing.T, dir string) map[string]map[uint64]string {
	f, err := os.Open(filepath.Join(dir, "acked"))
	require.NoError(t, err)
	defer f.Close()
	out := map[string]map[uint64]string{}
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var stream int
		var offset uint64
		line := lines.Text()
		_, err := fmt.Sscanf(line, "%d %d", &stream, &offset)
		require.NoError(t, err, line)
		name := fmt.Sprintf("stream/%02d", stream)
		if out[name] == nil {
			out[name] = map[uint64]string{}
		}
		out[name][offset] = strings.SplitN(line, " ", 3)[2]
	}
	require.Len(t, out, 40)
	return out
}

// A data directory of an earlier version, killed twice in the middle of its work: today's code opens it, finds nothing amiss in
// it, drains every queue, and reads every record back.
func TestUpgradeDrains(t *testing.T) {
	for version, queues := range map[string][]catalog.Queue{
		// The last one without teardown, retention and gc.
		"7cbd609": {catalog.Settle, catalog.Retention, catalog.Reap, catalog.Denorm, catalog.Orphan, catalog.GC},
		// The last one without S3 and etcd.
		"b30c076": {catalog.Settle, catalog.Retention, catalog.Teardown, catalog.Denorm},
	} {
		t.Run(version, func(t *testing.T) { upgradeDrains(t, version, queues) })
	}
}

func upgradeDrains(t *testing.T, version string, queues []catalog.Queue) {
	dir := unpack(t, version+".tar.gz")
	want := acknowledged(t, dir)
	store, err := pebblestore.Open(filepath.Join(dir, "meta"), pebblestore.Options{})
	require.NoError(t, err)
	defer func() { require.NoError(t, store.Close()) }()
	bucket, err := dirbucket.Open(filepath.Join(dir, "bucket"), dirbucket.Options{})
	require.NoError(t, err)
	defer func() { require.NoError(t, bucket.Close()) }()
	real := clock.NewReal()
	clk := fast{real, real.Now(), 60}
	timing := catalog.DefaultTiming(true)
	timing.SettleAgeCap, timing.SettleRecheck = time.Second, 5*time.Second
	timing.ReapGrace, timing.TrimGrace, timing.RetireGrace = time.Second, time.Second, time.Second
	timing.JobDeadline, timing.OrphanGrace = time.Minute, 2*time.Minute
	cat := catalog.New(store, clk, timing, nil)
	ctx := context.Background()
	require.NoError(t, cat.EnsureFormat(ctx))
	check := func(when string) verify.Report {
		rep, err := verify.Run(ctx, cat, bucket, clk, verify.Options{List: true})
		require.NoError(t, err)
		require.Empty(t, rep.Findings, when)
		return rep
	}
	markers := func(rep verify.Report) map[catalog.Queue]int {
		out := map[catalog.Queue]int{}
		for _, q := range rep.Queues {
			out[q.Queue] = q.Markers
		}
		return out
	}
	before := markers(check("as it was left"))
	for _, q := range queues {
		require.Positive(t, before[q], "the directory was made to hold markers of %s", q)
	}

	s, err := star.New(cat, bucket, clk, star.Options{Name: "nova", Embedded: true})
	require.NoError(t, err)
	served := make(chan error, 1)
	go func() { served <- s.Run(ctx) }()
	a, err := auditor.New(cat, bucket, clk, auditor.Options{Member: "nova", Workers: 4, GCMinDeadBytes: 1, GCMinDeadRatio: 0.05, Embedded: true})
	require.NoError(t, err)
	actx, stop := context.WithCancel(ctx)
	defer stop()
	audited := make(chan error, 1)
	go func() { audited <- a.Run(actx) }()
	defer func() { stop(); require.NoError(t, <-audited) }()
	defer func() { require.NoError(t, s.Drain(ctx)); require.NoError(t, <-served) }()

	var left string
	require.Eventually(t, func() bool {
		views, err := cat.DueOverview(ctx, 1000)
		require.NoError(t, err)
		left = ""
		for _, v := range views {
			standing := v.Standing
			switch v.Queue {
			case catalog.Settle:
				standing-- // of the living chain
			case catalog.Retention:
				standing = v.Ripe // a stream that keeps its records for years has one that waits as long
			}
			if standing != 0 {
				left += fmt.Sprintf(" %s:%d", v.Queue, standing)
			}
		}
		return left == ""
	}, 60*time.Second, 20*time.Millisecond, "what stands must drain")
	require.Empty(t, left)
	require.Equal(t, 1, check("drained").Chains, "the dead chains are retired")

	record := regexp.MustCompile(`^stream/\d\d (first|second) record \d+ x*$`)
	for name, records := range want {
		id, err := cat.FindStream(ctx, name)
		require.NoError(t, err)
		v, err := cat.ReadStream(ctx, id)
		require.NoError(t, err)
		for offset := range records {
			require.Less(t, offset, v.Head.Next, "%s: an acknowledged record is beyond the end", name)
		}
		for next := v.Mark.Watermark; next < v.Head.Next; {
			page, err := s.Read(ctx, star.ReadRequest{Name: name, From: next})
			require.NoError(t, err)
			require.NotEmpty(t, page.Records)
			require.Equal(t, next, page.First)
			for _, r := range page.Records {
				if acked, ok := records[next]; ok {
					require.Equal(t, acked, string(r.Data))
				}
				require.Regexp(t, record, string(r.Data))
				require.True(t, strings.HasPrefix(string(r.Data), name+" "))
				next++
			}
		}
	}
}
