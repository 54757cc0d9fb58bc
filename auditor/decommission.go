package auditor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nova-store/nova/catalog"
	"github.com/nova-store/nova/objstore"
)

// decommission ends a retired star: the half of the settle duty whose marker's subject is a star.
//
// Steps, and what a crash after each leaves: always the marker, which is all that the next run needs.
//
//  1. Read the registration. The star is not retired: the marker is nobody's, and is resolved.
//  2. Look for one chain record of the star. There is one: re-arm, backing off up to the recheck. The chains
//     end by their own settle markers.
//  3. None: note since when, and re-arm until the retire grace has passed once more.
//  4. List slot/{star}/ and bundle/{star}/, page by page: the only listing of a running system. Of each page, *after* it
//     was listed, read intents and refs; what has either is watched, and left to its watcher. Delete the rest.
//     A repeat finds gone what was deleted.
//  5. Resolve the marker, and note in the registration that the star is swept.
//
// Nothing that is deleted can be alive, or come to be named:
//
//   - The name can't mint again, and no chain record of it is left (2), so no absorb of any of its slots can ever
//     come again: absorb is conditional on the chain record, and epochs don't repeat. A slot is named by nothing but spans
//     that an absorb put; its chain was retired only after all of them had been moved.
//   - A bundle gets its refs from its slot's absorb alone, and an absorb that came before 2 put them
//     before the listing. Its intent is armed before its PUT, so one that is listed had an intent, and one that has
//     neither intent nor ref now lost the intent with its absorb, and the refs to a settle rewrite since; or to the orphan
//     duty's deletion, after which it was found here by a stale listing. A stopped process may yet arm an intent, for a bundle
//     not listed: the orphan duty's.
//
// Nothing lands after the sweep that nobody watches. A slot's PUT has its effect within TTL + horizon of a look that
// found the star alive, a seal's within horizon of its run's fence; both came before the last chain was sealed, and the
// chain's record outlived the sealing by the retire grace, which exceeds TTL + horizon + skew. Step 3 waits that long once more,
// counted by this duty's own clock, so that the argument does not rest on what another member's said when it
// sealed, and a bucket whose listings lag behind shows what landed last. A bundle's PUT that lands late has its intent.

// sweepPage bounds the objects of one listed page; they are deleted in one request.
const sweepPage = objstore.MaxDeleteKeys

func (s *settle) decommission(ctx context.Context, j *Job) (Outcome, error) {
	cat := s.a.cat
	star, err := cat.ReadStar(ctx, j.Marker.Due.Subject)
	if err != nil {
		return Standing, err
	}
	if !star.Star.Retired {
		return Resolved, cat.ResolveSweep(ctx, j.Marker, star)
	}
	left, err := cat.HasChains(ctx, star.Name)
	if err != nil {
		return Standing, err
	}
	m := catalog.DecodeSweepMarker(j.Marker.Value)
	grace := cat.Timing().RetireGrace
	now := s.a.clk.Now()
	switch {
	case left:
		m.Empty = 0
		next := min(max(2*time.Duration(m.Delay)*time.Millisecond, catalog.MinRearm), cat.Timing().SettleRecheck)
		return Waiting, cat.RearmSweep(ctx, j.Marker, m, next)
	case m.Empty == 0:
		m.Empty = now.UnixMilli()
		return Waiting, cat.RearmSweep(ctx, j.Marker, m, grace+time.Millisecond)
	case !now.After(time.UnixMilli(m.Empty).Add(grace)):
		// A clock that went back: all of it once more would never end.
		return Waiting, cat.RearmSweep(ctx, j.Marker, m, min(time.UnixMilli(m.Empty).Add(grace).Sub(now)+time.Millisecond, grace))
	}
	done := j.step("sweep")
	swept := Event{Action: StarSwept}
	for _, prefix := range catalog.StarPrefixes(star.Name) {
		if err = s.sweep(ctx, prefix, &swept); err != nil {
			break
		}
	}
	done()
	if swept.Count > 0 {
		s.a.log.Warn("objects of a retired star were left behind by delayed writes; they are deleted",
			"star", star.Name, "objects", swept.Count, "bytes", swept.Bytes)
	}
	if err != nil {
		return Standing, fmt.Errorf("sweeping star %s: %w", star.Name, err)
	}
	if err := cat.ResolveSweep(ctx, j.Marker, star); err != nil {
		return Standing, err
	}
	j.emit(swept)
	return Resolved, nil
}

// sweep deletes what is under a prefix and watched by nobody, and counts it.
func (s *settle) sweep(ctx context.Context, prefix string, swept *Event) error {
	for after := ""; ; {
		page, err := s.a.bucket.list(ctx, prefix, after, sweepPage)
		if err != nil || len(page) == 0 {
			return err
		}
		after = page[len(page)-1].Key
		keys := make([]string, len(page))
		sizes := make(map[string]int64, len(page))
		for i, o := range page {
			keys[i], sizes[o.Key] = o.Key, o.Size
		}
		if keys, err = s.a.cat.Unnamed(ctx, keys); err != nil {
			return err
		}
		if len(keys) == 0 {
			continue
		}
		var failed []error
		for i, err := range s.a.bucket.delete(ctx, keys) {
			if err != nil {
				failed = append(failed, fmt.Errorf("deleting %s: %w", keys[i], err))
				continue
			}
			swept.Count++
			swept.Bytes += sizes[keys[i]]
		}
		if len(failed) > 0 {
			return errors.Join(failed[:min(len(failed), 3)]...)
		}
	}
}
