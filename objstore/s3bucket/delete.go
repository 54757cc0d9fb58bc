package s3bucket

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/nova-store/nova/objstore"
)

// errNoAnswer: the store's answer to a delete of many keys leaves one out.
var errNoAnswer = errors.New("the store gave no answer for this key")

// Delete removes objects in one request, and reads the answer of each key.
func (b *Bucket) Delete(ctx context.Context, keys []string) []error {
	errs := make([]error, len(keys))
	if len(keys) > objstore.MaxDeleteKeys {
		for i := range errs {
			errs[i] = fmt.Errorf("s3bucket: delete of %d keys: at most %d at a time", len(keys), objstore.MaxDeleteKeys)
		}
		return errs
	}
	legal := make([]string, 0, len(keys))
	for i, key := range keys {
		if errs[i] = objstore.CheckKey(key); errs[i] == nil {
			legal = append(legal, key)
		}
	}
	slices.Sort(legal)
	legal = slices.Compact(legal)
	if len(legal) == 0 {
		return errs
	}
	result := b.delete(ctx, legal)
	for i, key := range keys {
		if errs[i] != nil {
			continue
		}
		if err := result(key); err != nil {
			errs[i] = fmt.Errorf("s3bucket: delete %q: %w", key, err)
		}
	}
	return errs
}

// delete removes the objects of distinct legal keys and returns what became of each.
func (b *Bucket) delete(ctx context.Context, keys []string) func(key string) error {
	all := func(err error) func(string) error { return func(string) error { return err } }
	if err := ctx.Err(); err != nil {
		return all(err)
	}
	in := &s3.DeleteObjectsInput{Bucket: aws.String(b.name), Delete: &types.Delete{Quiet: aws.Bool(false)}}
	for _, key := range keys {
		in.Delete.Objects = append(in.Delete.Objects, types.ObjectIdentifier{Key: b.key(key)})
	}
	asking, cancel := b.clk.WithTimeout(ctx, b.timeout)
	defer cancel()
	out, err := b.client.DeleteObjects(asking, in)
	if err != nil {
		return all(deleteErrorOf(err))
	}
	answers := make(map[string]error, len(keys))
	for _, d := range out.Deleted {
		answers[strings.TrimPrefix(aws.ToString(d.Key), b.prefix)] = nil
	}
	for _, e := range out.Errors {
		answers[strings.TrimPrefix(aws.ToString(e.Key), b.prefix)] = keyError(aws.ToString(e.Code), aws.ToString(e.Message))
	}
	return func(key string) error {
		err, answered := answers[key]
		if !answered {
			return fmt.Errorf("%w: %w", objstore.ErrUnknown, errNoAnswer)
		}
		return err
	}
}

// keyError is what a store answered for one key of a delete.
func keyError(code, message string) error {
	err := fmt.Errorf("%s: %s", code, message)
	switch {
	case code == codeNoKey:
		return nil // gone is what was asked for
	case throttles(code):
		return fmt.Errorf("%w: %w", objstore.ErrThrottled, err)
	case code == codeInternal, code == codeUnavailable, code == codeTimeout:
		return fmt.Errorf("%w: %w", objstore.ErrUnknown, err)
	}
	return err
}

// deleteErrorOf makes the error of a whole delete typed: without a refusal in S3's own words it may
// have had its effect, on some keys or on all.
func deleteErrorOf(err error) error {
	code := codeOf(err)
	if throttles(code) {
		return fmt.Errorf("%w: %w", objstore.ErrThrottled, err)
	}
	var resp *awshttp.ResponseError
	if errors.As(err, &resp) && code != codeTimeout && resp.HTTPStatusCode() >= 400 && resp.HTTPStatusCode() < 500 {
		return err
	}
	return fmt.Errorf("%w: %w", objstore.ErrUnknown, err)
}
