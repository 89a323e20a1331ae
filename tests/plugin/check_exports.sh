#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# check_exports.sh libpagefuse_ort.so: the library exports one function, and needs none of ONNX Runtime's, ONNX's and protobuf's:
# a program has those of its own, of other versions.
set -euo pipefail
exported=$(nm -D --defined-only "$1" | awk '{print $3}')
if [ "$exported" != RegisterCustomOps ]; then
  echo "expected one exported name, RegisterCustomOps, got: $exported"
  exit 1
fi
needed=$(readelf -d "$1" | sed -n 's/.*NEEDED.*\[\(.*\)\]/\1/p')
if grep -qE 'onnx|protobuf' <<< "$needed"; then
  echo "expected no library of ONNX Runtime, ONNX or protobuf among what it needs, got: $needed"
  exit 1
fi
