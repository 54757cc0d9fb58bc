package mutant

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Builder builds novasim of the tree at Root, whose files stay as they are, into directories below Work.
type Builder struct{ Root, Work string }

// Build builds novasim with the mutant, or, if that is nil, as it is, and returns the program's
// path. The patch is applied to copies, which the go command is given instead of the
// files. A patch that does not apply, changes nothing, or does not compile is an error.
func (b *Builder) Build(ctx context.Context, m *Mutant) (string, error) {
	name := "control"
	if m != nil {
		name = m.Name
	}
	dir := filepath.Join(b.Work, name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	program := filepath.Join(dir, "novasim")
	// Neither symbols nor the commit are asked for: they are a fifth of the time.
	args := []string{"build", "-buildvcs=false", "-ldflags=-s -w", "-o", program}
	if m != nil {
		overlay, err := b.overlay(ctx, dir, m)
		if err != nil {
			return "", err
		}
		args = append(args, "-overlay", overlay)
	}
	cmd := exec.CommandContext(ctx, "go", append(args, "./cmd/novasim")...)
	cmd.Dir = b.Root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if err := run(cmd); err != nil {
		return "", fmt.Errorf("it does not build: %w", err)
	}
	return program, nil
}

// overlay applies the patch to copies of its files below dir and returns the go command's overlay.
func (b *Builder) overlay(ctx context.Context, dir string, m *Mutant) (string, error) {
	tree := filepath.Join(dir, "tree")
	replace := make(map[string]string, len(m.Files))
	before := make(map[string][]byte, len(m.Files))
	for _, name := range m.Files {
		body, err := os.ReadFile(filepath.Join(b.Root, name))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
		to := filepath.Join(tree, name)
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return "", err
		}
		if err == nil {
			if err := os.WriteFile(to, body, 0o644); err != nil {
				return "", err
			}
		}
		replace[filepath.Join(b.Root, name)], before[to] = to, body
	}
	cmd := exec.CommandContext(ctx, "git", "apply", "--whitespace=nowarn", m.Path)
	cmd.Dir = tree
	// Within a repository git would take the paths for its own, and skip those outside.
	cmd.Env = append(os.Environ(), "GIT_CEILING_DIRECTORIES="+dir)
	if err := run(cmd); err != nil {
		return "", fmt.Errorf("it does not apply: %w", err)
	}
	for to, was := range before {
		if now, err := os.ReadFile(to); err != nil || bytes.Equal(now, was) {
			return "", fmt.Errorf("it does not apply: %s is as it was", strings.TrimPrefix(to, tree+"/"))
		}
	}
	file := filepath.Join(dir, "overlay.json")
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	return file, os.WriteFile(file, text, 0o644)
}

// Remove removes what was built of a mutant, or of the control.
func (b *Builder) Remove(program string) { _ = os.RemoveAll(filepath.Dir(program)) }

// run runs a command; its error says what the command has said.
func run(cmd *exec.Cmd) error {
	said, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s %s: %w: %s", filepath.Base(cmd.Path), cmd.Args[1], err, bytes.TrimSpace(said))
	}
	return nil
}
