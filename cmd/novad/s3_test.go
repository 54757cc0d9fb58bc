package main

import (
	"context"
	"fmt"
	"maps"
	"net/http/httptest"
	"os"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
	"github.com/rogpeppe/go-internal/testscript"
	"github.com/stretchr/testify/require"
)

const (
	// serverVariable is the endpoint of a store that testdata/scripts/s3server.sh started.
	serverVariable = "NOVA_TEST_S3"
	// bucketVariable, set to s3, has the nodes of all scripts keep their objects in that store. Scripts say by [dir] and
	// [s3] what holds for one of the two alone.
	bucketVariable = "NOVA_TEST_BUCKET"
)

// cmdS3: s3 makes a bucket and sets $NOVA_BUCKET, $NOVA_S3_ENDPOINT, $NOVA_S3_PATH_STYLE and the credentials. The server is
// the one that NOVA_TEST_S3 names, else one in memory.
func cmdS3(ts *testscript.TestScript, _ bool, _ []string) {
	endpoint := os.Getenv(serverVariable)
	if endpoint == "" {
		srv := httptest.NewServer(gofakes3.New(s3mem.New(), gofakes3.WithLogger(gofakes3.DiscardLog())).Server())
		ts.Defer(srv.Close)
		endpoint = srv.URL
	}
	ts.Check(setS3(ts.Setenv, endpoint, false))
}

// setS3 makes a bucket and sets what a node needs to use it, with timing too that is short and legal there.
func setS3(setenv func(key, value string), endpoint string, timing bool) error {
	if endpoint == "" {
		return fmt.Errorf("%s must name the endpoint of a store", serverVariable)
	}
	name := fmt.Sprintf("nova-script-%d", time.Now().UnixNano())
	env := map[string]string{
		"AWS_ACCESS_KEY_ID": "nova", "AWS_SECRET_ACCESS_KEY": "nova-secret", "AWS_REGION": "us-east-1",
		"NOVA_BUCKET": "s3://" + name + "/prefix", "NOVA_S3_ENDPOINT": endpoint, "NOVA_S3_PATH_STYLE": "true",
	}
	if timing {
		maps.Copy(env, map[string]string{
			"NOVA_SESSION_TTL": "2s", "NOVA_MAX_CLOCK_SKEW": "0s", "NOVA_S3_UPLOAD_TIMEOUT": "2s", "NOVA_S3_IDLE_TIMEOUT": "500ms", "NOVA_PUT_HORIZON": "5s",
			"NOVA_REAP_GRACE": "7100ms", "NOVA_TRIM_GRACE": "7100ms", "NOVA_RETIRE_GRACE": "7100ms",
		})
	}
	for key, value := range env {
		setenv(key, value)
	}
	cfg, err := config.LoadDefaultConfig(context.Background(), config.WithRegion("us-east-1"),
		config.WithCredentialsProvider(aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: "nova", SecretAccessKey: "nova-secret"}, nil
		})))
	if err != nil {
		return err
	}
	client := s3.NewFromConfig(cfg, func(o *s3.Options) { o.BaseEndpoint, o.UsePathStyle = aws.String(endpoint), true })
	_, err = client.CreateBucket(context.Background(), &s3.CreateBucketInput{Bucket: aws.String(name)})
	return err
}

// What is shown of an endpoint holds no password.
func TestEndpointIsShownWithoutAPassword(t *testing.T) {
	require.Equal(t, "https://user:xxxxx@host", endpointURL("https://user:secret@host").String())
	require.Equal(t, "https://host:1", endpointURL("https://host:1").String())
	require.NotContains(t, endpointURL("https://user:secret@ho st").String(), "secret")
}
