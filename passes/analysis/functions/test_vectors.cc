// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/passes/analysis/functions/test_vectors.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/ops/kernels/numeric/convert.h"

namespace pagefuse {
namespace {

// Elements that have one magnitude: no format has smaller groups.
constexpr int64_t kRun = 32;
constexpr float kLargestScore = 4;
// Their squares have the mean 16, and no two sums of three-bit numbers are easier to take: whatever
// a softmax takes of rows of these, the root of the mean square is a power of two.
constexpr int kExactRun = 8;
constexpr int kExactNumbers[kExactRun] = {1, 1, 3, 3, 3, 5, 5, 7};
// exp(-256) is 0.
constexpr float kScoreStep = 256;
// More than any probe has rows.
constexpr int64_t kScoreRanks = 65537;

class ProbeWriter {
 public:
  explicit ProbeWriter(const ProbeRound& round) : round_(round), random_(round.seed) {}

  absl::StatusOr<Tensor> Write(const ProbePort& port) {
    PF_ASSIGN_OR_RETURN(Tensor tensor, Tensor::Allocate(port.dtype, port.dims));
    const int64_t size = tensor.size();
    switch (port.role) {
      case ProbeRole::kRows:
        return Encoded(std::move(tensor), Rows(size, RowBits(port)));
      case ProbeRole::kScores:
        return Encoded(std::move(tensor), Scores(size, port.dims.back(), IsFine(port)));
      case ProbeRole::kLogSums:
        return Encoded(std::move(tensor), LogSums(size));
      case ProbeRole::kFactors:
        return Encoded(std::move(tensor), Numbers(size, Scale(), IsFine(port)));
      case ProbeRole::kScale: {
        std::vector<float> scales = Numbers(size, Scale(), IsFine(port));
        for (float& scale : scales) scale = std::abs(scale);
        return Encoded(std::move(tensor), scales);
      }
      case ProbeRole::kLevels: {
        std::vector<float> levels = Numbers(size, 0.25f, /*fine=*/true);
        std::sort(levels.begin(), levels.end());
        return Encoded(std::move(tensor), levels);
      }
      case ProbeRole::kSigns: {
        std::vector<float> signs(size);
        for (float& sign : signs) sign = Signed(1);
        return Encoded(std::move(tensor), signs);
      }
      case ProbeRole::kTable:
        return Encoded(std::move(tensor), Numbers(size, 1.0f, IsFine(port)));
      case ProbeRole::kIndices:
        return Integers(std::move(tensor), Indices(size, port.limit));
      case ProbeRole::kBlocks:
        return Integers(std::move(tensor), round_.beyond ? std::vector<int64_t>(size, port.limit)
                                                         : Indices(size, port.limit));
      case ProbeRole::kEntries: {
        std::vector<int64_t> entries = Indices(size, port.limit + 1);
        for (int64_t& entry : entries) --entry;
        return Integers(std::move(tensor), entries);
      }
      case ProbeRole::kWindowEnds:
        return Integers(std::move(tensor), WindowEnds(size, port));
      case ProbeRole::kSlots:
        return Integers(std::move(tensor), Slots(size, port.limit));
      case ProbeRole::kState:
        return Encoded(std::move(tensor), State(size, port.dims.back()));
      case ProbeRole::kContents:
        return Contents(std::move(tensor), IsFine(port));
    }
    return tensor;
  }

 private:
  static bool IsFine(const ProbePort& port) { return port.dtype != DataType::kBfloat16; }
  int Uniform(int low, int high) {
    // Both fit in 32 bits, which are divided faster than the generator's type.
    const auto range = static_cast<uint32_t>(high - low + 1);
    return low + static_cast<int>(static_cast<uint32_t>(random_()) % range);
  }
  float Signed(float x) { return Uniform(0, 1) == 0 ? x : -x; }

  // Near 1 rows have five bits, or twelve where the type has more than bfloat16: rounding to it must
  // show. Elsewhere they have all bits of a bfloat16 or a float16, the last one set, so that a graph
  // that drops bits of what it writes is another function.
  int RowBits(const ProbePort& port) const {
    constexpr int kFloatBits = 24;
    if (round_.all_bits && port.dtype == DataType::kFloat) return kFloatBits;
    return RowBits(IsFine(port));
  }

  int RowBits(bool fine) const {
    if (round_.exponent == 0) return fine ? 12 : 5;
    return fine ? 11 : 8;
  }

  // The first number of a run is larger than the others and no multiple of 7, so that it decides
  // the scale, and its share of a format's largest number is no power of two by accident.
  std::vector<float> Rows(int64_t size, int bits) {
    std::vector<float> rows(size, 0.0f);
    if (round_.zero) return rows;
    if (round_.exact) return ExactRows(size);
    const int half = 1 << (bits - 1);
    float step = 0;
    for (int64_t i = 0; i < size; ++i) {
      const bool first = i % kRun == 0;
      if (first) {
        const int exponent = round_.exponent + (round_.powers ? 0 : Uniform(-3, 2));
        step = std::ldexp(1.0f, exponent - bits);
      }
      int digits = 2 * Uniform(first ? half / 2 : 0, half - 1) + 1;
      if (first && round_.powers) digits = 7 << (bits - 3);
      rows[i] = Signed(static_cast<float>(digits) * step);
      // Three powers of two above the others.
      if (first) step /= 8;
    }
    return rows;
  }

  std::vector<float> ExactRows(int64_t size) {
    std::vector<float> rows(size);
    std::vector<int> run(std::begin(kExactNumbers), std::end(kExactNumbers));
    for (int64_t i = 0; i < size; ++i) {
      if (i % kExactRun == 0) std::shuffle(run.begin(), run.end(), random_);
      rows[i] = Signed(std::ldexp(static_cast<float>(run[i % kExactRun]), round_.exponent));
    }
    return rows;
  }

  // In an exact round no two rows have the same score, and each run of a row another rank.
  std::vector<float> Scores(int64_t size, int64_t row, bool fine) {
    if (!round_.exact) return Numbers(size, Largest(kLargestScore), fine);
    std::vector<float> scores(size);
    std::vector<std::pair<int64_t, int64_t>> ranks(row / kExactRun + 1);
    for (auto& [step, first] : ranks) {
      step = Uniform(1, kScoreRanks - 1);
      first = Uniform(0, kScoreRanks - 1);
    }
    for (int64_t i = 0; i < size; ++i) {
      const auto& [step, first] = ranks[i % row / kExactRun];
      scores[i] = kScoreStep * static_cast<float>((i / row * step + first) % kScoreRanks);
    }
    return scores;
  }

  // So that half of the numbers lie beyond a bound.
  float Largest(float usual) const { return round_.bound == 0 ? usual : 2 * round_.bound; }
  float Scale() const { return std::min(Largest(2), 32.0f); }

  // Odd multiples of 2^-bits below `largest`, none 0.
  std::vector<float> Numbers(int64_t size, float largest, bool fine) {
    const int bits = fine ? 12 : 5;
    const float step = std::ldexp(largest, -bits);
    std::vector<float> numbers(size);
    for (float& number : numbers) {
      const int digits = 2 * Uniform(0, (1 << (bits - 1)) - 1) + 1;
      number = Signed(step * static_cast<float>(digits));
    }
    return numbers;
  }

  std::vector<float> LogSums(int64_t size) {
    constexpr float kInfinity = std::numeric_limits<float>::infinity();
    std::vector<float> sums = Numbers(size, Largest(kLargestScore), /*fine=*/true);
    for (float& sum : sums) {
      if (Uniform(0, 2) == 0) sum = Signed(kInfinity);
    }
    return sums;
  }

  std::vector<float> State(int64_t size, int64_t row) {
    std::vector<float> state = Rows(size, RowBits(/*fine=*/true));
    const std::vector<float> scores = Scores(size, row, /*fine=*/true);
    for (int64_t i = 0; i < size; ++i) {
      if (i % row >= row / 2) state[i] = scores[i];
    }
    return state;
  }

  std::vector<int64_t> Indices(int64_t size, int64_t limit) {
    std::vector<int64_t> indices(size);
    for (int64_t& index : indices) {
      index = static_cast<int64_t>(random_() % static_cast<uint64_t>(std::max<int64_t>(limit, 1)));
    }
    return indices;
  }

  std::vector<int64_t> WindowEnds(int64_t size, const ProbePort& port) {
    std::vector<int64_t> indices = Indices(size, port.limit);
    for (int64_t i = 0; i < size; ++i) {
      const int64_t end = indices[i] / port.step * port.step + port.step - 1;
      if (i % 2 == 0 && end < port.limit) indices[i] = end;
    }
    return indices;
  }

  std::vector<int64_t> Slots(int64_t size, int64_t limit) {
    if (round_.beyond) return std::vector<int64_t>(size, limit);
    std::vector<int64_t> slots(std::max(limit, size));
    std::iota(slots.begin(), slots.end(), 0);
    std::shuffle(slots.begin(), slots.begin() + limit, random_);
    // Where there are tokens for all slots, two write each: what nobody writes must stay.
    if (size >= limit && limit > 1) {
      for (int64_t i = limit / 2; i < static_cast<int64_t>(slots.size()); ++i) {
        slots[i] = slots[i % (limit / 2)];
      }
    }
    slots.resize(size);
    for (int64_t i = 0; i < size; ++i) {
      if (slots[i] >= limit || (round_.padding && i % 3 == 1)) slots[i] = -1;
    }
    return slots;
  }

  static absl::StatusOr<Tensor> Encoded(Tensor tensor, const std::vector<float>& numbers) {
    PF_RETURN_IF_ERROR(
        EncodeFromFloat(tensor.dtype(), numbers.data(), tensor.size(), tensor.mutable_data()));
    return tensor;
  }

  static absl::StatusOr<Tensor> Integers(Tensor tensor, const std::vector<int64_t>& numbers) {
    if (tensor.dtype() == DataType::kInt64) {
      std::copy(numbers.begin(), numbers.end(), static_cast<int64_t*>(tensor.mutable_data()));
      return tensor;
    }
    if (tensor.dtype() == DataType::kInt32) {
      std::copy(numbers.begin(), numbers.end(), static_cast<int32_t*>(tensor.mutable_data()));
      return tensor;
    }
    return absl::UnimplementedError("indices are int32 or int64");
  }

  // Floating caches hold numbers, so that none is a NaN.
  absl::StatusOr<Tensor> Contents(Tensor tensor, bool fine) {
    if (IsFloatingPoint(tensor.dtype()) && tensor.dtype() != DataType::kFloat8E4M3FN) {
      const std::vector<float> numbers = Numbers(tensor.size(), 16.0f, fine);
      return Encoded(std::move(tensor), numbers);
    }
    auto* bytes = static_cast<uint8_t*>(tensor.mutable_data());
    const int64_t count = tensor.byte_size();
    constexpr int64_t kStep = sizeof(uint32_t);
    for (int64_t i = 0; i < count; i += kStep) {
      const auto word = static_cast<uint32_t>(random_());
      std::memcpy(bytes + i, &word, std::min(kStep, count - i));
    }
    return tensor;
  }

  const ProbeRound& round_;
  std::mt19937 random_;
};

}  // namespace

absl::StatusOr<std::vector<Tensor>> MakeProbe(const std::vector<ProbePort>& ports,
                                              const ProbeRound& round) {
  ProbeWriter writer(round);
  std::vector<Tensor> tensors;
  for (const ProbePort& port : ports) {
    PF_ASSIGN_OR_RETURN(tensors.emplace_back(), writer.Write(port));
  }
  return tensors;
}

}  // namespace pagefuse
