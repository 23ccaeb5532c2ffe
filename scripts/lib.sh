# shellcheck shell=bash
# What every script here shares: where the project is, and how it speaks. Source it; it runs nothing by itself.

set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"

# Colours only for a person.
bold='' red='' plain=''
if [[ -t 2 && -z ${NO_COLOR:-} ]]; then bold=$'\033[1m' red=$'\033[1;31m' plain=$'\033[0m'; fi

# One line of progress. On standard error, so that standard output stays what a caller may want to read.
say() { printf '%s==>%s %s\n' "$bold" "$plain" "$*" >&2; }

# Says what is wrong and what would be right, and stops.
die() {
  printf '%serror:%s %s\n' "$red" "$plain" "$*" >&2
  exit 1
}

# quietly LABEL COMMAND…: one progress line; the command's output only when it fails.
quietly() {
  local label=$1 log started=$SECONDS
  shift
  log=$(mktemp)
  say "$label"
  if "$@" >"$log" 2>&1; then
    rm -f "$log"
    if ((SECONDS - started > 10)); then say "  done in $((SECONDS - started)) s"; fi
  else
    local status=$?
    cat "$log" >&2
    rm -f "$log"
    printf '%serror:%s %s failed (exit %d): %s\n' "$red" "$plain" "$label" "$status" "$*" >&2
    return "$status"
  fi
}

# The flags of the binary that is shipped, demonstrated, tested and measured: one set, so that it is built once.
# The Swift runtime is linked in; OpenSSL, zlib and libyaml stay the system's, which is who patches them.
# shellcheck disable=SC2034  # read by the scripts that source this file
release_flags=(-c release --static-swift-stdlib --product drawbridge)
