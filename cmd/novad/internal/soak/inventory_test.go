package soak

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/nova-store/nova/verify"
)

// bucket is a world whose bucket has two objects and whose verify, a script, records both.
func bucket(t *testing.T, report verify.Report) (*soak, string) {
	dir := t.TempDir()
	at := filepath.Join(dir, "bucket")
	require.NoError(t, os.MkdirAll(filepath.Join(at, "settled"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(at, "LOCK"), nil, 0o644))
	w := &world{bucket: at, inventory: filepath.Join(dir, "inventory")}
	var lines strings.Builder
	for key, size := range map[string]int{"settled/1": 100, "settled/2": 50} {
		require.NoError(t, os.WriteFile(filepath.Join(at, key), make([]byte, size), 0o644))
		require.NoError(t, json.NewEncoder(&lines).Encode(verify.Recorded{Key: key, Size: int64(size)}))
	}
	report.Listed, report.ListedBytes, report.Amiss = 2, 150, len(report.Findings)
	text, err := json.Marshal(report)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "report"), text, 0o644))
	require.NoError(t, os.WriteFile(w.inventory+".made", []byte(lines.String()), 0o644))
	w.verify = command{name: "verify", log: filepath.Join(dir, "log"), args: []string{"sh", "-c", "cp \"$0.made\" \"$0\" && cat \"$1\"", w.inventory, filepath.Join(dir, "report")}}
	return &soak{world: w}, at
}

// The soak compares the bucket with the metadata byte for byte, by itself: here verify has found nothing.
func TestBucketAgainstMetadata(t *testing.T) {
	for name, c := range map[string]struct {
		do               func(t *testing.T, at string)
		found            []verify.Finding
		leaked, dangling int
	}{
		"as recorded": {do: func(*testing.T, string) {}},
		"truncated":   {do: func(t *testing.T, at string) { require.NoError(t, os.Truncate(filepath.Join(at, "settled/1"), 99)) }, dangling: 1},
		"longer":      {do: func(t *testing.T, at string) { require.NoError(t, os.Truncate(filepath.Join(at, "settled/1"), 101)) }, leaked: 1},
		"missing":     {do: func(t *testing.T, at string) { require.NoError(t, os.Remove(filepath.Join(at, "settled/2"))) }, dangling: 1},
		"one more": {do: func(t *testing.T, at string) {
			require.NoError(t, os.WriteFile(filepath.Join(at, "settled/3"), nil, 0o644))
		}, leaked: 1},
		"under another key": {do: func(t *testing.T, at string) {
			require.NoError(t, os.Rename(filepath.Join(at, "settled/2"), filepath.Join(at, "settled/3")))
		}, leaked: 1, dangling: 1},
		"sizes that add up": {do: func(t *testing.T, at string) {
			require.NoError(t, os.Truncate(filepath.Join(at, "settled/1"), 90))
			require.NoError(t, os.Truncate(filepath.Join(at, "settled/2"), 60))
		}, leaked: 1, dangling: 1},
		"found by verify, too": {do: func(t *testing.T, at string) {
			require.NoError(t, os.Truncate(filepath.Join(at, "settled/1"), 99))
			require.NoError(t, os.WriteFile(filepath.Join(at, "settled/3"), nil, 0o644))
		}, found: []verify.Finding{{Kind: verify.ObjectCorrupt, Key: "settled/1"}, {Kind: verify.ObjectUnrecorded, Key: "settled/3"}}, leaked: 1, dangling: 1},
	} {
		t.Run(name, func(t *testing.T) {
			s, at := bucket(t, verify.Report{Findings: c.found})
			c.do(t, at)
			rep := &Report{Completed: true, Drained: true}
			require.NoError(t, s.compare(context.Background(), rep))
			require.Equal(t, []int{c.leaked, c.dangling, 0}, []int{rep.Leaked, rep.Dangling, rep.Amiss}, "%v", s.details)
			require.Equal(t, c.leaked+c.dangling == 0, rep.Held())
		})
	}
}

// A slot's size cannot be told where the slot cannot be read; records that contradict one another are wrong whichever holds.
func TestInventory(t *testing.T) {
	v := inventory{}
	v.add(verify.Recorded{Key: "slot/a", Size: verify.UnknownSize})
	v.add(verify.Recorded{Key: "settled/1", Size: 10})
	v.add(verify.Recorded{Key: "settled/1", Size: 11})
	v.add(verify.Recorded{Key: "settled/1", Size: 10})
	d := newDifferences()
	v.against(map[string]int64{"slot/a": 7, "settled/1": 10}, d)
	require.Empty(t, d.leaked)
	require.Len(t, d.dangling, 2)
	require.Equal(t, "10 bytes, and 11 are recorded", d.dangling["settled/1"])
	require.Contains(t, d.dangling["slot/a"], "not what was written")
}
