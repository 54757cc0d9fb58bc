package service

import (
	"context"
	"fmt"

	"github.com/nova-store/nova/catalog"
	"github.com/nova-store/nova/star"
)

// Member is a member of the ring with its seat.
type Member struct {
	Name string
	// Shards it walks, Stars whose chains it settles, Chains of theirs that are not retired.
	Shards []int
	Stars  []string
	Chains []string
	// Stats it published; zero where it has not yet.
	Stats catalog.NodeStats
}

// Deal tells what the ring gives a member of a sorted roster: the shards it walks, and those of the sorted stars whose chains
// it settles. It is the auditor's, which the foreground is built without.
type Deal func(member string, roster, stars []string) (shards []int, settles []string)

// Ring describes the members, by name. The seats are those that the roster read now deals: a member takes its own at its next
// pass.
func (s *Service) Ring(ctx context.Context, deal Deal) ([]Member, error) {
	roster, err := s.cat.Roster(ctx)
	if err != nil {
		return nil, err
	}
	stars, err := s.cat.Stars(ctx)
	if err != nil {
		return nil, err
	}
	chains, err := s.cat.Chains(ctx)
	if err != nil {
		return nil, err
	}
	stats, err := s.cat.Stats(ctx)
	if err != nil {
		return nil, err
	}
	said := make(map[string]catalog.NodeStats, len(stats))
	for _, st := range stats {
		said[st.Member] = st.NodeStats
	}
	of := make(map[string][]string, len(stars))
	for _, c := range chains {
		of[c.ID.Star] = append(of[c.ID.Star], c.ID.String())
	}
	out := make([]Member, 0, len(roster))
	for _, name := range roster {
		m := Member{Name: name, Stats: said[name]}
		m.Shards, m.Stars = deal(name, roster, stars)
		for _, st := range m.Stars {
			m.Chains = append(m.Chains, of[st]...)
		}
		out = append(out, m)
	}
	return out, nil
}

// Announced is what an audit-only node asks of its auditor.
type Announced interface {
	// Live tells whether the member's announcement is live.
	Live() bool
}

// AuditOnly stands for the star of a node that has none: it is ready while the auditor's announcement is live, and serves
// nothing.
func AuditOnly(a Announced) Star { return auditOnly{a} }

type auditOnly struct{ a Announced }

var errNoStar = fmt.Errorf("%w: this node audits only", star.ErrNotReady)

func (auditOnly) Append(context.Context, star.AppendRequest) (star.AppendResult, error) {
	return star.AppendResult{}, errNoStar
}

func (auditOnly) Read(context.Context, star.ReadRequest) (star.ReadResult, error) {
	return star.ReadResult{}, errNoStar
}

func (auditOnly) Follow(context.Context, catalog.StreamID) (*star.Follower, error) {
	return nil, errNoStar
}

func (auditOnly) FirstOffset(context.Context, catalog.StreamView) (uint64, error) {
	return 0, errNoStar
}

// Ready tells whether the announcement is live.
func (n auditOnly) Ready() error {
	if !n.a.Live() {
		return fmt.Errorf("%w: the auditor is not announced on the ring", star.ErrNotReady)
	}
	return nil
}

func (auditOnly) Chain() (catalog.ChainID, uint64, bool) { return catalog.ChainID{}, 0, false }
