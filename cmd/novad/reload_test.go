package main

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Files are looked at now and then, read when one of them changed, and what can't be used is told once.
func TestReload(t *testing.T) {
	dir := t.TempDir()
	a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	at := time.Now()
	write := func(file, text string) {
		at = at.Add(time.Second) // as a file system's clock that is coarse
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		require.NoError(t, os.Chtimes(file, at, at))
	}
	var log bytes.Buffer
	now, loads := at, 0
	load := func() (string, error) {
		loads++
		x, err := os.ReadFile(a)
		y, err2 := os.ReadFile(b)
		if string(x) != string(y) {
			return "", errors.New("no pair")
		}
		return string(x), errors.Join(err, err2)
	}
	write(a, "one")
	write(b, "one")
	r, err := reload("pair", slog.New(slog.NewTextHandler(&log, nil)), func() time.Time { return now }, load, a, b)
	require.NoError(t, err)
	require.Equal(t, "one", r.get())

	write(a, "two")
	require.Equal(t, "one", r.get(), "it is not looked at yet")
	now = now.Add(reloadEvery)
	for range 3 {
		require.Equal(t, "one", r.get(), "the other one is missing")
		now = now.Add(reloadEvery)
	}
	require.Equal(t, 2, loads, "not for each look")
	require.Equal(t, 1, strings.Count(log.String(), "level=WARN"))
	write(b, "two")
	require.Equal(t, "two", r.get())

	require.NoError(t, os.Remove(b))
	for range 3 {
		now = now.Add(reloadEvery)
		require.Equal(t, "two", r.get())
	}
	require.Equal(t, 2, strings.Count(log.String(), "level=WARN"), "once for each change")
}
