#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Usage: check_arrow.sh BUILD_DIR. Fails unless a kernel's source compiles without, and does not compile with, an include of what lies
# above the layer.
set -uo pipefail
command=$(sed -n 's/^ *"command": "\(.*\) -o [^ ]*pagefuse_kernels\.dir.*/\1/p' "$1/compile_commands.json" | head -n 1)
if [ -z "$command" ]; then echo "no source of pagefuse_kernels in $1/compile_commands.json" >&2; exit 1; fi
cd "$1" || exit 1

compile() {  # the lines of a source
  printf '%s\n' '#include "pagefuse/ops/kernels/scratch.h"' "$@" 'void* F(pagefuse::Scratch& s) { return s.Get(64); }' |
    $command -fsyntax-only -x c++ - 2>&1
}

if ! errors=$(compile); then echo "a kernel without such an include does not compile: $errors" >&2; exit 1; fi
for header in ir/graph/graph.h ops/schema/kernel.h passes/pass.h runtime/session.h; do
  if errors=$(compile "#include \"pagefuse/$header\""); then
    echo "a kernel with pagefuse/$header compiles" >&2
    exit 1
  fi
  case $errors in
    *"pagefuse/$header"*[Nn]"o such file"* | *"pagefuse/$header' file not found"*) ;;
    *) echo "pagefuse/$header: expected that it is not found, got: $errors" >&2; exit 1 ;;
  esac
done
