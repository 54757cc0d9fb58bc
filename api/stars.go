package api

import (
	"context"
	"net/http"
	"net/url"

	"github.com/danielgtaylor/huma/v2"
)

// Decommissioned is the body that answers POST /v1/stars/{star}/decommission.
type Decommissioned struct {
	Star    string `json:"star" doc:"The star that is retired now."`
	Already bool   `json:"already" doc:"It had been retired before."`
}

func (s *server) registerStars(h huma.API) {
	type starInput struct {
		Star string `path:"star" doc:"The star's name."`
	}
	type starOutput struct{ Body Decommissioned }
	huma.Register(h, operation(h, "decommission-star", http.MethodPost, "/v1/stars/{star}/decommission", "Retire a star for good",
		"The star must be stopped. Its name can never be used again. Its records stay: the auditor settles what its chains hold, then deletes whatever else is left of it.",
		http.StatusBadRequest, http.StatusNotFound, http.StatusConflict, http.StatusUnprocessableEntity, http.StatusServiceUnavailable),
		func(ctx context.Context, in *starInput) (*starOutput, error) {
			already, err := s.svc.Decommission(ctx, in.Star)
			if err != nil {
				return nil, s.fail(ctx, "decommission-star", err)
			}
			return &starOutput{Body: Decommissioned{Star: in.Star, Already: already}}, nil
		})
}

// Decommission retires a star that is stopped, for good.
func (c *Client) Decommission(ctx context.Context, star string) (d Decommissioned, err error) {
	resp, err := c.do(ctx, http.MethodPost, "/v1/stars/"+url.PathEscape(star)+"/decommission", nil, http.Header{"Accept": {TypeJSON}})
	if err != nil {
		return Decommissioned{}, err
	}
	err = resp.json(&d)
	return d, err
}
