package api

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"

	"github.com/nova-store/nova/catalog"
)

// Where a method of Client takes a stream, that is its name, or "id:" and its id.

// CreateStream makes a stream, or finds the one of that name; created tells which. With a policy a stream that has
// another one is a problem of type ProblemPolicyConflict; nil: any is accepted.
func (c *Client) CreateStream(ctx context.Context, name string, policy *Policy) (s Stream, created bool, err error) {
	if err := catalog.CheckStreamName(name); err != nil {
		return Stream{}, false, err
	}
	resp, err := c.send(ctx, http.MethodPost, "/v1/streams", CreateStreamRequest{Name: name, Policy: policy})
	if err != nil {
		return Stream{}, false, err
	}
	err = resp.json(&s)
	return s, resp.status == http.StatusCreated, err
}

// Stream describes a stream.
func (c *Client) Stream(ctx context.Context, stream string) (s Stream, err error) {
	if err := catalog.CheckStreamName(stream); err != nil {
		return Stream{}, err
	}
	err = c.get(ctx, streamPath(stream), &s)
	return s, err
}

// ListStreams describes the streams whose names begin with prefix and come after the name after, limit at
// most (0: the server's default).
func (c *Client) ListStreams(ctx context.Context, prefix, after string, limit int) (list StreamList, err error) {
	q := url.Values{}
	if prefix != "" {
		q.Set("prefix", prefix)
	}
	if after != "" {
		q.Set("after", after)
	}
	err = c.get(ctx, "/v1/streams"+limited(q, limit), &list)
	return list, err
}

// SetPolicy changes a stream's policy; what is nil stays.
func (c *Client) SetPolicy(ctx context.Context, stream string, change PolicyChange) (Stream, error) {
	return c.change(ctx, http.MethodPatch, stream, "/policy", change)
}

// Trim makes all records below an offset unreadable, for ever.
func (c *Client) Trim(ctx context.Context, stream string, before uint64) (Stream, error) {
	return c.change(ctx, http.MethodPost, stream, "/trim", TrimRequest{Before: before})
}

func (c *Client) change(ctx context.Context, method, stream, path string, body any) (s Stream, err error) {
	if err := catalog.CheckStreamName(stream); err != nil {
		return Stream{}, err
	}
	resp, err := c.send(ctx, method, streamPath(stream)+path, body)
	if err != nil {
		return Stream{}, err
	}
	err = resp.json(&s)
	return s, err
}

// DeleteStream deletes a stream.
func (c *Client) DeleteStream(ctx context.Context, stream string) (d DeletedStream, err error) {
	if err := catalog.CheckStreamName(stream); err != nil {
		return DeletedStream{}, err
	}
	resp, err := c.do(ctx, http.MethodDelete, streamPath(stream), nil, http.Header{"Accept": {TypeJSON}})
	if err != nil {
		return DeletedStream{}, err
	}
	err = resp.json(&d)
	return d, err
}

// UndeleteStream undoes a stream's deletion. The stream is named by "id:" and its id.
func (c *Client) UndeleteStream(ctx context.Context, stream string) (s Stream, err error) {
	if err := catalog.CheckStreamName(stream); err != nil {
		return Stream{}, err
	}
	resp, err := c.do(ctx, http.MethodPost, streamPath(stream)+"/undelete", nil, http.Header{"Accept": {TypeJSON}})
	if err != nil {
		return Stream{}, err
	}
	err = resp.json(&s)
	return s, err
}

// Pending lists the auditor's work that concerns a stream, limit items at most (0: the server's default). Named by its
// id the stream may be deleted, or gone.
func (c *Client) Pending(ctx context.Context, stream string, limit int) (list PendingList, err error) {
	if err := catalog.CheckStreamName(stream); err != nil {
		return PendingList{}, err
	}
	err = c.get(ctx, streamPath(stream)+"/pending"+limited(url.Values{}, limit), &list)
	return list, err
}

func limited(q url.Values, limit int) string {
	if limit > 0 {
		q.Set("limit", strconv.Itoa(limit))
	}
	if len(q) == 0 {
		return ""
	}
	return "?" + q.Encode()
}

// send sends a body as JSON.
func (c *Client) send(ctx context.Context, method, path string, v any) (*answer, error) {
	body, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", method, path, err)
	}
	return c.do(ctx, method, path, body, http.Header{"Content-Type": {TypeJSON}})
}
