package soak

import (
	"fmt"
	"os"
	"sync"
	"time"
)

// journal is a file with what was done and what was found wrong, each with its time in UTC, to be read next to the logs of the
// processes. A nil one writes nothing.
type journal struct {
	mu   sync.Mutex
	file *os.File
}

func newJournal(path string) (*journal, error) {
	file, err := os.Create(path)
	if err != nil {
		return nil, fmt.Errorf("the soak's journal: %w", err)
	}
	return &journal{file: file}, nil
}

func (j *journal) printf(format string, a ...any) {
	if j == nil {
		return
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	// It is for people: that it cannot be written is no reason to stop, and close tells it.
	fmt.Fprintf(j.file, "%s %s\n", time.Now().UTC().Format("2006-01-02T15:04:05.000Z"), fmt.Sprintf(format, a...))
}

func (j *journal) close() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := j.file.Close(); err != nil {
		return fmt.Errorf("the soak's journal: %w", err)
	}
	return nil
}
