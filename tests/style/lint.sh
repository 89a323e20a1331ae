#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# lint.sh BUILD [--changed BASE]: what ./dev lint does. clang-format and clang-tidy over all sources, or over those that differ
# from the commit BASE; the order of rooms over all.
set -euo pipefail
build=$1
here=$(dirname "$0")
case "${2:-}" in
  '') files=$(git ls-files '*.cc' '*.cu' '*.h') ;;
  --changed)
    base=${3:?--changed needs a commit}
    git rev-parse --quiet --verify "$base^{commit}" >/dev/null || { echo "lint: no commit \"$base\"" >&2; exit 1; }
    files=$(git diff --name-only --diff-filter=d "$base" -- '*.cc' '*.cu' '*.h'; git ls-files -o --exclude-standard '*.cc' '*.cu' '*.h') ;;
  *) echo "lint: expected --changed BASE, got \"$2\"" >&2; exit 1 ;;
esac
if [ -z "$files" ]; then exit 0; fi
failed=0
mapfile -t names <<<"$files"
"$here/check_format.sh" clang-format "${names[@]}" || failed=1
"$here/check_tidy.sh" clang-tidy "$build" <<<"$files" || failed=1
python3 "$here/check_rooms.py" || failed=1
exit $failed
