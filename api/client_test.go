package api_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/nova-store/nova/api"
	"github.com/nova-store/nova/api/service"
	"github.com/nova-store/nova/catalog"
	"github.com/nova-store/nova/clock"
	"github.com/nova-store/nova/star"
)

var update = flag.Bool("update", false, "rewrite golden files")

// instant is a clock whose sleeps pass at once.
type instant struct {
	clock.Real
	ahead atomic.Int64
}

func (c *instant) Now() time.Time { return time.Unix(0, c.ahead.Load()) }
func (c *instant) Sleep(ctx context.Context, d time.Duration) error {
	c.ahead.Add(int64(d))
	return ctx.Err()
}

// TestAProducerAppendsOnceHoweverOftenItsAnswerIsLost loses answers of requests that had their
// effect, requests that had none, and answers with 503 between.
func TestAProducerAppendsOnceHoweverOftenItsAnswerIsLost(t *testing.T) {
	n := startNode(t, io.Discard, star.Options{})
	n.create(t, "s")
	var tries atomic.Int64
	lossy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			n.handler.ServeHTTP(w, r)
			return
		}
		switch tries.Add(1) % 4 {
		case 1: // it has its effect, the answer is lost
			n.handler.ServeHTTP(httptest.NewRecorder(), r)
			panic(http.ErrAbortHandler)
		case 2: // it is lost itself
			panic(http.ErrAbortHandler)
		case 3:
			w.Header().Set("Content-Type", api.TypeProblem)
			w.WriteHeader(http.StatusServiceUnavailable)
			fmt.Fprintf(w, `{"type":%q,"status":503,"title":"t","detail":"d"}`, api.ProblemOverloaded)
			return
		}
		n.handler.ServeHTTP(w, r)
	}))
	defer lossy.Close()
	client, err := api.NewClient(lossy.URL+"/", api.ClientOptions{})
	require.NoError(t, err)
	defer client.Close()
	producer, err := client.NewProducer(t.Context(), &instant{}, "s")
	require.NoError(t, err)
	retries := 0
	producer.OnRetry = func(error) { retries++ }
	var want [][]byte
	for i := range 10 {
		batch := [][]byte{fmt.Appendf(nil, "%d a", i), fmt.Appendf(nil, "%d b", i)}
		res, err := producer.Append(t.Context(), batch)
		require.NoError(t, err)
		require.Equal(t, uint64(len(want)), *res.FirstOffset)
		want = append(want, batch...)
	}
	require.Positive(t, retries)
	requireRecords(t, want, n.readAll(t, "s"))
}

// A server that takes an append and never answers does not hold its client for longer than that is worth.
func TestAProducerGivesAnAppendUpThatIsNotAnswered(t *testing.T) {
	gone := make(chan struct{})
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			_, _ = io.WriteString(w, `{"next_offset":4}`)
			return
		}
		_, _ = io.Copy(io.Discard, r.Body) // only then does the server see that the client is gone
		<-r.Context().Done()
		close(gone)
	}))
	defer srv.Close()
	client, err := api.NewClient(srv.URL, api.ClientOptions{})
	require.NoError(t, err)
	defer client.Close()
	producer, err := client.NewProducer(t.Context(), clock.NewReal(), "s")
	require.NoError(t, err)
	producer.RetryFor = 50 * time.Millisecond
	_, err = producer.Append(t.Context(), [][]byte{nil})
	var ae *api.AppendError
	require.ErrorAs(t, err, &ae)
	require.True(t, ae.Unknown)
	require.ErrorContains(t, err, "no answer within 50ms")
	<-gone
}

func TestAProducerTellsWhatItDoesNotKnow(t *testing.T) {
	var mode atomic.Value
	mode.Store("")
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			_, _ = io.WriteString(w, `{"next_offset":4}`)
			return
		}
		require.Equal(t, "4", r.Header.Get(api.HeaderProducerSince))
		if mode.Load() == "lost" {
			panic(http.ErrAbortHandler)
		}
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprintf(w, `{"type":%q,"status":404,"title":"t","detail":"gone"}`, api.ProblemNoStream)
	}))
	client, err := api.NewClient(srv.URL, api.ClientOptions{})
	require.NoError(t, err)
	attempt := func() *api.AppendError {
		producer, err := client.NewProducer(t.Context(), &instant{}, "s")
		require.NoError(t, err)
		_, err = producer.Append(t.Context(), [][]byte{nil})
		var ae *api.AppendError
		require.ErrorAs(t, err, &ae)
		_, err = producer.Append(t.Context(), [][]byte{nil})
		require.ErrorContains(t, err, "failed before", "what came last is not known: it cannot go on")
		return ae
	}
	ae := attempt()
	require.False(t, ae.Unknown, "it was refused")
	require.Equal(t, api.ProblemNoStream, problemOf(t, ae).Type)
	mode.Store("lost")
	ae = attempt()
	require.True(t, ae.Unknown)
	var unreachable *api.UnreachableError
	require.ErrorAs(t, ae, &unreachable)
	require.True(t, unreachable.Sent)

	producer, err := client.NewProducer(t.Context(), &instant{}, "s")
	require.NoError(t, err)
	client.Close() // a connection that is still open might have carried it
	srv.Close()
	_, err = producer.Append(t.Context(), [][]byte{nil})
	require.ErrorAs(t, err, &ae)
	require.False(t, ae.Unknown, "nobody listened")
	require.ErrorAs(t, err, &unreachable)
	require.False(t, unreachable.Sent)
	require.Contains(t, err.Error(), srv.URL)
}

func TestAClientRefusesWhatMakesNoSense(t *testing.T) {
	for _, server := range []string{"", "localhost:4466", "ftp://x", "http://", "http://a/?b", "http://u:p@h", "::"} {
		_, err := api.NewClient(server, api.ClientOptions{})
		require.Error(t, err, server)
	}
	for _, body := range []string{"", "{", "<html>"} {
		for _, status := range []int{http.StatusOK, http.StatusBadGateway} {
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.WriteHeader(status)
				_, _ = io.WriteString(w, body)
			}))
			client, err := api.NewClient(srv.URL, api.ClientOptions{})
			require.NoError(t, err)
			var unreachable *api.UnreachableError
			_, err = client.Stream(t.Context(), "s")
			require.ErrorAs(t, err, &unreachable)
			_, err = client.Read(t.Context(), "s", api.ReadOptions{})
			require.ErrorAs(t, err, &unreachable)
			_, err = client.Chains(t.Context())
			require.ErrorAs(t, err, &unreachable)
			srv.Close()
		}
	}
	client, err := api.NewClient("http://127.0.0.1:1", api.ClientOptions{})
	require.NoError(t, err)
	_, err = client.Stream(t.Context(), "..")
	require.ErrorIs(t, err, catalog.ErrBadName, "a path cannot carry it")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = client.Stream(ctx, "s")
	require.True(t, errors.Is(err, context.Canceled))
}

func TestChainsAndDue(t *testing.T) {
	n := startNode(t, io.Discard, star.Options{})
	n.create(t, "s")
	for range 3 {
		_, err := n.client.Append(t.Context(), "s", [][]byte{[]byte("x")}, api.AppendOptions{})
		require.NoError(t, err)
	}
	chains, err := n.client.Chains(t.Context())
	require.NoError(t, err)
	require.Equal(t, []api.Chain{{Star: "test", Epoch: 1, State: "open", Live: true, Checkpoint: 3, Head: 3}}, chains)

	queues, err := n.client.Due(t.Context())
	require.NoError(t, err)
	standing := map[string]int{}
	names := make([]string, 0, len(queues))
	for _, q := range queues {
		names = append(names, q.Queue)
		standing[q.Queue] = q.Standing
		require.Zero(t, q.Ripe)
		require.Zero(t, q.Age)
	}
	require.Equal(t, []string{"teardown", "settle", "retention", "reap", "trimcheck", "denorm", "orphan", "gc"}, names)
	require.Equal(t, 1, standing["settle"], "the live chain's")
	require.Equal(t, 1, standing["retention"], "the stream's first commit's")
	require.Equal(t, 3, standing["denorm"], "a batch for each absorb")

	for _, path := range []string{"/v1/chains", "/v1/due"} {
		a := n.ask(t, http.MethodGet, path, nil, nil)
		for _, field := range map[string][]string{
			"/v1/chains": {"star", "epoch", "state", "checkpoint", "rewritten", "trimmed", "head"},
			"/v1/due":    {"queue", "standing", "ripe", "age_seconds"},
		}[path] {
			require.Contains(t, string(a.body), `"`+field+`":`)
		}
	}
}

func TestOpenAPI(t *testing.T) {
	n := serve(t, api.New(service.New(&fakeStar{}, nil, clock.NewReal()), clock.NewReal(), api.Options{
		Deal:   func(string, []string, []string) ([]int, []string) { return nil, nil },
		Backup: func(context.Context, io.Writer) error { return nil },
	}))
	a := n.ask(t, http.MethodGet, "/v1/openapi.json", nil, nil)
	require.Equal(t, http.StatusOK, a.status)
	var doc map[string]any
	require.NoError(t, json.Unmarshal(a.body, &doc))
	require.True(t, strings.HasPrefix(doc["openapi"].(string), "3.1."))
	pretty, err := json.MarshalIndent(doc, "", "  ")
	require.NoError(t, err)
	pretty = append(pretty, '\n')
	golden := filepath.Join("testdata", "openapi.json")
	if *update {
		require.NoError(t, os.WriteFile(golden, pretty, 0o600))
	}
	want, err := os.ReadFile(golden)
	require.NoError(t, err)
	require.Equal(t, string(want), string(pretty), "the interface changed: go test ./api -run OpenAPI -update, if that is meant")
}
