package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/nova-store/nova/api"
	"github.com/nova-store/nova/clock"
)

// listening runs a whole node behind a server of these limits, and returns the server's address.
func listening(t *testing.T, log io.Writer, limits httpLimits, guard *api.Guard) string {
	t.Helper()
	cfg := testConfig(t, nil)
	cfg.Logger = newLogger(log, "json", slog.LevelDebug)
	n, err := openNode(t.Context(), cfg)
	require.NoError(t, err)
	n.start()
	require.NoError(t, n.ready(t.Context()))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	srv := newHTTPServer(api.New(n.service(), clock.NewReal(), api.Options{Logger: cfg.Logger, Guard: guard}), cfg.Logger, limits)
	served := make(chan error, 1)
	go func() { served <- srv.Serve(l) }()
	t.Cleanup(func() {
		require.NoError(t, srv.Close())
		require.ErrorIs(t, <-served, http.ErrServerClosed)
		require.NoError(t, n.stop())
	})
	return l.Addr().String()
}

// short are limits that a test can wait for.
func short() httpLimits {
	return httpLimits{Head: 200 * time.Millisecond, Read: 400 * time.Millisecond, Write: time.Minute, Idle: 200 * time.Millisecond, HeadBytes: 8 << 10}
}

// dial opens a connection that the end of the test closes.
func dial(t *testing.T, address string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", address)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// drip sends text byte by byte, one every 10 ms, until the server answers or closes the connection: that is
// what was read then, and whether all of the text was sent before.
func drip(t *testing.T, c net.Conn, text string) (answer []byte, all bool) {
	t.Helper()
	buf := make([]byte, 64<<10)
	for i := range len(text) {
		if _, err := c.Write([]byte{text[i]}); err != nil {
			return nil, false
		}
		require.NoError(t, c.SetReadDeadline(time.Now().Add(10*time.Millisecond)))
		if n, err := c.Read(buf); !errors.Is(err, os.ErrDeadlineExceeded) {
			return buf[:n], false
		}
	}
	return nil, true
}

// closed tells that nothing more comes over a connection, whose end the server makes.
func closed(t *testing.T, c net.Conn) {
	t.Helper()
	require.NoError(t, c.SetReadDeadline(time.Now().Add(time.Minute)))
	_, err := io.Copy(io.Discard, c)
	var timeout net.Error
	require.False(t, errors.As(err, &timeout) && timeout.Timeout(), "the connection is open after a minute")
}

// refusal checks that a client that was cut off was told so, if it was told anything.
func refusal(t *testing.T, answer []byte) {
	t.Helper()
	if len(answer) > 0 {
		require.Regexp(t, `^HTTP/1\.1 4\d\d `, string(answer))
	}
}

func TestASlowHeadIsCutOff(t *testing.T) {
	c := dial(t, listening(t, io.Discard, short(), nil))
	answer, all := drip(t, c, "GET /v1/streams HTTP/1.1\r\nHost: nova\r\nX-Slow: "+strings.Repeat("a", 10_000))
	require.False(t, all)
	refusal(t, answer)
	closed(t, c)
}

func TestASlowBodyIsCutOff(t *testing.T) {
	address := listening(t, io.Discard, short(), nil)
	for name, head := range map[string]string{
		"append": "POST /v1/streams/s/records HTTP/1.1\r\nHost: nova\r\nContent-Type: application/octet-stream\r\nContent-Length: 10000\r\n\r\n",
		"create": "POST /v1/streams HTTP/1.1\r\nHost: nova\r\nContent-Type: application/json\r\nContent-Length: 10000\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			c := dial(t, address)
			_, err := io.WriteString(c, head)
			require.NoError(t, err)
			answer, all := drip(t, c, strings.Repeat(" ", 10_000))
			require.False(t, all)
			refusal(t, answer)
			closed(t, c)
		})
	}
}

func TestAnIdleConnectionIsClosed(t *testing.T) {
	c := dial(t, listening(t, io.Discard, short(), nil))
	_, err := io.WriteString(c, "GET /livez HTTP/1.1\r\nHost: nova\r\n\r\n")
	require.NoError(t, err)
	answers := bufio.NewReader(c)
	res, err := http.ReadResponse(answers, nil)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, res.StatusCode)
	require.False(t, res.Close)
	_, err = io.Copy(io.Discard, res.Body)
	require.NoError(t, err)
	closed(t, c)
}

func TestTooLargeHeadsAndBodiesAreRefused(t *testing.T) {
	address := listening(t, io.Discard, defaultHTTPLimits(), nil)
	const length, chunked = "Content-Length: %d\r\n\r\n", "Transfer-Encoding: chunked\r\n\r\n%x\r\n"
	for _, c := range []struct {
		name, request string
		status        int
	}{
		{"head", "GET /livez HTTP/1.1\r\nHost: nova\r\nX-Large: " + strings.Repeat("a", 70<<10) + "\r\n\r\n", http.StatusRequestHeaderFieldsTooLarge},
		{"append", "POST /v1/streams/s/records HTTP/1.1\r\nHost: nova\r\nContent-Type: application/json\r\n" + fmt.Sprintf(length, api.MaxAppendBody+1), http.StatusRequestEntityTooLarge},
		{"one record", "POST /v1/streams/s/records HTTP/1.1\r\nHost: nova\r\nContent-Type: application/octet-stream\r\n" + fmt.Sprintf(length, 17<<20), http.StatusRequestEntityTooLarge},
		{"create", "POST /v1/streams HTTP/1.1\r\nHost: nova\r\nContent-Type: application/json\r\n" + fmt.Sprintf(chunked, api.MaxBody+1) +
			strings.Repeat(" ", api.MaxBody+1) + "\r\n", http.StatusRequestEntityTooLarge},
	} {
		t.Run(c.name, func(t *testing.T) {
			conn := dial(t, address)
			_, err := io.WriteString(conn, c.request)
			require.NoError(t, err)
			res, err := http.ReadResponse(bufio.NewReader(conn), nil)
			require.NoError(t, err)
			require.Equal(t, c.status, res.StatusCode)
			require.NoError(t, res.Body.Close())
		})
	}
}

// safe is a buffer that several tasks write.
type safe struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *safe) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *safe) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// At level debug every request is logged, and none of what it carried: no record, wherever the append ended, no
// token, right or wrong, and nothing of a body that was refused.
func TestLogsTellNoRecordsAndNoSecrets(t *testing.T) {
	const token, wrong, payload = "open-sesame-0123456789", "open-barley-0123456789", "confidential-payload"
	log := &safe{}
	address := listening(t, log, defaultHTTPLimits(), api.NewGuard([]string{token}, false))
	ask := func(method, path, contentType, body, bearer string, header ...string) (int, string) {
		r, err := http.NewRequestWithContext(t.Context(), method, "http://"+address+path, strings.NewReader(body))
		require.NoError(t, err)
		r.Header.Set("Content-Type", contentType)
		r.Header.Set("Authorization", "Bearer "+bearer)
		for i := 0; i < len(header); i += 2 {
			r.Header.Set(header[i], header[i+1])
		}
		res, err := http.DefaultClient.Do(r)
		require.NoError(t, err)
		b, err := io.ReadAll(res.Body)
		require.NoError(t, err)
		require.NoError(t, res.Body.Close())
		return res.StatusCode, string(b)
	}
	status := func(want int, method, path, contentType, body, bearer string, header ...string) {
		t.Helper()
		got, answer := ask(method, path, contentType, body, bearer, header...)
		require.Equal(t, want, got, answer)
	}
	const records = "/v1/streams/s/records"
	status(201, "POST", "/v1/streams", api.TypeJSON, `{"name":"s"}`, token)
	status(200, "POST", records, api.TypeRaw, payload, token)
	status(200, "POST", records, api.TypeJSON, `{"records":[{"text":"`+payload+`"}]}`, token)
	status(401, "POST", records, api.TypeRaw, payload, wrong)
	status(404, "POST", "/v1/streams/none/records", api.TypeRaw, payload, token)
	status(412, "POST", records, api.TypeRaw, payload, token, api.HeaderExpectedOffset, "99")
	status(400, "POST", records, api.TypeJSON, `{"`+payload+`":1}`, token)
	status(400, "POST", records, api.TypeNDJSON, payload, token)
	status(400, "POST", records, api.TypeRecords, "\x70"+payload, token)
	status(422, "POST", "/v1/streams", api.TypeJSON, `{"name":"t","`+payload+`":1}`, token)
	got, answer := ask("GET", records, "", "", token)
	require.Equal(t, 200, got)
	require.Contains(t, answer, `"offset":1`)

	text := log.String()
	require.GreaterOrEqual(t, strings.Count(text, records), 6, "the requests are logged:\n%s", text)
	for _, secret := range []string{token, wrong, payload, "Y29uZmlkZW50aWFsLXBheWxvYWQ"} {
		require.NotContains(t, text, secret)
	}
}
