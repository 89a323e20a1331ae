#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# check_ort.sh PAGEFUSE: what `pagefuse ort` says without a usable library; and its report, in every release that PAGEFUSE_ORT_LIBS
# names (paths with colons between them).
set -euo pipefail
. "$(dirname "$0")/expect.sh"

model=models/gemma3_B18/model.onnx
expect 1 'ort needs --ort=LIBRARY' ort $model
expect 1 'no ONNX Runtime at "/none/libonnxruntime.so"' ort $model --ort /none/libonnxruntime.so
expect 1 'is no library of ONNX Runtime: it has no OrtGetApiBase' ort $model --ort "$(dirname "$pagefuse")/libpagefuse_ort.so"

"$pagefuse" opt $model --kv-cache int8_per_token_head -o "$out/fused.onnx" 2>/dev/null
IFS=: read -ra libraries <<< "${PAGEFUSE_ORT_LIBS:-}"
for library in "${libraries[@]}"; do
  [ -n "$library" ] || continue
  expect 0 '^ONNX Runtime [0-9.]*, libpagefuse_ort.so: [0-9]* pagefuse ops and 0 of com.microsoft, [0-9]* rows, registered in [0-9]* ms$' \
    ort "$out/fused.onnx" --ort "$library"
  expect 0 '^29 of 29 pagefuse nodes by kernels \(hwy 23, linear 6\), 0 by bodies; 3 newer nodes of ai.onnx \(hwy 3\)$' \
    ort "$out/fused.onnx" --ort "$library" --threads 2 --repeat 3
  expect 0 '^caches: 24 of 24 in place, 0 copies$' ort "$out/fused.onnx" --ort "$library" --cache-bytes 1MiB
  expect 0 '^warning: kv_cache.5.key is copied at each step' ort "$out/fused.onnx" --ort "$library" --no-bind
  expect 0 '^caches: 0 of 24 in place, 24 copies$' ort "$out/fused.onnx" --ort "$library" --no-bind
  expect 0 ', function bodies$' ort "$out/fused.onnx" --ort "$library" --no-library
  expect 0 '"by_bodies": 0' ort "$out/fused.onnx" --ort "$library" --json
  expect 0 'hwy 17, linear 6, reference 6' ort "$out/fused.onnx" --ort "$library" --config pagefuse.force_kernel=PagedAttention=reference
  expect 1 'pagefuse.log: expected off or copies or kernels, got "no"' ort "$out/fused.onnx" --ort "$library" --config pagefuse.log=no
  expect 0 '^6 of 6 pagefuse nodes by kernels' ort models/gemma3_D_paged/model.onnx --ort "$library"
  expect 1 'PagedAttention' ort models/gemma3_D_paged/model.onnx --ort "$library" --config pagefuse.microsoft_ops=off
  expect 1 'cannot open shared object file' ort "$out/fused.onnx" --ort "$library" --library /none.so
done
