#!/usr/bin/env bash
# A real etcd cluster for tests: three members on free ports of loopback.
#
#   etcdcluster.sh build          builds the server once and prints the path of its binary
#   etcdcluster.sh start DIR      starts three members with their data, logs and process ids in DIR,
#                                 waits until they have a leader, and prints HOST:PORT,HOST:PORT,HOST:PORT
#   etcdcluster.sh stop DIR       ends them; their data stays
#
# A second start in the same DIR takes up the data and the addresses of the first. The server is built from the pinned
# module testdata/tools/etcd and kept in ${XDG_CACHE_HOME:-~/.cache}/nova-tools.
set -euo pipefail

here=$(cd "$(dirname "$0")/.." && pwd)
tools=${XDG_CACHE_HOME:-$HOME/.cache}/nova-tools

build() {
  local version bin
  version=$(sed -n 's|.*go.etcd.io/etcd/server/v3 \(v[0-9.]*\).*|\1|p' "$here/tools/etcd/go.mod" | head -1)
  bin=$tools/etcd-$version
  if [ ! -x "$bin" ]; then
    mkdir -p "$tools"
    # Under another name first: another run may be building it, too.
    (cd "$here/tools/etcd" && CGO_ENABLED=0 go build -o "$bin.$$" go.etcd.io/etcd/server/v3)
    mv "$bin.$$" "$bin"
  fi
  echo "$bin"
}

# Six ports that are free now, for as long as the program that asks holds none of them.
ports() {
  (cd "$here/.." && go run ./testdata/tools/freeports 6)
}

start() {
  local dir=$1 bin i
  bin=$(build)
  mkdir -p "$dir"
  dir=$(cd "$dir" && pwd)
  [ -f "$dir/ports" ] || ports >"$dir/ports"
  # shellcheck disable=SC2046
  set -- $(cat "$dir/ports")
  local cluster="m1=http://127.0.0.1:$4,m2=http://127.0.0.1:$5,m3=http://127.0.0.1:$6"
  for i in 1 2 3; do
    local client=${!i} j=$((i + 3))
    local peer=${!j}
    "$bin" --name "m$i" --data-dir "$dir/m$i" \
      --listen-client-urls "http://127.0.0.1:$client" --advertise-client-urls "http://127.0.0.1:$client" \
      --listen-peer-urls "http://127.0.0.1:$peer" --initial-advertise-peer-urls "http://127.0.0.1:$peer" \
      --initial-cluster "$cluster" --log-level error \
      --auto-compaction-mode=periodic --auto-compaction-retention=10m >>"$dir/m$i.log" 2>&1 &
    echo $! >"$dir/m$i.pid"
  done
  for i in $(seq 300); do
    if up "$1" && up "$2" && up "$3"; then
      echo "127.0.0.1:$1,127.0.0.1:$2,127.0.0.1:$3"
      return
    fi
    sleep 0.1
  done
  echo "etcd has no leader after 30 s; see $dir/m1.log" >&2
  stop "$dir"
  return 1
}

# up PORT tells whether the member has a leader.
up() {
  exec 3<>"/dev/tcp/127.0.0.1/$1" || return 1
  printf 'GET /health HTTP/1.0\r\n\r\n' >&3
  grep -q '"health":"true"' <&3
} 2>/dev/null

stop() {
  local dir=$1 i
  for i in 1 2 3; do
    [ -f "$dir/m$i.pid" ] || continue
    kill "$(cat "$dir/m$i.pid")" 2>/dev/null || true
    # It is no child of this shell.
    while kill -0 "$(cat "$dir/m$i.pid")" 2>/dev/null; do sleep 0.1; done
    rm "$dir/m$i.pid"
  done
}

case ${1:-} in
build) build ;;
start) start "${2:?a directory}" ;;
stop) stop "${2:?a directory}" ;;
*) sed -n '2,13s/^# \{0,1\}//p' "$0"; exit 2 ;;
esac
