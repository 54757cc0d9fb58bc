package s3bucket

import (
	"bytes"
	"context"
	"crypto/md5"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/nova-store/nova/clock"
	"github.com/nova-store/nova/objstore"
)

const (
	// busyTries bounds how often a put is sent that the store refuses for a moment.
	busyTries = 5
	// busyPause is the first pause between two of them, up to; it doubles.
	busyPause = 10 * time.Millisecond
	// dateResolution is how old the date of an answer may be.
	dateResolution = 2 * time.Second
	// longestExpiry of a presigned request is S3's.
	longestExpiry = 7 * 24 * time.Hour
)

// errNoDeadline: a put without NotAfter, which is illegal here.
var errNoDeadline = errors.New("a put in S3 needs a NotAfter")

// Put writes an object. The package's comment says how its outcome is decided.
func (b *Bucket) Put(ctx context.Context, key string, body []byte, opt objstore.PutOptions) error {
	if err := objstore.CheckKey(key); err != nil {
		return err
	}
	if len(body) > objstore.MaxObjectBytes {
		return fmt.Errorf("s3bucket: put %q: %w: %d bytes", key, objstore.ErrTooLarge, len(body))
	}
	if opt.NotAfter.IsZero() {
		return fmt.Errorf("s3bucket: put %q: %w", key, errNoDeadline)
	}
	if err := b.put(ctx, key, body, opt); err != nil {
		return fmt.Errorf("s3bucket: put %q: %w", key, err)
	}
	return nil
}

// put sends the request until the store does more than ask to come back.
func (b *Bucket) put(ctx context.Context, key string, body []byte, opt objstore.PutOptions) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	sum := md5.Sum(body)
	digest := base64.StdEncoding.EncodeToString(sum[:])
	for try, pause := 1, busyPause; ; try, pause = try+1, 2*pause {
		req, err := b.sign(ctx, key, body, digest, opt)
		if err != nil {
			return err // nothing was sent
		}
		b.signed()
		answer, err := b.send(ctx, req, body)
		if err != nil {
			return b.decide(ctx, key, body, opt, err)
		}
		if answer == nil {
			return nil
		}
		switch judge(answer) {
		case exists:
			if try == 1 {
				return objstore.ErrExists
			}
			return b.decide(ctx, key, body, opt, answer)
		case expired:
			return fmt.Errorf("%w: %w", objstore.ErrExpired, answer)
		case refused:
			if answer.code == codeNoBucket {
				return fmt.Errorf("%w: %w", objstore.ErrNoBucket, answer)
			}
			return answer
		case unclear:
			return b.decide(ctx, key, body, opt, answer)
		}
		if try == busyTries || throttles(answer.code) {
			return fmt.Errorf("%w: %w", objstore.ErrThrottled, answer)
		}
		if err := b.clk.Sleep(ctx, clock.Jitter(b.clk, pause)); err != nil {
			return err // none of the tries had an effect
		}
	}
}

// sign makes the presigned request of a put, which the store refuses from NotAfter on.
func (b *Bucket) sign(ctx context.Context, key string, body []byte, digest string, opt objstore.PutOptions) (*v4.PresignedHTTPRequest, error) {
	// The date is signed in whole seconds, rounded down, and so is how long it is good for: never past NotAfter.
	now := b.clk.Now().Truncate(time.Second)
	lasts := min(opt.NotAfter.Sub(now), longestExpiry).Truncate(time.Second)
	if lasts < time.Second || b.clk.Now().After(opt.NotAfter) {
		return nil, objstore.ErrExpired
	}
	in := &s3.PutObjectInput{
		Bucket: aws.String(b.name), Key: b.key(key), Body: bytes.NewReader(body), ContentLength: aws.Int64(int64(len(body))),
		ContentMD5: aws.String(digest), ContentType: aws.String("application/octet-stream"),
	}
	if opt.IfAbsent {
		in.IfNoneMatch = aws.String("*")
	}
	req, err := b.presign.PresignPutObject(ctx, in, func(po *s3.PresignOptions) {
		po.Expires = lasts
		po.Presigner = signerAt{v4.NewSigner(func(so *v4.SignerOptions) { so.DisableURIPathEscaping = true }), now}
	})
	if err != nil {
		return nil, fmt.Errorf("sign: %w", err)
	}
	return req, nil
}

// signerAt signs at a time of ours: the SDK would take its own, a moment later, and the request be good for longer.
type signerAt struct {
	signer *v4.Signer
	at     time.Time
}

func (s signerAt) PresignHTTP(ctx context.Context, c aws.Credentials, r *http.Request, hash, service, region string, _ time.Time,
	opts ...func(*v4.SignerOptions)) (string, http.Header, error) {
	return s.signer.PresignHTTP(ctx, c, r, hash, service, region, s.at, opts...)
}

// send sends a signed put once. No error and no answer: it was successful. An error: nothing is known.
//
// net/http itself never sends a PUT again of which it has written anything.
func (b *Bucket) send(ctx context.Context, signed *v4.PresignedHTTPRequest, body []byte) (*apiError, error) {
	ctx, cancel := b.clk.WithTimeout(ctx, b.timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, signed.Method, signed.URL, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	for name, values := range signed.SignedHeader {
		if name != "Host" && name != "Content-Length" { // net/http's own
			req.Header[name] = values
		}
	}
	sent := b.clk.Now()
	resp, err := b.http.Do(req)
	if err != nil {
		return nil, withoutURL(err)
	}
	defer resp.Body.Close()
	b.compareClocks(sent, resp.Header.Get("Date"))
	if resp.StatusCode == http.StatusOK {
		_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, maxErrorBytes)) // so that the connection is used again
		return nil, nil
	}
	answer, err := readError(resp)
	if err != nil {
		return nil, err
	}
	return answer, nil
}

// compareClocks notes how far the store's clock is behind this node's, by the date of an answer to a request that was sent at a
// time of this node's. It warns, once each time it begins, that this is more than the graces count
// with: the store then takes puts for longer than it should.
func (b *Bucket) compareClocks(sent time.Time, date string) {
	theirs, err := http.ParseTime(date)
	if err != nil {
		return
	}
	// Not compared with the time of the answer, since a slow one is not a slow clock. The date was rounded down, and is up
	// to a second old: some servers write it down once a second.
	late := max(sent.Sub(theirs)-dateResolution, 0)
	was := time.Duration(b.late.Swap(int64(late)))
	if was <= b.skew && late > b.skew {
		b.log.Warn("the store's clock is behind this node's by more than the clock skew allows: set both right", "bucket", b.name,
			"behind", late.Round(time.Second), "max_clock_skew", b.skew)
	}
}

// ClockBehind tells how far the store's clock was behind this node's at the latest put that was answered, to within
// two seconds, and never too far. 0 where it is not behind, or no date was told.
func (b *Bucket) ClockBehind() time.Duration { return time.Duration(b.late.Load()) }

// CheckClock is an error where the store's clock was further behind at the latest put than Options.MaxClockSkew: it takes puts past
// their NotAfter, on which all graces rest. objstore.Probe asks.
func (b *Bucket) CheckClock() error {
	if late := b.ClockBehind(); late > b.skew {
		return fmt.Errorf("it is %v behind this node's, and the clock skew allows %v", late.Round(time.Second), b.skew)
	}
	return nil
}

// decide finds out what became of a put whose answer does not tell, by reading back and comparing. cause matches none
// of objstore's errors, so that what this returns matches one.
func (b *Bucket) decide(ctx context.Context, key string, body []byte, opt objstore.PutOptions, cause error) error {
	same, err := b.holds(ctx, key, body)
	switch {
	case err != nil:
		// Not wrapped: it says what the read met ("not found" where the put has not landed), and nothing of the put.
		return fmt.Errorf("%w: %w; reading back: %v", objstore.ErrUnknown, cause, err)
	case same:
		return nil
	case opt.IfAbsent:
		return fmt.Errorf("%w: %w", objstore.ErrExists, cause)
	}
	return fmt.Errorf("%w: %w; reading back: another body is there", objstore.ErrUnknown, cause)
}

// holds tells whether the object is body.
func (b *Bucket) holds(ctx context.Context, key string, body []byte) (bool, error) {
	info, err := b.Stat(ctx, key)
	if err != nil || info.Size != int64(len(body)) {
		return false, err
	}
	got, err := b.Get(ctx, key, 0, -1)
	return err == nil && bytes.Equal(got, body), err
}
