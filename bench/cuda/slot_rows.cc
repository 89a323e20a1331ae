// SPDX-License-Identifier: Apache-2.0
// TopKSlots, ReqIndexToSlot and CombineTopKWindow: indices of 4096 tokens of 8 sequences, all valid.
#include <cstdint>
#include <string>
#include <vector>

#include "device_call.h"
#include "paged_requests.h"
#include "rows.h"

namespace pagefuse::cuda_bench {
namespace {

constexpr int64_t kChoosers = 4096, kSequences = 8, kRowsOfPage = 64;
constexpr int64_t kChooserOfSequence = kChoosers / kSequences;

CallInput SequenceOfToken() {
  std::vector<int32_t> sequences;
  for (int64_t t = 0; t < kChoosers; ++t) {
    sequences.push_back(static_cast<int32_t>(t / kChooserOfSequence));
  }
  return Int32s({kChoosers}, sequences);
}

// Each token's own order of different rows below `range`, a power of two.
CallInput Chosen(int64_t count, int64_t range) {
  std::vector<int32_t> indices;
  indices.reserve(static_cast<size_t>(kChoosers * count));
  for (int64_t t = 0; t < kChoosers; ++t) {
    const int64_t step = 2 * (t * 2654435761 % range) + 1;  // odd
    for (int64_t i = 0; i < count; ++i) {
      indices.push_back(static_cast<int32_t>((t + i * step) & (range - 1)));
    }
  }
  return Int32s({kChoosers, count}, indices);
}

// Indices read, slots and their counts written, the numbers of a token.
Measured LookUp(const Gpu& gpu, CallSpec spec, int64_t count, int64_t bytes_of_token) {
  spec.attributes = {{"block_size", kRowsOfPage}};
  spec.num_outputs = 2;
  return Moved(gpu, spec, kChoosers * (2 * 4 * count + 4 + bytes_of_token));
}

constexpr int64_t kContext = 16384;

CallInput BlockTable() {
  constexpr int64_t kColumns = kContext / kRowsOfPage;
  return Int32s({kSequences, kColumns}, Shuffled(static_cast<int32_t>(kSequences * kColumns), 1));
}

Measured LookUpTopK(const Gpu& gpu, int64_t count) {
  const CallInput valid =
      Known(Tensor::Of<bool>({kChoosers}, std::vector<bool>(static_cast<size_t>(kChoosers), true)));
  return LookUp(gpu,
                {.op = "TopKSlots",
                 .inputs = {Chosen(count, kContext), SequenceOfToken(), BlockTable(), valid}},
                count, 4 + 1);
}

Measured LookUpRequests(const Gpu& gpu, int64_t count) {
  return LookUp(gpu,
                {.op = "ReqIndexToSlot",
                 .inputs = {SequenceOfToken(), BlockTable(), Chosen(count, kContext)}},
                count, 4);
}

// The last 512 tokens of sequences of 8192, which see more compressed rows than are chosen.
Measured Combine(const Gpu& gpu, int64_t count) {
  constexpr int64_t kLength = 8192, kRatio = 4, kWindow = 128, kWidthUnit = 128;
  constexpr int64_t kGathered = kChooserOfSequence + kWindow - 1, kCompressed = kLength / kRatio;
  std::vector<int32_t> starts, lengths(kSequences, kLength), gathered(kSequences, kGathered);
  for (int64_t r = 0; r <= kSequences; ++r) {
    starts.push_back(static_cast<int32_t>(r * kChooserOfSequence));
  }
  const CallSpec spec = {
      .op = "CombineTopKWindow",
      .attributes = {{"window_size", kWindow}, {"compress_ratio", kRatio}, {"topk", count}},
      .inputs = {Chosen(count, kCompressed / 2), Int32s({kSequences + 1}, starts),
                 Int32s({kSequences}, lengths), Int32s({kSequences}, gathered),
                 Int64s({kCompressed + kGathered}), Int64s({kCompressed})},
      .num_outputs = 2};
  const int64_t width = (count + kWindow + kWidthUnit - 1) / kWidthUnit * kWidthUnit;
  return Moved(gpu, spec, kChoosers * 4 * (count + width + 1));
}

}  // namespace

void AddSlotRows(std::vector<Row>& rows) {
  const auto add = [&](const char* name, double us, int64_t count, auto measure) {
    rows.push_back({name, {.bound = Bound::kCopy, .us = us}, [=](const Gpu& gpu) {
                      return measure(gpu, count);
                    }});
  };
  add("TopKSlots T4096 K2048", 19, 2048, LookUpTopK);
  add("ReqIndexToSlot T4096 K2048", 19, 2048, LookUpRequests);
  add("CombineTopKWindow T4096 K512", 9, 512, Combine);
}

}  // namespace pagefuse::cuda_bench
