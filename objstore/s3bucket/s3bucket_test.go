package s3bucket

import (
	"testing"

	"github.com/nova-store/nova/objstore"
	"github.com/nova-store/nova/objstore/buckettest"
)

func TestConformance(t *testing.T) {
	o := testOptions(t)
	buckettest.Run(t, buckettest.Harness{
		Open: func(t *testing.T) objstore.Bucket {
			own := o
			own.Prefix = testPrefix()
			return openTest(t, own)
		},
		Do:       buckettest.Do,
		Parallel: buckettest.Parallel,
		Horizon:  true,
	})
}
