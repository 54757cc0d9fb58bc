package dirbucket

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// killVariable makes this test's process the one that is killed, on that directory.
const killVariable = "DIRBUCKET_TEST_KILL_DIR"

// TestKilledProcess kills a process amid its puts and deletes: what it was told is
// what the next one finds, and what was in the air is whole or not there.
func TestKilledProcess(t *testing.T) {
	if dir := os.Getenv(killVariable); dir != "" {
		runUntilKilled(dir)
	}
	for round := range 2 {
		dir := t.TempDir()
		cmd := exec.Command(os.Args[0], "-test.run=^TestKilledProcess$")
		cmd.Env = append(os.Environ(), killVariable+"="+dir)
		out, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		there := map[string]bool{}
		lines := bufio.NewScanner(out)
		for range 40 + 23*round {
			require.True(t, lines.Scan(), "the process ended by itself")
			what, key, _ := strings.Cut(lines.Text(), " ")
			there[key] = what == "put"
		}
		_, err = Open(dir, Options{})
		require.ErrorAs(t, err, new(*LockedError))
		require.NoError(t, cmd.Process.Kill())
		for lines.Scan() { // answered before it died
			what, key, _ := strings.Cut(lines.Text(), " ")
			there[key] = what == "put"
		}
		require.Error(t, cmd.Wait())

		b := openTest(t, dir)
		for key, want := range there {
			got, err := b.Get(t.Context(), key, 0, -1)
			if want && err != nil || err == nil && string(got) != killBody(key) {
				require.Fail(t, "lost or torn", "%s: %v, %d bytes", key, err, len(got))
			}
		}
		infos, err := b.List(t.Context(), "", "", 10_000)
		require.NoError(t, err)
		for _, info := range infos {
			require.EqualValues(t, len(killBody(info.Key)), info.Size)
		}
	}
}

func killBody(key string) string { return strings.Repeat(key, 1000) }

// runUntilKilled puts and deletes for ever and says what was answered, from two tasks.
func runUntilKilled(dir string) {
	b, err := Open(dir, Options{})
	if err != nil {
		panic(err)
	}
	ctx := context.Background()
	task := func(name string) {
		for i := 0; ; i++ {
			key := fmt.Sprintf("slot/%s/%d", name, i)
			if err := b.Put(ctx, key, []byte(killBody(key)), ifAbsent); err != nil {
				panic(err)
			}
			fmt.Printf("put %s\n", key)
			if i%3 != 0 {
				continue
			}
			fmt.Printf("deleting %s\n", key)
			if err := b.Delete(ctx, []string{key})[0]; err != nil {
				panic(err)
			}
			fmt.Printf("deleted %s\n", key)
		}
	}
	go task("a")
	task("b")
}
