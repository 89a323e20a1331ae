#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What drafts gain where a text copies its prompt, and cost where it does not.
# Usage: bench/drafts.sh [MODEL_FOLDER [FORMAT_OF_WEIGHTS]]
set -euo pipefail
cd "$(dirname "$0")/.."
model=${1:-models/gemma3_recall}
[ -d "$model" ] && model=$(ls "$model"/model_with_past.onnx "$model"/model.onnx 2>/dev/null | head -1)
exec build/release/drafts_bench "$model" --weights "${2:-float32}"
