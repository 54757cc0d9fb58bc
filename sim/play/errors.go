package play

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/nova-store/nova/catalog"
	"github.com/nova-store/nova/metastore"
	"github.com/nova-store/nova/objstore"
	"github.com/nova-store/nova/sim"
	"github.com/nova-store/nova/sim/check"
	"github.com/nova-store/nova/star"
)

// passingErrors are what any request may be answered with while a star dies or is not there yet, or while the store or the bucket
// fails: it passes, and who asks again is told more. Every other error, but for those that the caller judges, is a finding: a client would
// give up on it.
var passingErrors = []error{
	sim.ErrLost, sim.ErrDown, sim.ErrUnreachable, star.ErrNotReady, star.ErrShuttingDown, star.ErrOverloaded, catalog.ErrReplaced, catalog.ErrRetired,
	metastore.ErrUnavailable, metastore.ErrUnknown, objstore.ErrThrottled, objstore.ErrUnavailable, context.Canceled, context.DeadlineExceeded,
}

// passes tells whether an error is one of those, or of the others that the request may be answered with.
func passes(err error, others ...error) bool {
	is := func(e error) bool { return errors.Is(err, e) }
	return slices.ContainsFunc(passingErrors, is) || slices.ContainsFunc(others, is)
}

// expected judges a request's error: one that neither passes nor is one of those given is a finding.
func (g *game) expected(what, stream string, err error, others ...error) {
	if err != nil && !passes(err, others...) && g.w.Found() == nil {
		g.w.Finding(check.Lost, stream, fmt.Sprintf("%s, stream %q: an error that nothing explains: %v", what, stream, err))
	}
}

// done tells whether a request has succeeded; its error, if it has one, must be one that passes.
func (g *game) done(what, stream string, err error) bool {
	g.expected(what, stream, err)
	return err == nil
}
