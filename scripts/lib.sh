# shellcheck shell=bash
# Every script sources this file. It changes to the project's root, and defines the functions for output.

set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"

# Colours only on a terminal.
bold='' red='' plain=''
if [[ -t 2 && -z ${NO_COLOR:-} ]]; then bold=$'\033[1m' red=$'\033[1;31m' plain=$'\033[0m'; fi

# say TEXT…: prints one line of progress to standard error, which leaves standard output to results.
say() { printf '%s==>%s %s\n' "$bold" "$plain" "$*" >&2; }

# die TEXT…: prints an error and exits.
die() {
  printf '%serror:%s %s\n' "$red" "$plain" "$*" >&2
  exit 1
}

# quietly LABEL COMMAND…: prints one progress line, and the output of the command only if it fails.
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

# The build flags of the release program, the same for demo, tests and benchmarks, so that it is built only once. The
# Swift runtime is linked statically. OpenSSL, SQLite, zlib and libyaml are linked dynamically, so that the system's
# updates apply.
# shellcheck disable=SC2034  # read by the scripts that source this file
release_flags=(-c release --static-swift-stdlib --product drawbridge)

# source_date: the time of the sources in UNIX seconds: the last commit, or the changelog if there is no repository.
source_date() { git log -1 --format=%ct 2>/dev/null || stat -c %Y CHANGELOG.md; }
