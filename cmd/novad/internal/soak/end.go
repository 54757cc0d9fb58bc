package soak

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"time"

	"github.com/nova-store/nova/api/service"
	"github.com/nova-store/nova/verify"
)

// end waits until nothing is due, then reads everything and closes the ledgers.
func (s *soak) end(ctx context.Context, rep *Report) error {
	if err := poll(ctx, "waiting for the nodes", startPatience, s.world.starsReady); err != nil {
		return err
	}
	s.enter("drain")
	began := time.Now()
	err := poll(ctx, "draining", s.o.DrainFor, func(ctx context.Context) error {
		due, err := s.due(ctx)
		if err == nil && due != "" {
			err = errors.New(due)
		}
		return err
	})
	rep.DrainSeconds, rep.Drained = time.Since(began).Seconds(), err == nil
	if err != nil {
		rep.Due = err.Error()
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	s.enter("read everything")
	return s.readAll(ctx)
}

// due says what the auditors have still to do; empty: nothing. A live chain's settle marker always stands, and the slot
// behind which it goes on.
func (s *soak) due(ctx context.Context) (string, error) {
	queues, err := s.world.stars[0].Due(ctx)
	if err != nil {
		return "", err
	}
	chains, err := s.world.stars[0].Chains(ctx)
	if err != nil {
		return "", err
	}
	var left []string
	for _, q := range queues {
		if q.Standing > 0 && (q.Queue != "settle" || q.Standing > len(s.world.stars)) {
			left = append(left, fmt.Sprintf("%d of %s", q.Standing, q.Queue))
		}
	}
	for _, c := range chains {
		if !c.Live || c.Rewritten != c.Checkpoint || c.Checkpoint-c.Trimmed > 1 {
			left = append(left, fmt.Sprintf("chain %s~%d: trimmed %d, rewritten %d, checkpoint %d, live %t", c.Star, c.Epoch, c.Trimmed, c.Rewritten, c.Checkpoint, c.Live))
		}
	}
	return strings.Join(left, "; "), nil
}

// readPatience bounds how long a read may fail at the end, when nothing goes wrong any more: what comes behind it is lost.
const readPatience = 20 * time.Second

// readAll reads every stream from its begin to its end, and closes its ledger.
func (s *soak) readAll(ctx context.Context) error {
	t := s.task("end", 0)
	s.mu.Lock()
	ledgers := s.ledgers
	s.ledgers = nil
	s.mu.Unlock()
	for _, l := range ledgers {
		end, err := s.readStream(ctx, t, l)
		if err != nil {
			return err
		}
		s.closed(l.close(end))
	}
	return nil
}

func (s *soak) readStream(ctx context.Context, t task, l *ledger) (*ending, error) {
	f := &follower{task: t, l: l}
	end := &ending{}
	deadline := time.Now().Add(readPatience)
	for first, done := true, false; !done; {
		if time.Now().After(deadline) {
			end.next = f.next
			l.unreadable(f.next)
			return end, nil
		}
		ok := f.page(ctx, 0, func(page service.ReadResult) {
			deadline = time.Now().Add(readPatience)
			if first {
				end.first, first = f.begin, false
				if len(page.Records) > 0 {
					end.firstBytes = uint64(len(page.Records[0].Data))
				}
			}
			for _, r := range page.Records {
				end.bytes += uint64(len(r.Data))
			}
			end.next = page.Next
			done = page.Next >= page.End
		})
		if !ok || ctx.Err() != nil {
			return end, ctx.Err() // the ledger knows that it vanished
		}
	}
	return end, nil
}

// compare has the whole store verified, now that nothing runs, and counts the bucket's files.
func (s *soak) compare(ctx context.Context, rep *Report) error {
	out, exit, err := output(ctx, s.world.verify)
	if err != nil {
		return err
	}
	var found verify.Report
	if err := json.Unmarshal(out, &found); err != nil {
		return fmt.Errorf("novad verify ended with status %d and no report (see its log): %w", exit, err)
	}
	rep.Listed, rep.ListedBytes, rep.Verified, rep.VerifiedBytes = found.Listed, found.ListedBytes, found.Records, found.Bytes
	for _, f := range found.Findings {
		switch f.Kind {
		case verify.ObjectUnrecorded, verify.SlotUnwatched, verify.RefStray:
			rep.Leaked++
		case verify.ObjectMissing, verify.ObjectCorrupt, verify.ObjectMismatch, verify.RefMissing, verify.SpanStray:
			rep.Dangling++
		default:
			rep.Amiss++
		}
		s.detail(fmt.Sprintf("verify: %s %s: %s", f.Kind, f.Key, f.Detail))
	}
	rep.Amiss += found.Amiss - len(found.Findings) + found.Restless
	return s.count(rep)
}

// detail notes what is counted elsewhere.
func (s *soak) detail(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.details) < 10*detailsMost {
		s.details = append(s.details, text)
	}
}

// count counts the files of the bucket.
func (s *soak) count(rep *Report) error {
	return filepath.WalkDir(s.world.bucket, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return fmt.Errorf("counting the bucket: %w", err)
		}
		if d.IsDir() || path == filepath.Join(s.world.bucket, "LOCK") { // the directory form's own
			return nil
		}
		info, err := d.Info()
		if err != nil {
			return fmt.Errorf("counting the bucket: %w", err)
		}
		rep.Objects++
		rep.ObjectBytes += uint64(info.Size())
		return nil
	})
}
