package auditor

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/nova-store/nova/objstore"
)

// countingBucket counts the requests that reach it.
type countingBucket struct {
	objstore.Bucket
	calls int
}

func (b *countingBucket) Put(context.Context, string, []byte, objstore.PutOptions) error {
	b.calls++
	return nil
}

func (b *countingBucket) Get(context.Context, string, int64, int64) ([]byte, error) {
	b.calls++
	return nil, nil
}

func (b *countingBucket) Stat(context.Context, string) (objstore.Info, error) {
	b.calls++
	return objstore.Info{}, nil
}

func (b *countingBucket) Delete(_ context.Context, keys []string) []error {
	b.calls++
	return make([]error, len(keys))
}

func (b *countingBucket) List(context.Context, string, string, int) ([]objstore.Info, error) {
	b.calls++
	return nil, nil
}

// Every request, deletes and looks included, is paid before it is made: with an empty bucket of
// tokens none reaches the store, and each takes one token.
func TestEveryRequestIsPaidBeforeItIsMade(t *testing.T) {
	r := newRig(t, true)
	clk := r.inc.Clock()
	requests := map[string]func(ctx context.Context, b *bucket) error{
		"get":      func(ctx context.Context, b *bucket) error { _, err := b.get(ctx, "k"); return err },
		"getRange": func(ctx context.Context, b *bucket) error { _, err := b.getRange(ctx, "k", 0, 1); return err },
		"stat":     func(ctx context.Context, b *bucket) error { _, err := b.stat(ctx, "k"); return err },
		"list":     func(ctx context.Context, b *bucket) error { _, err := b.list(ctx, "k", "", 1); return err },
		"put":      func(ctx context.Context, b *bucket) error { return b.put(ctx, "k", nil, objstore.PutOptions{}) },
		"delete":   func(ctx context.Context, b *bucket) error { return b.delete(ctx, []string{"k", "l"})[1] },
	}
	r.do(func(ctx context.Context) {
		for name, request := range requests {
			counted := &countingBucket{}
			b := newBucket(counted, clk, Options{RequestRate: 0.1})
			require.NoError(t, request(ctx, b), name) // the burst of one
			require.Equal(t, 1, counted.calls, name)
			short, cancel := clk.WithTimeout(ctx, 9*time.Second)
			require.ErrorIs(t, request(short, b), context.DeadlineExceeded, name)
			cancel()
			require.Equal(t, 1, counted.calls, "%s was made before it was paid", name)
			start := clk.Now()
			require.NoError(t, request(ctx, b), name)
			require.Equal(t, 2, counted.calls, name)
			require.Greater(t, clk.Now().Sub(start), time.Duration(0), name)
		}
	})

	// And no duty goes past the wrapper.
	source, err := os.ReadFile("bucket.go")
	require.NoError(t, err)
	methods := regexp.MustCompile(`(?m)^func \(b \*bucket\) (\w+)\(`).FindAllStringSubmatch(string(source), -1)
	for _, m := range methods {
		if m[1] != "payRewrite" {
			require.Contains(t, requests, m[1])
		}
	}
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	for _, f := range files {
		text, err := os.ReadFile(f)
		require.NoError(t, err)
		if f != "bucket.go" && !strings.HasSuffix(f, "_test.go") {
			require.NotRegexp(t, `\bbucket\.b\b`, string(text), f)
		}
	}
}
