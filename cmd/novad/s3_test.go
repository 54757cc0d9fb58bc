package main

import (
	"context"
	"fmt"
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

// cmdS3: s3 makes a bucket and sets $NOVA_BUCKET, $NOVA_S3_ENDPOINT, $NOVA_S3_PATH_STYLE and the credentials. The server is
// the one that NOVA_TEST_S3 names (testdata/scripts/s3server.sh starts one), else one in memory.
func cmdS3(ts *testscript.TestScript, _ bool, _ []string) {
	endpoint := os.Getenv("NOVA_TEST_S3")
	if endpoint == "" {
		srv := httptest.NewServer(gofakes3.New(s3mem.New(), gofakes3.WithLogger(gofakes3.DiscardLog())).Server())
		ts.Defer(srv.Close)
		endpoint = srv.URL
	}
	name := fmt.Sprintf("nova-script-%d", time.Now().UnixNano())
	for key, value := range map[string]string{
		"AWS_ACCESS_KEY_ID": "nova", "AWS_SECRET_ACCESS_KEY": "nova-secret", "AWS_REGION": "us-east-1",
		"NOVA_BUCKET": "s3://" + name + "/prefix", "NOVA_S3_ENDPOINT": endpoint, "NOVA_S3_PATH_STYLE": "true",
	} {
		ts.Setenv(key, value)
	}
	cfg, err := config.LoadDefaultConfig(context.Background(), config.WithRegion("us-east-1"),
		config.WithCredentialsProvider(aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: "nova", SecretAccessKey: "nova-secret"}, nil
		})))
	ts.Check(err)
	client := s3.NewFromConfig(cfg, func(o *s3.Options) { o.BaseEndpoint, o.UsePathStyle = aws.String(endpoint), true })
	_, err = client.CreateBucket(context.Background(), &s3.CreateBucketInput{Bucket: aws.String(name)})
	ts.Check(err)
}

// What is shown of an endpoint holds no password.
func TestEndpointIsShownWithoutAPassword(t *testing.T) {
	require.Equal(t, "https://user:xxxxx@host", endpointURL("https://user:secret@host").String())
	require.Equal(t, "https://host:1", endpointURL("https://host:1").String())
	require.NotContains(t, endpointURL("https://user:secret@ho st").String(), "secret")
}
