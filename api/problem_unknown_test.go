package api

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/nova-store/nova/catalog"
	"github.com/nova-store/nova/star"
)

// A refusal of a retried append is no answer for the try before it: the client is
// told that the outcome is unknown, whatever the last try met.
func TestOutcomeUnknownComesFirst(t *testing.T) {
	for _, refusal := range []error{
		catalog.ErrNoStream, &star.ProducerGapError{}, &star.WrongOffsetError{}, star.ErrProducerFenced, star.ErrShuttingDown,
	} {
		p, known := problemOf(fmt.Errorf("%w: an earlier try may be absorbed later; now: %w", star.ErrOutcomeUnknown, refusal))
		require.True(t, known)
		require.Equal(t, ProblemOutcomeUnknown, p.Type, "%v", refusal)
	}
	p, _ := problemOf(errors.Join(star.ErrProducerLost))
	require.Equal(t, ProblemProducerLost, p.Type)
}
