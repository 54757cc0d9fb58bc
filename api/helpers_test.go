package api_test

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/nova-store/nova/api"
	"github.com/nova-store/nova/api/service"
	"github.com/nova-store/nova/catalog"
	"github.com/nova-store/nova/clock"
	"github.com/nova-store/nova/metastore/pebblestore"
	"github.com/nova-store/nova/objstore/dirbucket"
	"github.com/nova-store/nova/star"
	"github.com/nova-store/nova/verify"
)

// node is a real star on the embedded store and a directory, behind a real server.
type node struct {
	client  *api.Client
	url     string
	handler http.Handler
	dir     string
	cat     *catalog.Catalog
	star    *star.Star
}

// waiting tells when a star has minted its first chain.
type waiting struct {
	once   sync.Once
	minted chan struct{}
}

func (w *waiting) Minted(catalog.ChainID)                      { w.once.Do(func() { close(w.minted) }) }
func (*waiting) Fenced(catalog.ChainID, error)                 {}
func (*waiting) Departed(catalog.ChainID, uint64, uint64, int) {}
func (*waiting) Landed(catalog.ChainID, uint64, time.Duration) {}
func (*waiting) Absorbed(catalog.ChainID, int, uint64)         {}
func (*waiting) Appended(int, int, time.Duration, error)       {}
func (*waiting) Read(int, int, time.Duration, error)           {}
func (*waiting) Branch(string)                                 {}

// startNode starts a node that the test's end stops.
func startNode(t *testing.T, log io.Writer, opts star.Options) *node {
	t.Helper()
	dir := t.TempDir()
	store, err := pebblestore.Open(filepath.Join(dir, "meta"), pebblestore.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	bucket, err := dirbucket.Open(filepath.Join(dir, "bucket"), dirbucket.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, bucket.Close()) })
	clk := clock.NewReal()
	cat := catalog.New(store, clk, catalog.DefaultTiming(true), nil)
	require.NoError(t, cat.EnsureFormat(t.Context()))

	logger := slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	ready := &waiting{minted: make(chan struct{})}
	opts.Name, opts.Embedded, opts.Logger, opts.Events = "test", true, logger, ready
	st, err := star.New(cat, bucket, clk, opts)
	require.NoError(t, err)
	ran := make(chan error, 1)
	go func() { ran <- st.Run(context.Background()) }()
	t.Cleanup(func() {
		require.NoError(t, st.Drain(context.Background()))
		require.NoError(t, <-ran)
	})
	<-ready.minted

	n := serve(t, api.New(service.New(st, cat, clk), clk, api.Options{Logger: logger, Verify: func(ctx context.Context, o verify.Options) (verify.Report, error) {
		return verify.Run(ctx, cat, bucket, clk, o)
	}}))
	n.dir, n.cat, n.star = dir, cat, st
	return n
}

// serve puts a handler behind a server.
func serve(t *testing.T, h http.Handler) *node {
	t.Helper()
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	client, err := api.NewClient(srv.URL, api.ClientOptions{})
	require.NoError(t, err)
	t.Cleanup(client.Close)
	return &node{client: client, url: srv.URL, handler: h}
}

// answer is what the server said.
type answer struct {
	status int
	header http.Header
	body   []byte
}

// ask sends a request to the handler as it stands, without what a client would do to its path.
func (n *node) ask(t *testing.T, method, target string, header http.Header, body io.Reader) answer {
	t.Helper()
	r := httptest.NewRequest(method, target, body)
	for k, v := range header {
		r.Header[k] = v
	}
	w := httptest.NewRecorder()
	n.handler.ServeHTTP(w, r)
	return answer{w.Code, w.Header(), w.Body.Bytes()}
}

// problem checks that the answer is a problem document and returns it.
func (a answer) problem(t *testing.T) api.Problem {
	t.Helper()
	require.Equal(t, api.TypeProblem, a.header.Get("Content-Type"), string(a.body))
	var p api.Problem
	require.NoError(t, json.Unmarshal(a.body, &p), string(a.body))
	require.Equal(t, a.status, p.Status)
	require.NotEmpty(t, p.Title)
	require.NotEmpty(t, p.Detail)
	return p
}

// create makes a stream.
func (n *node) create(t *testing.T, name string) {
	t.Helper()
	_, _, err := n.client.CreateStream(t.Context(), name, nil)
	require.NoError(t, err)
}

// readAll reads a stream, page by page.
func (n *node) readAll(t *testing.T, name string) [][]byte {
	t.Helper()
	var out [][]byte
	from := service.Position{}
	for {
		page, err := n.client.Read(t.Context(), name, api.ReadOptions{From: from})
		require.NoError(t, err)
		for _, r := range page.Records {
			require.Equal(t, uint64(len(out)), r.Offset)
			out = append(out, r.Data)
		}
		if page.Next == page.End {
			return out
		}
		require.NotEmpty(t, page.Records)
		from = service.FromOffset(page.Next)
	}
}

// problemOf checks that an error is a problem and returns it.
func problemOf(t *testing.T, err error) *api.Problem {
	t.Helper()
	var p *api.Problem
	require.ErrorAs(t, err, &p)
	return p
}

func ptr[T any](v T) *T { return &v }
