#!/usr/bin/env bash
# Runs the checks of .clang-tidy over the library and tool sources; fails on any finding.
# Kernels are left out: their sources are compiled once per SIMD target by including themselves.
set -euo pipefail
tidy=$1 build=$2
git ls-files 'ir/*.cc' 'ops/*.cc' 'passes/*.cc' 'runtime/*.cc' 'tools/*.cc' | grep -v '_hwy\.cc$' |
  xargs -P 2 -n 4 "$tidy" -p "$build" --quiet
