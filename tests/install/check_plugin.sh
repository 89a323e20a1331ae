#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# check_plugin.sh PAGEFUSE PLUGIN: the example of a plug-in, built outside of the tree, with the installed program; and its graph in
# every ONNX Runtime that PAGEFUSE_ORT_LIBS names (paths with colons between them), which has the bodies alone.
set -euo pipefail
. "$(dirname "$0")/../tools/expect.sh"
acme=$2

expect 0 '^  op         acme.Scale   kernels: plain \(10\), body$' plugin "$acme"
expect 0 '^acme-scale: [1-9]' opt models/gemma3_B18/model.onnx --plugin "$acme" --stats -o "$out/gemma3.onnx"
expect 0 '^bodies: Scale 2 ' opt plugin/example/cases/scale/model.onnx --plugin "$acme" -o "$out/scale.onnx"
IFS=: read -ra libraries <<< "${PAGEFUSE_ORT_LIBS:-}"
for library in "${libraries[@]}"; do
  [ -n "$library" ] || continue
  expect 0 '^6 steps, 12 outputs equal' ort "$out/scale.onnx" --ort "$library" --no-library --plugin "$acme"
  expect 0 '^[0-9]* steps, [0-9]* outputs equal' ort "$out/gemma3.onnx" --ort "$library" --no-library --plugin "$acme"
done
