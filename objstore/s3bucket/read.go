package s3bucket

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/nova-store/nova/objstore"
)

const (
	// partBytes is the longest range of one request.
	partBytes = 8 << 20
	// partsAbreast bounds how many ranges one read asks for at once.
	partsAbreast = 4
	// readTries bounds how often a range is asked for whose answer breaks off, and a read is begun whose object is overwritten.
	readTries = 3
)

// errChanged: the object was overwritten between two ranges of a read.
var errChanged = errors.New("the object was overwritten while it was read")

// errRangeIgnored: the store sent something else than the range that it was asked for.
var errRangeIgnored = errors.New("the store did not keep to the range that it was asked for")

// Get reads a range of an object.
func (b *Bucket) Get(ctx context.Context, key string, off, n int64) ([]byte, error) {
	if err := objstore.CheckKey(key); err != nil {
		return nil, err
	}
	if off < 0 {
		return nil, fmt.Errorf("s3bucket: get %q: negative offset %d", key, off)
	}
	body, err := b.get(ctx, key, off, n)
	if err != nil {
		return nil, fmt.Errorf("s3bucket: get %q: %w", key, err)
	}
	return body, nil
}

// Stat returns an object's size.
func (b *Bucket) Stat(ctx context.Context, key string) (objstore.Info, error) {
	if err := objstore.CheckKey(key); err != nil {
		return objstore.Info{}, err
	}
	p, err := b.part(ctx, key, 0, 1, "")
	if err != nil {
		return objstore.Info{}, fmt.Errorf("s3bucket: stat %q: %w", key, err)
	}
	return objstore.Info{Key: key, Size: p.size}, nil
}

func (b *Bucket) get(ctx context.Context, key string, off, n int64) ([]byte, error) {
	// No object is longer: a larger bound means the same, and no store has to understand it.
	if n < 0 || n > objstore.MaxObjectBytes {
		n = objstore.MaxObjectBytes
	}
	if n == 0 || off > objstore.MaxObjectBytes {
		_, err := b.part(ctx, key, 0, 1, "")
		return nil, err
	}
	for try := 1; ; try++ {
		body, err := b.read(ctx, key, off, n)
		if !errors.Is(err, errChanged) || try == readTries {
			return body, err
		}
	}
}

// read asks for the first part, which tells what there is, and then for the others, several abreast.
func (b *Bucket) read(ctx context.Context, key string, off, n int64) ([]byte, error) {
	first, err := b.part(ctx, key, off, min(n, partBytes), "")
	if err != nil {
		return nil, err
	}
	n = min(n, max(first.size-off, 0))
	if int64(len(first.body)) == n {
		return first.body, nil
	}
	body := make([]byte, n)
	done := copy(body, first.body)
	var ranges []int64
	for at := int64(done); at < n; at += partBytes {
		ranges = append(ranges, at)
	}
	errs := make([]error, min(len(ranges), partsAbreast))
	var all sync.WaitGroup
	for w := range errs {
		all.Go(func() {
			for i := w; i < len(ranges) && errs[w] == nil; i += len(errs) {
				at := ranges[i]
				p, err := b.part(ctx, key, off+at, min(n-at, partBytes), first.etag)
				if err == nil && (p.size != first.size || p.etag != first.etag) {
					err = errChanged
				}
				errs[w] = err
				copy(body[at:], p.body)
			}
		})
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return body, nil
}

// part is the answer to a request of a range.
type part struct {
	body []byte
	size int64 // of the whole object
	etag string
}

// part asks for n > 0 bytes from off on. Where etag is not empty, of that object alone.
func (b *Bucket) part(ctx context.Context, key string, off, n int64, etag string) (part, error) {
	for try := 1; ; try++ {
		p, err := b.partOnce(ctx, key, off, n, etag)
		if !errors.Is(err, errBrokenOff) || try == readTries || ctx.Err() != nil {
			return p, err
		}
	}
}

// errBrokenOff: the body of an answer did not come whole. Before it, the SDK has its own tries.
var errBrokenOff = fmt.Errorf("%w: the answer broke off", objstore.ErrUnavailable)

func (b *Bucket) partOnce(ctx context.Context, key string, off, n int64, etag string) (part, error) {
	asking, cancel := b.clk.WithTimeout(ctx, b.timeout)
	defer cancel()
	in := &s3.GetObjectInput{Bucket: aws.String(b.name), Key: b.key(key), Range: aws.String(fmt.Sprintf("bytes=%d-%d", off, off+n-1))}
	if etag != "" {
		in.IfMatch = aws.String(etag)
	}
	out, err := b.client.GetObject(asking, in)
	switch {
	case codeOf(err) == codeRange && off == 0:
		return part{}, nil // not even its first byte is there
	case codeOf(err) == codeRange:
		// At or past its end, wherever that is.
		p, err := b.part(ctx, key, 0, 1, etag)
		p.body = nil
		return p, err
	case codeOf(err) == codePrecondition && etag != "":
		return part{}, errChanged
	case err != nil:
		return part{}, readErrorOf(err)
	}
	defer out.Body.Close()
	p := part{etag: aws.ToString(out.ETag)}
	if p.size, err = wholeSize(out, off); err != nil {
		return part{}, err
	}
	p.body = make([]byte, max(min(n, p.size-off), 0))
	if _, err := io.ReadFull(out.Body, p.body); err != nil {
		return part{}, fmt.Errorf("%w: %w", errBrokenOff, err)
	}
	// The end of the body, so that the connection is used again.
	if more, err := io.Copy(io.Discard, io.LimitReader(out.Body, 1)); err == nil && more > 0 {
		return part{}, errRangeIgnored
	}
	return p, nil
}

// wholeSize is the size of the object of which a range from off on was sent.
func wholeSize(out *s3.GetObjectOutput, off int64) (int64, error) {
	if out.ContentRange == nil {
		if off == 0 && aws.ToInt64(out.ContentLength) == 0 {
			return 0, nil // some stores answer so for an empty object
		}
		return 0, errRangeIgnored
	}
	span, size, ok := strings.Cut(strings.TrimPrefix(*out.ContentRange, "bytes "), "/")
	first, _, ok2 := strings.Cut(span, "-")
	begin, err := strconv.ParseInt(first, 10, 64)
	whole, err2 := strconv.ParseInt(size, 10, 64)
	if !ok || !ok2 || err != nil || err2 != nil || begin != off || whole <= off {
		return 0, fmt.Errorf("%w: asked from %d on, got %q", errRangeIgnored, off, *out.ContentRange)
	}
	return whole, nil
}
