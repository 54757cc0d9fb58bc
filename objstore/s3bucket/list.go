package s3bucket

import (
	"context"
	"fmt"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/nova-store/nova/objstore"
)

// maxListKeys is S3's limit of one page.
const maxListKeys = 1000

// List returns objects in key order. What is no legal key is passed over.
func (b *Bucket) List(ctx context.Context, prefix, after string, limit int) ([]objstore.Info, error) {
	if limit <= 0 || !begins(prefix) {
		return nil, nil
	}
	found, err := b.list(ctx, prefix, after, limit)
	if err != nil {
		return nil, fmt.Errorf("s3bucket: list %q: %w", prefix, err)
	}
	return found, nil
}

// begins tells whether a legal key may begin with prefix. A store of files and folders may take one
// like "a/../b" for a path.
func begins(prefix string) bool {
	return objstore.CheckKey(prefix) == nil || objstore.CheckKey(prefix+"x") == nil
}

func (b *Bucket) list(ctx context.Context, prefix, after string, limit int) ([]objstore.Info, error) {
	var found []objstore.Info
	for {
		in := &s3.ListObjectsV2Input{
			Bucket: aws.String(b.name), Prefix: b.key(prefix), MaxKeys: aws.Int32(int32(min(limit-len(found), maxListKeys))),
		}
		if after != "" {
			in.StartAfter = b.key(after)
		}
		asking, cancel := b.clk.WithTimeout(ctx, b.timeout)
		out, err := b.client.ListObjectsV2(asking, in)
		cancel()
		if err != nil {
			return nil, readErrorOf(err)
		}
		for _, o := range out.Contents {
			key := strings.TrimPrefix(aws.ToString(o.Key), b.prefix)
			if key > after && objstore.CheckKey(key) == nil && len(found) < limit {
				found = append(found, objstore.Info{Key: key, Size: aws.ToInt64(o.Size)})
			}
		}
		if len(found) == limit || !aws.ToBool(out.IsTruncated) || len(out.Contents) == 0 {
			return found, nil
		}
		// The next page by its first key and not by a token: one that a store gives may be good for a while only.
		after = strings.TrimPrefix(aws.ToString(out.Contents[len(out.Contents)-1].Key), b.prefix)
	}
}
