// SPDX-License-Identifier: Apache-2.0
// Finds which requests of a batch begin with the same tokens.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "absl/container/flat_hash_map.h"

#include "pagefuse/runtime/scheduler.h"

namespace pagefuse {

class PrefixIndex {
 public:
  // Tokens that are worth a wait for another request to compute them.
  static constexpr int64_t kLeast = 16;

  // The longest beginning that a request has in common with one that was added before, its last
  // token left out, whose logits are wanted; nullopt if it is shorter than kLeast. Requests are
  // numbered 0, 1, .. in order; their tokens must stay where they are until the last call.
  std::optional<SharedPrefix> Add(std::span<const int64_t> tokens);

 private:
  struct Text {
    std::span<const int64_t> tokens;
    std::optional<SharedPrefix> prefix;
  };
  std::optional<SharedPrefix> Longest(std::span<const int64_t> tokens,
                                      const std::vector<size_t>& alike) const;

  std::vector<Text> texts_;
  // By the first kLeast tokens: the first request that begins so, and the last few.
  absl::flat_hash_map<std::vector<int64_t>, std::vector<size_t>> alike_;
};

}  // namespace pagefuse
