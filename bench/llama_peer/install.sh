#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Installs llama.cpp for Node.js, CPU only, into a folder outside the sources: install.sh DIR
set -eu
[ $# -eq 1 ] || { echo "usage: install.sh DIR" >&2; exit 1; }
mkdir -p "$1"
npm install --prefix "$1" --no-audit --no-fund --silent --ignore-scripts node-llama-cpp
cp "$(dirname "$0")/peer.mjs" "$(dirname "$0")/gguf.js" "$1"
