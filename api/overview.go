package api

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"
)

// Chain is a chain with its cursors, all of them slots.
type Chain struct {
	Star       string `json:"star" doc:"The star that minted the chain."`
	Epoch      uint64 `json:"epoch" doc:"The star's how-manieth chain it is."`
	State      string `json:"state" enum:"open,fencing,sealed" doc:"Open while its star may append to it."`
	Live       bool   `json:"live" doc:"A star holds the chain now."`
	Checkpoint uint64 `json:"checkpoint" doc:"First slot not absorbed: records below it are visible."`
	Rewritten  uint64 `json:"rewritten" doc:"First slot not known to be rewritten into settled objects."`
	Trimmed    uint64 `json:"trimmed" doc:"First slot not known to be deleted."`
	Head       uint64 `json:"head" doc:"First slot that no flight has taken, of the answering star's chain; else the checkpoint."`

	DamagedFrom uint64 `json:"damaged_from,omitempty" doc:"First slot of a batch that is held back, since slots of it are damaged or missing."`
	DamagedEnd  uint64 `json:"damaged_end,omitempty" doc:"The slot behind that batch; absent where nothing is held back."`
}

// ChainList is the body of GET /v1/chains.
type ChainList struct {
	Chains []Chain `json:"chains"`
}

// Queue is one of the eight due queues.
type Queue struct {
	Queue    string  `json:"queue" doc:"The queue's name."`
	Standing int     `json:"standing" doc:"Markers armed."`
	Ripe     int     `json:"ripe" doc:"Of these, markers whose ready time has passed."`
	Age      float64 `json:"age_seconds" doc:"How far past its ready time the oldest ripe marker is."`
	More     bool    `json:"more,omitempty" doc:"Counting stopped at its bound: there may be more."`
}

// QueueList is the body of GET /v1/due.
type QueueList struct {
	Queues []Queue `json:"queues"`
}

func (s *server) registerOverview(h huma.API) {
	type chainsOutput struct{ Body ChainList }
	huma.Register(h, operation(h, "list-chains", http.MethodGet, "/v1/chains", "Chains and their cursors",
		"All chains that are not retired, by star and epoch: trimmed ≤ rewritten ≤ checkpoint ≤ head.", http.StatusServiceUnavailable),
		func(ctx context.Context, _ *struct{}) (*chainsOutput, error) {
			infos, err := s.svc.Chains(ctx)
			if err != nil {
				return nil, s.fail(ctx, "list-chains", err)
			}
			out := &chainsOutput{Body: ChainList{Chains: make([]Chain, 0, len(infos))}}
			for _, c := range infos {
				out.Body.Chains = append(out.Body.Chains, Chain(c))
			}
			return out, nil
		})

	type dueOutput struct{ Body QueueList }
	huma.Register(h, operation(h, "list-due", http.MethodGet, "/v1/due", "Due queues",
		"What the auditor owes, by queue. A marker that is not ripe is no backlog.", http.StatusServiceUnavailable),
		func(ctx context.Context, _ *struct{}) (*dueOutput, error) {
			infos, err := s.svc.Due(ctx)
			if err != nil {
				return nil, s.fail(ctx, "list-due", err)
			}
			out := &dueOutput{Body: QueueList{Queues: make([]Queue, 0, len(infos))}}
			for _, q := range infos {
				out.Body.Queues = append(out.Body.Queues, Queue{q.Queue, q.Standing, q.Ripe, q.Age.Seconds(), q.MoreThanCounted})
			}
			return out, nil
		})
}
