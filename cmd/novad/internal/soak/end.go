package soak

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
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
		end, err := s.readStream(ctx, t, l, readPatience)
		if err != nil {
			return err
		}
		s.closed(l.close(end))
	}
	for _, tn := range s.towns {
		if n := tn.strangers(); n > 0 {
			s.surprise("appends to the name %s were acknowledged in %d streams that nobody made", tn.name, n)
		}
	}
	return nil
}

// readStream reads a stream whole, up to its end and to what was known before: what does not come within the patience is lost. What is let go while it
// is read, by a late trim or append, only moves its begin.
func (s *soak) readStream(ctx context.Context, t task, l *ledger, patience time.Duration) (*ending, error) {
	f := &follower{task: t, l: l}
	end := &ending{}
	_, known := l.bounds()
	deadline := time.Now().Add(patience)
	for anew, done := true, false; !done; {
		if time.Now().After(deadline) {
			end.next = f.next
			l.unreadable(f.next)
			return end, nil
		}
		got := false
		ok := f.page(ctx, 0, func(page service.ReadResult) {
			got = true
			if page.Next > end.next || anew {
				deadline = time.Now().Add(patience)
			}
			if anew {
				*end = ending{first: f.begin}
				anew = false
				if len(page.Records) > 0 {
					end.firstBytes = uint64(len(page.Records[0].Data))
				}
			}
			for _, r := range page.Records {
				end.bytes += uint64(len(r.Data))
			}
			end.next = page.Next
			done = page.Next >= max(page.End, known)
			if !done && page.Next >= page.End {
				sleep(ctx, callPause) // what is known comes within the patience
			}
		})
		if !ok || ctx.Err() != nil {
			return end, ctx.Err() // the ledger knows that it vanished
		}
		if !got && f.next > end.next {
			anew = true
		}
	}
	return end, nil
}

// compare has the whole store verified, now that nothing runs, and compares the bucket's files, every key and its size, with what the
// metadata records. What both find of an object is counted once.
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
	d := newDifferences()
	if err := s.bucket(rep, d); err != nil {
		return err
	}
	for _, f := range found.Findings {
		text := fmt.Sprintf("verify: %s: %s", f.Kind, f.Detail)
		switch f.Kind {
		case verify.ObjectUnrecorded, verify.SlotUnwatched, verify.RefStray:
			d.leaked[f.Key] = text
		case verify.ObjectMissing, verify.ObjectCorrupt, verify.ObjectMismatch, verify.RefMissing, verify.SpanStray:
			d.dangling[f.Key] = text
		default:
			rep.Amiss++
			s.detail(f.Key + ": " + text)
		}
	}
	rep.Amiss += found.Amiss - len(found.Findings) + found.Restless
	rep.Leaked, rep.Dangling = len(d.leaked), len(d.dangling)
	for _, key := range slices.Sorted(maps.Keys(d.leaked)) {
		s.detail("leaked: " + key + ": " + d.leaked[key])
	}
	for _, key := range slices.Sorted(maps.Keys(d.dangling)) {
		s.detail("dangling: " + key + ": " + d.dangling[key])
	}
	return nil
}

// bucket compares the bucket's files with the inventory that verify has written.
func (s *soak) bucket(rep *Report, d differences) error {
	recorded, err := readInventory(s.world.inventory)
	if err != nil {
		return err
	}
	files, err := bucketFiles(s.world.bucket)
	if err != nil {
		return err
	}
	rep.Recorded, rep.Objects = len(recorded), len(files)
	for _, size := range files {
		rep.ObjectBytes += uint64(size)
	}
	recorded.against(files, d)
	return nil
}

// detail notes what is counted elsewhere.
func (s *soak) detail(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.details) < 10*detailsMost {
		s.details = append(s.details, text)
	}
}
