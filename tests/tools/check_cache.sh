#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# check_cache.sh PAGEFUSE: formats of the paged cache as a user asks for them: by kind of layer, with layers skipped, with
# scales that were measured. Run in the top folder.
set -euo pipefail
. "$(dirname "$0")/expect.sh"
model=models/gemma3_recall/model.onnx
cat >"$out/odd.onnxtxt" <<'END'
<ir_version: 10, opset_import: ["" : 24, "pagefuse" : 1]>
odd (float[T, 2, 6] q, float[T, 2, 6] k, float[T, 2, 6] v, float[NB, 16, 2, 6] kc, float[NB, 16, 2, 6] vc,
     int64[T] slots, int32[B + 1] starts, int32[B] lengths, int32[B, M] table)
  => (float[T, 2, 6] y, float[NB, 16, 2, 6] ko, float[NB, 16, 2, 6] vo) {
  ko, vo = pagefuse.PagedCacheInsert (k, v, kc, vc, slots)
  y = pagefuse.PagedAttention <is_causal = 1> (q, ko, vo, starts, lengths, table)
}
END
ask="generate $model --verbose --max-new-tokens 16 --prompt-file models/gemma3_recall/demo.txt"

expect 0 '^cache: turboquant_4bit_nc, 280 bytes a token and 35.0 KiB a sequence' $ask --kv-cache turboquant_4bit_nc
expect 0 '^86 nails' $ask --kv-cache turboquant_4bit_nc
expect 0 '^cache: full=turboquant_k8v4,window=bf16, ' $ask --kv-cache full=turboquant_k8v4,window=bf16
expect 0 '^cache: turboquant_3bit_nc but in layers \[0,1,4,5\], ' \
  $ask --kv-cache turboquant_3bit_nc --kv-cache-skip-layers 0,1,-2,-1

# A saved graph keeps its formats, and says so to whoever asks for others.
expect 0 '' opt $model -o "$out/mixed.onnx" --kv-cache full=turboquant_4bit_nc,window=int8_per_token_head --kv-cache-skip-layers 0
expect 0 '^86 nails' generate "$out/mixed.onnx" --max-new-tokens 16 --prompt-file models/gemma3_recall/demo.txt
expect 0 '"kv_cache":"full=turboquant_4bit_nc,window=int8_per_token_head","kv_cache_skip_layers":\[0\]' \
  generate "$out/mixed.onnx" --prompt-ids 1 --max-new-tokens 1 --json
expect 1 'kv_cache: "turboquant_4bit_nc" is asked for, but .* "full=turboquant_4bit_nc,window=int8_per_token_head" but in layers 0 already' \
  opt "$out/mixed.onnx" --kv-cache turboquant_4bit_nc

# What would become of it, and why not, before anything is written.
expect 0 '^ *TurboQuantAttention +x2' inspect $model --kv-cache full=turboquant_4bit_nc,window=bf16
expect 0 'layer 0: turboquant_4bit_nc: expected a head size that is a power of two' inspect "$out/odd.onnxtxt" --kv-cache turboquant_4bit_nc

# What cannot be meant.
expect 1 'option kv_cache: expected none, .*, got "full=fp9"' opt $model --kv-cache full=fp9
expect 1 'option kv_cache: expected none, .*, got "half=bf16"' opt $model --kv-cache half=bf16
expect 1 'kv_cache_skip_layers: expected layers from -6 to 5, got 6' opt $model --kv-cache bf16 --kv-cache-skip-layers 6
expect 1 '^pagefuse: --kv-cache-skip-layers: says nothing without --kv-cache' opt $model --kv-cache-skip-layers 0

# Scales are measured, and are those of the saved graph.
printf 'The oak cup holds 12 pins.\n2,84,104,101\n' >"$out/prompts.txt"
expect 0 '"kv_cache": "fp8_per_tensor"' calibrate $model --prompts "$out/prompts.txt"
expect 0 '' calibrate $model --prompts "$out/prompts.txt" -o "$out/scales.json"
[ "$(grep -c k_scale "$out/scales.json")" = 6 ] || fail "not a scale a layer: $(cat "$out/scales.json")"
expect 0 '^86 nails' $ask --kv-cache fp8_per_tensor --kv-cache-scales "$out/scales.json"
expect 0 '' opt $model -o "$out/fp8.onnx" --kv-cache fp8_per_tensor --kv-cache-scales "$out/scales.json"
expect 0 '^86 nails' generate "$out/fp8.onnx" --max-new-tokens 16 --prompt-file models/gemma3_recall/demo.txt
expect 1 'prompts.txt": expected a JSON object with a list "layers"' \
  opt $model --kv-cache fp8_per_tensor --kv-cache-scales "$out/prompts.txt"
echo '{"layers": [{"k_scale": 1, "v_scale": 1}, {"k_scale": 1}]}' >"$out/some.json"
expect 1 'some.json": layer 1: expected a number "v_scale"' opt $model --kv-cache fp8_per_tensor --kv-cache-scales "$out/some.json"
echo '{"layers": [{"k_scale": 1, "v_scale": 1}, {"k_scale": 1, "v_scale": 1}]}' >"$out/two.json"
expect 1 'k_scale: expected a number, or one for each of 6 layers, got 2' \
  opt $model --kv-cache fp8_per_tensor --kv-cache-scales "$out/two.json"
: >"$out/none.txt"
expect 1 'none.txt": expected a prompt a line, got none' calibrate $model --prompts "$out/none.txt"

# Latent rows and index keys: a saved graph keeps its formats, and knows them.
model=models/deepseek_v32p_A18/model.onnx
expect 0 '' opt $model -o "$out/latent.onnx" --kv-cache fp8 --indexer-cache fp8
expect 0 '^cache: fp8, index keys: fp8, 2364 bytes a token' generate --verbose "$out/latent.onnx" --prompt-ids 1,2,3 --max-new-tokens 2
expect 0 '"kv_cache":"fp8","indexer_cache":"fp8"' generate "$out/latent.onnx" --prompt-ids 1 --indexer-cache fp8 --json
expect 1 'indexer_cache: "bf16" is asked for, but the paged cache of the graph has index keys in "fp8" already' \
  generate "$out/latent.onnx" --prompt-ids 1 --indexer-cache bf16
expect 1 'indexer_cache: fp8 is asked for, but no layer has index keys' \
  generate models/deepseek_v3_B18/model.onnx --prompt-ids 1 --indexer-cache fp8
expect 1 'indexer_cache: expected none, bf16, fp8, mxfp4, got "int8"' generate $model --prompt-ids 1 --indexer-cache int8
expect 1 'layer 0: fp8: expected latent rows, got keys and values of heads' \
  generate models/gemma3_A18/model.onnx --prompt-ids 1 --kv-cache fp8
