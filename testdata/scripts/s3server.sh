#!/usr/bin/env bash
# An S3 server for tests, on loopback: versitygw, installed into a cache folder of its own.
#   s3server.sh start DIR [PORT]   starts it on DIR/data and prints its endpoint; PORT 0, the default, takes a free one
#   s3server.sh stop DIR           ends it
#   s3server.sh path               installs it and prints where
# Its credentials are nova and nova-secret. Give the endpoint to the tests as NOVA_TEST_S3.
set -euo pipefail

version=v1.8.0
tools=${XDG_CACHE_HOME:-$HOME/.cache}/nova-tools/versitygw-$version
server=$tools/versitygw

install() {
  [ -x "$server" ] || CGO_ENABLED=0 GOFLAGS= GOBIN=$tools go install "github.com/versity/versitygw/cmd/versitygw@$version" >&2
}

# free_port asks bash's own /dev/tcp which of some random ports nobody listens on.
free_port() {
  local port
  for _ in {1..50}; do
    port=$((20000 + RANDOM % 12000))
    if ! (: <"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then
      echo "$port"
      return
    fi
  done
  echo "s3server: no free port" >&2
  return 1
}

case ${1:-} in
path)
  install
  echo "$server"
  ;;
start)
  dir=$2 port=${3:-0}
  install
  mkdir -p "$dir/data"
  for _ in {1..5}; do
    at=$port
    [ "$at" != 0 ] || at=$(free_port)
    ROOT_ACCESS_KEY=nova ROOT_SECRET_KEY=nova-secret nohup "$server" --port "127.0.0.1:$at" --keep-alive --quiet posix "$dir/data" \
      >"$dir/log" 2>&1 </dev/null &
    pid=$!
    for _ in {1..300}; do
      kill -0 "$pid" 2>/dev/null || break
      if (: <"/dev/tcp/127.0.0.1/$at") 2>/dev/null; then
        echo "$pid" >"$dir/pid"
        echo "http://127.0.0.1:$at"
        exit 0
      fi
      sleep 0.1
    done
    kill "$pid" 2>/dev/null || true
  done
  echo "s3server: it does not start:" >&2
  cat "$dir/log" >&2
  exit 1
  ;;
stop)
  dir=$2
  pid=$(cat "$dir/pid")
  kill "$pid" 2>/dev/null || true
  for _ in {1..100}; do
    kill -0 "$pid" 2>/dev/null || break
    sleep 0.1
  done
  kill -9 "$pid" 2>/dev/null || true
  rm "$dir/pid"
  ;;
*)
  echo "usage: $0 start DIR [PORT] | stop DIR | path" >&2
  exit 2
  ;;
esac
