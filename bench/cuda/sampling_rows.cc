// SPDX-License-Identifier: Apache-2.0
// SampleTokens of rows of 262144 logits in [-1, 1), without edits.
#include <cstdint>
#include <string>
#include <vector>

#include "device_call.h"
#include "paged_requests.h"
#include "rows.h"

#include "pagefuse/ops/kernels/rows/sample_settings.h"

namespace pagefuse::cuda_bench {
namespace {

constexpr int64_t kColumns = 262144;

struct Filters {
  double temperature = 0, top_k = 0, top_p = 1;
};

Measured Sample(const Gpu& gpu, int64_t rows, const Filters& filters) {
  std::vector<double> settings;
  std::vector<int64_t> random;
  for (int64_t r = 0; r < rows; ++r) {
    settings.insert(settings.end(),
                    {filters.temperature, filters.top_k, 0, filters.top_p, 1, 0, 0});
    random.push_back((r + 1) * 0x123456789ABCDEF);
  }
  const CallSpec spec = {
      .op = "SampleTokens",
      .inputs = {Random(DataType::kFloat, {rows, kColumns}, Fill::kFloat),
                 Known(Tensor::Of<double>({rows, kSampleSettings}, settings)), Int64s(random),
                 Int32s({rows + 1}, std::vector<int32_t>(static_cast<size_t>(rows + 1), 0)),
                 Int32s({0}, {}), Known(Tensor::Of<double>({0}, std::vector<double>{})),
                 Int32s({0}, {})}};
  return Moved(gpu, spec, rows * kColumns * 4);
}

}  // namespace

void AddSamplingRows(std::vector<Row>& rows) {
  const auto add = [&](const char* name, double us, int64_t count, const Filters& filters) {
    rows.push_back({name, {.bound = Bound::kRead, .us = us}, [=](const Gpu& gpu) {
                      return Sample(gpu, count, filters);
                    }});
  };
  const Filters greedy, plain = {.temperature = 1};
  const Filters filtered = {.temperature = 1, .top_k = 50, .top_p = 0.9};
  add("SampleTokens B1 262144 greedy", 8, 1, greedy);
  add("SampleTokens B64 262144 greedy", 25, 64, greedy);
  add("SampleTokens B1 262144 temperature 1", 15, 1, plain);
  add("SampleTokens B64 262144 temperature 1 top-k 50 top-p 0.9", 60, 64, filtered);
}

}  // namespace pagefuse::cuda_bench
