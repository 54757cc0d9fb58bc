#!/usr/bin/env bash
# A run is a pure function of its seed: the hash of a seed's trace must be the same with one
# processor and two, in another time zone, on a second run, and with the race detector.
#
#   testdata/scripts/determinism.sh NOVASIM [SEED …]
set -euo pipefail
novasim=$1
shift
seeds=("$@")
[ ${#seeds[@]} -gt 0 ] || seeds=(1 2 3 5 8 13 21 34 55 89)
cd "$(dirname "$0")/../.."
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
go build -race -o "$tmp/novasim-race" ./cmd/novasim
hash() { sed -n 's/.*"hash":"\([0-9a-f]*\)".*/\1/p'; }
for seed in "${seeds[@]}"; do
  want=$(GOMAXPROCS=1 TZ=UTC "$novasim" -seed "$seed" -output json | hash)
  [ -n "$want" ] || { echo "seed $seed: no hash"; exit 1; }
  for run in "GOMAXPROCS=2 TZ=Asia/Tokyo $novasim" "GOMAXPROCS=2 $novasim" "GOMAXPROCS=2 $tmp/novasim-race"; do
    got=$(env $run -seed "$seed" -output json | hash)
    [ "$got" = "$want" ] || { echo "seed $seed: hash $got of '$run', $want before"; exit 1; }
  done
done
echo "${#seeds[@]} seeds, four runs each: equal hashes"

# Many short runs: twice in one process, and once more in another, with one processor and in another time zone.
short=${NOVA_SHORT_RUNS:-2000}
GOMAXPROCS=2 TZ=UTC "$novasim" -seeds "$short" -steps 300 -twice -hashes "$tmp/one" >/dev/null
GOMAXPROCS=1 TZ=Asia/Kathmandu "$novasim" -seeds "$short" -steps 300 -hashes "$tmp/other" >/dev/null
[ "$(wc -l <"$tmp/one")" = "$short" ] || { echo "not every short run is in the list"; exit 1; }
if ! cmp -s "$tmp/one" "$tmp/other"; then
  echo "short runs that differ (seed, hash, steps):"
  diff "$tmp/one" "$tmp/other" | head -20
  exit 1
fi
echo "$short short runs, three times each in two processes: equal hashes"
