// SPDX-License-Identifier: Apache-2.0
// A decoder that the differential fuzzer runs: a model, and what its inputs and outputs are.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "plan.h"

#include "pagefuse/ir/graph/model.h"

namespace pagefuse::fuzz {

enum class FeedRole {
  kIds,         // [B, S]
  kMask,        // [B, T]
  kPositions,   // [B, S]
  kTypes,       // [B, S]
  kPast,        // [B, K, P, D]
  kScale,       // a number
  kTokenFloat,  // [B, S]
  kMask4        // [B, 1, S, T], added to scores
};

// A model in the text form whose comments say the rest:
//   # feed NAME ROLE        once for every input
//   # logits NAME
//   # present NAME OUTPUT   what a past is in the next step
//   # padding               rows of padding change no other row
//   # any positions         position ids may be others than 0, 1, ...
//   # pageable              nothing in it keeps it from being paged
//   # paged                 and it is
struct DecoderCase {
  Model model;
  std::map<std::string, FeedRole> feeds;
  std::map<std::string, std::string> presents;  // outputs, by the past that they become
  std::string logits;
  bool padding = false;
  bool any_positions = false;
  bool pageable = false;
  bool paged = false;
};

// InvalidArgument if it is no such text.
absl::StatusOr<DecoderCase> ParseDecoderCase(std::string_view text);

DecoderCase Copy(const DecoderCase& decoder);

// Such a text of a case.
std::string PrintDecoderCase(const DecoderCase& decoder);

// The decoder of a plan as such a text.
std::string WriteDecoder(const Plan& plan);

}  // namespace pagefuse::fuzz
