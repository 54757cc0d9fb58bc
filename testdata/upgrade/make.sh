#!/usr/bin/env bash
# Fills a data directory with a novad of an earlier version, and kills it twice in the middle of its work. See README.md.
#
#   make.sh NOVAD ARCHIVE
set -euo pipefail
novad=$(realpath "$1") archive=$(realpath "$2") work=$(mktemp -d)
trap 'kill -9 "$(cat "$work/pid")" 2>/dev/null || true; rm -rf "$work"' EXIT
data=$work/data
mkdir "$data"
xs=$(printf 'x%.0s' {1..50})

# run NAME [flags]: a node, and two batches for each stream, the second of which the kill may cut off.
run() {
  local run=$1 i batch name answer first
  shift
  "$novad" serve --data "$data" --listen 127.0.0.1:0 --reap-grace 1s --trim-grace 1s --retire-grace 1s --auditor-idle-interval 100ms \
    --gc-min-dead-bytes 1B --gc-min-dead-ratio 0.05 "$@" 2>"$work/log" &
  echo $! >"$work/pid"
  until grep -q '^listening on' "$work/log"; do sleep 0.1; done
  NOVA_SERVER=http://$(sed -n 's/^listening on //p' "$work/log")
  export NOVA_SERVER
  append() { # STREAM BATCH
    i=$1 batch=$2 name=stream/$(printf %02d "$1")
    for n in $(seq $((batch * 5)) $((batch * 5 + 4))); do echo "$name $run record $n ${xs:0:$(((i * 7 + n) % 50))}"; done >"$work/lines-$i"
    answer=$("$novad" append "$name" --create --output json --file "$work/lines-$i") || return 0
    first=$(sed -n 's/.*"first_offset":\([0-9]*\).*/\1/p' <<<"$answer")
    while IFS= read -r line; do echo "$i $((first++)) $line"; done <"$work/lines-$i" >"$work/acked-$run-$batch-$i"
  }
  for i in $(seq 0 39); do append "$i" 0; done
  "$novad" stream create "gone-$run" >/dev/null
  "$novad" append "gone-$run" --file "$work/lines-0" >/dev/null
  if [ "$run" = first ]; then
    for i in 1 2 3; do "$novad" stream set "stream/0$i" --max-age 1000d >/dev/null; done
    sleep 3 # it is settled
  else
    for i in $(seq 10 19); do "$novad" stream trim "stream/$i" --before 4 >/dev/null; done
  fi
  "$novad" stream rm "gone-$run" --yes >/dev/null
  for i in $(seq 0 39); do append "$i" 1 & done 2>/dev/null
  sleep 0.3
  kill -9 "$(cat "$work/pid")"
  wait 2>/dev/null || true
}

run first --settle-age-cap 100ms --settle-recheck 100ms
run second --no-audit
cat "$work"/acked-* >"$data/acked"
rm "$data/meta/LOCK" "$data/bucket/LOCK"
tar -C "$data" -c --owner=0 --group=0 . | gzip -9n >"$archive"
