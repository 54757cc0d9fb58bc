package pebblestore

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/stretchr/testify/require"

	"github.com/nova-store/nova/metastore"
)

// childEnv makes the test binary a child process that does one thing to the
// directory named by childDirEnv.
const (
	childEnv    = "PEBBLESTORE_TEST_CHILD"
	childDirEnv = "PEBBLESTORE_TEST_DIR"
)

func TestMain(m *testing.M) {
	switch os.Getenv(childEnv) {
	case "open":
		_, err := Open(os.Getenv(childDirEnv), Options{})
		fmt.Println(err)
		os.Exit(0)
	case "fatal":
		// The default Fatal: a failed sync ends the process.
		failing := &errorfs.Toggle{Injector: failLog(errorfs.OpFileSync, errorfs.OpFileSyncData, errorfs.OpFileSyncTo)}
		s, err := Open("store", Options{
			FS:     errorfs.Wrap(vfs.NewMem(), failing),
			Logger: slog.New(slog.NewTextHandler(os.Stdout, nil)),
		})
		if err != nil {
			panic(err)
		}
		failing.On()
		_, err = s.Commit(context.Background(), metastore.Batch{Ops: []metastore.Op{metastore.Put("k", nil)}})
		fmt.Println("still alive:", err)
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// child runs the test binary as another process and returns what it printed.
func child(t *testing.T, what, dir string) (string, error) {
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+what, childDirEnv+"="+dir)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func openDir(t testing.TB, dir string) *Store {
	s, err := Open(dir, Options{CacheBytes: 1 << 20})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

func put(t testing.TB, s *Store, key, value string) metastore.Version {
	v, err := s.Commit(t.Context(), metastore.Batch{Ops: []metastore.Op{metastore.Put(key, []byte(value))}})
	require.NoError(t, err)
	return v
}

func get(t testing.TB, s *Store, key string) metastore.Record {
	recs, err := s.Get(t.Context(), key)
	require.NoError(t, err)
	return recs[0]
}

func TestDirectoryIsMadeAndKept(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "not", "yet", "there")
	s := openDir(t, dir)
	v := put(t, s, "k", "1")
	require.NoError(t, s.Close())
	require.NoError(t, s.Close(), "closing again is fine")

	s = openDir(t, dir)
	require.Equal(t, metastore.Record{Key: "k", Value: []byte("1"), Version: v}, get(t, s, "k"))
	require.Greater(t, put(t, s, "k", "2"), v)
}

func TestSecondOpenIsRefused(t *testing.T) {
	base := t.TempDir()
	dir := filepath.Join(base, "store")
	s := openDir(t, dir)
	alias := filepath.Join(base, "alias")
	require.NoError(t, os.Symlink(dir, alias))
	t.Chdir(base)

	// Whatever its name, and also after a refusal.
	for _, name := range []string{dir, alias, "store", "./alias/../store", dir} {
		_, err := Open(name, Options{})
		var locked *LockedError
		require.ErrorAs(t, err, &locked, name)
		require.Contains(t, err.Error(), locked.Dir)
		require.Equal(t, "store", filepath.Base(locked.Dir))
	}
	out, err := child(t, "open", dir)
	require.NoError(t, err, out)
	require.Contains(t, out, dir+" is in use by another process")

	put(t, s, "k", "1")
	require.NoError(t, s.Close())
	out, err = child(t, "open", dir)
	require.NoError(t, err, out)
	require.Equal(t, "<nil>\n", out)
	require.True(t, get(t, openDir(t, alias), "k").Exists())
}

func TestSecondOpenInMemoryIsRefused(t *testing.T) {
	fs := vfs.NewCrashableMem()
	openMem(t, fs, Options{})
	_, err := Open("store", Options{FS: fs})
	var locked *LockedError
	require.ErrorAs(t, err, &locked)
	require.Equal(t, "store", locked.Dir)
}

func TestUnusableDirectory(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o644))
	_, err := Open(filepath.Join(file, "store"), Options{})
	require.ErrorContains(t, err, file)
	var locked *LockedError
	require.NotErrorAs(t, err, &locked)
}

func TestOtherFormatIsRefused(t *testing.T) {
	for name, prepare := range map[string]func(db *pebble.DB) error{
		"something else": func(db *pebble.DB) error { return db.Set([]byte("k"), nil, pebble.Sync) },
		"later format":   func(db *pebble.DB) error { return db.Set(formatKey, []byte("nova pebblestore format 2"), pebble.Sync) },
	} {
		fs := vfs.NewMem()
		db, err := pebble.Open("store", &pebble.Options{FS: fs, Logger: discard{}})
		require.NoError(t, err)
		require.NoError(t, prepare(db))
		require.NoError(t, db.Close())
		for range 2 { // a refusal leaves nothing locked
			_, err = Open("store", Options{FS: fs})
			var wrong *FormatError
			require.ErrorAs(t, err, &wrong, name)
			require.Equal(t, "store", wrong.Dir)
			require.ErrorContains(t, err, format)
		}
	}
}

func TestNewerPebbleIsRefused(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, openDir(t, dir).Close())
	markers, err := filepath.Glob(filepath.Join(dir, "marker.format-version.*"))
	require.NoError(t, err)
	require.NotEmpty(t, markers)
	last := markers[len(markers)-1]
	newer := last[:strings.LastIndex(last, ".")] + ".999"
	require.NoError(t, os.Rename(last, newer))
	_, err = Open(dir, Options{})
	var wrong *FormatError
	require.ErrorAs(t, err, &wrong)
	require.ErrorContains(t, err, "999")
}

// TestCrashWhileOpening: a store that died at any point of its first start opens.
func TestCrashWhileOpening(t *testing.T) {
	base := vfs.NewCrashableMem()
	var mu sync.Mutex
	var clones []*vfs.MemFS
	opened, err := Open("a/store", Options{FS: errorfs.Wrap(base, errorfs.InjectorFunc(func(op errorfs.Op) error {
		mu.Lock()
		defer mu.Unlock()
		if op.Kind.ReadOrWrite() == errorfs.OpIsWrite && len(clones) < 100 {
			clones = append(clones, base.CrashClone(vfs.CrashCloneCfg{}))
		}
		return nil
	}))})
	require.NoError(t, err)
	put(t, opened, "k", "1")
	answered, err := Open("a/store", Options{FS: base.CrashClone(vfs.CrashCloneCfg{})})
	require.NoError(t, err)
	require.True(t, get(t, answered, "k").Exists())
	require.NoError(t, answered.Close())
	require.NoError(t, opened.Close())
	require.Greater(t, len(clones), 10)
	for i, clone := range clones {
		s, err := Open("a/store", Options{FS: clone})
		require.NoError(t, err, "crash %d", i)
		put(t, s, "k", "2")
		require.NoError(t, s.Close())
	}
}
