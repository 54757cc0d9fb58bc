package star

import (
	"time"

	"github.com/nova-store/nova/catalog"
)

// Events is told what a star does, for metrics, for the simulator's coverage marks
// and for tests. Its methods may be called by several tasks at once, and must
// neither wait nor call the star.
type Events interface {
	// Minted: the star opened a new chain.
	Minted(chain catalog.ChainID)
	// Fenced: the star abandoned its chain, for that reason.
	Fenced(chain catalog.ChainID, reason error)
	// Departed: the PUT of a slot is about to begin. first is the first slot not
	// known durable.
	Departed(chain catalog.ChainID, slot, first uint64, bytes int)
	// Landed: a slot is known durable, after so long.
	Landed(chain catalog.ChainID, slot uint64, took time.Duration)
	// Absorbed: so many slots were absorbed by one commit; the checkpoint is now
	// behind them.
	Absorbed(chain catalog.ChainID, slots int, checkpoint uint64)
	// Appended: an append was answered.
	Appended(records, bytes int, took time.Duration, err error)
	// Read: a read was answered.
	Read(records, bytes int, took time.Duration, err error)
	// Branch: a rare branch of that name was taken.
	Branch(name string)
}

// noEvents is the listener of a star that has none.
type noEvents struct{}

func (noEvents) Minted(catalog.ChainID)                        {}
func (noEvents) Fenced(catalog.ChainID, error)                 {}
func (noEvents) Departed(catalog.ChainID, uint64, uint64, int) {}
func (noEvents) Landed(catalog.ChainID, uint64, time.Duration) {}
func (noEvents) Absorbed(catalog.ChainID, int, uint64)         {}
func (noEvents) Appended(int, int, time.Duration, error)       {}
func (noEvents) Read(int, int, time.Duration, error)           {}
func (noEvents) Branch(string)                                 {}
