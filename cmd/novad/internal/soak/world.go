package soak

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/nova-store/nova/api"
)

// SessionTTL is that of the nodes: pauses are longer.
const SessionTTL = 3 * time.Second

// Reserve is --disk-reserve of the single form, whose disk is filled.
const Reserve = 64 << 20

// world is all the processes of a run.
type world struct {
	o       Options
	nodes   []*machine // stars and auditors
	backing []*machine // etcd and S3
	stars   []*api.Client
	health  []string // URLs of etcd's
	bucket  string   // folder of the objects' files
	verify  command  // of everything, once it is stopped
	// inventory is the file to which verify writes what the metadata records.
	inventory string
	journal   *journal
}

// timing is the flags with which everything happens within a minute or so. They are legal together: catalog.Timing
// says which must exceed which.
func timing(f Form) []string {
	flags := []string{
		"--session-ttl=" + SessionTTL.String(), "--auditor-job-deadline=30s", "--orphan-grace=60s",
		"--settle-age-cap=2s", "--settle-recheck=1s", "--auditor-idle-interval=500ms",
		"--inline-bytes=128KiB", "--settle-object-min=128KiB", "--gc-min-dead-bytes=64KiB", "--gc-min-dead-ratio=0.2",
		"--log-format=json", "--undelete-window=" + undeleteWindow.String(),
	}
	if f == Single {
		return append(flags, "--retire-grace=1s", "--trim-grace=1s", "--reap-grace=1s", fmt.Sprintf("--disk-reserve=%dB", Reserve))
	}
	return append(flags, "--put-horizon=10s", "--max-clock-skew=500ms",
		"--retire-grace=14s", "--trim-grace=14s", "--reap-grace=11s", "--s3-upload-timeout=2s", "--s3-idle-timeout=1s")
}

// build lays everything out and starts nothing.
func build(o Options) (*world, error) {
	w := &world{o: o, inventory: filepath.Join(o.Dir, "inventory.json")}
	for _, dir := range []string{"logs", "data"} {
		if err := os.MkdirAll(filepath.Join(o.Dir, dir), 0o755); err != nil {
			return nil, err
		}
	}
	var err error
	if w.journal, err = newJournal(w.log("soak")); err != nil {
		return nil, err
	}
	if o.Form == Single {
		return w, w.single()
	}
	return w, w.cluster()
}

func (w *world) single() error {
	ports, err := freePorts(1)
	if err != nil {
		return err
	}
	data := filepath.Join(w.o.Dir, "data", "nova")
	if w.o.Disk != "" {
		data = filepath.Join(w.o.Disk, "nova")
	}
	w.bucket = filepath.Join(data, "bucket")
	args := append([]string{"--data=" + data, "--star=alone"}, timing(Single)...)
	if err := w.node(roleStar, "alone", ports[0], nil, args...); err != nil {
		return err
	}
	w.verify = command{name: "verify", args: []string{w.o.Novad, "verify", "--data-dir=" + data, "--list", "--output=json", "--inventory=" + w.inventory}, log: w.log("verify")}
	return nil
}

func (w *world) cluster() error {
	ports, err := freePorts(11)
	if err != nil {
		return err
	}
	var members, endpoints []string
	for i := range 3 {
		members = append(members, fmt.Sprintf("m%d=http://127.0.0.1:%d", i+1, ports[3+i]))
		endpoints = append(endpoints, fmt.Sprintf("127.0.0.1:%d", ports[i]))
	}
	for i := range 3 {
		name, client, peer := fmt.Sprintf("m%d", i+1), "http://"+endpoints[i], fmt.Sprintf("http://127.0.0.1:%d", ports[3+i])
		w.health = append(w.health, client+"/health")
		w.backing = append(w.backing, newMachine(roleEtcd, command{name: "etcd-" + name, log: w.log("etcd-" + name), args: []string{
			w.o.Etcd, "--name=" + name, "--data-dir=" + filepath.Join(w.o.Dir, "data", "etcd", name),
			"--listen-client-urls=" + client, "--advertise-client-urls=" + client, "--listen-peer-urls=" + peer, "--initial-advertise-peer-urls=" + peer,
			"--initial-cluster=" + strings.Join(members, ","), "--log-level=warn",
			"--auto-compaction-mode=periodic", "--auto-compaction-retention=10m",
		}}, w.journal))
	}
	store := filepath.Join(w.o.Dir, "data", "s3")
	if err := os.MkdirAll(filepath.Join(store, "nova"), 0o755); err != nil {
		return err
	}
	w.bucket = filepath.Join(store, "nova", "objects")
	w.backing = append(w.backing, newMachine(roleS3, command{name: "s3", log: w.log("s3"),
		env:  []string{"ROOT_ACCESS_KEY=nova", "ROOT_SECRET_KEY=nova-secret"},
		args: []string{w.o.S3, "--port", fmt.Sprintf("127.0.0.1:%d", ports[6]), "--keep-alive", "--quiet", "posix", store},
	}, w.journal))
	env := []string{"AWS_ACCESS_KEY_ID=nova", "AWS_SECRET_ACCESS_KEY=nova-secret"}
	where := []string{
		"--metastore=etcd://" + strings.Join(endpoints, ",") + "/soak", "--bucket=s3://nova/objects",
		fmt.Sprintf("--s3-endpoint=http://127.0.0.1:%d", ports[6]), "--s3-path-style", "--s3-region=us-east-1",
	}
	args := append(where[:len(where):len(where)], timing(Cluster)...)
	w.verify = command{name: "verify", args: append([]string{w.o.Novad, "verify", "--list", "--output=json", "--inventory=" + w.inventory}, where...), env: env, log: w.log("verify")}
	return errors.Join(
		w.node(roleStar, "a", ports[7], env, append(args, "--star=a")...),
		w.node(roleStar, "b", ports[8], env, append(args, "--star=b", "--no-audit")...),
		w.node(roleAuditor, "x", ports[9], env, append(args, "--audit-only")...),
		w.node(roleAuditor, "y", ports[10], env, append(args, "--audit-only")...))
}

func (w *world) log(name string) string { return filepath.Join(w.o.Dir, "logs", name+".log") }

func (w *world) node(r role, name string, port int, env []string, flags ...string) error {
	args := append([]string{w.o.Novad, "serve", fmt.Sprintf("--listen=127.0.0.1:%d", port)}, flags...)
	w.nodes = append(w.nodes, newMachine(r, command{name: name, args: args, env: env, log: w.log(name)}, w.journal))
	if r != roleStar {
		return nil
	}
	c, err := api.NewClient(fmt.Sprintf("http://127.0.0.1:%d", port), api.ClientOptions{})
	w.stars = append(w.stars, c)
	return err
}

func (w *world) machines() []*machine {
	return append(w.backing[:len(w.backing):len(w.backing)], w.nodes...)
}

// poll asks until f is content, for so long.
func poll(ctx context.Context, what string, patience time.Duration, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		try, done := context.WithTimeout(ctx, callTimeout)
		err := f(try)
		done()
		if err == nil {
			return nil
		}
		sleep(ctx, 500*time.Millisecond)
		if ctx.Err() != nil {
			return fmt.Errorf("%s: after %v: %w", what, patience, err)
		}
	}
}

// startPatience bounds how long all processes may take until they serve.
const startPatience = time.Minute

func (w *world) etcdHealthy(ctx context.Context) error {
	for _, url := range w.health {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return err
		}
		if err := resp.Body.Close(); err != nil {
			return err
		}
		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("%s: %s", url, resp.Status)
		}
	}
	return nil
}

func (w *world) starsReady(ctx context.Context) error {
	var errs []error
	for _, s := range w.stars {
		errs = append(errs, s.Ready(ctx))
	}
	return errors.Join(errs...)
}

// Ports are chosen below those that the kernel gives to outgoing connections, or one of these would take the port
// of a process while it is away.
const (
	firstPort = 20000
	portRange = 12000
)

// freePorts finds ports of loopback that nobody listens on.
func freePorts(n int) ([]int, error) {
	var ports []int
	for tries := 0; len(ports) < n; tries++ {
		if tries == 100*n {
			return nil, errors.New("finding free ports: all tried are taken")
		}
		port := firstPort + rand.IntN(portRange)
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			continue
		}
		defer l.Close() // all are held until the last is found, or one would come up twice
		ports = append(ports, port)
	}
	return ports, nil
}
