package api_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/nova-store/nova/api"
	"github.com/nova-store/nova/api/service"
	"github.com/nova-store/nova/clock"
	"github.com/nova-store/nova/star"
	"github.com/nova-store/nova/verify"
)

func TestVerify(t *testing.T) {
	running, finish := make(chan struct{}), make(chan error)
	n := serve(t, api.New(service.New(&fakeStar{}, nil, clock.NewReal()), clock.NewReal(), api.Options{
		Verify: func(_ context.Context, o verify.Options) (verify.Report, error) {
			require.Equal(t, 7, o.Abreast)
			o.Progress(verify.Progress{Phase: "streams", Bytes: 5})
			running <- struct{}{}
			err := <-finish
			return verify.Report{Streams: 3, Amiss: 1, Findings: []verify.Finding{{Kind: verify.RefStray, Key: "ref/x"}}}, err
		},
	}))
	ask := func() (rep verify.Report, seen []verify.Progress, err error) {
		rep, err = n.client.Verify(t.Context(), 7, func(p verify.Progress) { seen = append(seen, p) })
		return rep, seen, err
	}
	type result struct {
		rep  verify.Report
		seen []verify.Progress
		err  error
	}
	results := make(chan result, 1)
	start := func() {
		go func() { r := result{}; r.rep, r.seen, r.err = ask(); results <- r }()
		<-running
	}
	start()
	_, _, err := ask()
	var p *api.Problem
	require.ErrorAs(t, err, &p)
	require.Equal(t, http.StatusTooManyRequests, p.Status, "one at a time")
	require.Equal(t, api.ProblemVerifying, p.Type)
	finish <- nil
	r := <-results
	require.NoError(t, r.err)
	require.Equal(t, 3, r.rep.Streams)
	require.Equal(t, "ref/x", r.rep.Findings[0].Key)
	require.Equal(t, []verify.Progress{{Phase: "streams", Bytes: 5}}, r.seen)

	start()
	finish <- errors.New("the disk is gone")
	r = <-results
	require.ErrorContains(t, r.err, "the disk is gone")
}

// hookedRecorder calls onWrite with what is written, before it is.
type hookedRecorder struct {
	*httptest.ResponseRecorder
	onWrite func(b []byte)
}

func (r hookedRecorder) Write(b []byte) (int, error) {
	r.onWrite(b)
	return r.ResponseRecorder.Write(b)
}

// Who has the report may ask for the next one, however late the first answer ends.
func TestVerifyIsFreeOnceItsReportIsRead(t *testing.T) {
	n := serve(t, api.New(service.New(&fakeStar{}, nil, clock.NewReal()), clock.NewReal(), api.Options{
		Verify: func(context.Context, verify.Options) (verify.Report, error) { return verify.Report{}, nil },
	}))
	var again answer
	first := hookedRecorder{httptest.NewRecorder(), func([]byte) {
		again = n.ask(t, http.MethodGet, "/v1/verify", nil, nil)
	}}
	n.handler.ServeHTTP(first, httptest.NewRequest(http.MethodGet, "/v1/verify", nil))
	require.Equal(t, http.StatusOK, first.Code)
	require.Equal(t, http.StatusOK, again.status, string(again.body))
}

// A server's own verify, over the wire, of what its star wrote.
func TestVerifyOfANode(t *testing.T) {
	n := startNode(t, io.Discard, star.Options{})
	_, _, err := n.client.CreateStream(t.Context(), "s", nil)
	require.NoError(t, err)
	_, err = n.client.Append(t.Context(), "s", [][]byte{[]byte("a"), []byte("b")}, api.AppendOptions{})
	require.NoError(t, err)
	rep, err := n.client.Verify(t.Context(), 0, nil)
	require.NoError(t, err)
	require.Empty(t, rep.Findings)
	require.Equal(t, uint64(2), rep.Records)
	require.Equal(t, 1, rep.Streams)
}
