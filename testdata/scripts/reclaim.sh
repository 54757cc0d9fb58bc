#!/usr/bin/env bash
# Reclamation, as a user sees it: three large streams, one that expires, one that is removed and one
# that stays, and thirty small ones of which twenty-five are removed. With short graces the
# bucket must shrink, within 60 s, to at most 1.3 times the bytes that are still readable; what stays
# must read byte-equal, every queue be empty but for what policy keeps standing, and
# novad verify have nothing to report. Loopback only; ends by itself.
#
#   testdata/scripts/reclaim.sh [NOVAD]
set -euo pipefail
cd "$(dirname "$0")/../.."
work=$(mktemp -d)
pid=
cleanup() { [ -z "$pid" ] || kill "$pid" 2>/dev/null || true; wait 2>/dev/null || true; rm -rf "$work"; }
trap cleanup EXIT
novad=${1:-$work/novad}
[ $# -gt 0 ] || go build -o "$novad" ./cmd/novad

"$novad" serve --data "$work/data" --listen 127.0.0.1:0 --log-format json \
  --settle-age-cap 500ms --settle-recheck 5s --reap-grace 500ms --trim-grace 500ms --retire-grace 500ms --orphan-grace 11m \
  --auditor-idle-interval 250ms --gc-min-dead-bytes 64KiB --gc-min-dead-ratio 0.2 2>"$work/log" &
pid=$!
for _ in $(seq 100); do
  address=$(sed -n 's/.*listening on \([0-9.:]*\).*/\1/p' "$work/log" | head -1)
  [ -z "$address" ] || break
  sleep 0.1
done
[ -n "$address" ] || { cat "$work/log"; exit 1; }
export NOVA_SERVER=http://$address

lines() { head -c "$(($1 * 3 / 4))" /dev/urandom | base64 -w 100; }
lines 3000000 >"$work/short"; lines 3000000 >"$work/gone"; lines 3000000 >"$work/keep"
"$novad" stream create short --max-age 5s >/dev/null
"$novad" stream create gone >/dev/null
"$novad" stream create keep >/dev/null
for s in short gone keep; do "$novad" append "$s" --file "$work/$s" >/dev/null; done
for i in $(seq -w 30); do
  lines 100000 >"$work/small$i"
  "$novad" append "small$i" --create --file "$work/small$i" >/dev/null
done
"$novad" stream rm gone --yes
for i in $(seq -w 25); do "$novad" stream rm "small$i" --yes; done

readable=$(cat "$work/keep" "$work"/small{26,27,28,29,30} | wc -c)
held() { find "$work/data/bucket" -type f -printf '%s\n' | awk '{n+=$1} END {print n+0}'; }
start=$SECONDS
while have=$(held); [ "$have" -gt $((readable * 13 / 10)) ]; do
  [ $((SECONDS - start)) -lt 60 ] || { echo "after 60 s the bucket holds $have bytes, $readable are readable"; "$novad" due; exit 1; }
  sleep 0.5
done
echo "after $((SECONDS - start)) s the bucket holds $have bytes; $readable are readable"

for s in keep small26 small27 small28 small29 small30; do "$novad" read "$s" --from 0 | cmp - "$work/$s"; done
[ -z "$("$novad" read short --limit 1)" ] || { echo "an expired record was served"; exit 1; }
for s in gone small01; do ! "$novad" read "$s" 2>/dev/null || { echo "$s is readable"; exit 1; }; done
for _ in $(seq 60); do
  due=$("$novad" due --output json)
  # A live chain's settle marker always stands.
  left=$(printf '%s' "$due" | tr '{' '\n' | sed -n 's/.*"queue":"\([a-z]*\)".*"standing":\([1-9][0-9]*\).*/\1=\2/p' | grep -v '^settle=1$' || true)
  [ -n "$left" ] || break
  sleep 0.5
done
"$novad" due
[ -z "$left" ] || { echo "standing: $left"; exit 1; }
"$novad" verify
