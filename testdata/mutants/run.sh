#!/usr/bin/env bash
# The checker's checker: each patch here is a bug that someone could make, in one place.
# Each is built with -overlay, so that the tree stays clean, and must be caught by novasim
# within $NOVA_MUTANT_SEEDS seeds (2000), or, failing that, by the cuts of the scenarios, and
# by an invariant that the patch's line "Must break" names. A mutant that survives is a hole in the
# simulator; one that something else catches is not understood yet.
#
#   testdata/mutants/run.sh [PATCH …]
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
seeds=${NOVA_MUTANT_SEEDS:-2000}
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
cd "$root"

patches=("$@")
[ ${#patches[@]} -gt 0 ] || patches=("$here"/*.patch)
survivors=0
printf '%-44s %-16s %s\n' mutant 'caught by' how
for patch in "${patches[@]}"; do
  patch=$(realpath "$patch")
  name=$(basename "$patch" .patch)
  work="$tmp/$name"
  mkdir -p "$work"
  overlay=
  while read -r file; do
    mkdir -p "$work/$(dirname "$file")"
    cp "$root/$file" "$work/$file"
    overlay="$overlay${overlay:+,}\"$root/$file\":\"$work/$file\""
  done < <(sed -n 's|^+++ b/||p' "$patch")
  (cd "$work" && git apply --whitespace=nowarn "$patch")
  printf '{"Replace":{%s}}' "$overlay" > "$work/overlay.json"
  go build -overlay "$work/overlay.json" -o "$work/novasim" ./cmd/novasim
  status=0
  "$work/novasim" -seeds "$seeds" -output json > "$work/report.json" || status=$?
  how="a seed"
  if [ $status -eq 0 ]; then
    for scenario in testdata/scenarios/*.nova; do
      status=0
      "$work/novasim" -cut all -scenario "$scenario" -output json > "$work/report.json" 2> "$work/error" || status=$?
      how="the cuts of $(basename "$scenario")"
      if [ $status -ne 0 ]; then break; fi
    done
  fi
  case $status in
    0)
      printf '%-44s %-16s %s\n' "$name" nobody 'SURVIVED'
      survivors=$((survivors + 1))
      ;;
    1)
      invariant=$(sed -n 's/.*"invariant":"\([^"]\{1,\}\)".*/\1/p' "$work/report.json" | head -1)
      replay=$(sed -n 's/.*"replay":"\([^"]*\)".*/\1/p' "$work/report.json" | head -1)
      must=$(sed -n 's/^Must break: *//p' "$patch" | head -1)
      case "$must" in
        "") verdict='NO LINE "Must break"' ;;
        *"$invariant"*|*"any other"*) verdict= ;;
        *) verdict="NOT BY ITS OWN ($must)" ;;
      esac
      printf '%-44s %-16s %s\n' "$name" "${invariant:-?}" "${verdict:+$verdict }$how: $replay"
      [ -z "$verdict" ] || survivors=$((survivors + 1))
      ;;
    *)
      printf '%-44s novasim ended with status %s\n' "$name" "$status"
      survivors=$((survivors + 1))
      ;;
  esac
  rm -rf "$work"
done
[ $survivors -eq 0 ] || { echo "$survivors mutants were not caught as they must be"; exit 1; }
