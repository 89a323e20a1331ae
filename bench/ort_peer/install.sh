#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Installs ONNX Runtime for Node.js, CPU only, into a folder outside the sources: install.sh DIR
set -eu
[ $# -eq 1 ] || { echo "usage: install.sh DIR" >&2; exit 1; }
mkdir -p "$1"
ONNXRUNTIME_NODE_INSTALL=skip ONNXRUNTIME_NODE_INSTALL_CUDA=skip \
  npm install --prefix "$1" --no-audit --no-fund --silent onnxruntime-node@1.30.0
cp "$(dirname "$0")/peer.js" "$(dirname "$0")/graph.js" "$1"
