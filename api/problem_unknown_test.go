package api

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/nova-store/nova/catalog"
	"github.com/nova-store/nova/metastore"
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
	// Likewise of a change of a stream, unless the star says that nothing happened.
	for _, last := range []error{metastore.ErrUnavailable, context.DeadlineExceeded, catalog.ErrReplaced} {
		p, known := problemOf(fmt.Errorf("creating: %w (an earlier try was lost: %w)", last, metastore.ErrUnknown))
		require.True(t, known)
		require.Equal(t, ProblemOutcomeUnknown, p.Type, "%v", last)
	}
	p, _ := problemOf(fmt.Errorf("%w: nothing was appended: %w", star.ErrNotReady, metastore.ErrUnknown))
	require.Equal(t, ProblemUnavailable, p.Type)
	p, _ = problemOf(errors.Join(star.ErrProducerLost))
	require.Equal(t, ProblemProducerLost, p.Type)
}
