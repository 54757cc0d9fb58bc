package api_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/nova-store/nova/api"
	"github.com/nova-store/nova/api/service"
	"github.com/nova-store/nova/backup"
	"github.com/nova-store/nova/clock"
)

// backingUp is a server of whose interface only the backup matters.
func backingUp(t *testing.T, do func(context.Context, io.Writer) error) *node {
	return serve(t, api.New(service.New(&fakeStar{}, nil, clock.NewReal()), clock.NewReal(), api.Options{
		Backup: do,
	}))
}

func TestBackup(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "000001.sst"), bytes.Repeat([]byte("x"), 3<<20), 0o600))
	created := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	n := backingUp(t, func(ctx context.Context, w io.Writer) error {
		return backup.Write(ctx, w, dir, backup.Header{Created: created})
	})
	var got bytes.Buffer
	h, err := n.client.Backup(t.Context(), &got)
	require.NoError(t, err)
	require.Equal(t, created, h.Created)
	again, err := backup.Check(bytes.NewReader(got.Bytes()))
	require.NoError(t, err)
	require.Equal(t, h, again)
	a := n.ask(t, http.MethodGet, "/v1/backup", nil, nil)
	require.Equal(t, http.StatusOK, a.status)
	require.Equal(t, api.TypeTar, a.header.Get("Content-Type"))
	require.Equal(t, got.Bytes(), a.body, "all of it, the end of the archive included")
}

// One that can't be made is a problem, one that fails on the way an error, and neither is a backup.
func TestBackupThatFails(t *testing.T) {
	n := backingUp(t, func(context.Context, io.Writer) error { return fmt.Errorf("%w: ask etcd", api.ErrNoBackup) })
	_, err := n.client.Backup(t.Context(), io.Discard)
	p := problemOf(t, err)
	require.Equal(t, api.ProblemNoBackup, p.Type)
	require.Equal(t, http.StatusNotImplemented, p.Status)
	require.Contains(t, p.Detail, "ask etcd")

	n = backingUp(t, func(_ context.Context, w io.Writer) error {
		_, err := w.Write(bytes.Repeat([]byte("x"), 1<<20))
		return errors.Join(err, errors.New("the disk fails"))
	})
	_, err = n.client.Backup(t.Context(), io.Discard)
	require.Error(t, err)
	_, err = backingUp(t, nil).client.Backup(t.Context(), io.Discard)
	require.Equal(t, api.ProblemNoRoute, problemOf(t, err).Type)
}

func TestOneBackupAtATime(t *testing.T) {
	begun, goOn := make(chan struct{}), make(chan struct{})
	n := backingUp(t, func(context.Context, io.Writer) error {
		begun <- struct{}{}
		<-goOn
		return api.ErrNoBackup
	})
	first := make(chan error, 1)
	go func() {
		_, err := n.client.Backup(context.Background(), io.Discard)
		first <- err
	}()
	<-begun
	_, err := n.client.Backup(t.Context(), io.Discard)
	require.Equal(t, api.ProblemBackupRunning, problemOf(t, err).Type)
	close(goOn)
	require.Equal(t, api.ProblemNoBackup, problemOf(t, <-first).Type)
}

// A token is needed for a backup where tokens are set.
func TestBackupNeedsTheToken(t *testing.T) {
	n := serve(t, api.New(service.New(&fakeStar{}, nil, clock.NewReal()), clock.NewReal(), api.Options{
		Backup: func(context.Context, io.Writer) error { return api.ErrNoBackup }, Guard: api.NewGuard([]string{"0123456789abcdef"}, false),
	}))
	_, err := n.client.Backup(t.Context(), io.Discard)
	require.Equal(t, api.ProblemUnauthorized, problemOf(t, err).Type)
	known, err := api.NewClient(n.url, api.ClientOptions{Token: "0123456789abcdef"})
	require.NoError(t, err)
	defer known.Close()
	_, err = known.Backup(t.Context(), io.Discard)
	require.Equal(t, api.ProblemNoBackup, problemOf(t, err).Type)
}
