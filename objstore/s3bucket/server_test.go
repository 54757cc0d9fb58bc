package s3bucket

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
	"github.com/stretchr/testify/require"

	"github.com/nova-store/nova/objstore"
)

// serverVariable is the endpoint of a store that testdata/scripts/s3server.sh started. Without it the
// tests use one in memory, which checks no signature.
const serverVariable = "NOVA_TEST_S3"

var prefixes atomic.Uint64

// testPrefix is one that nobody else uses.
func testPrefix() string {
	return fmt.Sprintf("%d-%d/%d", os.Getpid(), time.Now().UnixNano(), prefixes.Add(1))
}

// testOptions are those of a bucket of the test's own, on the server that the tests run against.
func testOptions(t *testing.T) Options {
	t.Helper()
	endpoint := os.Getenv(serverVariable)
	if endpoint == "" {
		endpoint = memoryServer(t, nil)
	}
	return optionsAt(t, endpoint)
}

// optionsAt are those of a bucket of the test's own at an endpoint, which is made where it is missing.
func optionsAt(t *testing.T, endpoint string) Options {
	t.Helper()
	t.Setenv("AWS_ACCESS_KEY_ID", "nova")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "nova-secret")
	o := Options{
		Bucket: "nova-test", Prefix: testPrefix(),
		Endpoint: endpoint, PathStyle: true,
	}
	b, err := Open(t.Context(), o)
	require.NoError(t, err)
	_, err = b.client.CreateBucket(t.Context(), &s3.CreateBucketInput{Bucket: aws.String(o.Bucket)})
	if code := codeOf(err); code != "BucketAlreadyOwnedByYou" && code != "BucketAlreadyExists" {
		require.NoError(t, err)
	}
	require.NoError(t, b.Close())
	return o
}

func openTest(t *testing.T, o Options) *Bucket {
	t.Helper()
	b, err := Open(t.Context(), o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	return b
}

// memoryServer starts a store in this process, which refuses presigned requests that come late. Every request
// passes through around, if there is one.
func memoryServer(t *testing.T, around func(next http.Handler) http.Handler) (endpoint string) {
	t.Helper()
	h := refuseLate(gofakes3.New(s3mem.New(), gofakes3.WithLogger(gofakes3.DiscardLog())).Server())
	if around != nil {
		h = around(h)
	}
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	return srv.URL
}

// refuseLate judges the expiry of presigned requests, as S3 does.
func refuseLate(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		if lasts := q.Get("X-Amz-Expires"); lasts != "" {
			at, err1 := time.Parse("20060102T150405Z", q.Get("X-Amz-Date"))
			seconds, err2 := strconv.Atoi(lasts)
			if err1 != nil || err2 != nil || time.Now().After(at.Add(time.Duration(seconds)*time.Second)) {
				answer(w, http.StatusForbidden, codeDenied, "Request has expired")
				return
			}
		}
		next.ServeHTTP(w, r)
	})
}

// answer is an error in S3's own words.
func answer(w http.ResponseWriter, status int, code, message string) {
	w.WriteHeader(status)
	fmt.Fprintf(w, "<?xml version=\"1.0\"?><Error><Code>%s</Code><Message>%s</Message></Error>", code, message)
}

// inTime is the options of a put that is in good time.
func inTime(ifAbsent bool) objstore.PutOptions {
	return objstore.PutOptions{IfAbsent: ifAbsent, NotAfter: time.Now().Add(time.Minute)}
}

// isPut tells whether a request is a put of an object and not the making of a bucket.
func isPut(r *http.Request) bool {
	return r.Method == http.MethodPut && strings.Count(strings.Trim(r.URL.Path, "/"), "/") > 0
}
