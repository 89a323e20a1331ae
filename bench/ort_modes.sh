#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What fused files are in releases of ONNX Runtime: a row a model, cache format and release, by function bodies and with the library.
#
#   bench/ort_modes.sh BUILD_DIR ORT_DIR [REPEAT]
#
# BUILD_DIR has pagefuse and libpagefuse_ort.so, ORT_DIR the releases that `./dev ort` puts under build/ort. One thread each; microseconds
# of the fastest of REPEAT (20) runs of a decode step of two sequences. In the environment: MODELS, and FORMATS for those of Gemma.
set -eu
[ $# -ge 2 ] || { echo "usage: ort_modes.sh BUILD_DIR ORT_DIR [REPEAT]" >&2; exit 1; }
build=$1
releases=$2
repeat=${3:-20}
models=$(cd "$(dirname "$0")/../models" && pwd)
formats=${FORMATS:-none bf16 fp8_per_tensor fp8_per_token_head int8_per_token_head int4_per_token_head turboquant_k8v4 turboquant_4bit_nc turboquant_k3v4_nc turboquant_3bit_nc}
work=$(mktemp -d)
trap 'rm -r "$work"' EXIT

# field NAME FILE: of the JSON
field() { sed -n "s/^ *\"$1\": \([^,]*\),\{0,1\}$/\1/p" "$2" | head -1; }

# run FILE LIBRARY OPTION...: sets `cell`
run() {
  file=$1; library=$2
  shift 2
  if "$build/pagefuse" ort "$file" --ort="$library" --repeat "$repeat" --json "$@" > "$work/json" 2> "$work/error"; then
    cell=equal; [ "$(field equal "$work/json")" = true ] || cell="off by $(field floats_within "$work/json")"
  elif [ -s "$work/json" ]; then
    cell=equal; [ "$(field equal "$work/json")" = true ] || cell="off by $(field floats_within "$work/json")"
  else
    cell="$(head -c 60 "$work/error")"
  fi
}

echo "| model | cache | release | equal by bodies | us | equal with library | nodes by kernels | copies | us | us here |"
echo "|---|---|---|---|---|---|---|---|---|---|"
for model in ${MODELS:-gemma3_B18 deepseek_v3_B18 deepseek_v32_B18 deepseek_v4_A18}; do
  case $model in deepseek*) choice="none bf16" ;; *) choice=$formats ;; esac
  for format in $choice; do
    "$build/pagefuse" opt "$models/$model/model.onnx" --kv-cache "$format" -o "$work/fused.onnx" > /dev/null 2>&1 ||
      { echo "| $model | $format | - | no such cache | | | | | | |"; continue; }
    for release in "$releases"/*; do
      library=$(find "$release" -name libonnxruntime.so.1 -path '*x64*' | head -1)
      run "$work/fused.onnx" "$library" --no-library
      bodies=$cell; by_bodies=$(field step_us "$work/json")
      run "$work/fused.onnx" "$library"
      kernels="$(($(field pagefuse "$work/json") - $(field by_bodies "$work/json"))) of $(field pagefuse "$work/json")"
      echo "| $model | $format | $(basename "$release") | $bodies | $by_bodies | $cell | $kernels | $(field copies "$work/json") | $(field step_us "$work/json") | $(field step_us_here "$work/json") |"
    done
  done
done
