package etcdstore

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/nova-store/nova/metastore"
)

// refusals are answers to a transaction that was not proposed, or whose application every
// member refuses alike: nothing happened. Whatever is not listed may have happened.
//
// Not among them is rpctypes.ErrNoSpace: a member answers with it before it proposes anything, and where the alarm stands,
// but also after it has applied a transaction that was let in before the quota ran out. The word is the same.
var refusals = []error{
	// The member has no leader and says so before it looks at the request. The same word never comes
	// after a proposal.
	rpctypes.ErrNoLeader,
	// Too much is proposed and not yet applied.
	rpctypes.ErrTooManyRequests,
	// Who asks is not known, or may not. Somebody changes users while Nova runs: it may be well again soon.
	rpctypes.ErrUserEmpty, rpctypes.ErrUserNotFound, rpctypes.ErrAuthFailed, rpctypes.ErrPermissionDenied,
	rpctypes.ErrInvalidAuthToken, rpctypes.ErrAuthOldRevision,
	// The member is still joining, or of another age.
	rpctypes.ErrGRPCNotCapable, rpctypes.ErrGRPCNotSupportedForLearner,
}

func isAny(err error, list []error) bool {
	return slices.ContainsFunc(list, func(e error) bool { return errors.Is(err, e) })
}

// staleToken tells that the client's token has expired. The client has asked for another by then.
func staleToken(err error) bool {
	return errors.Is(err, rpctypes.ErrInvalidAuthToken) || errors.Is(err, rpctypes.ErrAuthOldRevision) || errors.Is(err, rpctypes.ErrUserEmpty)
}

// commitError says what the error of a transaction means. ctx is the caller's.
func commitError(ctx context.Context, err error) error {
	switch {
	case errors.Is(err, rpctypes.ErrLeaseNotFound):
		return fmt.Errorf("%w: %w", metastore.ErrSessionGone, err)
	case errors.Is(err, rpctypes.ErrRequestTooLarge), errors.Is(err, rpctypes.ErrTooManyOps):
		return fmt.Errorf("%w: etcd allows less than was found at the start: %w", metastore.ErrTooLarge, err)
	case errors.Is(err, rpctypes.ErrDuplicateKey):
		return fmt.Errorf("%w: %w", metastore.ErrDuplicateKey, err)
	case isAny(err, refusals):
		return fmt.Errorf("%w: %w", metastore.ErrUnavailable, err)
	case ctx.Err() != nil:
		return fmt.Errorf("%w: %w (%v)", metastore.ErrUnknown, ctx.Err(), err)
	}
	return fmt.Errorf("%w: %v", metastore.ErrUnknown, err)
}

// readError says what the error of a read, or of a call about a session, means. ctx is the caller's. The
// deadline of a single try must not look like the caller's.
func readError(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, metastore.ErrSessionGone):
		return err
	}
	return fmt.Errorf("%w: %v", metastore.ErrUnavailable, err)
}

// hopeless tells that the next try of a read would be answered alike.
func hopeless(err error) bool {
	return errors.Is(err, metastore.ErrSessionGone) || errors.Is(err, rpctypes.ErrPermissionDenied) ||
		errors.Is(err, rpctypes.ErrAuthFailed) || errors.Is(err, rpctypes.ErrCompacted)
}
