package api_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/nova-store/nova/api"
	"github.com/nova-store/nova/api/service"
	"github.com/nova-store/nova/clock"
	"github.com/nova-store/nova/star"
)

func (n *node) append(t *testing.T, name string, records ...string) {
	t.Helper()
	var data [][]byte
	for _, r := range records {
		data = append(data, []byte(r))
	}
	_, err := n.client.Append(t.Context(), name, data, api.AppendOptions{})
	require.NoError(t, err)
}

func TestPoliciesTrimAndDeletion(t *testing.T) {
	n := startNode(t, io.Discard, star.Options{})
	ctx := t.Context()
	day := api.Policy{MaxAgeMS: 86_400_000}
	s, created, err := n.client.CreateStream(ctx, "a", &day)
	require.NoError(t, err)
	require.True(t, created)
	require.Equal(t, day, s.Policy)
	for _, accepted := range []*api.Policy{nil, &day} {
		again, created, err := n.client.CreateStream(ctx, "a", accepted)
		require.NoError(t, err)
		require.False(t, created)
		require.Equal(t, s, again)
	}
	_, _, err = n.client.CreateStream(ctx, "a", &api.Policy{})
	require.Equal(t, api.ProblemPolicyConflict, problemOf(t, err).Type)
	s, err = n.client.Stream(ctx, "a")
	require.NoError(t, err)
	require.Equal(t, day, s.Policy, "a conflict changes nothing")

	n.append(t, "a", "one", "two", "three")
	s, err = n.client.SetPolicy(ctx, "a", api.PolicyChange{MaxBytes: ptr(uint64(6))})
	require.NoError(t, err)
	require.Equal(t, api.Policy{MaxAgeMS: day.MaxAgeMS, MaxBytes: 6}, s.Policy, "what is absent stays")
	require.Equal(t, uint64(1), s.FirstOffset)
	byID := "id:" + s.ID
	_, err = n.client.Read(ctx, "a", api.ReadOptions{From: service.FromOffset(0)})
	p := problemOf(t, err)
	require.Equal(t, api.ProblemTrimmed, p.Type)
	require.Equal(t, uint64(1), *p.FirstOffset)
	a := n.ask(t, http.MethodPut, "/v1/streams/a/policy", http.Header{"Content-Type": {api.TypeJSON}}, strings.NewReader(`{}`))
	require.Equal(t, http.StatusOK, a.status, string(a.body))
	s, err = n.client.Stream(ctx, byID)
	require.NoError(t, err)
	require.Equal(t, api.Policy{}, s.Policy, "a put replaces it all")
	require.Equal(t, uint64(1), s.FirstOffset, "nothing comes back")

	s, err = n.client.Trim(ctx, byID, 2)
	require.NoError(t, err)
	require.Equal(t, uint64(2), s.FirstOffset)
	_, err = n.client.Trim(ctx, "a", 4)
	require.Equal(t, uint64(3), *problemOf(t, err).NextOffset)
	page, err := n.client.Read(ctx, byID, api.ReadOptions{})
	require.NoError(t, err)
	require.Equal(t, "three", string(page.Records[0].Data))
	require.Equal(t, s.ID, page.Stream.String())

	pending, err := n.client.Pending(ctx, "a", 0)
	require.NoError(t, err)
	require.NotEmpty(t, pending.Items)
	require.Equal(t, "denorm", pending.Items[0].Queue)
	require.NotNil(t, pending.Items[0].Ready)

	d, err := n.client.DeleteStream(ctx, "a")
	require.NoError(t, err)
	require.Equal(t, s.ID, d.ID)
	require.Equal(t, d.Deleted, d.Until, "no undelete window")
	for _, gone := range []string{"a", byID} {
		_, err = n.client.Stream(ctx, gone)
		require.Equal(t, api.ProblemNoStream, problemOf(t, err).Type)
		_, err = n.client.Append(ctx, gone, [][]byte{[]byte("x")}, api.AppendOptions{})
		require.Equal(t, api.ProblemNoStream, problemOf(t, err).Type)
		_, err = n.client.DeleteStream(ctx, gone)
		require.Equal(t, api.ProblemNoStream, problemOf(t, err).Type)
	}
	again, err := n.client.Pending(ctx, byID, 0)
	require.NoError(t, err, "by its id")
	require.Equal(t, pending, again)
	s, created, err = n.client.CreateStream(ctx, "a", nil)
	require.NoError(t, err)
	require.True(t, created)
	require.NotEqual(t, d.ID, s.ID)
	require.Zero(t, s.NextOffset)
}

func TestListsArePaged(t *testing.T) {
	n := startNode(t, io.Discard, star.Options{})
	for i := range 7 {
		n.create(t, fmt.Sprintf("p/%d", i))
	}
	n.create(t, "q")
	var names []string
	for after := ""; ; {
		list, err := n.client.ListStreams(t.Context(), "p/", after, 3)
		require.NoError(t, err)
		for _, s := range list.Streams {
			names = append(names, s.Name)
			after = s.Name
		}
		if !list.More {
			break
		}
		require.Len(t, list.Streams, 3)
	}
	require.Equal(t, []string{"p/0", "p/1", "p/2", "p/3", "p/4", "p/5", "p/6"}, names)
	all, err := n.client.ListStreams(t.Context(), "", "", 0)
	require.NoError(t, err)
	require.Len(t, all.Streams, 8)
}

// A long poll answers once there is a record, and with an empty page when its time is over.
func TestLongPoll(t *testing.T) {
	n := startNode(t, io.Discard, star.Options{})
	n.create(t, "s")
	page, err := n.client.Read(t.Context(), "s", api.ReadOptions{Wait: time.Millisecond})
	require.NoError(t, err)
	require.Empty(t, page.Records)
	type result struct {
		page service.ReadResult
		err  error
	}
	got := make(chan result, 1)
	go func() {
		page, err := n.client.Read(t.Context(), "s", api.ReadOptions{From: service.FromTail(), Wait: time.Minute})
		got <- result{page, err}
	}()
	n.append(t, "s", "x")
	r := <-got
	require.NoError(t, r.err)
	// The read may have begun behind the append.
	if r.page.Next == 1 && len(r.page.Records) == 1 {
		require.Equal(t, "x", string(r.page.Records[0].Data))
	}
	// One who waits is told of a deletion.
	go func() {
		page, err := n.client.Read(t.Context(), "s", api.ReadOptions{From: service.FromOffset(1), Wait: time.Minute})
		got <- result{page, err}
	}()
	_, err = n.client.DeleteStream(t.Context(), "s")
	require.NoError(t, err)
	require.Equal(t, api.ProblemNoStream, problemOf(t, (<-got).err).Type)
}

// event is one server-sent event.
type event struct{ id, kind, data string }

// follow opens a stream of events.
func (n *node) follow(t *testing.T, path, lastID string) (next func() (event, bool)) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, n.url+path, nil)
	require.NoError(t, err)
	req.Header.Set("Accept", api.TypeEvents)
	if lastID != "" {
		req.Header.Set("Last-Event-ID", lastID)
	}
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	t.Cleanup(func() { resp.Body.Close() })
	require.Equal(t, http.StatusOK, resp.StatusCode)
	require.Equal(t, api.TypeEvents, resp.Header.Get("Content-Type"))
	lines := bufio.NewScanner(resp.Body)
	return func() (event, bool) {
		var e event
		for lines.Scan() {
			field, value, _ := strings.Cut(lines.Text(), ": ")
			switch field {
			case "id":
				e.id = value
			case "event":
				e.kind = value
			case "data":
				e.data = value
			case "":
				if e.kind != "" {
					return e, true
				}
			}
		}
		return event{}, false
	}
}

func recordIn(t *testing.T, e event) api.Record {
	t.Helper()
	require.Equal(t, "record", e.kind, e.data)
	var r api.Record
	require.NoError(t, json.Unmarshal([]byte(e.data), &r))
	return r
}

func TestEvents(t *testing.T) {
	n := startNode(t, io.Discard, star.Options{})
	n.create(t, "s")
	n.append(t, "s", "0", "1")
	next := n.follow(t, "/v1/streams/s/records", "")
	var ids []string
	for i := range 6 {
		if i == 2 {
			n.append(t, "s", "2", "3")
			n.append(t, "s", "4", "5")
		}
		e, ok := next()
		require.True(t, ok)
		r := recordIn(t, e)
		require.Equal(t, uint64(i), r.Offset)
		require.Equal(t, fmt.Sprint(i), string(r.Data))
		ids = append(ids, e.id)
	}
	// One that comes back goes on behind what it saw, wherever it would have begun.
	resumed := n.follow(t, "/v1/streams/s/records?from=start&limit=2", ids[2])
	for _, want := range []uint64{3, 4} {
		e, ok := resumed()
		require.True(t, ok)
		require.Equal(t, want, recordIn(t, e).Offset)
	}
	_, ok := resumed()
	require.False(t, ok, "the limit ends it")

	// It ends with the stream, and does not come back to another of the name.
	_, err := n.client.DeleteStream(t.Context(), "s")
	require.NoError(t, err)
	e, ok := next()
	require.True(t, ok)
	require.Equal(t, "problem", e.kind)
	require.Contains(t, e.data, api.ProblemNoStream)
	_, ok = next()
	require.False(t, ok)
	n.create(t, "s")
	a := n.ask(t, http.MethodGet, "/v1/streams/s/records", http.Header{"Accept": {api.TypeEvents}, "Last-Event-Id": {ids[5]}}, nil)
	require.Equal(t, api.ProblemNoStream, a.problem(t).Type)
}

// A server that stops ends its events, so that its clients go elsewhere.
func TestEventsEndWithTheServer(t *testing.T) {
	n := startNode(t, io.Discard, star.Options{MaxFollowers: 1})
	n.create(t, "s")
	next := n.follow(t, "/v1/streams/s/records", "")
	n.append(t, "s", "x")
	_, ok := next()
	require.True(t, ok)
	a := n.ask(t, http.MethodGet, "/v1/streams/s/records", http.Header{"Accept": {api.TypeEvents}}, nil)
	require.Equal(t, api.ProblemOverloaded, a.problem(t).Type, "followers are bounded")
	n.star.EndFollows()
	_, ok = next()
	require.False(t, ok)
	page, err := n.client.Read(t.Context(), "s", api.ReadOptions{From: service.FromTail(), Wait: time.Minute})
	require.NoError(t, err)
	require.Empty(t, page.Records, "a long poll does not wait any more")
}

// The client's Follow gives each record once, and stays with the stream that it found.
func TestClientFollows(t *testing.T) {
	n := startNode(t, io.Discard, star.Options{})
	n.create(t, "s")
	n.append(t, "s", "0", "1", "2")
	var got []string
	seen := make(chan int)
	ended := make(chan error, 1)
	go func() {
		ended <- n.client.Follow(context.Background(), clock.NewReal(), "s", api.FollowOptions{From: service.FromLast(2)}, func(page service.ReadResult) error {
			for _, r := range page.Records {
				got = append(got, string(r.Data))
			}
			seen <- len(got)
			return nil
		})
	}()
	require.Equal(t, 2, <-seen)
	n.append(t, "s", "3")
	require.Equal(t, 3, <-seen)
	_, err := n.client.DeleteStream(t.Context(), "s")
	require.NoError(t, err)
	n.create(t, "s")
	n.append(t, "s", "another stream's")
	require.Equal(t, api.ProblemNoStream, problemOf(t, <-ended).Type)
	require.Equal(t, []string{"1", "2", "3"}, got)
}

// A producer's since comes from the stream: one beyond its end is another stream's, and is refused; at its end it is the usual one.
func TestSinceBeyondTheEndIsRefused(t *testing.T) {
	n := startNode(t, io.Discard, star.Options{})
	n.create(t, "s")
	first := func(since uint64) error {
		_, err := n.client.Append(t.Context(), "s", [][]byte{[]byte("x")}, api.AppendOptions{Producer: &service.Producer{ID: "p", Since: since}})
		return err
	}
	p := problemOf(t, first(1))
	require.Equal(t, api.ProblemBadRequest, p.Type)
	require.Contains(t, p.Detail, "the producer's since is 1, and the stream's next offset is 0")
	require.NoError(t, first(0))
	require.NoError(t, first(1), "the retry")
	require.Equal(t, api.ProblemBadRequest, problemOf(t, first(2)).Type)
	require.Len(t, n.readAll(t, "s"), 1)
	_, err := n.client.Append(t.Context(), "none", [][]byte{nil}, api.AppendOptions{Producer: &service.Producer{ID: "p", Since: 1}})
	require.Equal(t, api.ProblemNoStream, problemOf(t, err).Type)
}
