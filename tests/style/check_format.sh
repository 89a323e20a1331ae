#!/usr/bin/env bash
# Fails with the names of sources that clang-format would change.
set -euo pipefail
git ls-files -co --exclude-standard '*.cc' '*.h' | xargs "$1" --dry-run -Werror
