package s3bucket

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/nova-store/nova/clock"
	"github.com/nova-store/nova/objstore"
)

// stopVariable makes TestPutterProcess the process that is stopped: endpoint, bucket, prefix, bytes of the
// body, and NotAfter in Unix milliseconds.
const stopVariable = "S3BUCKET_TEST_PUT"

// TestPutterProcess puts one object, if it was started to: it says when that is signed, waits for a line
// on standard input, sends it, and says what came of it.
func TestPutterProcess(t *testing.T) {
	args := strings.Fields(os.Getenv(stopVariable))
	if len(args) == 0 {
		require.Empty(t, args, "another test starts it")
		return
	}
	size, err := strconv.Atoi(args[3])
	require.NoError(t, err)
	ms, err := strconv.ParseInt(args[4], 10, 64)
	require.NoError(t, err)
	b := openTest(t, Options{Endpoint: args[0], Bucket: args[1], Prefix: args[2], PathStyle: true, UploadTimeout: time.Minute})
	b.signed = func() {
		fmt.Println("putter: signed")
		_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
	}
	err = b.Put(t.Context(), "settled/x", make([]byte, size), objstore.PutOptions{IfAbsent: true, NotAfter: time.UnixMilli(ms)})
	for name, typed := range map[string]error{"expired": objstore.ErrExpired, "unknown": objstore.ErrUnknown} {
		if errors.Is(err, typed) {
			fmt.Println("putter: " + name)
			return
		}
	}
	fmt.Println("putter:", err)
}

// putter is such a process.
type putter struct {
	t     *testing.T
	cmd   *exec.Cmd
	stdin io.Writer
	out   *bufio.Scanner
}

func startPutter(t *testing.T, o Options, size int, notAfter time.Time) *putter {
	t.Helper()
	p := &putter{t: t, cmd: exec.Command(os.Args[0], "-test.run=^TestPutterProcess$")}
	p.cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s %s %s %d %d", stopVariable, o.Endpoint, o.Bucket, o.Prefix, size, notAfter.UnixMilli()))
	out, err := p.cmd.StdoutPipe()
	require.NoError(t, err)
	p.stdin, err = p.cmd.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, p.cmd.Start())
	p.out = bufio.NewScanner(out)
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill() // it may have ended
		_ = p.cmd.Wait()
	})
	require.Equal(t, "signed", p.says())
	return p
}

// says is what the process says next.
func (p *putter) says() string {
	p.t.Helper()
	for p.out.Scan() {
		if text, ok := strings.CutPrefix(p.out.Text(), "putter: "); ok {
			return text
		}
	}
	require.Fail(p.t, "the process ended")
	return ""
}

func (p *putter) send() {
	_, err := io.WriteString(p.stdin, "\n")
	require.NoError(p.t, err)
}

func (p *putter) signal(s os.Signal) { require.NoError(p.t, p.cmd.Process.Signal(s)) }

// until waits for a time, in real time: it is the store's clock that counts.
func until(t *testing.T, at time.Time) {
	t.Helper()
	require.NoError(t, clock.NewReal().Sleep(t.Context(), time.Until(at)))
}

// A process that is stopped between signing and sending, for longer than the put had, is refused by the store.
func TestStoppedBeforeSending(t *testing.T) {
	o := testOptions(t)
	b := openTest(t, o)
	notAfter := time.Now().Add(2500 * time.Millisecond)
	p := startPutter(t, o, 1000, notAfter)
	p.signal(syscall.SIGSTOP)
	until(t, notAfter.Add(1100*time.Millisecond))
	p.signal(syscall.SIGCONT)
	p.send()
	require.Equal(t, "expired", p.says())
	_, err := b.Stat(t.Context(), "settled/x")
	require.ErrorIs(t, err, objstore.ErrNotFound)

	// The very same in good time lands.
	p = startPutter(t, o, 1000, time.Now().Add(time.Minute))
	p.signal(syscall.SIGSTOP)
	p.signal(syscall.SIGCONT)
	p.send()
	require.Equal(t, "<nil>", p.says())
	info, err := b.Stat(t.Context(), "settled/x")
	require.NoError(t, err)
	require.EqualValues(t, 1000, info.Size)
}

// A process that is stopped in the middle of a body is cut off by the limit on idle requests that the put horizon
// rests on. Without one, what it sends after it goes on takes effect, long past NotAfter: hence the requirement.
func TestStoppedInTheBody(t *testing.T) {
	for name, idle := range map[string]time.Duration{"a limit": 500 * time.Millisecond, "no limit": time.Hour} {
		t.Run(name, func(t *testing.T) {
			const size = 32 << 20
			o := testOptions(t)
			b := openTest(t, o)
			proxy := startProxy(t, o.Endpoint, idle, 1<<20)
			through := o
			through.Endpoint = proxy.endpoint
			notAfter := time.Now().Add(2500 * time.Millisecond)
			p := startPutter(t, through, size, notAfter)
			p.send()
			<-proxy.reached
			p.signal(syscall.SIGSTOP)
			close(proxy.goOn)
			until(t, notAfter.Add(1100*time.Millisecond))
			_, err := b.Stat(t.Context(), "settled/x")
			require.ErrorIs(t, err, objstore.ErrNotFound)
			p.signal(syscall.SIGCONT)
			if idle == time.Hour {
				require.Equal(t, "<nil>", p.says())
				_, err = b.Stat(t.Context(), "settled/x")
				require.NoError(t, err)
				return
			}
			require.Equal(t, "unknown", p.says())
			_, err = b.Stat(t.Context(), "settled/x")
			require.ErrorIs(t, err, objstore.ErrNotFound)
		})
	}
}

// proxy passes connections on, and drops those on which nothing came from the client for a while.
type proxy struct {
	endpoint string
	reached  chan struct{} // closed when so many bytes of a connection were passed on, and no more are
	goOn     chan struct{} // until this is closed
}

func startProxy(t *testing.T, endpoint string, idle time.Duration, hold int64) *proxy {
	t.Helper()
	to, err := url.Parse(endpoint)
	require.NoError(t, err)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p := &proxy{endpoint: "http://" + listener.Addr().String(), reached: make(chan struct{}), goOn: make(chan struct{})}
	ctx, stop := context.WithCancel(t.Context())
	var all sync.WaitGroup
	t.Cleanup(func() {
		stop()
		_ = listener.Close()
		all.Wait()
	})
	var first sync.Once
	all.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", to.Host)
			if err != nil {
				_ = client.Close()
				continue
			}
			drop := func() {
				_ = client.Close()
				_ = server.Close()
			}
			context.AfterFunc(ctx, drop)
			all.Go(func() {
				defer drop()
				_, _ = io.Copy(client, server)
			})
			all.Go(func() {
				defer drop()
				buf, passed := make([]byte, 64<<10), int64(0)
				for {
					if client.SetReadDeadline(time.Now().Add(idle)) != nil {
						return
					}
					n, err := client.Read(buf)
					if err != nil {
						return
					}
					if _, err := server.Write(buf[:n]); err != nil {
						return
					}
					if passed += int64(n); passed >= hold {
						first.Do(func() {
							close(p.reached)
							<-p.goOn
						})
					}
				}
			})
		}
	})
	return p
}

// A large body that is refused may be answered by a reset, since the store has not read it: that is told apart
// from a success all the same, and never a mere unknown.
func TestLargeBodyOverAnObject(t *testing.T) {
	b := openTest(t, testOptions(t))
	for i, size := range []int{1 << 20, 4 << 20, 16 << 20} {
		key := fmt.Sprint("settled/", i)
		require.NoError(t, b.Put(t.Context(), key, bytes.Repeat([]byte("a"), size), inTime(true)))
		for range 3 {
			require.ErrorIs(t, b.Put(t.Context(), key, bytes.Repeat([]byte("b"), size), inTime(true)), objstore.ErrExists)
		}
		got, err := b.Get(t.Context(), key, 0, -1)
		require.NoError(t, err)
		require.Equal(t, size, bytes.Count(got, []byte("a")), "read in parts, each in its place")
	}
}
