package star

import (
	"context"
	"errors"
	"time"
)

// errSlotDamaged: the auditor cannot settle a slot of the chain.
var errSlotDamaged = errors.New("a slot of the chain is damaged or missing")

// guardEvery is how often a chain that owes something is looked at, at most.
const guardEvery = 10 * time.Second

// guard gives the chain up once the auditor has flagged a batch of it as damaged, so that one bounded chain is held back
// and not a growing one: no slot behind the damage is deleted before somebody has seen to it. The next mint goes on with
// another chain, and the settle duty seals this one as it does any that was abandoned.
//
// It reads one marker, the chain's lowest, and only while the chain may owe something: a chain that was seen
// without any marker costs nothing until more is absorbed. A crash loses nothing: the next process mints anyway.
func (s *Star) guard(ctx context.Context, e *epoch) {
	var gen, clean uint64
	every := max(guardEvery, s.cat.Timing().SettleRecheck)
	for {
		if e.grew.Wait(ctx, gen) != nil {
			return
		}
		gen = e.grew.Generation()
		for owes := true; owes; {
			if s.clk.Sleep(ctx, every) != nil {
				return
			}
			s.mu.Lock()
			absorbed := e.absorbed
			s.mu.Unlock()
			if absorbed == clean {
				break
			}
			damaged, standing, err := s.cat.FirstDamaged(ctx, e.chain)
			switch {
			case err != nil:
				if ctx.Err() != nil {
					return
				}
				s.log.Warn("batch markers not looked at", "chain", e.chain.String(), "error", err)
			case damaged != nil:
				s.events.Branch("star.slot.damaged")
				s.log.Warn("a slot is damaged or missing: the chain is given up, and another one minted",
					"chain", e.chain.String(), "first_slot", damaged.First, "end_slot", damaged.Batch.End)
				s.fence(e, errSlotDamaged)
				return
			case !standing:
				clean, owes = absorbed, false
			}
		}
	}
}
