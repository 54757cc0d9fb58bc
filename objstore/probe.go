package objstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/nova-store/nova/clock"
)

const (
	// probeTries bounds how often a probe that met a surprise is tried.
	probeTries = 10
	// probeFor bounds how long a probe waits for a store that does not answer, for it may be starting too.
	probeFor = 20 * time.Second
	// probePutTime is what each put of a probe is given, so that it is legal on a
	// bucket that demands a NotAfter.
	probePutTime = time.Minute
	// The pause after the first surprise is up to 100 ms; it doubles up to 1 s.
	probeFirstPause = 100 * time.Millisecond
	probeLastPause  = time.Second
)

// ProbeError tells why a bucket cannot be used.
type ProbeError struct {
	// Step is what was tried, as "ranged read".
	Step string
	// Needs is the permission or feature that the bucket lacks.
	Needs string
	// Err is what happened instead.
	Err error
}

func (e *ProbeError) Error() string {
	return fmt.Sprintf("the bucket cannot be used: %s: %v (Nova needs %s)", e.Step, e.Err, e.Needs)
}

func (e *ProbeError) Unwrap() error { return e.Err }

// probeError is what a step that failed lacks: needs, unless the error itself says what.
func probeError(step, needs string, err error) *ProbeError {
	switch {
	case errors.Is(err, ErrNoBucket):
		needs = needsBucket
	case errors.Is(err, ErrExpired):
		needs = needsClock // what was to be good for a minute
	case errors.Is(err, ErrThrottled):
		needs = needsPace
	case unanswered(err):
		needs = needsAnswer
	}
	return &ProbeError{step, needs, err}
}

// unanswered tells whether a store did not answer, or not now: which says nothing of what it can do.
func unanswered(err error) bool {
	return errors.Is(err, ErrUnknown) || errors.Is(err, ErrUnavailable) || errors.Is(err, ErrThrottled)
}

// clocked is a bucket by whose own clock puts expire. CheckClock is an error where that was too far behind
// when the bucket last told it, so that puts were taken past their NotAfter.
type clocked interface{ CheckClock() error }

// Probe finds out at start-up whether a bucket does what Nova needs of it, under the
// scratch key probe/{name}: a put overwrites what an earlier probe left, a put if-absent
// refuses a second writer and accepts a first one, reads and ranged reads give the bytes that
// were put, a delete removes them, and the store's clock, where puts expire by it, is not behind. It leaves no object; a crash leaves one at
// most, of a few bytes, which the next probe of that name overwrites.
//
// A surprise may be the work of another process that starts under the same name, or
// of a bad connection, so it is tried ten times with random pauses, some seconds
// in all. A store that does not answer may be starting, too: that is no surprise, and is waited for, for 20 s, each try
// with a Warn. What is still wrong then is a *ProbeError. A context that ends gives its
// error, a name that makes no key ErrBadKey.
//
// Besides the auditor, this is the only caller of Bucket.Delete: what it deletes is its own and nothing else's.
func Probe(ctx context.Context, clk clock.Clock, b Bucket, name string, log *slog.Logger) error {
	key := "probe/" + name
	if err := CheckKey(key); err != nil {
		return fmt.Errorf("probe the bucket: %w", err)
	}
	until := clk.Now().Add(probeFor)
	surprises := 0
	for pause := probeFirstPause; ; pause = min(2*pause, probeLastPause) {
		err := probeOnce(ctx, clk, b, key)
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return fmt.Errorf("probe the bucket: %w", ctx.Err())
		case unanswered(err):
			if !clk.Now().Before(until) {
				return err
			}
			log.Warn("the bucket has no answer, trying again", "error", err)
		default:
			if surprises++; surprises == probeTries {
				return err
			}
		}
		if err := clk.Sleep(ctx, time.Duration(clk.Rand()%uint64(pause))); err != nil {
			return fmt.Errorf("probe the bucket: %w", err)
		}
	}
}

const (
	needsWrite       = "permission to write objects (on S3: s3:PutObject)"
	needsRead        = "permission to read objects (on S3: s3:GetObject)"
	needsStat        = "permission to read objects and their size (on S3: s3:GetObject)"
	needsDelete      = "permission to delete objects (on S3: s3:DeleteObject)"
	needsConditional = "conditional writes that refuse a second writer of a key (on S3: If-None-Match: *)"
	needsRanges      = "reads of byte ranges (on S3: the Range header)"
	needsAbsence     = "a missing object to be told from one that may not be read (on S3: s3:ListBucket)"
	needsConsistency = "a read to see the last write or delete that was answered"
	needsBucket      = "the bucket to be there: create it, or see to its name, its region and the endpoint"
	needsAnswer      = "the store to answer: see that it runs, that its address is right, and whether it wants TLS"
	needsPace        = "the store to take requests at its usual rate: it asks to come back later"
	needsClock       = "clocks that agree: it is by the store's that a put expires. Set both right, by NTP"
)

var (
	errNotRefused = errors.New("a second writer was not refused")
	errOtherBytes = errors.New("other bytes than those put were read")
	errStillThere = errors.New("the object is still there after its delete")
)

// probeOnce is one pass. Each body is random, so that another process's is
// recognised.
func probeOnce(ctx context.Context, clk clock.Clock, b Bucket, key string) error {
	body := func() []byte { return fmt.Appendf(nil, "nova probe %016x\n", clk.Rand()) }
	put := func(body []byte, ifAbsent bool) error {
		return b.Put(ctx, key, body, PutOptions{IfAbsent: ifAbsent, NotAfter: clk.Now().Add(probePutTime)})
	}

	over := body()
	err := put(over, false)
	if c, ok := b.(clocked); ok {
		// Before the put's own error, which may be a store's that takes the request for one of the future.
		if late := c.CheckClock(); late != nil {
			return probeError("clock of the store", needsClock, late)
		}
	}
	if err != nil {
		return probeError("put", needsWrite, err)
	}
	if err := probeSecondWriter(put(body(), true)); err != nil {
		return err
	}
	if err := probeReads(ctx, b, key, over); err != nil {
		return err
	}
	if err := probeDelete(ctx, b, key); err != nil {
		return err
	}
	first := body()
	if err := put(first, true); err != nil {
		return probeError("put if-absent", needsConditional, err)
	}
	if err := probeSecondWriter(put(body(), true)); err != nil {
		return err
	}
	if err := probeReads(ctx, b, key, first); err != nil {
		return err
	}
	return probeDelete(ctx, b, key)
}

// probeSecondWriter judges the answer to a put if-absent of a key that has an object.
func probeSecondWriter(err error) error {
	switch {
	case errors.Is(err, ErrExists):
		return nil
	case err == nil:
		err = errNotRefused
	}
	return probeError("put if-absent over an object", needsConditional, err)
}

// probeReads checks that the object is body.
func probeReads(ctx context.Context, b Bucket, key string, body []byte) error {
	got, err := b.Get(ctx, key, 0, -1)
	if err != nil {
		return probeError("read", needsRead, err)
	}
	if !bytes.Equal(got, body) {
		return probeError("read", needsConsistency, errOtherBytes)
	}
	const off, n = 11, 5
	part, err := b.Get(ctx, key, off, n)
	if err != nil {
		return probeError("ranged read", needsRanges, err)
	}
	if !bytes.Equal(part, body[off:off+n]) {
		return probeError("ranged read", needsRanges, errOtherBytes)
	}
	info, err := b.Stat(ctx, key)
	if err == nil && info.Size != int64(len(body)) {
		err = fmt.Errorf("an object of %d bytes is said to have %d", len(body), info.Size)
	}
	if err != nil {
		return probeError("stat", needsStat, err)
	}
	return nil
}

// probeDelete removes the object and checks that it is gone.
func probeDelete(ctx context.Context, b Bucket, key string) error {
	errs := b.Delete(ctx, []string{key})
	if len(errs) != 1 {
		return probeError("delete", needsDelete, fmt.Errorf("%d answers to one key", len(errs)))
	}
	if errs[0] != nil {
		return probeError("delete", needsDelete, errs[0])
	}
	_, err := b.Get(ctx, key, 0, -1)
	switch {
	case errors.Is(err, ErrNotFound):
		return nil
	case err == nil:
		return probeError("read after the delete", needsConsistency, errStillThere)
	}
	return probeError("read after the delete", needsAbsence, err)
}
