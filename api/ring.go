package api

import (
	"context"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/nova-store/nova/api/service"
	"github.com/nova-store/nova/clock"
)

// Member is a member of the ring with its seat.
type Member struct {
	Member      string   `json:"member" doc:"Its name: a star's, or one made up for a node that audits only."`
	Shards      []int    `json:"shards" doc:"Shards of the due queues that it walks."`
	Stars       []string `json:"stars" doc:"Stars whose chains it settles."`
	Chains      []string `json:"chains" doc:"Their chains that are not retired."`
	Version     string   `json:"version,omitempty" doc:"Of its program."`
	StartedMS   int64    `json:"started_ms,omitempty" doc:"Start of its auditor, Unix milliseconds."`
	PublishedMS int64    `json:"published_ms,omitempty" doc:"When it last said how busy it is."`
	Workers     uint64   `json:"workers,omitempty" doc:"Jobs that it can run at once."`
	Utilization float64  `json:"utilization" doc:"Share of its workers' time that jobs took lately, 0 to 1."`
}

// MemberList is the body of GET /v1/ring.
type MemberList struct {
	Members []Member `json:"members"`
}

func memberOf(m service.Member) Member {
	return Member{
		Member: m.Name, Shards: append([]int{}, m.Shards...), Stars: append([]string{}, m.Stars...), Chains: append([]string{}, m.Chains...),
		Version: m.Stats.Version, StartedMS: m.Stats.Started, PublishedMS: m.Stats.Published,
		Workers: m.Stats.Workers, Utilization: float64(m.Stats.Utilization) / 1000,
	}
}

func (s *server) registerRing(h huma.API, deal service.Deal) {
	type ringOutput struct{ Body MemberList }
	huma.Register(h, operation(h, "get-ring", http.MethodGet, "/v1/ring", "Members of the ring",
		"Who audits: each member with the shards and chains that its seat gives it, and how busy it says it is. Of one that has just joined the latter is missing.",
		http.StatusServiceUnavailable),
		func(ctx context.Context, _ *struct{}) (*ringOutput, error) {
			members, err := s.svc.Ring(ctx, deal)
			if err != nil {
				return nil, s.fail(ctx, "get-ring", err)
			}
			out := &ringOutput{Body: MemberList{Members: make([]Member, 0, len(members))}}
			for _, m := range members {
				out.Body.Members = append(out.Body.Members, memberOf(m))
			}
			return out, nil
		})
}

// Ring returns the members of the ring.
func (c *Client) Ring(ctx context.Context) ([]Member, error) {
	resp, err := c.do(ctx, http.MethodGet, "/v1/ring", nil, http.Header{"Accept": {TypeJSON}})
	if err != nil {
		return nil, err
	}
	var list MemberList
	err = resp.json(&list)
	return list.Members, err
}

// drainWait is how long one request waits for the end of a drain.
const drainWait = 20 * time.Second

// Drained is the body that answers POST /v1/drain.
type Drained struct {
	Drained bool `json:"drained" doc:"It is over; else it goes on, and asking again waits for it."`
}

func (s *server) registerDrain(h huma.API, clk clock.Clock, drain func(context.Context) (bool, error)) {
	type drainOutput struct{ Body Drained }
	huma.Register(h, operation(h, "drain", http.MethodPost, "/v1/drain", "Drain this node",
		"It takes no more appends, absorbs and answers what it has, hands its chain over, and leaves the ring. The answer comes when that is done, or after 20 s: ask again then."),
		func(ctx context.Context, _ *struct{}) (*drainOutput, error) {
			waiting, cancel := clk.WithTimeout(ctx, drainWait)
			defer cancel()
			done, err := drain(waiting)
			if err != nil {
				return nil, s.fail(ctx, "drain", err)
			}
			return &drainOutput{Body: Drained{Drained: done}}, nil
		})
}

// Drain begins to drain the node, and waits for the end for a while.
func (c *Client) Drain(ctx context.Context) (d Drained, err error) {
	resp, err := c.do(ctx, http.MethodPost, "/v1/drain", nil, http.Header{"Accept": {TypeJSON}})
	if err != nil {
		return Drained{}, err
	}
	err = resp.json(&d)
	return d, err
}
