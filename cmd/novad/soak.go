package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/nova-store/nova/cmd/novad/internal/soak"
)

// soakCmd lets everything go wrong for a while, and finds out whether anything was lost.
type soakCmd struct {
	Form     string        `help:"cluster: two stars and two auditors on three etcd members and an S3 server. single: one process on Pebble and a directory, whose disk is filled." enum:"cluster,single" default:"cluster" env:"-"`
	Duration time.Duration `help:"How long to let things go wrong; what follows takes some minutes more." default:"30m" env:"-"`
	Seed     uint64        `help:"Of what goes wrong when, and of what clients do; 0 takes one by chance." env:"-"`
	Rate     float64       `help:"Records appended a second, by all clients together." default:"200" env:"-"`
	Dir      string        `help:"Folder for data and logs, which is left there; else a temporary one, which is removed if all held." placeholder:"DIR" env:"-"`
	EtcdBin  string        `name:"etcd-bin" help:"Program of etcd; else the one that testdata/scripts/etcdcluster.sh builds." placeholder:"FILE" env:"-"`
	S3Bin    string        `name:"s3-bin" help:"Program of versitygw, the S3 server; else the one that testdata/scripts/s3server.sh builds." placeholder:"FILE" env:"-"`
	Disk     byteSize      `help:"Size of the disk of the single form, which is in memory and mounted for the run alone; 0: it has none of its own, and none is filled." default:"512MiB" env:"-"`
	DrainFor time.Duration `help:"How long the auditors may take at the end for what is due." default:"10m" env:"-"`
	Report   string        `help:"File for the report, as JSON." placeholder:"FILE" env:"-"`
}

// Help is shown by novad soak --help.
func (soakCmd) Help() string {
	return `Starts real processes on loopback, with short deadlines and graces; clients append, read, trim, delete and create, and remember
every acknowledgement. Meanwhile processes are killed (SIGKILL), stopped for longer than a session lives (SIGSTOP), an
etcd member and the S3 server are killed and started again, the disk is filled. At the end the auditors must have nothing left to
do, everything is read and compared, all is stopped, and metadata and bucket are compared (novad verify --list --inventory), key by key and byte by byte.

Exit status 1: something was lost, duplicated, reordered, leaked, dangling or still due. Then the folder is kept. The single
form mounts a file system of its own, which takes root or a namespace of one's own.`
}

// errNotHeld: the report, which was printed, says what.
var errNotHeld = errors.New("the soak did not hold")

// Run runs the soak and prints the report.
func (c *soakCmd) Run(p *process) error {
	o, err := c.options()
	if err != nil {
		return err
	}
	if c.Form == string(soak.Single) && c.Disk > 0 && os.Getenv(soakMountEnv) == "" {
		return runMounted(p)
	}
	if c.Dir == "" {
		if o.Dir, err = os.MkdirTemp("", "nova-soak-"); err != nil {
			return fmt.Errorf("soak: %w", err)
		}
	} else if o.Dir, err = newFolder(c.Dir); err != nil {
		return err
	}
	if c.Form == string(soak.Single) && c.Disk > 0 {
		o.Disk = filepath.Join(o.Dir, "disk")
		if err := mountDisk(o.Disk, int64(c.Disk)); err != nil {
			return err
		}
	}
	fmt.Fprintf(p.stderr, "soak: %s form, seed %d, %v, in %s\n", o.Form, o.Seed, o.Duration, o.Dir)
	var done func()
	o.Progress, done = soakProgress(p.stderr)
	rep, err := soak.Run(p.ctx, o)
	done()
	if rep != nil {
		err = errors.Join(err, c.print(p.stdout, rep))
		if err == nil && !rep.Held() {
			err = errNotHeld
		}
	}
	if err != nil {
		return errors.Join(err, c.keep(p.stderr, o))
	}
	if c.Dir == "" {
		err = discardFolder(o)
	}
	return err
}

func (c *soakCmd) options() (o soak.Options, err error) {
	switch {
	case c.Duration < 10*time.Second || c.Duration > 7*24*time.Hour:
		return o, usagef("--duration=%v: it must be 10s to 168h", c.Duration)
	case !(c.Rate > 0 && c.Rate <= 100_000):
		return o, usagef("--rate=%v: it must be above 0, and 100000 at most", c.Rate)
	case c.DrainFor <= 0:
		return o, usagef("--drain-for=%v: it must be above 0", c.DrainFor)
	case c.Disk != 0 && c.Disk < 4*soak.Reserve:
		return o, usagef("--disk=%v: it must be 0, or %v at least", c.Disk, byteSize(4*soak.Reserve))
	}
	o = soak.Options{Form: soak.Form(c.Form), Duration: c.Duration, Seed: c.Seed, Rate: c.Rate, DrainFor: c.DrainFor}
	for o.Seed == 0 {
		o.Seed = rand.Uint64N(1_000_000)
	}
	if o.Novad, err = os.Executable(); err != nil {
		return o, fmt.Errorf("soak: finding this program: %w", err)
	}
	if o.Form == soak.Single {
		return o, nil
	}
	if o.Etcd, err = tool(c.EtcdBin, "--etcd-bin", "etcd-v*", "testdata/scripts/etcdcluster.sh build"); err != nil {
		return o, err
	}
	o.S3, err = tool(c.S3Bin, "--s3-bin", "versitygw-v*/versitygw", "testdata/scripts/s3server.sh path")
	return o, err
}

// tool is the program that was given, or the newest of those that the scripts for tests have built.
func tool(given, flag, pattern, how string) (string, error) {
	if given == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			return "", usagef("%s: there is no cache folder (%w): give it", flag, err)
		}
		built, err := filepath.Glob(filepath.Join(cache, "nova-tools", pattern))
		if err != nil || len(built) == 0 {
			return "", usagef("%s: not built yet: run %s first, or give it", flag, how)
		}
		given = slices.Max(built)
	}
	path, err := exec.LookPath(given)
	if err == nil {
		path, err = filepath.Abs(path)
	}
	if err != nil {
		return "", usagef("%s: %w", flag, err)
	}
	return path, nil
}

// newFolder makes a folder that must not hold anything yet.
func newFolder(dir string) (string, error) {
	dir, err := filepath.Abs(dir)
	if err == nil {
		err = os.MkdirAll(dir, 0o755)
	}
	if err != nil {
		return "", usagef("--dir: %w", err)
	}
	entries, err := os.ReadDir(dir)
	switch {
	case err != nil:
		return "", usagef("--dir: %w", err)
	case len(entries) > 0:
		return "", usagef("--dir=%s: it must be empty", dir)
	}
	return dir, nil
}

// soakProgress shows progress as one line on a terminal, and elsewhere as a line every half a minute.
func soakProgress(w io.Writer) (show func(soak.Progress), done func()) {
	every, end := 30*time.Second, "\n"
	terminal := isTerminal(w)
	if terminal {
		every, end = 0, "\x1b[K\r"
	}
	var last time.Duration
	phase := ""
	return func(p soak.Progress) {
			if p.Phase == phase && p.Elapsed-last < every {
				return
			}
			phase, last = p.Phase, p.Elapsed
			fmt.Fprintf(w, "%7v  %-15s %4d kills  %3d pauses  %8d acknowledged  %9d read  %d wrong%s",
				p.Elapsed.Round(time.Second), p.Phase, p.Kills, p.Pauses, p.Tally.Acknowledged, p.Tally.Read, p.Wrong, end)
		}, func() {
			if terminal {
				fmt.Fprint(w, "\x1b[K")
			}
		}
}

// print prints the report, and writes it to its file.
func (c *soakCmd) print(w io.Writer, rep *soak.Report) error {
	rows := []table.Row{
		{"kills", rep.Kills}, {"pauses", rep.Pauses},
	}
	if rep.Form == soak.Cluster {
		rows = append(rows, table.Row{"etcd members killed", rep.EtcdRestarts}, table.Row{"S3 servers killed", rep.S3Restarts})
	} else {
		rows = append(rows, table.Row{"disks filled", rep.Fills})
	}
	rows = append(rows, []table.Row{
		{"processes that ended by themselves", rep.Exits}, {"panics", rep.Crashes},
		{"streams made", rep.Streams}, {"streams deleted", rep.Deleted},
		{"deletions undone", rep.Undeleted}, {"deletions behind a read of all", rep.ReadFirst}, {"records so read", rep.ReadBefore},
		{"records acknowledged", rep.Acknowledged}, {"records refused", rep.Refused},
		{"records of unknown outcome", rep.Unknown}, {"of these found", rep.UnknownThere},
		{"records read and compared", rep.Read}, {"readable at the end", rep.Readable}, {"rightly gone", rep.Gone},
		{"seconds until drained", fmt.Sprintf("%.0f", rep.DrainSeconds)},
		{"objects in the bucket", rep.Objects}, {"of bytes", rep.ObjectBytes}, {"objects recorded", rep.Recorded}, {"objects listed", rep.Listed}, {"of bytes", rep.ListedBytes},
		{"lost", rep.Lost}, {"duplicated", rep.Duplicated}, {"reordered", rep.Reordered}, {"corrupt", rep.Corrupt},
		{"phantom", rep.Phantom}, {"served though gone", rep.Undead}, {"leaked", rep.Leaked}, {"dangling", rep.Dangling},
		{"otherwise amiss", rep.Amiss}, {"wrong answers", rep.Surprises},
	}...)
	err := renderTable(w, 1, table.Row{fmt.Sprintf("%s, %.0f s, seed %d", rep.Form, rep.Seconds, rep.Seed), "count"}, rows)
	switch {
	case rep.Due != "":
		err = errors.Join(err, printLine(w, "not drained: "+rep.Due))
	case !rep.Completed:
		err = errors.Join(err, printLine(w, "not completed: nothing of this is a result"))
	}
	for _, d := range rep.Details {
		err = errors.Join(err, printLine(w, d))
	}
	if c.Report != "" {
		text, merr := json.MarshalIndent(rep, "", "  ")
		err = errors.Join(err, merr, os.WriteFile(c.Report, append(text, '\n'), 0o644))
	}
	return err
}

// keep says where everything is that the soak left. A disk in memory goes with the process: its contents are copied.
func (c *soakCmd) keep(w io.Writer, o soak.Options) error {
	look := fmt.Sprintf("logs in %s", filepath.Join(o.Dir, "logs"))
	if o.Form == soak.Single {
		data := filepath.Join(o.Dir, "data", "nova")
		if o.Disk != "" {
			if err := os.CopyFS(data, os.DirFS(filepath.Join(o.Disk, "nova"))); err != nil {
				return fmt.Errorf("keeping the data: %w", err)
			}
			if err := syscall.Unmount(o.Disk, 0); err != nil {
				return fmt.Errorf("keeping the data: %w", err)
			}
		}
		look += "; novad verify --data-dir " + data + " --list"
	} else {
		look += ", data of etcd and S3 in " + filepath.Join(o.Dir, "data")
	}
	fmt.Fprintf(w, "soak: kept %s: %s\n", o.Dir, look)
	return nil
}

func discardFolder(o soak.Options) error {
	if o.Disk != "" {
		if err := syscall.Unmount(o.Disk, 0); err != nil {
			return fmt.Errorf("soak: unmounting %s: %w", o.Disk, err)
		}
	}
	return os.RemoveAll(o.Dir)
}

// soakMountEnv tells the process that it is alone in its mount namespace.
const soakMountEnv = "NOVA_SOAK_MOUNTED"

// runMounted runs this very command in a mount namespace of its own, so that what it mounts is seen by nobody else and goes
// with it.
func runMounted(p *process) error {
	exe, err := os.Executable()
	if err != nil {
		return fmt.Errorf("soak: finding this program: %w", err)
	}
	cmd := exec.Command(exe, os.Args[1:]...)
	cmd.Env = append(os.Environ(), soakMountEnv+"=yes")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM, Cloneflags: syscall.CLONE_NEWNS}
	if os.Getuid() != 0 {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
	}
	if err := cmd.Start(); err != nil {
		return usagef("soak: a mount namespace for the disk that is filled: %w; --disk=0 runs without one", err)
	}
	defer context.AfterFunc(p.ctx, func() {
		_ = cmd.Process.Signal(syscall.SIGTERM) // it fails only where it has ended
	})()
	err = cmd.Wait()
	var status *exec.ExitError
	if errors.As(err, &status) {
		return &exitError{status.ExitCode()}
	}
	return err
}

// exitError is how a process ended that has said itself why.
type exitError struct{ status int }

func (e *exitError) Error() string { return fmt.Sprintf("exit status %d", e.status) }

// mountDisk mounts a disk in memory.
func mountDisk(dir string, size int64) error {
	err := os.Mkdir(dir, 0o755)
	if err == nil {
		err = syscall.Mount("none", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, "")
	}
	if err == nil {
		err = syscall.Mount("none", dir, "tmpfs", 0, fmt.Sprintf("size=%d", size))
	}
	if err != nil {
		return usagef("soak: mounting a disk of %v at %s: %w; --disk=0 runs without one", byteSize(size), dir, err)
	}
	return nil
}
