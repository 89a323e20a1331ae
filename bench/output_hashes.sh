#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Prints a hash of the outputs of every case and model of the tree: what a change that may not alter a bit is compared by.
#
#   bench/output_hashes.sh BUILD_DIR > FILE        then the same for another build, and diff
#
# BUILD_DIR has pagefuse, and the cases unpacked in test_data. Cases are folders with model.onnx and test_data_set_*. Each runs as it is and with --fuse, with float32 and
# with bfloat16 weights, on THREADS threads (2); decoders also generate 24 tokens with each cache. A refusal is hashed as its message.
set -eu
[ $# -eq 1 ] || { echo "usage: output_hashes.sh BUILD_DIR" >&2; exit 1; }
build=$(cd "$1" && pwd)
threads=${THREADS:-2}
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -r "$work"' EXIT

hash() { sha256sum | cut -c1-16; }

# run NAME MODEL INPUTS OPTIONS...
run() {
  name=$1 model=$2 inputs=$3
  shift 3
  rm -rf "$work/out"
  # shellcheck disable=SC2086
  if "$build/pagefuse" run "$model" $inputs -o "$work/out" --threads "$threads" "$@" > /dev/null 2> "$work/error"; then
    echo "$(cat "$work"/out/*.pb | hash)  $name $*"
  else
    echo "$(hash < "$work/error")  $name $* (refused)"
  fi
}

find "$build"/test_data/golden "$build"/test_data/onnx_node "$build"/test_data/models -type d -name 'test_data_set_*' | sort | while read -r data; do
  model=$(dirname "$data")/model.onnx
  if [ ! -f "$model" ]; then continue; fi
  inputs=
  for file in "$data"/input_*.pb; do
    if [ -f "$file" ]; then inputs="$inputs -i $file"; fi
  done
  for options in "" "--fuse" "--weights bfloat16" "--fuse --weights bfloat16"; do
    # shellcheck disable=SC2086
    run "${data#"$build"/test_data/}" "$model" "$inputs" $options
  done
done

for folder in models/gemma3_[ABD]* models/gemma3_recall models/deepseek_v3*; do
  model=$folder/model_with_past.onnx
  [ -f "$model" ] || model=$folder/model.onnx
  ids=$(seq -s, 3 120)
  for options in "" "--kv-cache fp8_per_tensor" "--kv-cache int8_per_token_head --weights bfloat16"; do
    # shellcheck disable=SC2086
    echo "$("$build/pagefuse" generate "$model" --prompt-ids "$ids" --max-new-tokens 24 --threads "$threads" --json $options 2>&1 |
      sed 's/"[a-z_]*\(per_second\|memory_bytes\)": *[0-9.e+]*,\{0,1\}//g' | hash)  $folder generate $options"
  done
done
