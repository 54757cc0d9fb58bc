package main

import (
	"io"
	"os"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// progress shows on a terminal how far a sweep has come; elsewhere it shows nothing.
type progress struct{ bar *progressbar.ProgressBar }

// newProgress returns the progress of n runs, shown on w if that is a terminal.
func newProgress(w io.Writer, n int, what string) progress {
	f, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return progress{}
	}
	return progress{progressbar.NewOptions(n, progressbar.OptionSetWriter(f), progressbar.OptionSetDescription(what), progressbar.OptionShowCount(),
		progressbar.OptionThrottle(100*time.Millisecond), progressbar.OptionClearOnFinish(), progressbar.OptionSetPredictTime(true))}
}

// The bar fails only where the terminal does, which the output will show.

// add tells that n more are done. It may be called by several goroutines.
func (p progress) add(n int) {
	if p.bar != nil {
		_ = p.bar.Add(n)
	}
}

// clear takes the bar off the terminal.
func (p progress) clear() {
	if p.bar != nil {
		_ = p.bar.Clear()
	}
}
