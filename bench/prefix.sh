#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# How much sooner a second call answers whose prompt begins as the first one's.
# Usage: bench/prefix.sh [MODEL_FOLDER]
set -euo pipefail
cd "$(dirname "$0")/.."
model=${1:-models/gemma3_recall}
[ -d "$model" ] && model=$(ls "$model"/model_with_past.onnx "$model"/model.onnx 2>/dev/null | head -1)
exec build/release/prefix_bench "$model"
