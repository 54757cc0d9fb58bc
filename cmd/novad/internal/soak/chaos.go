package soak

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

// chaos does what the schedule says, until ctx ends. What is away then comes back by itself.
func (s *soak) chaos(ctx context.Context) {
	began := time.Now()
	var fills sync.WaitGroup
	for _, f := range schedule(s.o.Seed, s.o.Form, s.o.Duration, SessionTTL) {
		sleep(ctx, f.At-time.Since(began))
		if ctx.Err() != nil {
			break
		}
		if f.Kind == faultFill && s.o.Disk != "" {
			fills.Go(func() { s.fillDisk(ctx, f) }) // it has ended before the next one begins
			continue
		}
		if !s.do(f) {
			s.mu.Lock()
			s.skipped++
			s.mu.Unlock()
		}
	}
	<-ctx.Done()
	fills.Wait()
}

// do has a fault done to the one that is picked, or to another where one waits there already; false: to none.
func (s *soak) do(f fault) bool {
	var may []*machine
	for _, m := range s.world.machines() {
		if m.role == f.Role || f.Role == "" && (m.role == roleStar || m.role == roleAuditor) {
			may = append(may, m)
		}
	}
	for i := range may {
		if may[(f.Pick+uint64(i))%uint64(len(may))].offer(f) {
			return true
		}
	}
	return false
}

// fillDisk lets a file take the space of the disk but for a part of the reserve, for a while.
func (s *soak) fillDisk(ctx context.Context, f fault) {
	ballast := filepath.Join(s.o.Disk, "ballast")
	free, err := freeSpace(s.o.Disk)
	if take := free - int64(f.Left*Reserve); err == nil && take > 0 {
		if err = allocate(ballast, take); err == nil {
			s.mu.Lock()
			s.fills++
			s.mu.Unlock()
			s.world.journal.printf("fill the disk but for %d bytes for %v", int64(f.Left*Reserve), f.For.Round(time.Millisecond))
			sleep(ctx, f.For)
			s.world.journal.printf("empty the disk again")
		}
		err = errors.Join(err, os.Remove(ballast))
	}
	if err != nil {
		s.surprise("filling the disk: %v", err)
	}
}

func freeSpace(dir string) (int64, error) {
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil {
		return 0, fmt.Errorf("the free space of %s: %w", dir, err)
	}
	return int64(st.Bavail) * st.Bsize, nil
}

func allocate(path string, size int64) error {
	file, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("the ballast: %w", err)
	}
	// What somebody else took meanwhile is not missed: then the disk is fuller than was meant.
	if err := syscall.Fallocate(int(file.Fd()), 0, 0, size); err != nil && !errors.Is(err, syscall.ENOSPC) {
		return errors.Join(fmt.Errorf("the ballast: %w", err), file.Close())
	}
	return file.Close()
}
