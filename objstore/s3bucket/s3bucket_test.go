package s3bucket

import (
	"io"
	"net/http"
	"net/url"
	"sync/atomic"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/nova-store/nova/objstore"
	"github.com/nova-store/nova/objstore/buckettest"
)

// losing is a way to the store on which the next request may get lost.
type losing struct {
	aws.HTTPClient
	armed atomic.Bool
}

func (l *losing) Do(r *http.Request) (*http.Response, error) {
	if l.armed.Swap(false) {
		return nil, &url.Error{Op: r.Method, URL: r.URL.String(), Err: io.ErrUnexpectedEOF}
	}
	return l.HTTPClient.Do(r)
}

func TestConformance(t *testing.T) {
	o := testOptions(t)
	buckettest.Run(t, buckettest.Harness{
		Open: func(t *testing.T) objstore.Bucket {
			own := o
			own.Prefix = testPrefix()
			b := openTest(t, own)
			b.http = &losing{HTTPClient: b.http} // puts alone go through it
			return b
		},
		Do:       buckettest.Do,
		Parallel: buckettest.Parallel,
		LosePut:  func(b objstore.Bucket) { b.(*Bucket).http.(*losing).armed.Store(true) },
		Horizon:  true,
	})
}
