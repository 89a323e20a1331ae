#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# check_interop.sh PAGEFUSE: written files of some exports in the newest release of ONNX Runtime that PAGEFUSE_ORT_LIBS names.
set -euo pipefail
libraries=${PAGEFUSE_ORT_LIBS:-}
libraries=${libraries%:}
[ -n "$libraries" ] || exit 77
exec python3 tests/ort/interop.py "$1" "${libraries##*:}" \
  models/gemma3_B18 models/gemma3_D_fp32 models/deepseek_v3_B18 models/deepseek_v4_A18
