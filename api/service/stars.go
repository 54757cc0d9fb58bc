package service

import (
	"context"
	"fmt"

	"github.com/nova-store/nova/catalog"
)

// Decommission retires a star that is stopped, for good. already tells that it was retired before. Its errors
// are [ErrBadRequest] for what can be no star's name, and those of the catalog's transition.
func (s *Service) Decommission(ctx context.Context, star string) (already bool, err error) {
	if err := catalog.CheckNodeName(star); err != nil {
		// Not an illegal stream name.
		return false, fmt.Errorf("%w: star: %v", ErrBadRequest, err)
	}
	return s.cat.Decommission(ctx, star)
}
