#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# check_paged.sh PAGEFUSE DATA: a graph that is paged already keeps its cache, and says so to whoever asks for another one.
# DATA is where test data is unpacked. Run in the top folder.
set -euo pipefail
. "$(dirname "$0")/expect.sh"
model=models/gemma3_A18/model.onnx
prompt="65,59,23,234,218,152,35,130"

expect 0 '' opt $model -o "$out/plain.onnx"
expect 0 '' opt $model -o "$out/fp8.onnx" --kv-cache fp8_per_token_head --block-size 32

# What is reported is what the graph has, whatever is asked for.
expect 0 '^cache: none, ' generate --verbose "$out/plain.onnx" --prompt-ids $prompt --max-new-tokens 4
expect 0 '^cache: fp8_per_token_head, ' generate --verbose "$out/fp8.onnx" --prompt-ids $prompt --max-new-tokens 4
tokens=$(grep '^tokens' "$out/printed")
expect 0 '^cache: fp8_per_token_head, ' generate --verbose $model --kv-cache fp8_per_token_head --prompt-ids $prompt --max-new-tokens 4
[ "$(grep '^tokens' "$out/printed")" = "$tokens" ] || fail "paged before, other tokens: $tokens"
expect 0 '"kv_cache":"fp8_per_token_head","block_size":32' generate "$out/fp8.onnx" --prompt-ids 1 --max-new-tokens 1 --json
expect 0 '"kv_cache":"none","block_size":8' generate $model --prompt-ids 1 --max-new-tokens 1 --json --block-size 8

# Another one is refused, the same one is not.
for command in "generate --prompt-ids 1" opt; do
  expect 1 'kv_cache: "none" is asked for, but the paged cache of the graph is "fp8_per_token_head" already' \
    $command "$out/fp8.onnx" --kv-cache none
  expect 1 'block_size: 16 is asked for, but the paged cache of the graph has blocks of 32 tokens already' \
    $command "$out/fp8.onnx" --block-size 16
  expect 1 'kv_cache: "int8_per_token_head" is asked for, but the paged cache of the graph is "none" already' \
    $command "$out/plain.onnx" --kv-cache int8_per_token_head
  expect 0 '' $command "$out/fp8.onnx" --kv-cache fp8_per_token_head --block-size 32
done
expect 1 'kv_cache: "none" is asked for, but .* "fp8_per_token_head" already' \
  generate "$out/fp8.onnx" --prompt-ids 1 --logit-error
expect 1 'kv_cache: "fp8_per_tensor" is asked for, but .* "none"' opt $model --kv-cache fp8_per_tensor --disable-pass quantise-kv-cache

# A cache that no graph has is none that could be set.
cat >"$out/mlp.onnxtxt" <<'END'
<ir_version: 10, opset_import: ["" : 24]>
mlp (float[T] x) => (float[T] y) { y = Relu (x) }
END
expect 1 '^pagefuse: --kv-cache: the graph has no paged cache' opt "$out/mlp.onnxtxt" --kv-cache fp8_per_tensor
expect 1 '^pagefuse: --block-size: the graph has no paged cache' opt "$out/mlp.onnxtxt" --block-size 8
expect 1 '--kv-cache excludes --no-page|--no-page excludes --kv-cache' opt $model --no-page --kv-cache fp8_per_tensor
expect 1 '--block-size excludes --no-page|--no-page excludes --block-size' opt $model --no-page --block-size 8

# A cache that another op reads lies beside the pages, which is told with the op: at load, and with the plan of pages.
"$pagefuse" opt $model --emit text --max-elements -1 -o "$out/text.onnxtxt" 2>"$out/printed"
sed -e 's/^  float\[num_logits, 256\] logits,$/&\n  float[] peek,/' \
  -e '$ s/^}$/  peek = ReduceMax <keepdims = 0> ("kv_cache_out.0.value")\n}/' "$out/text.onnxtxt" >"$out/peek.onnxtxt"
beside='cache "kv_cache.0.value" lies beside the pages: node "peek" \(ReduceMax\) reads it as a dense tensor'
ask="--prompt-ids $prompt --max-new-tokens 4"
expect 0 "^pagefuse: $beside\$" generate --verbose "$out/peek.onnxtxt" $ask
tokens=$(grep '^tokens' "$out/printed")
[ "$(grep -c 'beside the pages' "$out/printed")" -eq 1 ] || fail 'another cache lies beside the pages, too'
expect 0 '^cache: none, ' generate --verbose $model $ask
unlike 'beside the pages'
[ "$(grep '^tokens' "$out/printed")" = "$tokens" ] || fail "beside the pages, other tokens: $tokens"
expect 0 '' generate "$out/peek.onnxtxt" $ask
unlike 'beside the pages'
expect 0 "^  $beside\$" inspect --pages "$out/peek.onnxtxt"
grep -q '^  these take 2048 bytes for each page$' "$out/printed" || fail 'not told what a block beside a page takes'
expect 0 '"bytes_beside_a_page": 2048' inspect --pages --json "$out/peek.onnxtxt"
tr -d ' \n' <"$out/printed" | grep -qF '"beside_pages":[{"cache":"kv_cache.0.value","reader":"node\"peek\"(ReduceMax)"}]' || fail 'no cache beside the pages as JSON'
expect 0 '"beside_pages": \[\]' inspect --pages --json $model
# Which these are needs no weights.
expect 0 '"beside_pages": \[\]' inspect --pages --json models/gemma3_1b_graph/model.onnx

# Why a graph is not paged is said unasked.
expect 0 '^pagefuse: not fused: attention without pages at .*; nearest is insert-paged-cache: node .*Conv' opt "$2/went_wrong/A_conv.onnx"
