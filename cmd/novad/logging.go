package main

import (
	"context"
	"io"
	"log/slog"
	"os"
	"time"

	"golang.org/x/term"

	"github.com/nova-store/nova/auditor"
	"github.com/nova-store/nova/catalog"
)

// newLogger logs as text on a terminal and as JSON elsewhere, unless format says
// which ("text" or "json").
func newLogger(w io.Writer, format string, level slog.Level) *slog.Logger {
	opts := &slog.HandlerOptions{Level: level}
	if format == "text" || format == "auto" && isTerminal(w) {
		return slog.New(slog.NewTextHandler(w, opts))
	}
	return slog.New(slog.NewJSONHandler(w, opts))
}

func isTerminal(w any) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// auditMessage is the message of log lines that tell what the auditor did.
const auditMessage = "audit"

// auditLog logs what the auditor does: what its duties changed at info, its own
// workings at debug.
type auditLog struct{ log *slog.Logger }

// Event logs one event.
func (a auditLog) Event(e auditor.Event) {
	level := slog.LevelInfo
	switch e.Action {
	case auditor.JobDone, auditor.StepDone, auditor.LeaseSkipped, auditor.ObjectAlive:
		level = slog.LevelDebug
	}
	if !a.log.Enabled(context.Background(), level) {
		return
	}
	attrs := []slog.Attr{slog.String("action", string(e.Action))}
	text := func(key, v string) {
		if v != "" {
			attrs = append(attrs, slog.String(key, v))
		}
	}
	text("duty", e.Duty)
	text("object", e.Object)
	if e.Chain != (catalog.ChainID{}) {
		text("chain", e.Chain.String())
	}
	if e.Object == "" && e.Chain == (catalog.ChainID{}) {
		text("subject", e.Subject)
	}
	if e.From != 0 || e.To != 0 {
		attrs = append(attrs, slog.Uint64("from", e.From), slog.Uint64("to", e.To))
	}
	if e.Count != 0 {
		attrs = append(attrs, slog.Int("count", e.Count))
	}
	if e.Bytes != 0 {
		attrs = append(attrs, slog.Int64("bytes", e.Bytes))
	}
	text("step", e.Step)
	if e.Action == auditor.JobDone {
		text("outcome", e.Outcome.String())
	}
	if e.Took != 0 {
		attrs = append(attrs, slog.Duration("took", e.Took))
	}
	if e.Err != nil {
		attrs = append(attrs, slog.String("error", e.Err.Error()))
	}
	a.log.LogAttrs(context.Background(), level, auditMessage, attrs...)
}

// starEvents tells of each chain minted. What is worth a line the star logs itself.
type starEvents struct {
	log    *slog.Logger
	minted func()
}

func (e starEvents) Minted(catalog.ChainID) { e.minted() }
func (e starEvents) Branch(name string)     { e.log.Debug("rare branch", "branch", name) }

func (starEvents) Fenced(catalog.ChainID, error)                 {}
func (starEvents) Departed(catalog.ChainID, uint64, uint64, int) {}
func (starEvents) Landed(catalog.ChainID, uint64, time.Duration) {}
func (starEvents) Absorbed(catalog.ChainID, int, uint64)         {}
func (starEvents) Appended(int, int, time.Duration, error)       {}
func (starEvents) Read(int, int, time.Duration, error)           {}
