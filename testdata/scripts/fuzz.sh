#!/usr/bin/env bash
# Runs every fuzz target of the module, or those whose name matches PATTERN, one after another for DURATION
# each, and stops at the first find: the input is then in testdata/fuzz of the target's package, where
# `go test` runs it from then on. DURATION is what -fuzztime takes: 10m, or 100000x. One worker, so that a
# machine that does other things keeps its other processors.
#
#   ./testdata/scripts/fuzz.sh 10m
#   ./testdata/scripts/fuzz.sh 30s 'Decode|Parse'
set -euo pipefail
cd "$(dirname "$0")/../.."

duration=${1:?how long each target runs: fuzz.sh DURATION [PATTERN]}
pattern=${2:-.}
found=0
# A target is found by its declaration, without building every package's tests.
while IFS=: read -r file target; do
  found=$((found + 1))
  printf '== %s in %s for %s\n' "$target" "${file%/*}" "$duration"
  # An input that is merely new is not worth a minute of making it small, go's default.
  go test -run NONE -fuzz "^$target\$" -fuzztime "$duration" -fuzzminimizetime 5s -parallel 1 "./${file%/*}"
done < <(grep -rEo --include='*_test.go' '^func Fuzz[A-Za-z0-9_]+' . | sed 's|^\./||; s|func ||' | grep -E ":.*($pattern)" | sort)
[ "$found" -gt 0 ] || { echo "no fuzz target matches $pattern" >&2; exit 2; }
