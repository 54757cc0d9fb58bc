// Package objstore defines the bucket that holds Nova's records, as small as star
// and auditor need it.
//
// Implementations: dirbucket (a local directory, the default), s3bucket (S3 and what
// speaks its protocol) and the simulator's. The contract below is what buckettest checks on every one of them.
package objstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

var (
	// ErrExists: a put if-absent found an object of that key. On a retry it may be
	// one's own first try: read it back and compare.
	ErrExists = errors.New("objstore: object exists")
	// ErrNotFound: no object of that key.
	ErrNotFound = errors.New("objstore: object not found")
	// ErrUnknown: the call had its effect, or not; a put may still have it until its NotAfter.
	ErrUnknown = errors.New("objstore: outcome unknown")
	// ErrThrottled: refused for now, without an effect; try again later.
	ErrThrottled = errors.New("objstore: throttled")
	// ErrUnavailable: a read or a listing that the store did not answer, or for a fault of its own could not; try again later.
	ErrUnavailable = errors.New("objstore: unavailable")
	// ErrExpired: the put's NotAfter had passed; it has no effect.
	ErrExpired = errors.New("objstore: past the put's deadline")
	// ErrBadKey: the key is not a legal one; no effect.
	ErrBadKey = errors.New("objstore: illegal key")
	// ErrNoBucket: there is no bucket of that name; no effect.
	ErrNoBucket = errors.New("objstore: no such bucket")
	// ErrTooLarge: the body exceeds MaxObjectBytes; no effect.
	ErrTooLarge = errors.New("objstore: object too large")
)

// MaxObjectBytes is the largest object: always one PUT, never a multipart upload,
// whose abandoned parts nothing would name. 64 MiB of records and room for the
// framing around them.
const MaxObjectBytes = 72 << 20

// MaxDeleteKeys bounds one Delete (S3's limit).
const MaxDeleteKeys = 1000

// PutOptions of one Put.
type PutOptions struct {
	// IfAbsent makes the put fail with ErrExists where there is an object.
	IfAbsent bool
	// NotAfter is the time past which the put must not have its effect, enforced
	// by the bucket, not by the caller's good will. A bucket that looks at the time when a request begins
	// may let it go on past it, by a bound that it documents (catalog.Timing's LongestUpload). Zero: no such time, legal only on
	// a bucket whose Put never returns with its effect still open (put horizon 0).
	NotAfter time.Time
}

// Info describes an object.
type Info struct {
	Key  string
	Size int64
}

// Bucket stores immutable objects. An object is visible whole or not at all, and
// to every reader from the moment its put is answered.
type Bucket interface {
	// Put writes an object, durably before it returns nil. The body belongs to the
	// bucket from the call on: nobody may change it again.
	//
	// An error matches one of this package's at most, since callers decide by it: what a bucket met when it read back
	// what became of a put is told in the text alone. Only a context's errors may be wrapped besides.
	Put(ctx context.Context, key string, body []byte, opt PutOptions) error

	// Get reads n bytes from offset off ≥ 0; n < 0 reads to the end. A range that
	// begins within the object and reaches past its end is cut short at the end; one that begins
	// at or past the end gives no bytes and no error. The bytes must not be modified.
	Get(ctx context.Context, key string, off, n int64) ([]byte, error)

	// Stat returns an object's size.
	Stat(ctx context.Context, key string) (Info, error)

	// Delete removes objects, up to MaxDeleteKeys, and returns one error for each key, in order: nil
	// means that the object is gone, durably, or never was. Only the auditor
	// deletes.
	Delete(ctx context.Context, keys []string) []error

	// List returns up to limit objects whose keys begin with prefix and are
	// greater than after, in key order. Used by the decommission sweep and by an
	// operator's report alone.
	List(ctx context.Context, prefix, after string, limit int) ([]Info, error)
}

// MaxSegmentBytes is the longest segment of a key: the longest file name of the file
// systems in use.
const MaxSegmentBytes = 255

// CheckKey refuses keys that no implementation has to store: a key is 1 to 512
// bytes of letters, digits and "._-~/", its segments are neither empty nor longer than
// 255 bytes nor "." nor "..".
func CheckKey(key string) error {
	if key == "" || len(key) > 512 {
		return fmt.Errorf("%w: %q must have 1 to 512 bytes", ErrBadKey, key)
	}
	for i := 0; i < len(key); i++ {
		c := key[i]
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9':
		case c == '.' || c == '_' || c == '-' || c == '~' || c == '/':
		default:
			return fmt.Errorf("%w: %q holds the byte %q", ErrBadKey, key, c)
		}
	}
	for seg := range strings.SplitSeq(key, "/") {
		if seg == "" || len(seg) > MaxSegmentBytes || seg == "." || seg == ".." {
			return fmt.Errorf("%w: %q has a segment %q", ErrBadKey, key, seg)
		}
	}
	return nil
}
