package soak

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// command is how to start one process.
type command struct {
	name string
	args []string // the program first
	env  []string // besides what it inherits, of which NOVA_ and AWS_ variables are left out
	log  string   // file to which what it writes is appended
}

// child is a process that was started. It is in a group of its own, so that a Ctrl-C is the soak's alone, and dies
// with the soak.
type child struct {
	name   string
	cmd    *exec.Cmd
	exited chan struct{} // closed at its end
	err    error         // how it ended; read once exited is closed
}

func start(c command) (*child, error) {
	log, err := os.OpenFile(c.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("starting %s: %w", c.name, err)
	}
	defer log.Close() // the child has its own
	cmd := exec.Command(c.args[0], c.args[1:]...)
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "NOVA_") && !strings.HasPrefix(v, "AWS_") {
			cmd.Env = append(cmd.Env, v)
		}
	}
	cmd.Env = append(cmd.Env, c.env...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting %s: %w", c.name, err)
	}
	p := &child{name: c.name, cmd: cmd, exited: make(chan struct{})}
	go func() {
		p.err = cmd.Wait()
		close(p.exited)
	}()
	return p, nil
}

func (p *child) signal(sig syscall.Signal) {
	// It fails only where the process has ended.
	_ = p.cmd.Process.Signal(sig)
}

// kill ends it the hard way, also when it is stopped, and waits.
func (p *child) kill() {
	p.signal(syscall.SIGKILL)
	<-p.exited
}

// stop ends it the soft way. An error: it did not end in time, or not well.
func (p *child) stop(ctx context.Context, patience time.Duration) error {
	p.signal(syscall.SIGCONT)
	p.signal(syscall.SIGTERM)
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	select {
	case <-p.exited:
	case <-ctx.Done():
		p.kill()
		return fmt.Errorf("%s did not stop within %v", p.name, patience)
	}
	if p.err != nil {
		return fmt.Errorf("%s ended badly: %w", p.name, p.err)
	}
	return nil
}

// output runs a program to its end and returns what it printed; what it writes else is in its log. exit is its status.
func output(ctx context.Context, c command) (out []byte, exit int, err error) {
	log, err := os.OpenFile(c.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, 0, fmt.Errorf("running %s: %w", c.name, err)
	}
	defer log.Close()
	cmd := exec.CommandContext(ctx, c.args[0], c.args[1:]...)
	cmd.Env = append(os.Environ(), c.env...)
	cmd.Stderr = log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	out, err = cmd.Output()
	var status *exec.ExitError
	if errors.As(err, &status) && status.Exited() {
		return out, status.ExitCode(), nil
	}
	if err != nil {
		return out, 0, fmt.Errorf("running %s: %w", c.name, err)
	}
	return out, 0, nil
}
