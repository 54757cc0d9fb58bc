#!/usr/bin/env bash
# The shapes of a node, end to end: two stars that only serve and two nodes that only audit, on a real etcd cluster of three
# and a real S3 server. Either star serves any stream; everything is settled by the nodes that audit; a killed auditor's
# seat passes on; a drained star's chain is taken over; an etcd member is killed, and a majority, which readiness tells.
# Loopback only; ends by itself.
#
#   testdata/scripts/shapes.sh [NOVAD]
set -euo pipefail
cd "$(dirname "$0")/../.."
scripts=$PWD/testdata/scripts
work=$(mktemp -d)
pids=()
cleanup() {
  for pid in "${pids[@]}"; do kill -9 "$pid" 2>/dev/null || true; done
  "$scripts/etcdcluster.sh" stop "$work/etcd" 2>/dev/null || true
  if [ -f "$work/s3/pid" ]; then "$scripts/s3server.sh" stop "$work/s3" || true; fi
  wait 2>/dev/null || true
  rm -rf "$work"
}
trap cleanup EXIT
fail() {
  echo "shapes: $*" >&2
  for log in "$work"/*.log; do echo "-- $log" >&2; tail -5 "$log" >&2; done
  exit 1
}
# until_ok WHAT COMMAND…: waits up to two minutes for the command to succeed.
until_ok() {
  local what=$1; shift
  for _ in $(seq 600); do
    if "$@" >"$work/out" 2>&1; then return; fi
    sleep 0.2
  done
  fail "$what: $(cat "$work/out")"
}

novad=${1:-$work/novad}
[ $# -gt 0 ] || go build -o "$novad" ./cmd/novad
etcd=$("$scripts/etcdcluster.sh" start "$work/etcd")
s3=$("$scripts/s3server.sh" start "$work/s3")
mkdir -p "$work/s3/data/nova"
export AWS_ACCESS_KEY_ID=nova AWS_SECRET_ACCESS_KEY=nova-secret
export NOVA_METASTORE=etcd://$etcd/shapes NOVA_BUCKET=s3://nova/objects
export NOVA_S3_ENDPOINT=$s3 NOVA_S3_PATH_STYLE=true NOVA_S3_UPLOAD_TIMEOUT=2s NOVA_S3_IDLE_TIMEOUT=1s
export NOVA_PUT_HORIZON=6s NOVA_SESSION_TTL=3s NOVA_MAX_CLOCK_SKEW=500ms NOVA_AUDITOR_JOB_DEADLINE=30s
export NOVA_RETIRE_GRACE=13s NOVA_TRIM_GRACE=13s NOVA_REAP_GRACE=10s NOVA_ORPHAN_GRACE=45s
export NOVA_SETTLE_AGE_CAP=1s NOVA_SETTLE_RECHECK=1s NOVA_AUDITOR_IDLE_INTERVAL=300ms NOVA_LISTEN=127.0.0.1:0

# node NAME [flags] starts a node; $NAME is then its URL, and ${NAME}_pid its process.
node() {
  local name=$1; shift
  : >"$work/$name.log" # the shell of the node may open it later than this one looks into it
  "$novad" serve "$@" 2>"$work/$name.log" &
  pids+=($!)
  declare -g "${name}_pid=$!"
  for _ in $(seq 300); do
    local address
    address=$(sed -n 's/^listening on //p' "$work/$name.log")
    if [ -n "$address" ]; then
      declare -g "$name=http://$address"
      return
    fi
    sleep 0.1
  done
  fail "node $name did not start"
}
status() { curl -s -o /dev/null -w '%{http_code}' "$@"; }
answers() { [ "$(status "$1")" = "$2" ] || { echo "$1: $(status "$1"), not $2"; return 1; }; }
# members URL prints the names and the numbers of shards of the ring.
members() { "$novad" ring --server "$1" --output json | grep -o '"member":"[^"]*"\|"shards":\[[^]]*\]' ; }
member_count() { [ "$(members "$1" | grep -c '"member"')" = "$2" ]; }
shard_count() { [ "$(members "$1" | sed -n 's/"shards":\[\(.*\)\]/\1/p' | tr ',' '\n' | grep -c .)" = 64 ]; }

node a --star a --no-audit
node b --star b --no-audit
until_ok "the stars serve" answers "$a/readyz" 200
answers "$b/readyz" 200 || fail "star b is not ready"
member_count "$a" 0 || fail "stars that do not audit are on the ring"
node x --audit-only
node y --audit-only
until_ok "auditor x is ready" answers "$x/readyz" 200
until_ok "auditor y is ready" answers "$y/readyz" 200
member_count "$x" 2 || fail "the ring: $(members "$x")"
shard_count "$x" || fail "not each shard has one owner: $(members "$x")"
answers "$x/v1/streams" 404 || fail "an audit-only node serves data"
"$novad" ring --server "$b"

# A node whose puts may land later than the others' graces wait for is refused, in one line that names one of them and the flags.
if timeout 60 "$novad" serve --star c --put-horizon 11s --retire-grace 20s --trim-grace 20s --reap-grace 20s >"$work/out" 2>&1; then
  fail "a node started whose timing is unsafe beside the others'"
else
  [ $? = 2 ] || fail "an unsafe timing did not end with status 2: $(cat "$work/out")"
fi
[ "$(grep -c . "$work/out")" = 1 ] && grep -q 'beside node .*--put-horizon' "$work/out" || fail "an unsafe timing: $(cat "$work/out")"
cat "$work/out"

# Any stream at any star, several at once, and one order for all.
"$novad" stream create s --server "$a" >/dev/null
seq 1 400 >"$work/of-a"; seq 1001 1400 >"$work/of-b"
"$novad" read s --follow --limit 800 --server "$a" >"$work/follows-a" & follow_a=$!; pids+=($!)
"$novad" read s --follow --limit 800 --server "$b" >"$work/follows-b" & follow_b=$!; pids+=($!)
"$novad" append s --server "$a" --batch 20 --file "$work/of-a" >/dev/null & first=$!
"$novad" append s --server "$b" --batch 20 --file "$work/of-b" >/dev/null
wait "$first" || fail "appending at star a"
"$novad" read s --server "$a" >"$work/at-a"
"$novad" read s --server "$b" >"$work/at-b"
cmp "$work/at-a" "$work/at-b" || fail "two readers see two orders"
wait "$follow_a" || fail "following at star a"
wait "$follow_b" || fail "following at star b"
cmp "$work/at-a" "$work/follows-a" || fail "who follows at star a sees another order"
cmp "$work/at-a" "$work/follows-b" || fail "who follows at star b sees another order"
sort -n "$work/at-a" | cmp - <(cat "$work/of-a" "$work/of-b") || fail "what is read is not what was appended"
echo "two stars appended 800 records to one stream, in one order for all who followed it at either"

settled() { # every slot of every chain rewritten and deleted
  "$novad" chains --server "$1" --output json | tr '{' '\n' | awk -F'[:,]' '/"star"/ {
    for (i = 1; i < NF; i++) { if ($i == "\"checkpoint\"") c = $(i+1); if ($i == "\"trimmed\"") t = $(i+1) }
    if (c + 0 != t + 0) bad = 1; if (c + 0 > 0) any = 1 } END { exit bad || !any }'
}
until_ok "the slots of both stars are settled and gone" settled "$a"
"$novad" read s --server "$b" | cmp - "$work/at-a" || fail "records changed when they were settled"
echo "the auditors settled both stars' chains"

# An auditor is killed: its seat passes to the other.
kill -9 "$x_pid"
until_ok "the killed auditor leaves the ring" member_count "$b" 1
shard_count "$b" || fail "shards without an owner: $(members "$b")"

# An etcd member is killed.
kill -9 "$(cat "$work/etcd/m1.pid")"
for i in $(seq 2001 2020); do echo "$i" | "$novad" append s --server "$a" >/dev/null || fail "an append with one etcd member down"; done

# A star is drained: what it had is kept, its chain passes to the auditors, and the other star goes on.
"$novad" drain --server "$a"
answers "$a/readyz" 503 || fail "a drained star is ready"
if echo no | "$novad" append s --server "$a" >/dev/null 2>&1; then fail "a drained star took an append"; fi
echo 3000 | "$novad" append s --server "$b" >/dev/null
[ "$("$novad" read s --server "$b" | tail -22 | head -21 | tail -1)" = 2020 ] || fail "an append of the drained star is missing"
gone() { ! "$novad" chains --server "$b" --output json | grep -q '"star":"a"'; }
until_ok "the drained star's chain is retired" gone
echo "star a was drained, and its chain retired"

# Without a majority nobody is ready; with it again, everybody is.
kill -9 "$(cat "$work/etcd/m2.pid")"
until_ok "the auditor notices that the majority is gone" answers "$y/readyz" 503
until_ok "the star notices it, too" answers "$b/readyz" 503
rm "$work"/etcd/m[12].pid
third=$(cat "$work/etcd/m3.pid")
kill "$third"; while kill -0 "$third" 2>/dev/null; do sleep 0.1; done
"$scripts/etcdcluster.sh" start "$work/etcd" >/dev/null
until_ok "the auditor is back" answers "$y/readyz" 200
until_ok "the star is back" answers "$b/readyz" 200
echo 4000 | "$novad" append s --server "$b" >/dev/null
[ "$("$novad" read s --server "$b" | wc -l)" = 822 ] || fail "$("$novad" read s --server "$b" | wc -l) records, not 822"
until_ok "everything is settled again" settled "$b"
"$novad" verify --server "$b" >"$work/out" || fail "verify: $(cat "$work/out")"
tail -1 "$work/out"
if "$novad" verify --metastore "$NOVA_METASTORE" --list >"$work/out" 2>&1; then fail "a bucket was listed while nodes run"; fi
grep -q ' run, or did' "$work/out" || fail "another refusal: $(cat "$work/out")"
if "$novad" restore --metastore "$NOVA_METASTORE" --begin-timeline >"$work/out" 2>&1; then fail "a time line was begun under running nodes"; fi
grep -q ' run, or did' "$work/out" || fail "another refusal: $(cat "$work/out")"
kill "$a_pid" "$b_pid" "$y_pid"
wait "$a_pid" || fail "star a ended with status $?"
wait "$b_pid" || fail "star b ended with status $?"
wait "$y_pid" || fail "auditor y ended with status $?"
pids=()
"$novad" verify --metastore "$NOVA_METASTORE" --list >"$work/out" || fail "verify of what is stopped: $(cat "$work/out")"
grep -q 'objects listed' "$work/out" || fail "nothing was listed: $(cat "$work/out")"
tail -1 "$work/out"

# As after etcd's snapshot was restored: numbers begin anew beyond the lost time line's, and all that was kept is read.
"$novad" restore --metastore "$NOVA_METASTORE" --begin-timeline || fail "a time line of its own"
"$novad" verify --metastore "$NOVA_METASTORE" --list >"$work/out" || fail "verify of another time line: $(cat "$work/out")"
node c --star b
until_ok "a star serves in it" answers "$c/readyz" 200
"$novad" chains --server "$c" --output json | grep -q '"epoch":[0-9]\{10,\}' || fail "the epoch: $("$novad" chains --server "$c" --output json)"
echo 5000 | "$novad" append s --server "$c" >/dev/null
[ "$("$novad" read s --server "$c" | wc -l)" = 823 ] || fail "$("$novad" read s --server "$c" | wc -l) records, not 823"
kill "$c_pid"; wait "$c_pid" || fail "star c ended with status $?"
pids=()
echo "shapes: all held"
