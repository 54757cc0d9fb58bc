// Command novad is Nova's server and its command line.
//
// Exit statuses: 0 it worked; 1 it failed (what was asked could not be done, or only in
// part); 2 it was used wrongly, or was refused at start-up (a bad flag or configuration, an unsafe
// timing, a data directory of another format version or held by another process, an
// address in use).
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"runtime/debug"
	"strings"
	"syscall"
	"unicode/utf8"

	"github.com/alecthomas/kong"
)

// Exit statuses.
const (
	exitFailure = 1
	exitUsage   = 2
)

// usageError is wrong usage, or a refusal at start-up: exit status 2.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }

func (e *usageError) Unwrap() error { return e.err }

func usagef(format string, a ...any) error { return &usageError{fmt.Errorf(format, a...)} }

// cli is the command line.
type cli struct {
	Serve        serveCmd        `cmd:"" default:"withargs" help:"Run a node. This is what novad does without a command."`
	Config       configCmd       `cmd:"" help:"Show what serve would run with, and where each value comes from."`
	Stream       streamCmd       `cmd:"" help:"Create, list, describe, change, trim and delete streams."`
	Append       appendCmd       `cmd:"" help:"Append lines to a stream, a record a line."`
	Read         readCmd         `cmd:"" help:"Read records of a stream."`
	Pending      pendingCmd      `cmd:"" help:"Show what the auditor has still to do about a stream."`
	Chains       chainsCmd       `cmd:"" help:"Show the chains and their cursors."`
	Due          dueCmd          `cmd:"" help:"Show the due queues: what the auditor owes."`
	Ring         ringCmd         `cmd:"" help:"Show the members of the ring: their seats and how busy they are."`
	Ready        readyCmd        `cmd:"" help:"Ask a node whether it serves."`
	Drain        drainCmd        `cmd:"" help:"Finish a node's work and take it off the ring."`
	Decommission decommissionCmd `cmd:"" help:"Retire a star that is stopped, for good."`
	Verify       verifyCmd       `cmd:"" help:"Read and check everything: records, objects, references, markers."`
	Backup       backupCmd       `cmd:"" help:"Back up the metadata of a running server."`
	Restore      restoreCmd      `cmd:"" help:"Restore metadata from a backup, before a node is started on it."`
	Demo         demoCmd         `cmd:"" help:"See it work: append a log, kill the node, start it again, watch the chain move, compare."`
	Soak         soakCmd         `cmd:"" help:"Let everything go wrong for a while, and find out whether anything was lost."`
	Bench        benchCmd        `cmd:"" help:"Measure this machine and Nova on it, as ratios."`

	Version kong.VersionFlag `help:"Print the version." env:"-"`
}

// process is what a command gets of the process that it runs in.
type process struct {
	ctx    context.Context
	stdin  io.Reader
	stdout io.Writer
	stderr io.Writer
}

const description = `Nova is a durable stream store.

Every flag of serve has an environment variable (NOVA_ and its name) and a key in the
file given by --config; a flag beats the environment, which beats the file.

Exit statuses: 0 it worked; 1 it failed; 2 wrong usage, or refused at start-up.`

func main() { os.Exit(run(os.Args[1:])) }

// run runs one command and returns the exit status.
func run(args []string) int {
	var c cli
	parser, err := kong.New(&c,
		kong.Name("novad"),
		kong.Description(description),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, FlagsLast: true}),
		kong.DefaultEnvars("NOVA"),
		kong.Resolvers(&configFile{}),
		serveDefaults(),
		kong.Vars{"version": version()},
	)
	if err != nil {
		fmt.Fprintf(os.Stderr, "novad: %v\n", err)
		return exitFailure
	}
	// kong would put U+FFFD where an argument is not UTF-8: another stream or file than was meant.
	for _, arg := range args {
		if !utf8.ValidString(arg) {
			fmt.Fprintf(os.Stderr, "novad: argument %q is not UTF-8\n", arg)
			return exitUsage
		}
	}
	kctx, err := parser.Parse(joinNegative(args))
	if err != nil {
		if config := (*configError)(nil); errors.As(err, &config) {
			err = config
		}
		fmt.Fprintf(os.Stderr, "novad: %s (see novad --help)\n", oneLine(err))
		return exitUsage
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err = kctx.Run(&process{ctx: ctx, stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr})
	var usage *usageError
	var ended *exitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &ended):
		return ended.status
	case errors.As(err, &usage):
		fmt.Fprintf(os.Stderr, "novad: %s\n", oneLine(err))
		return exitUsage
	case errors.Is(err, context.Canceled) && ctx.Err() != nil:
		fmt.Fprintf(os.Stderr, "novad: interrupted\n")
		return exitFailure
	}
	fmt.Fprintf(os.Stderr, "novad: %s\n", oneLine(err))
	return exitFailure
}

// oneLine keeps an error, which may be joined of several, on one line.
func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }

var negative = regexp.MustCompile(`^-[0-9]+$`)

// joinNegative makes one argument of --from and a negative number, which would
// be taken for a flag.
func joinNegative(args []string) []string {
	out := make([]string, 0, len(args))
	for i := 0; i < len(args); i++ {
		if args[i] == "--" {
			return append(out, args[i:]...)
		}
		if args[i] == "--from" && i+1 < len(args) && negative.MatchString(args[i+1]) {
			out = append(out, args[i]+"="+args[i+1])
			i++
			continue
		}
		out = append(out, args[i])
	}
	return out
}

// version is the module's version as built.
func version() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
		return info.Main.Version
	}
	return "devel"
}
