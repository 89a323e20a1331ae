// SPDX-License-Identifier: Apache-2.0
#include "gpu.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <utility>

#include <cuda_runtime.h>

#include "device_code.h"

#include "pagefuse/ops/cuda/cuda.h"

namespace pagefuse::cuda_bench {
namespace {

constexpr int kRuns = 40, kWarmUps = 4;
// A graph of launches takes at least this long, so that its own launch is little of it.
constexpr double kGraphMicros = 1500;

class Events {
 public:
  Events() {
    Check(cudaEventCreate(&first_));
    Check(cudaEventCreate(&second_));
  }
  ~Events() {
    cudaEventDestroy(first_);
    cudaEventDestroy(second_);
  }
  Events(const Events&) = delete;
  Events& operator=(const Events&) = delete;
  double MicrosOf(cudaStream_t stream, const std::function<void()>& call) const {
    Check(cudaEventRecord(first_, stream));
    call();
    Check(cudaEventRecord(second_, stream));
    Check(cudaEventSynchronize(second_));
    float milliseconds = 0;
    Check(cudaEventElapsedTime(&milliseconds, first_, second_));
    return milliseconds * 1e3;
  }

 private:
  cudaEvent_t first_ = nullptr, second_ = nullptr;
};

Timing Summed(std::vector<double> times, double calls) {
  std::ranges::sort(times);
  const double median = times[times.size() / 2];
  const double low = times[times.size() / 20], high = times[times.size() - 1 - times.size() / 20];
  return {.us = median / calls, .spread = (high - low) / median};
}

}  // namespace

void Check(cuda::Error error, const char* file, int line) {
  if (error == 0) return;
  std::fprintf(stderr, "%s:%d: %s\n", file, line,
               cudaGetErrorString(static_cast<cudaError_t>(error)));
  std::exit(1);
}

Gpu OpenGpu() {
  auto context = OpenDevice("cuda:0");
  if (!context.ok()) {
    std::printf("skipped: %s\n", std::string(context.status().message()).c_str());
    std::exit(77);
  }
  Gpu gpu;
  gpu.context = *std::move(context);
  gpu.stream = static_cast<cuda::Stream>(gpu.context->queue());
  cudaDeviceProp properties;
  Check(cudaGetDeviceProperties(&properties, 0));
  gpu.name = properties.name;
  gpu.sms = properties.multiProcessorCount;
  gpu.capability = properties.major * 10 + properties.minor;
  gpu.l2_bytes = static_cast<size_t>(properties.l2CacheSize);
  size_t total = 0;
  Check(cudaMemGetInfo(&gpu.free_bytes, &total));
  return gpu;
}

Memory::Memory(const Gpu& gpu, size_t bytes, Fill fill, uint32_t seed) : bytes_(bytes) {
  Check(cudaMalloc(&data_, std::max<size_t>(bytes, 16)));
  Check(FillRandom(data_, bytes, fill, seed, gpu.stream));
  Check(cudaStreamSynchronize(gpu.stream));
}

Memory::~Memory() {
  if (data_ != nullptr) cudaFree(data_);
}

Memory::Memory(Memory&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

Memory& Memory::operator=(Memory&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

void CopyUp(const Gpu& gpu, void* to, const void* from, size_t bytes) {
  Check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, gpu.stream));
  Check(cudaStreamSynchronize(gpu.stream));
}

Timing TimeLaunches(const Gpu& gpu, int sets, const std::function<void(int set)>& launch) {
  const Events events;
  for (int set = 0; set < sets; ++set) launch(set);
  Check(cudaStreamSynchronize(gpu.stream));
  const double once = events.MicrosOf(gpu.stream, [&] {
    for (int set = 0; set < sets; ++set) launch(set);
  });
  const int rounds =
      std::clamp(static_cast<int>(kGraphMicros / std::max(once, 1.0)), 1, 4096 / sets + 1);
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  Check(cudaStreamBeginCapture(gpu.stream, cudaStreamCaptureModeThreadLocal));
  for (int i = 0; i < rounds * sets; ++i) launch(i % sets);
  Check(cudaStreamEndCapture(gpu.stream, &graph));
  Check(cudaGraphInstantiate(&exec, graph, 0));
  Check(cudaGraphUpload(exec, gpu.stream));
  std::vector<double> times;
  for (int run = 0; run < kWarmUps + kRuns; ++run) {
    const double us =
        events.MicrosOf(gpu.stream, [&] { Check(cudaGraphLaunch(exec, gpu.stream)); });
    if (run >= kWarmUps) times.push_back(us);
  }
  Check(cudaGraphExecDestroy(exec));
  Check(cudaGraphDestroy(graph));
  return Summed(std::move(times), static_cast<double>(rounds) * sets);
}

Timing TimePlainly(const Gpu& gpu, const std::function<void()>& call) {
  const Events events;
  std::vector<double> times;
  for (int run = 0; run < kWarmUps + kRuns / 2; ++run) {
    const double us = events.MicrosOf(gpu.stream, call);
    if (run >= kWarmUps) times.push_back(us);
  }
  return Summed(std::move(times), 1);
}

int SetsFor(const Gpu& gpu, size_t bytes) {
  const size_t wanted = 3 * gpu.l2_bytes / std::max<size_t>(bytes, 1) + 1;
  return static_cast<int>(std::clamp<size_t>(wanted, 2, 64));
}

std::vector<int32_t> Shuffled(int32_t n, uint32_t seed) {
  std::vector<int32_t> order(static_cast<size_t>(n));
  std::iota(order.begin(), order.end(), 0);
  uint64_t state = seed * 2654435761u + 1;
  for (int32_t i = n - 1; i > 0; --i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    std::swap(order[static_cast<size_t>(i)], order[(state >> 33) % static_cast<uint64_t>(i + 1)]);
  }
  return order;
}

}  // namespace pagefuse::cuda_bench
