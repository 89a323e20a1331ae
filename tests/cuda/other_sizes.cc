// SPDX-License-Identifier: Apache-2.0
#include "other_sizes.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <random>
#include <utility>

#include "must.h"

namespace pagefuse {
namespace {

constexpr int64_t kMostElements = int64_t{1} << 15;

bool HasOnlyNumbers(const OpDef& op, const OpCase& op_case) {
  for (const Tensor& input : op_case.inputs) {
    if (!input.defined()) continue;
    const DataType type = input.dtype();
    if (type == DataType::kString || BitWidth(type) < 8 || input.size() == 0) return false;
    if (!IsFloatingPoint(type) && !op.is_elementwise()) return false;
  }
  return true;
}

// Mostly few, as a vector's rest is; now and then more than a warp, or a block, takes.
int64_t RandomSize(std::mt19937_64& random) {
  constexpr std::pair<int64_t, int64_t> kRanges[] = {{1, 9}, {2, 33}, {10, 70}, {71, 300}};
  const auto& [low, high] = kRanges[random() % std::size(kRanges)];
  return low + static_cast<int64_t>(random() % static_cast<uint64_t>(high - low + 1));
}

Tensor Drawn(const Tensor& from, const std::vector<int64_t>& dims, std::mt19937_64& random) {
  Tensor tensor = Must(Tensor::Allocate(from.dtype(), dims));
  const size_t bytes = static_cast<size_t>(BitWidth(from.dtype())) / 8;
  const auto* source = static_cast<const std::byte*>(from.data());
  auto* to = static_cast<std::byte*>(tensor.mutable_data());
  for (int64_t i = 0; i < tensor.size(); ++i) {
    const uint64_t at = random() % static_cast<uint64_t>(from.size());
    std::memcpy(to + i * bytes, source + at * bytes, bytes);
  }
  return tensor;
}

}  // namespace

std::optional<OpCase> InOtherSizes(const OpDef& op, const OpCase& op_case, uint64_t seed) {
  if (!HasOnlyNumbers(op, op_case)) return std::nullopt;
  std::mt19937_64 random(seed);
  std::map<int64_t, int64_t> sizes;
  OpCase changed = op_case;
  changed.outputs.clear();
  if (changed.num_outputs == 0) changed.num_outputs = static_cast<int>(op_case.outputs.size());
  for (Tensor& input : changed.inputs) {
    if (!input.defined()) continue;
    std::vector<int64_t> dims = input.dims();
    int64_t elements = 1;
    for (int64_t& size : dims) {
      if (size > 1) size = sizes.try_emplace(size, RandomSize(random)).first->second;
      elements *= size;
    }
    if (elements > kMostElements) return std::nullopt;
    input = Drawn(input, dims, random);
  }
  return changed;
}

}  // namespace pagefuse
