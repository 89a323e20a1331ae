// SPDX-License-Identifier: Apache-2.0
// MqaLogits and PagedMqaLogits in the sizes of DeepSeek-V3.2: 64 heads of 128.
#include <cstdint>

#include "device_call.h"
#include "rows.h"

namespace pagefuse::cuda_bench {
namespace {

constexpr int64_t kHeads = 64, kSize = 128, kBlock = 64;

// Each row sees all keys, or, causally, those up to its own place among the last.
Measured Dense(const Gpu& gpu, int64_t rows, int64_t keys, bool causal) {
  std::vector<int32_t> begins(static_cast<size_t>(rows), 0), ends;
  for (int64_t m = 0; m < rows; ++m) {
    ends.push_back(static_cast<int32_t>(causal ? keys - rows + m + 1 : keys));
  }
  const CallSpec spec = {
      .op = "MqaLogits",
      .inputs = {Random(DataType::kFloat8E4M3FN, {rows, kHeads, kSize}, Fill::kFloat8),
                 Random(DataType::kFloat8E4M3FN, {keys, kSize}, Fill::kFloat8),
                 Random(DataType::kFloat, {keys}, Fill::kPositive),
                 Random(DataType::kFloat, {rows, kHeads}, Fill::kFloat), Int32s({rows}, begins),
                 Int32s({rows}, ends)}};
  const auto codes = static_cast<size_t>(rows * kHeads * kSize + keys * kSize);
  const double seen = static_cast<double>(keys) - (causal ? (rows - 1) / 2.0 : 0);
  return {TimeCalls(gpu, spec, codes + static_cast<size_t>(rows * keys * 4)),
          2.0 * rows * seen * kHeads * kSize};
}

Measured Paged(const Gpu& gpu, int64_t sequences, int64_t queries, int64_t context) {
  const int64_t pages = context / kBlock, blocks = sequences * pages, rows = sequences * queries;
  const CallSpec spec = {
      .op = "PagedMqaLogits",
      .inputs = {
          Random(DataType::kFloat8E4M3FN, {sequences, queries, kHeads, kSize}, Fill::kFloat8),
          // As scales these bytes are numbers below 2 too.
          Random(DataType::kUint8, {blocks, kBlock, kSize + 4}, Fill::kFloat8),
          Random(DataType::kFloat, {rows, kHeads}, Fill::kFloat),
          Int32s({sequences}, std::vector<int32_t>(static_cast<size_t>(sequences),
                                                   static_cast<int32_t>(context))),
          Int32s({sequences, pages}, Shuffled(static_cast<int32_t>(blocks), 1))}};
  const double keys = static_cast<double>(sequences * context);
  const double bytes = keys * (kSize + 4) + keys * static_cast<double>(queries) * 4;
  return {TimeCalls(gpu, spec, static_cast<size_t>(bytes)), bytes};
}

}  // namespace

void AddIndexerRows(std::vector<Row>& rows) {
  const auto dense = [](int64_t m, int64_t n, bool causal) {
    return [=](const Gpu& gpu) { return Dense(gpu, m, n, causal); };
  };
  const auto paged = [](int64_t b, int64_t n, int64_t context) {
    return [=](const Gpu& gpu) { return Paged(gpu, b, n, context); };
  };
  rows.push_back({"MqaLogits M2048 N16384",
                  {.bound = Bound::kProduct, .share = 0.90},
                  dense(2048, 16384, false)});
  rows.push_back({"MqaLogits M2048 N16384 causal",
                  {.bound = Bound::kProduct, .share = 0.90},
                  dense(2048, 16384, true)});
  rows.push_back(
      {"MqaLogits M256 N2048", {.bound = Bound::kProduct, .us = 20}, dense(256, 2048, false)});
  rows.push_back(
      {"PagedMqaLogits B64 32768", {.bound = Bound::kCopy, .share = 0.72}, paged(64, 1, 32768)});
  rows.push_back(
      {"PagedMqaLogits B64 32768 n2", {.bound = Bound::kCopy, .us = 130}, paged(64, 2, 32768)});
}

}  // namespace pagefuse::cuda_bench
