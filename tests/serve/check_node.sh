#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# check_node.sh SCRIPT PAGEFUSE [ARGUMENT...]: runs a script of this folder; status 77 where there is no Node of version 18 or newer.
set -euo pipefail
version=$(node --version 2>/dev/null || true)
version=${version#v}
[ "${version%%.*}" -ge 18 ] 2>/dev/null || { echo "skipped: there is no Node 18 or newer; ./dev serve installs it"; exit 77; }
exec node "$(dirname "$0")/$1" "${@:2}"
