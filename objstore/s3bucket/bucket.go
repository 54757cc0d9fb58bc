// Package s3bucket keeps a bucket's objects in S3, or in a store that speaks its protocol:
// the object slot/a/1/0 is the key PREFIX/slot/a/1/0 of a bucket.
//
// # Puts
//
// A put is one presigned PUT request, never a multipart upload, whose abandoned parts nothing would name. Its
// X-Amz-Expires is the put's NotAfter, so that the store itself refuses what a process sends that was stopped
// between signing and sending; a later try of the caller is signed anew, but with the
// same end. If-None-Match: * and the MD5 sum of the body are among the signed headers: no proxy can
// drop the condition, and whoever replays the request can write nothing else.
//
// A store judges the expiry when a request begins. A body that began in time may end later, by
// [Options.UploadTimeout], after which a put gives its request up, and by the time for which the
// store, or a proxy before it, suffers a connection on which nothing comes (this process may be
// stopped in the middle of a body). Both together are what catalog.Timing calls LongestUpload, and counts.
//
// What was answered is judged by the error's code and never by the status. A refusal is definite. After
// anything else (a lost connection, a 5xx, a time-out) the object is read back and compared, byte by byte: the body
// put is a success, another one is ErrExists, and what that leaves open is ErrUnknown. Reading never tells that a
// put has no effect: it may have it until its NotAfter.
//
// # Reads
//
// A large object is read in ranges, several abreast, all of the object that the first of them met (If-Match),
// so that a read next to an overwrite gives one of the two bodies. Stat is a read of one byte: unlike HEAD it tells a missing key from a missing bucket.
package s3bucket

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/ratelimit"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/nova-store/nova/clock"
	"github.com/nova-store/nova/objstore"
)

const (
	// DefaultUploadTimeout is how long a request may take, the largest body's included: 64 MiB at 27 Mbit/s.
	DefaultUploadTimeout = 20 * time.Second
	// DefaultConnections to the store, at most.
	DefaultConnections = 128
	// defaultRegion is signed for where an endpoint is given and no region: most stores but Amazon's have this one.
	defaultRegion = "us-east-1"
	// maxPrefix leaves room for the longest key in the 1024 bytes of S3's keys.
	maxPrefix = 400
)

// Options of Open. Bucket alone is required.
type Options struct {
	// Bucket is the bucket's name.
	Bucket string
	// Prefix is what the keys of all objects begin with, without the "/" at its end. Empty: none.
	Prefix string
	// Endpoint is the store's URL. Empty: as the SDK finds it, which ends at Amazon's.
	Endpoint string
	// Region is the bucket's. Empty: as the SDK finds it, or us-east-1 where there is an endpoint.
	Region string
	// PathStyle asks for http://HOST/BUCKET/KEY instead of http://BUCKET.HOST/KEY.
	PathStyle bool
	// UploadTimeout bounds each request. 0: DefaultUploadTimeout.
	UploadTimeout time.Duration
	// Connections bounds how many are open at once. 0: DefaultConnections.
	Connections int
	// MaxClockSkew is how far the store's clock may be behind this node's: it is by the store's clock that a put expires.
	// More is refused by CheckClock, at the start, and is worth a warning later. Answers tell it in whole seconds, and two more are let pass.
	MaxClockSkew time.Duration
	// Clock is the time that NotAfter is of. Nil: the real one.
	Clock clock.Clock
	// Logger gets the few things worth a line. Nil: none.
	Logger *slog.Logger
}

// Bucket is an objstore.Bucket in S3. All methods are safe for concurrent use.
//
// Put horizon > 0: every put needs a NotAfter.
type Bucket struct {
	name    string
	prefix  string // "" or with a "/" at its end
	timeout time.Duration
	skew    time.Duration
	late    atomic.Int64 // how far the store's clock was behind when last seen, a time.Duration
	clk     clock.Clock
	log     *slog.Logger
	client  *s3.Client
	presign *s3.PresignClient
	http    aws.HTTPClient
	release func() // gives the connections back

	// signed runs between the signing of a put and its sending; tests stop the process there.
	signed func()
}

var _ objstore.Bucket = (*Bucket)(nil)

// bucketSyntax is what S3 and the stores like it allow.
var bucketSyntax = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)

// Scheme begins the address of a bucket.
const Scheme = "s3://"

// ParseURL takes s3://BUCKET/PREFIX apart, the prefix without slashes at its end.
func ParseURL(text string) (bucket, prefix string, err error) {
	rest, ok := strings.CutPrefix(text, Scheme)
	if !ok {
		return "", "", fmt.Errorf("%q does not begin with %s", text, Scheme)
	}
	bucket, prefix, _ = strings.Cut(rest, "/")
	prefix = strings.TrimRight(prefix, "/")
	return bucket, prefix, checkNames(bucket, prefix)
}

func checkNames(bucket, prefix string) error {
	switch {
	case bucket == "":
		return errors.New("the bucket's name is missing: s3://BUCKET/PREFIX")
	case !bucketSyntax.MatchString(bucket):
		return fmt.Errorf("%q is no bucket's name: 1 to 63 letters, digits and \"._-\"", bucket)
	case len(prefix) > maxPrefix:
		return fmt.Errorf("the prefix has %d bytes, and %d at most are allowed", len(prefix), maxPrefix)
	}
	if prefix == "" {
		return nil
	}
	if err := objstore.CheckKey(prefix); err != nil {
		return fmt.Errorf("the prefix: %w", err)
	}
	return nil
}

// ValidEndpoint tells whether an endpoint is empty, which means Amazon's, or a URL that holds no credentials.
func ValidEndpoint(endpoint string) bool {
	if endpoint == "" {
		return true
	}
	u, err := url.Parse(endpoint)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "" && u.User == nil
}

// Open makes a bucket that is ready to use. It finds region and credentials as the SDK does, and
// fails where there are none; it asks the store nothing: objstore.Probe does.
func Open(ctx context.Context, o Options) (*Bucket, error) {
	b, err := open(ctx, o)
	if err != nil {
		return nil, fmt.Errorf("open bucket s3://%s: %w", o.Bucket, err)
	}
	return b, nil
}

func open(ctx context.Context, o Options) (*Bucket, error) {
	if err := checkNames(o.Bucket, o.Prefix); err != nil {
		return nil, err
	}
	if o.UploadTimeout == 0 {
		o.UploadTimeout = DefaultUploadTimeout
	}
	if o.Connections == 0 {
		o.Connections = DefaultConnections
	}
	if o.UploadTimeout < 0 || o.Connections < 0 {
		return nil, errors.New("the upload timeout and the connections must be above 0")
	}
	if o.Clock == nil {
		o.Clock = clock.NewReal()
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if !ValidEndpoint(o.Endpoint) {
		return nil, errors.New("the endpoint is no URL like https://HOST:PORT")
	}
	var transport *http.Transport
	base := awshttp.NewBuildableClient().WithDialerOptions(func(d *net.Dialer) {
		d.Timeout = 5 * time.Second
	}).WithTransportOptions(func(t *http.Transport) {
		t.MaxIdleConns, t.MaxIdleConnsPerHost, t.MaxConnsPerHost = o.Connections, o.Connections, o.Connections
		t.IdleConnTimeout = 30 * time.Second
		// One connection a request: what a lost one carried is then known.
		t.ForceAttemptHTTP2 = false
		transport = t
	})
	cfg, err := config.LoadDefaultConfig(ctx, config.WithHTTPClient(base), config.WithRetryer(newRetryer))
	if err != nil {
		return nil, err
	}
	if o.Region != "" {
		cfg.Region = o.Region
	}
	if cfg.Region == "" {
		if o.Endpoint == "" {
			return nil, errors.New("no region is known: give one, or set AWS_REGION")
		}
		cfg.Region = defaultRegion
	}
	// The configuration's own client, since it may have been given other authorities (AWS_CA_BUNDLE).
	if c, ok := cfg.HTTPClient.(*awshttp.BuildableClient); ok {
		c = c.WithTransportOptions(func(t *http.Transport) { transport = t })
		cfg.HTTPClient = c.Freeze()
	}
	if _, err := cfg.Credentials.Retrieve(ctx); err != nil {
		return nil, fmt.Errorf("no credentials are known: %w", err)
	}
	client := s3.NewFromConfig(cfg, func(so *s3.Options) {
		if o.Endpoint != "" {
			so.BaseEndpoint = aws.String(o.Endpoint)
		}
		so.UsePathStyle = o.PathStyle
		// The format has its own checksums, and puts a Content-MD5. A delete of many keys is the one request that S3 wants a checksum
		// of, and the SDK sends CRC32: a store that knows MD5 alone refuses it, and so is refused by the probe.
		so.RequestChecksumCalculation = aws.RequestChecksumCalculationWhenRequired
		so.ResponseChecksumValidation = aws.ResponseChecksumValidationWhenRequired
	})
	b := &Bucket{
		name: o.Bucket, timeout: o.UploadTimeout, skew: o.MaxClockSkew, clk: o.Clock, log: o.Logger,
		client: client, presign: s3.NewPresignClient(client), http: cfg.HTTPClient,
		release: transport.CloseIdleConnections, signed: func() {},
	}
	if o.Prefix != "" {
		b.prefix = o.Prefix + "/"
	}
	return b, nil
}

// newRetryer is for reads, deletes and listings. A put is one attempt.
func newRetryer() aws.Retryer {
	return retry.NewStandard(func(o *retry.StandardOptions) {
		o.MaxBackoff = time.Second
		o.RateLimiter = ratelimit.None // its callers pace themselves
	})
}

// Close gives the connections back that are not in use.
func (b *Bucket) Close() error {
	b.release()
	return nil
}

// key is the name that an object has in the store.
func (b *Bucket) key(key string) *string { return aws.String(b.prefix + key) }
