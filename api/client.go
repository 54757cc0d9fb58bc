package api

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/nova-store/nova/api/service"
	"github.com/nova-store/nova/catalog"
)

// answerTimeout is how long the client waits for an answer to begin: a little longer than
// the server takes to give up.
const answerTimeout = requestTimeout + 15*time.Second

// maxAnswer bounds an answer that the client reads: a page of the largest read, and
// a largest record on top.
const maxAnswer = service.MaxReadBytes + service.MaxRecordBytes + 1<<20

// UnreachableError: no answer came from the server.
type UnreachableError struct {
	Server string
	// Sent tells that the request may have reached the server, and had its effect.
	Sent bool
	Err  error
}

func (e *UnreachableError) Error() string {
	if e.Sent {
		return fmt.Sprintf("no answer from %s: %v", e.Server, e.Err)
	}
	return fmt.Sprintf("cannot reach %s: %v", e.Server, e.Err)
}

func (e *UnreachableError) Unwrap() error { return e.Err }

// Client talks to a server. Its methods are safe for concurrent use. They fail with a
// *Problem that the server answered, with an *UnreachableError, with the context's error,
// or, before anything is sent, with catalog.ErrBadName.
type Client struct {
	server string
	token  string
	http   *http.Client
}

// ClientOptions say who the client is. The zero value is nobody.
type ClientOptions struct {
	// Token is sent as a bearer token.
	Token string
	// TLS, of https URLs: the client's certificate, and whom it trusts. Nil: the system's roots.
	TLS *tls.Config
}

// NewClient returns a client of the server at a URL such as http://127.0.0.1:4466.
func NewClient(server string, opts ClientOptions) (*Client, error) {
	u, err := url.Parse(server)
	switch {
	case err != nil:
		return nil, fmt.Errorf("server %q: %w", server, err)
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return nil, fmt.Errorf("server %q is not a URL like http://127.0.0.1:4466", server)
	case u.RawQuery != "" || u.Fragment != "" || u.User != nil:
		return nil, fmt.Errorf("server %q: a URL of scheme, host and path only", server)
	}
	t := &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           (&net.Dialer{Timeout: 5 * time.Second}).DialContext,
		TLSHandshakeTimeout:   5 * time.Second,
		TLSClientConfig:       opts.TLS,
		ResponseHeaderTimeout: answerTimeout,
		IdleConnTimeout:       30 * time.Second,
		MaxIdleConnsPerHost:   64,
		// Records are bytes of any kind; what they compress to is no concern of the transport.
		DisableCompression: true,
	}
	return &Client{server: strings.TrimRight(server, "/"), token: opts.Token, http: &http.Client{Transport: t}}, nil
}

// Close drops idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// AppendOptions make an append conditional or idempotent.
type AppendOptions struct {
	Expected *uint64
	Producer *service.Producer
}

// Append appends records, once: it never tries again. See [Producer] for what does.
func (c *Client) Append(ctx context.Context, stream string, records [][]byte, opts AppendOptions) (res AppendResult, err error) {
	if err := catalog.CheckStreamName(stream); err != nil {
		return AppendResult{}, err
	}
	size := 0
	for _, r := range records {
		size += len(r) + 4
	}
	body := make([]byte, 0, size)
	for _, r := range records {
		body = AppendRecord(body, r)
	}
	h := http.Header{"Content-Type": {TypeRecords}}
	if opts.Expected != nil {
		h.Set(HeaderExpectedOffset, strconv.FormatUint(*opts.Expected, 10))
	}
	if p := opts.Producer; p != nil {
		h.Set(HeaderProducerID, p.ID)
		h.Set(HeaderProducerEpoch, strconv.FormatUint(uint64(p.Epoch), 10))
		h.Set(HeaderProducerSequence, strconv.FormatUint(p.Sequence, 10))
		h.Set(HeaderProducerSince, strconv.FormatUint(p.Since, 10))
	}
	resp, err := c.do(ctx, http.MethodPost, streamPath(stream)+"/records", body, h)
	if err != nil {
		return AppendResult{}, err
	}
	err = resp.json(&res)
	return res, err
}

// Chains lists the chains that are not retired.
func (c *Client) Chains(ctx context.Context) ([]Chain, error) {
	var out ChainList
	err := c.get(ctx, "/v1/chains", &out)
	return out.Chains, err
}

// Due lists the due queues.
func (c *Client) Due(ctx context.Context) ([]Queue, error) {
	var out QueueList
	err := c.get(ctx, "/v1/due", &out)
	return out.Queues, err
}

// Ready returns nil once the server serves.
func (c *Client) Ready(ctx context.Context) error {
	_, err := c.do(ctx, http.MethodGet, "/readyz", nil, nil)
	return err
}

func (c *Client) get(ctx context.Context, path string, v any) error {
	resp, err := c.do(ctx, http.MethodGet, path, nil, http.Header{"Accept": {TypeJSON}})
	if err != nil {
		return err
	}
	return resp.json(v)
}

// answer is a whole answer of the server that is no problem.
type answer struct {
	server string
	status int
	header http.Header
	body   []byte
}

func (a *answer) json(v any) error {
	if err := json.Unmarshal(a.body, v); err != nil {
		return a.unreadable(err)
	}
	return nil
}

// unreadable: something answered, but not a server of this kind; what was asked of it may
// have been done.
func (a *answer) unreadable(err error) error {
	return &UnreachableError{Server: a.server, Sent: true, Err: fmt.Errorf("the answer makes no sense: %w", err)}
}

// do sends a request and reads the whole answer.
func (c *Client) do(ctx context.Context, method, path string, body []byte, h http.Header) (*answer, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.server+path, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", method, path, err)
	}
	for k, v := range h {
		req.Header[http.CanonicalHeaderKey(k)] = v
	}
	resp, err := c.roundTrip(req)
	if err != nil {
		return nil, c.unreachable(ctx, err)
	}
	defer resp.Body.Close()
	a := &answer{server: c.server, status: resp.StatusCode, header: resp.Header}
	if n := resp.ContentLength; n >= 0 && n <= maxAnswer {
		a.body = make([]byte, n)
		_, err = io.ReadFull(resp.Body, a.body)
	} else {
		a.body, err = io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	}
	switch {
	case err != nil:
		return nil, c.unreachable(ctx, err)
	case len(a.body) > maxAnswer:
		return nil, a.unreadable(fmt.Errorf("more than %d bytes", maxAnswer))
	case resp.StatusCode < 300:
		return a, nil
	}
	return nil, a.problem(resp.Status)
}

// maxProblem bounds a problem document.
const maxProblem = 1 << 20

// problem is the problem that an answer of that status is.
func (a *answer) problem(status string) error {
	p := &Problem{}
	if err := json.Unmarshal(a.body, p); err != nil || p.Type == "" {
		return a.unreadable(fmt.Errorf("%s without a problem document", status))
	}
	return p
}

// roundTrip sends a request as whoever the client is.
func (c *Client) roundTrip(req *http.Request) (*http.Response, error) {
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	return c.http.Do(req)
}

func (c *Client) unreachable(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	var ue *url.Error
	if errors.As(err, &ue) {
		err = ue.Err // without the URL, which the message has already
	}
	var op *net.OpError
	dial := errors.As(err, &op) && op.Op == "dial"
	return &UnreachableError{Server: c.server, Sent: !dial, Err: err}
}
