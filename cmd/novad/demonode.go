package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// demoNode is a node in a process of its own, whose log the demo follows.
type demoNode struct {
	cmd    *exec.Cmd
	addr   string
	exited chan error // the process's end, once its log was read
}

// demoGraces are flags that make everything happen within seconds.
var demoGraces = []string{
	"--settle-age-cap=700ms", "--settle-recheck=500ms", "--auditor-idle-interval=200ms",
	"--reap-grace=500ms", "--trim-grace=500ms", "--retire-grace=500ms", "--orphan-grace=1h", "--put-horizon=0s",
}

// startDemoNode runs novad serve of this very binary and waits until it serves. What it
// logs goes to onLine, line by line.
func startDemoNode(ctx context.Context, dir, listen string, onLine func(logLine)) (*demoNode, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("finding this binary: %w", err)
	}
	args := append([]string{"serve", "--data", dir, "--listen", listen, "--star", "demo", "--log-format", "json"}, demoGraces...)
	n := &demoNode{cmd: exec.Command(exe, args...), exited: make(chan error, 1)}
	// The demo alone configures it: not the environment of whoever runs it.
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "NOVA_") {
			n.cmd.Env = append(n.cmd.Env, v)
		}
	}
	// A Ctrl-C at the terminal goes to the whole group; the demo itself stops its node.
	n.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	logs, err := n.cmd.StderrPipe()
	if err != nil {
		return nil, fmt.Errorf("starting a node: %w", err)
	}
	if err := n.cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting a node: %w", err)
	}
	serving := make(chan string, 1)
	go func() {
		var last string
		lines := bufio.NewScanner(logs)
		for lines.Scan() {
			if addr, ok := strings.CutPrefix(lines.Text(), "listening on "); ok {
				serving <- addr
				continue
			}
			last = lines.Text()
			onLine(parseLogLine(last))
		}
		err := errors.Join(lines.Err(), n.cmd.Wait())
		if err != nil {
			err = fmt.Errorf("%w (its last line: %s)", err, last)
		}
		n.exited <- err
	}()
	select {
	case n.addr = <-serving:
		return n, nil
	case err := <-n.exited:
		return nil, fmt.Errorf("the node ended before it served: %w", err)
	case <-ctx.Done():
		return nil, errors.Join(ctx.Err(), n.kill())
	}
}

// kill ends the node the hard way.
func (n *demoNode) kill() error {
	if err := n.cmd.Process.Kill(); err != nil {
		return fmt.Errorf("killing the node: %w", err)
	}
	<-n.exited
	return nil
}

// stop ends the node the soft way.
func (n *demoNode) stop() error {
	if err := n.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return fmt.Errorf("stopping the node: %w", err)
	}
	select {
	case err := <-n.exited:
		return err
	case <-time.After(shutdownTimeout):
		return errors.Join(errors.New("the node did not stop"), n.kill())
	}
}

// logLine is what the demo wants to know of a line of a node's log.
type logLine struct {
	Message string `json:"msg"`
	Level   string `json:"level"`
	Error   string `json:"error"`
	Action  string `json:"action"`
	Duty    string `json:"duty"`
	Object  string `json:"object"`
	Chain   string `json:"chain"`
	From    uint64 `json:"from"`
	To      uint64 `json:"to"`
	Count   int    `json:"count"`
	Bytes   int64  `json:"bytes"`
}

// parseLogLine reads a line; one that is no JSON is its own message.
func parseLogLine(text string) logLine {
	var l logLine
	if err := json.Unmarshal([]byte(text), &l); err != nil {
		return logLine{Message: text}
	}
	return l
}

// tell describes the line in a sentence; "" for one that is no event of a chain or an object.
func (l logLine) tell() string {
	switch {
	case l.Level == "WARN" || l.Level == "ERROR":
		return strings.TrimSpace(fmt.Sprintf("%s: %s %s", strings.ToLower(l.Level), l.Message, l.Error))
	case l.Message == "chain minted":
		return "the star minted " + l.Chain
	case l.Message != auditMessage:
		return ""
	}
	slots := fmt.Sprintf("slots %d to %d", l.From, l.To-min(l.To, 1))
	switch l.Action {
	case "settled":
		return fmt.Sprintf("wrote %s: %d spans, %d bytes of %s", l.Object, l.Count, l.Bytes, l.Chain)
	case "batches-done":
		return fmt.Sprintf("rewrote %s of %s", slots, l.Chain)
	case "trimmed":
		return fmt.Sprintf("deleted %s of %s", slots, l.Chain)
	case "fenced":
		return fmt.Sprintf("fenced %s: nobody absorbs it any more", l.Chain)
	case "slots-absorbed":
		return fmt.Sprintf("absorbed %s of the dead %s", slots, l.Chain)
	case "chain-sealed":
		return fmt.Sprintf("sealed %s at slot %d: its old owner can never commit again", l.Chain, l.From)
	case "chain-retired":
		return fmt.Sprintf("retired %s: no record of it is left", l.Chain)
	case "object-reaped":
		return "deleted " + l.Object + ", which nothing named any more"
	case "intent-resolved":
		return "resolved the intent of " + l.Object
	case "announced":
		return "joined the ring"
	case "withdrawn":
		return "left the ring"
	}
	return strings.TrimSpace(l.Action + " " + l.Object + " " + l.Chain)
}
