package api

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/nova-store/nova/backup"
	"github.com/nova-store/nova/clock"
)

// TypeTar is the media type of a backup.
const TypeTar = "application/x-tar"

// ErrNoBackup: the server's metadata is not its own to back up.
var ErrNoBackup = errors.New("this server makes no backups")

const (
	// backupWriteTimeout bounds how long the client may take for what is written at once, and how far it may fall behind backupRate.
	backupWriteTimeout = time.Minute
	// backupRate is how many bytes a second a client takes at least, of all so far: the checkpoint that a backup is made of keeps
	// the store's old files on disk until it is over, and no other backup is made meanwhile.
	backupRate = 256 << 10
)

// errSlowBackup: the client takes less than backupRate.
var errSlowBackup = fmt.Errorf("the client takes less than %d KiB a second", backupRate>>10)

func (s *server) registerBackup(h huma.API, clk clock.Clock, take func(context.Context, io.Writer) error) {
	op := operation(h, "backup", http.MethodGet, "/v1/backup", "Back up the metadata",
		"A tar archive of the metadata as it is now, without the objects of the bucket. One whose last entry, nova-backup-sums, is missing was cut off. One is made at a time. "+
			"Only of metadata in Pebble: what is in etcd is backed up there.",
		http.StatusTooManyRequests, http.StatusNotImplemented)
	op.Responses["200"] = &huma.Response{
		Description: "The backup.",
		Content:     map[string]*huma.MediaType{TypeTar: {Schema: &huma.Schema{Type: huma.TypeString, Format: "binary"}}},
	}
	huma.Register(h, op, func(_ context.Context, _ *struct{}) (*huma.StreamResponse, error) {
		if !s.copies.TryAcquire(1) {
			return nil, problem(http.StatusTooManyRequests, ProblemBackupRunning, "Backup is running",
				"a backup of this server is being made already: try again when that is done")
		}
		return &huma.StreamResponse{Body: func(hc huma.Context) {
			defer s.copies.Release(1)
			s.streamBackup(hc, clk, take)
		}}, nil
	})
}

func (s *server) streamBackup(hc huma.Context, clk clock.Clock, take func(context.Context, io.Writer) error) {
	_, w := humago.Unwrap(hc)
	to := &backupWriter{w: w, control: http.NewResponseController(w), clk: clk}
	err := take(hc.Context(), to)
	if err == nil {
		return
	}
	if !to.begun {
		var p *Problem
		errors.As(s.fail(hc.Context(), "backup", err), &p)
		writeProblem(w, p)
		return
	}
	s.log.WarnContext(hc.Context(), "backup did not finish", "error", err)
	panic(http.ErrAbortHandler) // the status is sent: only a broken connection says that it failed
}

// backupWriter is the answer, whose status is sent with its first byte. A client that is slow is cut off, so that a backup of n bytes waits
// for its client for n / backupRate + backupWriteTimeout at most. Only time that a write takes counts: a slow disk is not the client's.
type backupWriter struct {
	w       http.ResponseWriter
	control interface{ SetWriteDeadline(time.Time) error }
	clk     clock.Clock
	begun   bool
	sent    int64
	waited  time.Duration // for the client
}

func (b *backupWriter) Write(p []byte) (int, error) {
	if !b.begun {
		b.begun = true
		b.w.Header().Set("Content-Type", TypeTar)
		b.w.WriteHeader(http.StatusOK)
	}
	left := backupWriteTimeout + time.Duration(float64(b.sent)/backupRate*float64(time.Second)) - b.waited
	if left <= 0 {
		return 0, errSlowBackup
	}
	// The server's own limit on writing an answer is for answers that are short.
	began := b.clk.Now()
	if err := b.control.SetWriteDeadline(began.Add(min(left, backupWriteTimeout))); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return 0, err
	}
	n, err := b.w.Write(p)
	b.sent += int64(n)
	b.waited += max(b.clk.Now().Sub(began), 0)
	return n, err
}

// Backup has the server back its metadata up to w, and checks what comes. What w holds after an error is no backup.
func (c *Client) Backup(ctx context.Context, w io.Writer) (backup.Header, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.server+"/v1/backup", nil)
	if err != nil {
		return backup.Header{}, fmt.Errorf("backup: %w", err)
	}
	resp, err := c.roundTrip(req)
	if err != nil {
		return backup.Header{}, c.unreachable(ctx, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return backup.Header{}, c.problem(ctx, resp)
	}
	body := &keptError{r: resp.Body}
	copied := io.TeeReader(body, w)
	h, err := backup.Check(copied)
	if err == nil {
		_, err = io.Copy(io.Discard, copied) // what fills the archive's last block
	}
	if body.err != nil {
		err = c.unreachable(ctx, body.err)
	}
	return h, err
}

// problem is an answer that is one.
func (c *Client) problem(ctx context.Context, resp *http.Response) error {
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxProblem))
	if err != nil {
		return c.unreachable(ctx, err)
	}
	return (&answer{server: c.server, status: resp.StatusCode, body: b}).problem(resp.Status)
}

// keptError keeps the error of a connection, which else would be taken for damage.
type keptError struct {
	r   io.Reader
	err error
}

func (k *keptError) Read(p []byte) (int, error) {
	n, err := k.r.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		k.err = err
	}
	return n, err
}
