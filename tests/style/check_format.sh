#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# check_format.sh CLANG_FORMAT [FILE...]: fails with the names of sources that clang-format would change; looks at all without names.
set -euo pipefail
format=$1
shift
if [ $# -gt 0 ]; then
  printf '%s\n' "$@"
else
  git ls-files -co --exclude-standard '*.cc' '*.cu' '*.h'
fi | xargs "$format" --dry-run -Werror
