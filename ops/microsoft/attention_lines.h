// SPDX-License-Identifier: Apache-2.0
// Lines of text that the decompositions of com.microsoft's attention ops share.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

#include "pagefuse/ir/graph/graph.h"

namespace pagefuse::microsoft_ops {

// What hides keys from queries. Names are those of the body's ports.
struct ScoreMask {
  // [B], [2 B], [B, T], [B, S, T], [B, 1, S, T] or [B, 1, max, max]; null: none
  const Value* seen = nullptr;
  std::string_view seen_name;      // of the port
  const Value* batched = nullptr;  // a port whose first axis is B
  std::string_view batched_name;
  // Lines that define `keys` [1], the number T of past and new keys, and `fresh` [1], that of new
  // ones.
  std::string keys;
  bool has_bias = false;  // the port attention_bias is there
};

// Lines that define `mask`, which is added to the scores: @mask_filter_value where a key is not
// seen, and attention_bias; "" if there is neither. FailedPrecondition if the rank of `seen` is not
// known.
absl::StatusOr<std::string> MaskLines(const ScoreMask& mask);

// Defines `name` as a scalar of the type of the port `like`.
std::string TypedFloat(const Value& like, std::string_view like_name, std::string_view name,
                       std::string_view value);

// Defines `name` [B, H, S, size] from `name`_rows [B, S, H * size]; size -1 if it is not known.
std::string HeadLines(std::string_view name, int64_t heads, int64_t size);

// Defines `output` [B, S, width] from `attended` [B, H, S, width / H]; width -1 if it is not known.
std::string OutputLines(int64_t width);

}  // namespace pagefuse::microsoft_ops
