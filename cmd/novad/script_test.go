package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/nova-store/nova/api"
	"github.com/nova-store/nova/catalog"
	"github.com/nova-store/nova/clock"
	"github.com/nova-store/nova/metastore"
	"github.com/nova-store/nova/metastore/pebblestore"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"novad": main})
}

// TestScripts runs testdata/script: the command line against real nodes in processes of their own.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(e *testscript.Env) error {
			e.Values[nodesKey{}] = make(map[string]*scriptNode)
			if os.Getenv(bucketVariable) == "s3" {
				return setS3(e.Setenv, os.Getenv(serverVariable), true)
			}
			return nil
		},
		// [s3] and [dir] tell where the objects of a script's nodes are.
		Condition: func(cond string) (bool, error) {
			onS3 := os.Getenv(bucketVariable) == "s3"
			switch cond {
			case "s3":
				return onS3, nil
			case "dir":
				return !onS3, nil
			}
			return false, fmt.Errorf("there is no condition %q", cond)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"node":    cmdNode,
			"kill9":   cmdKill,
			"same":    cmdSame,
			"end":     cmdEnd,
			"status":  cmdStatus,
			"until":   cmdUntil,
			"oneline": cmdOneLine,
			"lines":   cmdLines,
			"nasty":   cmdNasty,
			"settled": cmdSettled,
			"slots":   cmdSlots,
			"halfway": cmdHalfway,
			"foreign": cmdForeign,
			"damage":  cmdDamage,
			"ids":     cmdIDs,
			"gone":    cmdGone,
			"certs":   cmdCerts,
			"s3":      cmdS3,
		},
	})
}

// scriptNode is a node that a script started.
type scriptNode struct {
	cmd  *exec.Cmd
	logs chan string // what it wrote to standard error, once it ended
}

func nodes(ts *testscript.TestScript) map[string]*scriptNode {
	return ts.Value(nodesKey{}).(map[string]*scriptNode)
}

type nodesKey struct{}

// cmdNode: node NAME DIR [flags] starts novad serve and waits until it says that it
// serves. $NAME is its address, $NOVA_SERVER its URL.
func cmdNode(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: node NAME DIR [flags]")
	}
	flags := append([]string{"serve", "--data", ts.MkAbs(args[1]), "--listen", "127.0.0.1:0"}, args[2:]...)
	if strings.HasPrefix(ts.Getenv("NOVA_BUCKET"), "s3://") {
		// What is legal on a directory, where no put outlives its process, is not there. The environment has what is.
		flags = slices.DeleteFunc(flags, func(f string) bool {
			return strings.Contains(f, "-grace=") || strings.HasPrefix(f, "--put-horizon=")
		})
	}
	n := &scriptNode{cmd: scriptCommand(ts, flags...), logs: make(chan string, 1)}
	stderr, err := n.cmd.StderrPipe()
	ts.Check(err)
	ts.Check(n.cmd.Start())
	serving := make(chan string, 1)
	go func() {
		var all strings.Builder
		lines := bufio.NewScanner(stderr)
		for lines.Scan() {
			all.WriteString(lines.Text() + "\n")
			if addr, ok := strings.CutPrefix(lines.Text(), "listening on "); ok {
				serving <- addr
			}
		}
		close(serving)
		n.logs <- all.String()
	}()
	addr, ok := <-serving
	if !ok {
		ts.Fatalf("the node did not serve:\n%s", <-n.logs)
	}
	nodes(ts)[args[0]] = n
	ts.Setenv(args[0], addr)
	ts.Setenv("NOVA_SERVER", "http://"+addr)
	ts.Defer(func() {
		if n.cmd.ProcessState == nil {
			_ = n.cmd.Process.Kill()
			<-n.logs
			_ = n.cmd.Wait()
		}
	})
}

// scriptCommand is novad with the script's environment and folder.
func scriptCommand(ts *testscript.TestScript, args ...string) *exec.Cmd {
	var exe string
	for _, dir := range filepath.SplitList(ts.Getenv("PATH")) {
		if path := filepath.Join(dir, "novad"); exe == "" {
			if _, err := os.Stat(path); err == nil {
				exe = path
			}
		}
	}
	cmd := exec.Command(exe, args...)
	cmd.Dir = ts.MkAbs(".")
	cmd.Env = []string{"PATH=" + ts.Getenv("PATH"), "HOME=" + ts.Getenv("HOME"), "TMPDIR=" + ts.Getenv("TMPDIR"), "NOVA_SERVER=" + ts.Getenv("NOVA_SERVER")}
	for _, name := range []string{
		"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION", "NOVA_BUCKET", "NOVA_S3_ENDPOINT", "NOVA_S3_PATH_STYLE",
		"NOVA_SETTLE_AGE_CAP", "NOVA_SETTLE_RECHECK", "NOVA_AUDITOR_IDLE_INTERVAL", "NOVA_SESSION_TTL", "NOVA_MAX_CLOCK_SKEW",
		"NOVA_S3_UPLOAD_TIMEOUT", "NOVA_S3_IDLE_TIMEOUT", "NOVA_PUT_HORIZON", "NOVA_REAP_GRACE", "NOVA_TRIM_GRACE", "NOVA_RETIRE_GRACE",
	} {
		if value := ts.Getenv(name); value != "" {
			cmd.Env = append(cmd.Env, name+"="+value)
		}
	}
	return cmd
}

// end waits for a node that was told to end, and keeps its log as NAME.log.
func end(ts *testscript.TestScript, name string) error {
	n := nodes(ts)[name]
	logs := <-n.logs
	ts.Check(os.WriteFile(ts.MkAbs(name+".log"), []byte(logs), 0o600))
	return n.cmd.Wait()
}

// cmdKill: kill9 NAME ends a node the hard way.
func cmdKill(ts *testscript.TestScript, _ bool, args []string) {
	ts.Check(nodes(ts)[args[0]].cmd.Process.Kill())
	_ = end(ts, args[0]) // it says that it was killed
}

// cmdEnd: end NAME ends a node the soft way, which must succeed. (Testscript has a stop of its own, which ends the script.)
func cmdEnd(ts *testscript.TestScript, _ bool, args []string) {
	ts.Check(nodes(ts)[args[0]].cmd.Process.Signal(syscall.SIGTERM))
	ts.Check(end(ts, args[0]))
}

// cmdStatus: status N COMMAND [args] runs a command that must end with that exit status.
func cmdStatus(ts *testscript.TestScript, _ bool, args []string) {
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	if got := exitStatus(ts, args[1:]); got != want {
		ts.Fatalf("exit status %d, not %d:\n%s", got, want, ts.ReadFile("stderr"))
	}
}

// cmdUntil: until N COMMAND [args] runs a command again and again until it ends with that exit status.
func cmdUntil(ts *testscript.TestScript, _ bool, args []string) {
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for exitStatus(ts, args[1:]) != want {
		if err := clock.NewReal().Sleep(ctx, 100*time.Millisecond); err != nil {
			ts.Fatalf("not exit status %d within a minute:\n%s", want, ts.ReadFile("stderr"))
		}
	}
}

// exitStatus runs a command, whose output the script may then look at.
func exitStatus(ts *testscript.TestScript, command []string) int {
	err := ts.Exec(command[0], command[1:]...)
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		return exit.ExitCode()
	case err != nil:
		ts.Fatalf("%v", err)
	}
	return 0
}

// cmdOneLine: oneline demands that the last command wrote one line, and no usage screen, to standard error.
func cmdOneLine(ts *testscript.TestScript, _ bool, _ []string) {
	text := ts.ReadFile("stderr")
	if strings.Count(text, "\n") != 1 || strings.Contains(text, "Usage:") {
		ts.Fatalf("not one line:\n%s", text)
	}
}

// cmdLines: lines FILE N [BYTES] writes N lines, and one of that many bytes and one more line behind it.
func cmdLines(ts *testscript.TestScript, _ bool, args []string) {
	var b bytes.Buffer
	n, err := strconv.Atoi(args[1])
	ts.Check(err)
	for i := range n {
		fmt.Fprintf(&b, "line %d\n", i)
	}
	if len(args) > 2 {
		size, err := strconv.Atoi(args[2])
		ts.Check(err)
		b.Write(bytes.Repeat([]byte("x"), size))
		b.WriteString("\nbehind it\n")
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), b.Bytes(), 0o600))
}

// cmdNasty: nasty FILE writes lines that something on the way might change; the last one ends
// with a newline.
func cmdNasty(ts *testscript.TestScript, _ bool, args []string) {
	r := rand.New(rand.NewPCG(7, 7))
	large := make([]byte, 5<<20)
	for i := range large {
		if large[i] = byte(r.Uint32()); large[i] == '\n' {
			large[i] = 0
		}
	}
	lines := [][]byte{{}, []byte("\r"), []byte("dos\r"), {}, {}, []byte("nul\x00nul"), {0xff, 0xfe, 0x80}, large, []byte("\t"), []byte("\u2028…"), {}}
	body := append(bytes.Join(lines, []byte{'\n'}), '\n')
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), body, 0o600))
}

// cmdSame: same STREAM FILE demands that novad read prints the file, and spares the test's
// output what is no text.
func cmdSame(ts *testscript.TestScript, _ bool, args []string) {
	want, err := os.ReadFile(ts.MkAbs(args[1]))
	ts.Check(err)
	got, err := scriptCommand(ts, "read", args[0]).Output()
	ts.Check(err)
	if !bytes.Equal(got, want) {
		ts.Fatalf("stream %s reads as %d bytes, which are not the %d of %s", args[0], len(got), len(want), args[1])
	}
}

// cmdSettled: settled waits until one chain is left, all of it rewritten, and trimmed but for its last slot.
func cmdSettled(ts *testscript.TestScript, _ bool, _ []string) {
	client, err := api.NewClient(ts.Getenv("NOVA_SERVER"), api.ClientOptions{})
	ts.Check(err)
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for {
		chains, err := client.Chains(ctx)
		ts.Check(err)
		if len(chains) == 1 {
			c := chains[0]
			if c.Live && c.Rewritten == c.Checkpoint && c.Checkpoint-c.Trimmed <= 1 {
				return
			}
		}
		if err := clock.NewReal().Sleep(ctx, 20*time.Millisecond); err != nil {
			ts.Fatalf("not settled within a minute: %+v", chains)
		}
	}
}

// cmdSlots: slots DIR MOST demands that a data directory holds at most so many slots.
func cmdSlots(ts *testscript.TestScript, _ bool, args []string) {
	most, err := strconv.Atoi(args[1])
	ts.Check(err)
	var found []string
	root := filepath.Join(ts.MkAbs(args[0]), "bucket", "slot")
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			found = append(found, path)
		}
		return err
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		ts.Fatalf("%v", err)
	}
	if len(found) > most {
		ts.Fatalf("%d slots are left: %s", len(found), found)
	}
}

// cmdHalfway: halfway NAME STREAM appends lines, kills the node once the first ten are acknowledged, and
// goes on: the command must fail, and say what is durable. Its second append tells that the first was acknowledged: a proxy
// that sees it come kills the node before it passes it on.
func cmdHalfway(ts *testscript.TestScript, _ bool, args []string) {
	node, err := url.Parse(ts.Getenv("NOVA_SERVER"))
	ts.Check(err)
	answered, second, killed := make(chan struct{}), make(chan struct{}), make(chan struct{})
	var appends atomic.Int64
	proxy := httputil.NewSingleHostReverseProxy(node)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasSuffix(r.URL.Path, "/records") {
			proxy.ServeHTTP(w, r)
			return
		}
		switch appends.Add(1) {
		case 1:
			proxy.ServeHTTP(w, r)
			close(answered)
			return
		case 2:
			close(second)
		}
		<-killed
		panic(http.ErrAbortHandler)
	}))
	defer server.Close()
	cmd := scriptCommand(ts, "append", args[1], "--create", "--retry-for", "100ms", "--output", "json", "--server", server.URL)
	in, err := cmd.StdinPipe()
	ts.Check(err)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	ts.Check(cmd.Start())
	_, err = io.WriteString(in, strings.Repeat("durable\n", 10))
	ts.Check(err)
	<-answered
	_, err = io.WriteString(in, "lost\n")
	ts.Check(err)
	ts.Check(in.Close())
	<-second
	cmdKill(ts, false, args[:1])
	close(killed)
	var exit *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != exitFailure {
		ts.Fatalf("it ended with %v", err)
	}
	ts.Check(os.WriteFile(ts.MkAbs("halfway.out"), stdout.Bytes(), 0o600))
	ts.Check(os.WriteFile(ts.MkAbs("halfway.err"), stderr.Bytes(), 0o600))
}

// cmdForeign: foreign DIR makes a data directory of a format that this version does not know.
func cmdForeign(ts *testscript.TestScript, _ bool, args []string) {
	store, err := pebblestore.Open(filepath.Join(ts.MkAbs(args[0]), "meta"), pebblestore.Options{})
	ts.Check(err)
	_, err = store.Commit(context.Background(), metastore.Batch{Ops: []metastore.Op{metastore.Put(catalog.FormatKey, []byte{1, 99, 64})}})
	ts.Check(err)
	ts.Check(store.Close())
}

// cmdDamage: damage DIR flips a bit in every settled object.
func cmdDamage(ts *testscript.TestScript, _ bool, args []string) {
	paths, err := filepath.Glob(filepath.Join(ts.MkAbs(args[0]), "bucket", "settled", "*"))
	ts.Check(err)
	if len(paths) == 0 {
		ts.Fatalf("no settled objects")
	}
	for _, path := range paths {
		b, err := os.ReadFile(path)
		ts.Check(err)
		b[len(b)/4] ^= 4
		ts.Check(os.WriteFile(path, b, 0o600))
	}
}

// cmdIDs: ids FILE NAME sets $NAME to the stream's id that the JSON of a file holds.
func cmdIDs(ts *testscript.TestScript, _ bool, args []string) {
	var s api.Stream
	ts.Check(json.Unmarshal([]byte(ts.ReadFile(args[0])), &s))
	ts.Setenv(args[1], s.ID)
}

// cmdGone: gone ID demands that, soon, a stream's deletion cannot be undone any more.
func cmdGone(ts *testscript.TestScript, _ bool, args []string) {
	client, err := api.NewClient(ts.Getenv("NOVA_SERVER"), api.ClientOptions{})
	ts.Check(err)
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for {
		_, err := client.UndeleteStream(ctx, "id:"+args[0])
		if isProblem(err, api.ProblemStreamTearing) || isProblem(err, api.ProblemNoStream) {
			return
		}
		ts.Check(err)
		_, err = client.DeleteStream(ctx, "id:"+args[0]) // it was in time: its teardown had not begun
		ts.Check(err)
		ts.Check(clock.NewReal().Sleep(ctx, 20*time.Millisecond))
	}
}
