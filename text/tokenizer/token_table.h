// SPDX-License-Identifier: Apache-2.0
// The tokens of a vocabulary, by id and by text.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"

namespace pagefuse {

// Ids are not negative; kNone is none. Texts lie in one buffer.
class TokenTable {
 public:
  static constexpr int32_t kNone = -1;
  // Ids beyond it are refused: tables are as long as the largest id.
  static constexpr int64_t kMaxId = (1 << 22) - 1;

  void Reserve(size_t tokens, size_t bytes);
  // The later of two with one text or one id is the one that is found. InvalidArgument for an id
  // out of range.
  absl::Status Add(std::string_view text, int64_t id);
  // Call it once after the last Add: builds the index.
  void Finish();

  int32_t Find(std::string_view text) const;
  // Empty for ids that no token has.
  std::string_view Text(int64_t id) const;
  // One more than the largest id.
  int64_t size() const { return static_cast<int64_t>(places_.size()); }

 private:
  struct Place {
    uint32_t first = 0, size = 0;
    bool used = false;
  };
  std::string texts_;
  std::vector<Place> places_;  // by id
  absl::flat_hash_map<std::string_view, int32_t> ids_;
};

}  // namespace pagefuse
