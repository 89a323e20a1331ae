#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Compares every op that has a decomposition with ONNX Runtime: our best kernel against the decomposition, attention against ONNX
# Runtime's GroupQueryAttention, and standard ops (std_...) against the same node, on the same inputs with as many threads.
#
#   bench/op_peer.sh BUILD_DIR WORK_DIR [NAME...]
#
# BUILD_DIR has op_peer_cases. WORK_DIR (1 GB) gets ONNX Runtime, the models and their inputs.
# NAMEs are beginnings of the cases to take. THREADS and SECONDS_A_CASE (of runs) may be set in the environment.
set -eu
[ $# -ge 2 ] || { echo "usage: op_peer.sh BUILD_DIR WORK_DIR [NAME...]" >&2; exit 1; }
build=$1
work=$2
shift 2
here=$(cd "$(dirname "$0")" && pwd)
threads=${THREADS:-2}
seconds=${SECONDS_A_CASE:-0.5}

[ -d "$work/ort_peer/node_modules/onnxruntime-node" ] || "$here/ort_peer/install.sh" "$work/ort_peer"
rm -rf "$work/op_peer"
taskset -c "0-$((threads - 1))" "$build/op_peer_cases" "$work/op_peer" --seconds="$seconds" "$@"
NODE_PATH=$work/ort_peer/node_modules node "$here/op_peer/ops.js" "$work/op_peer" --threads="$threads" --seconds="$seconds"
