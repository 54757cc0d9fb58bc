package service

import (
	"context"
	"time"
)

// ChainInfo is a chain with its cursors, each a slot: trimmed ≤ rewritten ≤ checkpoint ≤ head.
type ChainInfo struct {
	Star  string
	Epoch uint64
	// State is "open", "fencing" or "sealed".
	State string
	// Live tells that a star holds the chain.
	Live bool
	// Checkpoint is the first slot not absorbed, Rewritten the first not known to be
	// rewritten, Trimmed the first not known to be deleted.
	Checkpoint, Rewritten, Trimmed uint64
	// Head is the first slot that no flight has taken, of the chain that the answering
	// star holds; of others it is the checkpoint.
	Head uint64
	// DamagedFrom and DamagedEnd are the slots of a batch that is held back, since some of them are damaged or
	// missing; both 0 where there is none.
	DamagedFrom, DamagedEnd uint64
}

// Chains describes all chains that are not retired, by star and epoch.
func (s *Service) Chains(ctx context.Context) ([]ChainInfo, error) {
	views, err := s.cat.Chains(ctx)
	if err != nil {
		return nil, err
	}
	// Read after the chains: slots are absorbed only once a flight has taken them.
	live, next, ok := s.star.Chain()
	out := make([]ChainInfo, 0, len(views))
	for _, v := range views {
		c := ChainInfo{
			Star:       v.ID.Star,
			Epoch:      v.ID.Epoch,
			State:      v.Chain.State.String(),
			Live:       v.Live,
			Checkpoint: v.Chain.Checkpoint,
			Rewritten:  v.Trim.Rewritten,
			Trimmed:    v.Trim.Trimmed,
			Head:       v.Chain.Checkpoint,
		}
		if ok && live == v.ID {
			c.Head = max(c.Head, next)
		}
		if v.Damaged != nil {
			c.DamagedFrom, c.DamagedEnd = v.Damaged.First, v.Damaged.Batch.End
		}
		out = append(out, c)
	}
	return out, nil
}

// QueueInfo is one due queue.
type QueueInfo struct {
	Queue           string
	Standing, Ripe  int
	Age             time.Duration // of the oldest ripe marker, past its ready time
	MoreThanCounted bool          // counting stopped at a bound
}

// Due describes the eight due queues, in the order of their priority.
func (s *Service) Due(ctx context.Context) ([]QueueInfo, error) {
	views, err := s.cat.DueOverview(ctx, maxDueCounted)
	if err != nil {
		return nil, err
	}
	out := make([]QueueInfo, 0, len(views))
	for _, v := range views {
		out = append(out, QueueInfo{string(v.Queue), v.Standing, v.Ripe, v.Age, v.Capped})
	}
	return out, nil
}
