package soak

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync/atomic"
	"syscall"
	"time"
)

// machine keeps one process running, and does to it what the schedule says.
type machine struct {
	role    role
	command command
	journal *journal

	faults chan fault // done one by one; one may wait

	kills, pauses, restarts, exits atomic.Int64
	proc                           *child // of the machine's own goroutine, until it has ended
}

// role says what a machine is there for, and so what may be done to it.
type role string

const (
	roleStar    role = "star"
	roleAuditor role = "auditor"
	roleEtcd    role = "etcd"
	roleS3      role = "s3"
)

// restartPause is how long a process that ended by itself stays away.
const restartPause = time.Second

func newMachine(r role, c command, j *journal) *machine {
	return &machine{role: r, command: c, journal: j, faults: make(chan fault, 1)}
}

// keep runs the process until ctx ends, which leaves it running in m.proc. An error: it cannot be started.
func (m *machine) keep(ctx context.Context) error {
	for {
		var err error
		if m.proc == nil {
			if m.proc, err = start(m.command); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case f := <-m.faults:
			m.suffer(ctx, f)
		case <-m.proc.exited:
			m.exits.Add(1)
			m.journal.printf("%s ended by itself: %v", m.command.name, m.proc.err)
			m.proc = nil
			sleep(ctx, restartPause)
		}
	}
}

// suffer does a fault. It always leaves a process that runs, or none, which keep starts again.
func (m *machine) suffer(ctx context.Context, f fault) {
	m.journal.printf("%s %s for %v", f.Kind, m.command.name, f.For.Round(time.Millisecond))
	switch f.Kind {
	case faultKill:
		m.proc.kill()
		m.proc = nil
		m.kills.Add(1)
	case faultRestart:
		m.proc.kill()
		m.proc = nil
		m.restarts.Add(1)
	case faultPause:
		m.proc.signal(syscall.SIGSTOP)
		m.pauses.Add(1)
		sleep(ctx, f.For)
		m.proc.signal(syscall.SIGCONT)
		m.journal.printf("%s goes on", m.command.name)
		return
	}
	sleep(ctx, f.For)
	m.journal.printf("%s is to start", m.command.name)
}

// offer has a fault done, at once or after the one that the machine suffers, unless one waits already.
func (m *machine) offer(f fault) bool {
	select {
	case m.faults <- f:
		return true
	default:
		return false
	}
}

// crashes counts what a process of Go writes only when it breaks.
func (m *machine) crashes() (int, error) {
	log, err := os.Open(m.command.log)
	if err != nil {
		return 0, fmt.Errorf("the log of %s: %w", m.command.name, err)
	}
	defer log.Close()
	return countCrashes(log)
}

func countCrashes(log io.Reader) (int, error) {
	n := 0
	lines := bufio.NewReader(log)
	for {
		line, err := lines.ReadSlice('\n')
		if bytes.HasPrefix(line, []byte("panic: ")) || bytes.HasPrefix(line, []byte("fatal error: ")) {
			n++
		}
		switch {
		case errors.Is(err, io.EOF):
			return n, nil
		case err != nil && !errors.Is(err, bufio.ErrBufferFull):
			return n, err
		}
	}
}

// sleep waits, at most until ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}
