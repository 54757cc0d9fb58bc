package etcdstore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// probeFor bounds how long a probe waits for a cluster that does not answer, for it may be starting too.
const probeFor = 20 * time.Second

// ProbeError tells why a cluster cannot be used, and what to do.
type ProbeError struct {
	Needs string
	Err   error
}

func (e *ProbeError) Error() string {
	return fmt.Sprintf("etcd cannot be used: %v (%s)", e.Err, e.Needs)
}

func (e *ProbeError) Unwrap() error { return e.Err }

// Probe finds out at start-up whether the cluster takes what Limits allow, and lets this user read and write the
// prefix: by one transaction of MaxOps conditions and MaxOps puts of MaxBytes in all, of which no condition ever
// holds, so that nothing is written. A cluster that does not answer is tried for 20 s. Without space left it is only
// warned about, since deletions may go on. Errors: [ProbeError], and the context's.
func (s *Store) Probe(ctx context.Context, log *slog.Logger) error {
	waiting, cancel := context.WithTimeout(ctx, probeFor)
	defer cancel()
	for {
		err := s.probeOnce(waiting)
		switch {
		case err == nil:
			return s.checkVersion(ctx)
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, rpctypes.ErrNoSpace):
			log.Warn("etcd has no space left: nothing can be appended; see --quota-backend-bytes, compaction and defragmentation", "error", err)
			return s.checkVersion(ctx)
		case errors.Is(err, rpctypes.ErrTooManyOps):
			return &ProbeError{fmt.Sprintf("Nova needs transactions of %d operations: start the members with --max-txn-ops=%[1]d or more", s.opts.MaxOps), err}
		case errors.Is(err, rpctypes.ErrRequestTooLarge), status.Code(err) == codes.ResourceExhausted && !errors.Is(err, rpctypes.ErrTooManyRequests):
			return &ProbeError{"Nova needs requests of 1.5 MiB: start the members with --max-request-bytes=1572864 or more", err}
		case errors.Is(err, rpctypes.ErrPermissionDenied):
			return &ProbeError{fmt.Sprintf("the user needs the permission to read and write all keys that begin with %q", s.prefix), err}
		case errors.Is(err, rpctypes.ErrUserEmpty), errors.Is(err, rpctypes.ErrAuthFailed), errors.Is(err, rpctypes.ErrInvalidAuthMgmt):
			return &ProbeError{"this cluster wants to know who asks: give a user and its password, or a certificate that it trusts", err}
		case errors.Is(err, rpctypes.ErrAuthNotEnabled):
			return &ProbeError{"a user was given and the cluster has none: enable its authentication, or give no user", err}
		case errors.Is(err, rpctypes.ErrNoLeader):
			err = &ProbeError{"no majority of the members is up", err}
		default:
			err = &ProbeError{"no member answers: see that they run, that their addresses are right, and whether they want TLS", err}
		}
		select {
		case <-waiting.Done():
			return err
		case <-time.After(retryMost):
		}
	}
}

func (s *Store) probeOnce(ctx context.Context) error {
	var compares []clientv3.Cmp
	var ops []clientv3.Op
	for i := range s.opts.MaxOps {
		key := fmt.Sprintf("%sprobe/%d", s.prefix, i)
		compares = append(compares, clientv3.Compare(clientv3.ModRevision(key), "<", 0))
		ops = append(ops, clientv3.OpPut(key, strings.Repeat("x", s.opts.MaxBytes/s.opts.MaxOps)))
	}
	_, err := s.send(ctx, compares, ops)
	return err
}

// checkVersion refuses members older than 3.5, whose leases and reads after a change of the leader were wrong. It asks those
// that answer, once: to ask again, when a session opens say, would wait for members that are down at just the moment
// at which a star that lost its session wants another, and a star that stopped for it would be no better off. docs/etcd.md says so.
func (s *Store) checkVersion(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.opts.CallTimeout)
	defer cancel()
	for _, endpoint := range s.client.Endpoints() {
		is, err := s.client.Status(ctx, endpoint)
		if err != nil {
			continue // it is down, or does not tell this user; another may
		}
		if !supported(is.Version) {
			return &ProbeError{"Nova needs 3.5 or later", fmt.Errorf("member %s runs version %s", endpoint, is.Version)}
		}
	}
	return nil
}

func supported(version string) bool {
	parts := strings.SplitN(version, ".", 3)
	if len(parts) < 2 {
		return false
	}
	major, err1 := strconv.Atoi(parts[0])
	minor, err2 := strconv.Atoi(parts[1])
	return err1 == nil && err2 == nil && (major > 3 || major == 3 && minor >= 5)
}
