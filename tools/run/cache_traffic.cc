// SPDX-License-Identifier: Apache-2.0
#include "tools/run/cache_traffic.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "pagefuse/ops/registry/registry.h"

namespace pagefuse::tools {
namespace {

const OpDef* OpOf(const Node& node) {
  return OpRegistry::Global().Find(node.domain(), node.op_type(),
                                   std::numeric_limits<int64_t>::max());
}

bool Updates(const OpDef* op, int input) {
  return op != nullptr && std::any_of(op->aliases().begin(), op->aliases().end(),
                                      [input](const auto& alias) { return alias.second == input; });
}

// The graph input whose memory the value is.
const Value* MemoryOf(const Value* value) {
  while (value != nullptr && value->producer() != nullptr) {
    const Node& node = *value->producer();
    const OpDef* op = OpOf(node);
    const Value* input = nullptr;
    for (const auto& [output, from] : op ? op->aliases() : std::vector<std::pair<int, int>>{}) {
      if (output < node.num_outputs() && node.output(output) == value) input = node.input(from);
    }
    if (input == nullptr) return nullptr;
    value = input;
  }
  return value;
}

// Of one block: the first dim counts blocks.
int64_t BlockBytes(const Value& cache) {
  if (!cache.shape()) return 0;
  int64_t elements = 1;
  for (int i = 1; i < cache.shape()->rank(); ++i) {
    elements *= (*cache.shape())[i].constant().value_or(0);
  }
  return elements * BitWidth(cache.dtype()) / 8;
}

}  // namespace

CacheTraffic::CacheTraffic(const CacheLayout& layout, int64_t before, int64_t tokens) {
  for (const CacheGroup& group : layout.groups()) {
    int64_t kept = before + tokens;
    // Every token of the step sees a window of its own.
    if (group.sliding_window > 0) kept = std::min(kept, group.sliding_window + tokens - 1);
    const auto ratio = static_cast<double>(group.tokens_per_row());
    const Rows rows{.read = static_cast<double>(group.RowsOf(kept)),
                    .written = static_cast<double>(tokens) / ratio,
                    .block_size = group.block_size};
    for (const std::string& cache : group.caches) caches_[cache] = rows;
  }
}

CacheTraffic::Bytes CacheTraffic::OfNode(const Node& node) const {
  const OpDef* op = OpOf(node);
  double read = 0, written = 0;
  for (int i = 0; i < node.num_inputs(); ++i) {
    const Value* memory = MemoryOf(node.input(i));
    if (memory == nullptr) continue;
    const auto cache = caches_.find(std::string(memory->name()));
    if (cache == caches_.end()) continue;
    const Rows& rows = cache->second;
    const double row_bytes =
        static_cast<double>(BlockBytes(*memory)) / static_cast<double>(rows.block_size);
    if (Updates(op, i)) {
      written += rows.written * row_bytes;
    } else {
      read += rows.read * row_bytes;
    }
  }
  return {.read = std::llround(read), .written = std::llround(written)};
}

}  // namespace pagefuse::tools
