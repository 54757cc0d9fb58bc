// Package etcdtest runs a cluster of real etcd servers on loopback, for tests.
//
// The server is no dependency of this module: its binary, which testdata/scripts/etcdcluster.sh builds, is
// named by NOVA_ETCD. Tests that need it have the build tag etcd, so that go test ./... needs nothing but
// Go.
package etcdtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/nova-store/nova/metastore/etcdstore"
)

// Cluster is three members that this process started.
type Cluster struct {
	Members []*Member
	peers   string
}

// Member is one server.
type Member struct {
	Name     string
	Endpoint string // HOST:PORT for clients
	peer     string
	dir      string
	args     []string
	cmd      *exec.Cmd
	log      bytes.Buffer
	ended    chan struct{}
}

// Start starts a cluster that ends with the test, and waits until it has a leader. args are added to each
// member's flags.
func Start(t testing.TB, args ...string) *Cluster {
	bin := os.Getenv("NOVA_ETCD")
	require.NotEmpty(t, bin, "NOVA_ETCD must name the server: NOVA_ETCD=$(testdata/scripts/etcdcluster.sh build)")
	c := &Cluster{}
	dir := t.TempDir()
	var initial []string
	for i := range 3 {
		m := &Member{Name: fmt.Sprintf("m%d", i+1), Endpoint: freePort(t), peer: freePort(t), args: args}
		m.dir = filepath.Join(dir, m.Name)
		initial = append(initial, m.Name+"=http://"+m.peer)
		c.Members = append(c.Members, m)
	}
	c.peers = strings.Join(initial, ",")
	for _, m := range c.Members {
		c.StartMember(t, m)
		t.Cleanup(func() { m.Kill() })
	}
	c.Leader(t)
	return c
}

// freePort returns an address of loopback that was free a moment ago.
func freePort(t testing.TB) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	return l.Addr().String()
}

// StartMember starts a member, with the data that it has, and returns before it is ready.
func (c *Cluster) StartMember(t testing.TB, m *Member) {
	args := append([]string{
		"--name", m.Name, "--data-dir", m.dir,
		"--listen-client-urls", "http://" + m.Endpoint, "--advertise-client-urls", "http://" + m.Endpoint,
		"--listen-peer-urls", "http://" + m.peer, "--initial-advertise-peer-urls", "http://" + m.peer,
		"--initial-cluster", c.peers, "--log-level", "error",
		// A crash of the process takes nothing from the system's cache; of a power cut these tests say nothing.
		"--unsafe-no-fsync",
	}, m.args...)
	m.cmd = exec.Command(os.Getenv("NOVA_ETCD"), args...)
	m.cmd.Stdout, m.cmd.Stderr = &m.log, &m.log
	// With the test process goes what it started.
	m.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	require.NoError(t, m.cmd.Start())
	cmd, ended := m.cmd, make(chan struct{})
	m.ended = ended
	go func() {
		defer close(ended)
		_ = cmd.Wait() // it is killed
	}()
}

// Kill ends the member at once (kill -9).
func (m *Member) Kill() {
	_ = m.cmd.Process.Kill() // it may have ended
	<-m.ended
}

// Pause stops the member's process (SIGSTOP), Resume lets it go on.
func (m *Member) Pause() error { return m.cmd.Process.Signal(syscall.SIGSTOP) }

// Resume see Pause.
func (m *Member) Resume() error { return m.cmd.Process.Signal(syscall.SIGCONT) }

// Endpoints returns HOST:PORT of each member.
func (c *Cluster) Endpoints() []string {
	var out []string
	for _, m := range c.Members {
		out = append(out, m.Endpoint)
	}
	return out
}

// Client returns a client of the whole cluster that ends with the test.
func (c *Cluster) Client(t testing.TB) *clientv3.Client {
	client, err := etcdstore.NewClient(etcdstore.ClientConfig{Endpoints: c.Endpoints()})
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Close() }) // a store may have closed it
	return client
}

// Leader waits until a member says that it leads, and returns it.
func (c *Cluster) Leader(t testing.TB) *Member {
	client := c.Client(t)
	var leader *Member
	require.Eventually(t, func() bool {
		for _, m := range c.Members {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			s, err := client.Status(ctx, m.Endpoint)
			cancel()
			if err == nil && s.Leader != 0 && s.Leader == s.Header.MemberId {
				leader = m
				return true
			}
		}
		return false
	}, 30*time.Second, 50*time.Millisecond, "no leader; the first member says: %s", &c.Members[0].log)
	return leader
}

// MoveLeader makes another member lead.
func (c *Cluster) MoveLeader(ctx context.Context, t testing.TB) error {
	leader := c.Leader(t)
	client, err := etcdstore.NewClient(etcdstore.ClientConfig{Endpoints: []string{leader.Endpoint}})
	if err != nil {
		return err
	}
	defer client.Close()
	for _, m := range c.Members {
		if m == leader {
			continue
		}
		s, err := client.Status(ctx, m.Endpoint)
		if err != nil {
			continue // it is down
		}
		_, err = client.MoveLeader(ctx, s.Header.MemberId)
		return err
	}
	return errors.New("no other member is up")
}
