// Calls of the ops of DeepSeek's caches at the sizes of V3.2 and V4, for benchmarks.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "op_call.h"

namespace pagefuse {

// One op in one format.
struct LatentCacheCase {
  std::string name, op;
  // Gives a call of the op inputs and attributes for so many tokens, and returns the bytes that a
  // run must read and write.
  std::function<int64_t(OpCall& call, int64_t tokens)> fill;
};

std::vector<LatentCacheCase> LatentCacheCases();

}  // namespace pagefuse
