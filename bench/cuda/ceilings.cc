// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <chrono>

#include <cuda_runtime.h>

#include "device_code.h"
#include "product_ceiling.h"
#include "rows.h"

namespace pagefuse::cuda_bench {
namespace {

void MeasureMemory(const Gpu& gpu, Ceilings& ceilings) {
  const size_t bytes = std::min(size_t{2} << 30, gpu.free_bytes / 4 / 16 * 16);
  const Memory from(gpu, bytes, Fill::kBytes), to(gpu, bytes, Fill::kZeros);
  const double gigabytes = static_cast<double>(bytes) * 1e-9;
  const Timing copied = TimePlainly(gpu, [&] {
    Check(cudaMemcpyAsync(to.as(), from.as(), bytes, cudaMemcpyDeviceToDevice, gpu.stream));
  });
  double copy = copied.us, read = 1e9;
  for (const int blocks : {1, 2, 4, 16, 64}) {
    const Timing c = TimePlainly(
        gpu, [&] { Check(CopyBytes(from.as(), to.as(), bytes, gpu.sms * blocks, gpu.stream)); });
    const Timing r = TimePlainly(
        gpu, [&] { Check(ReadBytes(from.as(), to.as(), bytes, gpu.sms * blocks, gpu.stream)); });
    copy = std::min(copy, c.us);
    read = std::min(read, r.us);
  }
  ceilings.copy = 2 * gigabytes / copy * 1e6;
  ceilings.read = gigabytes / read * 1e6;
}

double HostMicros(int calls, const std::function<void()>& call) {
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < calls; ++i) call();
  const std::chrono::duration<double, std::micro> taken = std::chrono::steady_clock::now() - begin;
  return taken.count() / calls;
}

}  // namespace

Ceilings MeasureCeilings(const Gpu& gpu) {
  Ceilings ceilings;
  MeasureMemory(gpu, ceilings);
  const Memory number(gpu, 256, Fill::kZeros);
  auto* counter = number.as<uint32_t>();
  const auto add = [&](bool programmatic) {
    return TimeLaunches(gpu, 1, [&](int) { Check(AddOne(counter, programmatic, gpu.stream)); }).us;
  };
  ceilings.node = add(false);
  ceilings.overlapped = add(true);
  ceilings.launch = HostMicros(500, [&] { Check(AddOne(counter, false, gpu.stream)); });
  Check(cudaStreamSynchronize(gpu.stream));
  ceilings.product = ProductCeiling(gpu);
  return ceilings;
}

}  // namespace pagefuse::cuda_bench
