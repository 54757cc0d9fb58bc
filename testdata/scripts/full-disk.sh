#!/usr/bin/env bash
# A filling disk, as a user sees it: on a tmpfs of 64 MiB appends are refused with 507 once less than the reserve is
# free, reads go on, removing streams makes room again, and so does whoever else filled the disk; nothing is
# restarted, nothing acknowledged is lost. Needs to mount a tmpfs: as root, or where a user may have a namespace of
# their own. Loopback only; ends by itself.
#
#   testdata/scripts/full-disk.sh [NOVAD]
set -euo pipefail
cd "$(dirname "$0")/../.."
if [ -z "${NOVA_FULL_DISK:-}" ]; then
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
  novad=${1:-$work/novad}
  [ $# -gt 0 ] || go build -o "$novad" ./cmd/novad
  user=()
  [ "$(id -u)" = 0 ] || user=(--map-root-user)
  NOVA_FULL_DISK=$work unshare "${user[@]}" --mount "$0" "$(realpath "$novad")"
  exit
fi

work=$NOVA_FULL_DISK novad=$1 disk=$NOVA_FULL_DISK/disk pid=
cleanup() { [ -z "$pid" ] || kill "$pid" 2>/dev/null || true; wait 2>/dev/null || true; }
trap cleanup EXIT
mkdir "$disk"
mount -t tmpfs -o size=64m none "$disk"
fail() { echo "full-disk: $*" >&2; tail -5 "$work/log" >&2; exit 1; }

"$novad" serve --data "$disk/data" --listen 127.0.0.1:0 --disk-reserve 16MiB --log-format json \
  --settle-age-cap 1s --reap-grace 1s --trim-grace 1s --retire-grace 1s --auditor-idle-interval 300ms 2>"$work/log" &
pid=$!
address=
for _ in $(seq 100); do
  address=$(sed -n 's/^listening on //p' "$work/log")
  [ -z "$address" ] || break
  sleep 0.1
done
[ -n "$address" ] || fail "the server did not start"
export NOVA_SERVER=http://$address

free() { df -m --output=avail "$disk" | tail -1 | tr -d ' '; }
refused() { grep -q 'storage is nearly full' "$work/out"; }
# until WHAT COMMAND…: waits up to 30 s for the command to succeed.
until_ok() {
  local what=$1; shift
  for _ in $(seq 150); do
    if "$@" >"$work/out" 2>&1; then return; fi
    sleep 0.2
  done
  fail "$what: $(cat "$work/out")"
}

head -c 3000000 /dev/urandom | base64 -w 100 >"$work/lines"
streams=0
while "$novad" append "s$((streams + 1))" --create --file "$work/lines" >"$work/out" 2>&1; do
  streams=$((streams + 1))
  [ $streams -lt 100 ] || fail "a disk of 64 MiB took 100 streams of 4 MB"
done
refused || fail "another error than a full disk: $(cat "$work/out")"
echo "after $streams streams of 4 MB, $(free) MiB free: $(cat "$work/out")"
"$novad" read s1 | cmp - "$work/lines" || fail "a read on a full disk"

head -c 100000000 /dev/zero >"$disk/other" 2>/dev/null || true # somebody else takes the rest
rm "$disk/other" && head -c $((($(free) - 6) << 20)) /dev/zero >"$disk/other"
! echo one | "$novad" append back --create >"$work/out" 2>&1 || fail "an append with $(free) MiB free"
refused || fail "another error than a full disk: $(cat "$work/out")"
status=$(curl -s -o /dev/null -w '%{http_code}' -X POST -H 'Content-Type: application/octet-stream' --data-binary x "$NOVA_SERVER/v1/streams/s1/records")
[ "$status" = 507 ] || fail "status $status, not 507"
rm "$disk/other"
echo "with space given back from outside: $(free) MiB free"

for i in $(seq 2 $streams); do "$novad" stream rm "s$i" --yes >/dev/null; done
echo one >"$work/one"
until_ok "an append after $((streams - 1)) streams were removed" "$novad" append back --create --file "$work/one"
roomy() { [ "$(free)" -gt 35 ]; }
until_ok "space of removed streams" roomy
echo "after removing $((streams - 1)) streams: $(free) MiB free"
"$novad" read s1 | cmp - "$work/lines" || fail "a stream that was kept"
"$novad" verify | tail -1
"$novad" backup "$work/backup.tar" >/dev/null
kill "$pid"; wait "$pid" || fail "the server ended with $?"
pid=

# A volume in the place of metadata: a restore says so before it does anything.
mkdir -p "$disk/restored/meta"
mount -t tmpfs -o size=1m none "$disk/restored/meta"
! "$novad" restore "$work/backup.tar" --data "$disk/restored" >"$work/out" 2>&1 || fail "a restore in the place of a volume"
grep -q 'is a mount point' "$work/out" && [ "$(wc -l <"$work/out")" = 1 ] || fail "another refusal: $(cat "$work/out")"
[ ! -e "$disk/restored/meta.restoring" ] || fail "it began before it was refused"
umount "$disk/restored/meta"
"$novad" restore "$work/backup.tar" --data "$disk/restored" >/dev/null || fail "a restore"
echo "held: nothing was restarted"
