package backup_test

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/nova-store/nova/backup"
)

var created = time.Date(2026, 3, 4, 5, 6, 7, 8000000, time.UTC)

// made is a backup of three files.
func made(t *testing.T) []byte {
	dir := t.TempDir()
	for name, body := range map[string]string{"000004.sst": strings.Repeat("table", 1000), "MANIFEST-000001": "manifest", "empty.log": ""} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(body), 0o600))
	}
	var b bytes.Buffer
	require.NoError(t, backup.Write(t.Context(), &b, dir, backup.Header{Created: created, WholeUntil: created.Add(time.Minute), Program: "v1"}))
	return b.Bytes()
}

func unpack(t *testing.T, b []byte) (string, backup.Header, error) {
	dir := t.TempDir()
	h, err := backup.Unpack(bytes.NewReader(b), dir, int64(len(b)))
	return dir, h, err
}

func TestRoundTrip(t *testing.T) {
	b := made(t)
	dir, h, err := unpack(t, b)
	require.NoError(t, err)
	require.Equal(t, backup.Header{Kind: "nova metadata backup", Format: 1, Created: created, WholeUntil: created.Add(time.Minute), Program: "v1"}, h)
	files, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, files, 3)
	body, err := os.ReadFile(filepath.Join(dir, "MANIFEST-000001"))
	require.NoError(t, err)
	require.Equal(t, "manifest", string(body))
	again, err := backup.Check(bytes.NewReader(b))
	require.NoError(t, err)
	require.Equal(t, h, again)
}

// Cut anywhere it is damaged, and so it is with any byte of its files and of what it says of them changed.
func TestDamageIsFound(t *testing.T) {
	b := made(t)
	whole := bytes.LastIndex(b, []byte("empty.log\n")) + len("empty.log\n") // then zeros alone, some of which tar does without
	for n := 0; n < whole; n++ {
		if n > 2048 && n < whole-2048 && n%97 != 0 {
			continue
		}
		_, err := backup.Check(bytes.NewReader(b[:n]))
		require.ErrorIs(t, err, backup.ErrDamaged, "cut at %d of %d", n, whole)
	}
	for _, part := range []string{"tabletable", "manifest", "MANIFEST-000001", "000004.sst", `"format"`} {
		for at := bytes.Index(b, []byte(part)); at >= 0; {
			bad := bytes.Clone(b)
			bad[at+1] ^= 4
			_, err := backup.Check(bytes.NewReader(bad))
			require.ErrorIs(t, err, backup.ErrDamaged, "%s at %d", part, at)
			next := bytes.Index(b[at+1:], []byte(part))
			if next < 0 || part == "tabletable" {
				break
			}
			at += 1 + next
		}
	}
	for _, more := range [][]byte{{'x'}, append(make([]byte, 100<<10), 1), b} {
		_, err := backup.Check(bytes.NewReader(append(bytes.Clone(b), more...)))
		require.ErrorIs(t, err, backup.ErrDamaged, "%d bytes behind its end", len(more))
		require.ErrorContains(t, err, "behind its end")
	}
	_, err := backup.Check(bytes.NewReader(append(bytes.Clone(b), make([]byte, 10<<10)...)))
	require.NoError(t, err, "some programs fill up an archive with zeros")
	says := errors.New("the disk fails")
	_, err = backup.Check(io.MultiReader(bytes.NewReader(b[:3000]), iotest.ErrReader(says)))
	require.ErrorIs(t, err, says)
	require.NotErrorIs(t, err, backup.ErrDamaged)
}

// entries writes a tar of one's own making.
func entries(t *testing.T, hs ...*tar.Header) []byte {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	head, err := json.Marshal(backup.Header{Kind: "nova metadata backup", Format: 1})
	require.NoError(t, err)
	require.NoError(t, w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "nova-backup", Size: int64(len(head)), Mode: 0o600}))
	_, err = w.Write(head)
	require.NoError(t, err)
	for _, h := range hs {
		require.NoError(t, w.WriteHeader(h))
		_, err = w.Write(make([]byte, h.Size))
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	return b.Bytes()
}

// Nothing gets out of the folder, and nothing but plain files into it.
func TestUnsafeEntriesAreRefused(t *testing.T) {
	for _, h := range []*tar.Header{
		{Typeflag: tar.TypeReg, Name: "../escaped", Size: 1}, {Typeflag: tar.TypeReg, Name: "/tmp/escaped", Size: 1},
		{Typeflag: tar.TypeReg, Name: "a/b", Size: 1}, {Typeflag: tar.TypeReg, Name: "..", Size: 1}, {Typeflag: tar.TypeReg, Name: ".hidden", Size: 1},
		{Typeflag: tar.TypeReg, Name: strings.Repeat("x", 200), Size: 1}, {Typeflag: tar.TypeReg, Name: "a\x01b", Size: 1}, {Typeflag: tar.TypeReg, Name: "nova-backup", Size: 1},
		{Typeflag: tar.TypeSymlink, Name: "link", Linkname: "/etc/passwd"}, {Typeflag: tar.TypeLink, Name: "link", Linkname: "nova-backup"},
		{Typeflag: tar.TypeFifo, Name: "fifo"}, {Typeflag: tar.TypeDir, Name: "dir/"},
	} {
		dir, _, err := unpack(t, entries(t, h))
		require.ErrorIs(t, err, backup.ErrDamaged, h.Name)
		left, err := os.ReadDir(dir)
		require.NoError(t, err)
		require.Empty(t, left)
		require.NoFileExists(t, filepath.Join(filepath.Dir(dir), "escaped"))
	}
	twice := &tar.Header{Typeflag: tar.TypeReg, Name: "000004.sst", Size: 1}
	_, err := backup.Check(bytes.NewReader(entries(t, twice, twice, &tar.Header{Typeflag: tar.TypeReg, Name: "nova-backup-sums"})))
	require.ErrorIs(t, err, backup.ErrDamaged)
	_, _, err = unpack(t, entries(t, twice, twice))
	require.ErrorIs(t, err, os.ErrExist)

	b := made(t)
	_, err = backup.Unpack(bytes.NewReader(b), t.TempDir(), 4999)
	require.ErrorIs(t, err, backup.ErrDamaged, "more than it may have")
}

func TestTheFutureIsRefused(t *testing.T) {
	b := made(t)
	future := bytes.Replace(b, []byte(`"format":1`), []byte(`"format":9`), 1)
	_, err := backup.Check(bytes.NewReader(future))
	require.ErrorIs(t, err, backup.ErrVersion)
	require.ErrorContains(t, err, "upgrade novad")
	for _, text := range []string{`"format":0`, `"format":x`, `"farmot":1`} {
		_, err := backup.Check(bytes.NewReader(bytes.Replace(b, []byte(`"format":1`), []byte(text), 1)))
		require.ErrorIs(t, err, backup.ErrDamaged, text)
	}
	_, err = backup.Check(strings.NewReader("no backup at all"))
	require.ErrorIs(t, err, backup.ErrDamaged)
}

func TestWriteEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	dir := t.TempDir()
	require.ErrorIs(t, backup.Write(ctx, io.Discard, dir, backup.Header{}), context.Canceled)
	require.NoError(t, os.Mkdir(filepath.Join(dir, "folder"), 0o700))
	require.ErrorContains(t, backup.Write(t.Context(), io.Discard, dir, backup.Header{}), "is no file of a checkpoint")
}
