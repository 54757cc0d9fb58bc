package main

import (
	"context"
	"log/slog"
	"net/url"
	"time"

	"github.com/nova-store/nova/objstore/s3bucket"
)

// s3Flags are the flags that say how to reach a bucket in S3. Credentials are found as the AWS SDK does.
type s3Flags struct {
	S3Endpoint      endpointURL   `name:"s3-endpoint" env:"NOVA_S3_ENDPOINT" help:"URL of the S3 store, else Amazon's." placeholder:"URL"`
	S3Region        string        `name:"s3-region" env:"NOVA_S3_REGION" help:"Region of the bucket, else as the AWS SDK finds it." placeholder:"NAME"`
	S3PathStyle     bool          `name:"s3-path-style" env:"NOVA_S3_PATH_STYLE" help:"Ask for URL/BUCKET/KEY, and not for BUCKET.HOST/KEY."`
	S3UploadTimeout time.Duration `name:"s3-upload-timeout" env:"NOVA_S3_UPLOAD_TIMEOUT" help:"How long one request to the S3 store may take before it is given up." default:"${s3_upload_timeout}"`
	S3IdleTimeout   time.Duration `name:"s3-idle-timeout" env:"NOVA_S3_IDLE_TIMEOUT" help:"How long the store, or a proxy before it, keeps an upload of which nothing comes. The put horizon rests on it." default:"20s"`
	S3Connections   int           `name:"s3-connections" env:"NOVA_S3_CONNECTIONS" help:"Connections to the S3 store, at most." default:"${s3_connections}"`
}

// endpointURL is shown without a password, which does not belong there, and is refused.
type endpointURL string

func (e endpointURL) String() string {
	u, err := url.Parse(string(e))
	if err != nil {
		return "(not a URL)"
	}
	return u.Redacted()
}

// given: something that has no default was.
func (f *s3Flags) given() bool { return f.S3Endpoint != "" || f.S3Region != "" || f.S3PathStyle }

// s3Config is how to open a bucket in S3.
type s3Config struct {
	options s3bucket.Options
	// longestUpload is how long after it began a request may still take effect.
	longestUpload time.Duration
}

// config takes the flags and the address s3://BUCKET/PREFIX. Every error is a refusal at start-up.
func (f *s3Flags) config(address string) (*s3Config, error) {
	bucket, prefix, err := s3bucket.ParseURL(address)
	switch {
	case err != nil:
		return nil, usagef("--bucket=%s: %w", address, err)
	case !s3bucket.ValidEndpoint(string(f.S3Endpoint)):
		return nil, usagef("--s3-endpoint=%v: it must be a URL like https://HOST:PORT, without a user or a password in it", f.S3Endpoint)
	case f.S3UploadTimeout <= 0 || f.S3IdleTimeout <= 0:
		return nil, usagef("--s3-upload-timeout and --s3-idle-timeout must be above 0")
	case f.S3Connections < 1:
		return nil, usagef("--s3-connections=%d: it must be 1 at least", f.S3Connections)
	}
	return &s3Config{
		options: s3bucket.Options{
			Bucket: bucket, Prefix: prefix, Endpoint: string(f.S3Endpoint), Region: f.S3Region, PathStyle: f.S3PathStyle,
			UploadTimeout: f.S3UploadTimeout, Connections: f.S3Connections,
		},
		longestUpload: f.S3UploadTimeout + f.S3IdleTimeout,
	}, nil
}

func (c *s3Config) open(ctx context.Context, skew time.Duration, log *slog.Logger) (*s3bucket.Bucket, error) {
	o := c.options
	o.MaxClockSkew, o.Logger = skew, log
	return s3bucket.Open(ctx, o)
}
