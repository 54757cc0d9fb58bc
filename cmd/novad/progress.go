package main

import (
	"io"
	"os"
	"time"

	"github.com/schollz/progressbar/v3"
)

// progressAfter is how long something takes before it shows its progress.
const progressAfter = time.Second

// progress shows on a terminal how far something long has come. A nil one shows nothing.
type progress struct {
	w     io.Writer
	size  int64 // -1: not known
	began time.Time
	done  int64
	bar   *progressbar.ProgressBar // nil until it takes long
}

// newProgress returns the progress of what reads in, whose size is known where it is a file; nil where w is
// no terminal.
func newProgress(w, in any) *progress {
	out, ok := w.(io.Writer)
	if !ok || !isTerminal(w) || isTerminal(in) {
		return nil
	}
	p := &progress{w: out, size: -1, began: time.Now()}
	if f, ok := in.(*os.File); ok {
		if info, err := f.Stat(); err == nil && info.Mode().IsRegular() {
			p.size = info.Size()
		}
	}
	return p
}

// add tells of n more bytes.
func (p *progress) add(n int) {
	if p == nil {
		return
	}
	p.done += int64(n)
	if p.bar == nil {
		if time.Since(p.began) < progressAfter {
			return
		}
		p.bar = progressbar.NewOptions64(p.size, progressbar.OptionSetWriter(p.w), progressbar.OptionShowBytes(true),
			progressbar.OptionThrottle(100*time.Millisecond), progressbar.OptionFullWidth(), progressbar.OptionSetDescription("appended"))
	}
	// It fails only where the terminal does, which the output will show.
	_ = p.bar.Set64(p.done)
}

// clear takes the bar off the terminal.
func (p *progress) clear() {
	if p != nil && p.bar != nil {
		_ = p.bar.Clear()
	}
}
