#!/usr/bin/env bash
# The tests of the bucket in S3, and novad's end to end, against a real server: started here, and ended.
set -euo pipefail
cd "$(dirname "$0")/../.."
dir=$(mktemp -d)
stop() {
  if [ -f "$dir/pid" ]; then ./testdata/scripts/s3server.sh stop "$dir"; fi
  rm -rf "$dir"
}
trap stop EXIT
NOVA_TEST_S3=$(./testdata/scripts/s3server.sh start "$dir")
export NOVA_TEST_S3
go test -count=1 ./objstore/s3bucket
go test -count=1 -run 'TestScripts/s3$' ./cmd/novad
# And the other scripts whose nodes can keep their objects there. The rest look at files, start no node, or are about directories.
NOVA_TEST_BUCKET=s3 go test -count=1 -run 'TestScripts/(append_read|backup|bytes|decommission|large|pipe|restarts|ring|streams|undelete|verify)$' ./cmd/novad
