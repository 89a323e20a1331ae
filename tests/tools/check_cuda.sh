#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# check_cuda.sh PAGEFUSE with|without: a program without kernels for CUDA has nothing of CUDA in it and says so; one with them starts where
# neither toolkit nor driver is, and says which one it misses. Run in the top folder.
set -euo pipefail
. "$(dirname "$0")/expect.sh"
model=models/gemma3_A18/model.onnx

# One line, and what it says.
line() {
  [ "$(wc -l <"$out/printed")" -eq 1 ] || fail "more than one line"
  [ "$(cat "$out/printed")" = "pagefuse: $1" ] || fail "expected \"pagefuse: $1\""
}

expect 0 '' --version
expect 0 '^RMSNormalization since 23: ' ops
expect 0 '^RMSNormalization since 23: ' ops --device cpu
unlike 'cuda'
for device in gpu cuda: cuda:-1 CUDA; do
  expect 1 "^pagefuse: --device: expected cpu, cuda or cuda:N, got \"$device\"\$" run "$model" --device "$device"
  expect 1 "^pagefuse: --device: expected cpu, cuda or cuda:N, got \"$device\"\$" ops --device "$device"
done

needed=$(readelf -d "$pagefuse" | sed -n 's/.*NEEDED.*\[\(.*\)\]/\1/p')
if grep -q '^libcu' <<<"$needed"; then
  echo "expected no library of CUDA among those that must be there, got: $needed"
  exit 1
fi

if [ "$2" = without ]; then
  # Names of the runtime and the driver, and the code of kernels.
  if found=$(nm "$pagefuse" | grep -E ' (__)?(cuda[A-Z]|cublas|cu[A-Z]|fatbinData)'); then
    printf 'expected nothing of CUDA, got:\n%s\n' "$(head -5 <<<"$found")"
    exit 1
  fi
  if readelf -S --wide "$pagefuse" | grep -qE '\.nv_?[fF]at[bB]in'; then
    echo "expected no code for GPUs"
    exit 1
  fi
  missing='this build has no CUDA kernels; configure with -DPAGEFUSE_CUDA=ON and nvcc 12.4 or newer'
  expect 1 '' ops --device cuda
  line "--device cuda: $missing"
elif ! readelf -S --wide "$pagefuse" | grep -qE '\.nv_fatbin'; then
  echo "expected code for GPUs"
  exit 1
else
  expect 0 '^RMSNormalization since 23: cuda.* \(float' ops --device cuda
  unlike ': $'
  ldconfig -p | grep -q 'libcuda\.so\.1' && exit 0
  missing='no NVIDIA driver: libcuda.so.1 cannot be opened'
fi
for device in cuda cuda:0 cuda:7; do
  expect 1 '' generate "$model" --prompt-ids 1 --device "$device"
  line "--device $device: $missing"
  expect 1 '' run "$model" --device "$device"
  line "--device $device: $missing"
done
expect 1 '' check "$PWD/models" --device cuda
line "--device cuda: $missing"
