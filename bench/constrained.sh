#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Tokens a second of answers that a JSON schema binds beside those of free ones, of the same lengths, in turns on one server: Gemma 3
# 1B's dimensions with random weights and a tokenizer of 262144 made-up tokens.
# Usage: bench/constrained.sh BUILD_DIR WORK_DIR [ROUNDS]
# BUILD_DIR has fill_weights and pagefuse; WORK_DIR (4 GB) gets the weights, or has those of bench/peer_llama.sh.
# In the environment: SEQUENCES, answers at one time (8); TOKENS, of each (64); WEIGHTS (int4).
set -euo pipefail
[ $# -ge 2 ] || { echo "usage: constrained.sh BUILD_DIR WORK_DIR [ROUNDS]" >&2; exit 1; }
build=$(realpath "$1")
work=$(realpath "$2")
cd "$(dirname "$0")/.."
model=$work/gemma3_1b
[ -f "$model/model.onnx.data" ] || "$build/fill_weights" models/gemma3_1b_graph "$model"
chat=$work/constrained
mkdir -p "$chat"
for file in model.onnx model.onnx.data; do ln -f "$model/$file" "$chat/$file"; done
cp models/gemma3_1b_graph/config.json "$chat"
exec node bench/constrained.mjs "$build/pagefuse" "$chat" "${3:-3}"
