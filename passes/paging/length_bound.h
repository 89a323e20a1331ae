// Graphs that do otherwise with long texts: rotations by "longrope" choose their factors by whether the
// greatest position, or the length of the text, is beyond a constant. Up to there the choice is the
// same in every run, so that such a graph pages for texts that are no longer.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "pagefuse/ir/graph/model.h"
#include "pagefuse/passes/paging/paged_attention_uses.h"

namespace pagefuse {

// metadata_props of a paged graph: the most tokens of a sequence for which it is what was exported.
inline constexpr std::string_view kMaxTokensKey = "pagefuse.max_tokens";

struct LengthBound {
  int64_t tokens = 0;  // of a sequence, at most
  // What inputs of the graph, by their names, were taken for, and the comparison that did so.
  enum class Role { kPositions, kMask, kSized };
  struct Assumed {
    std::string input;
    Role role;
    std::string node;
  };
  std::vector<Assumed> assumed;
};

// Replaces comparisons of a length with a constant by what they come to as long as no sequence has
// more than LengthBound::tokens tokens, and puts the branch that is then taken in place of an If.
// Nullopt, nothing changed, if there is none.
absl::StatusOr<std::optional<LengthBound>> BoundLengths(Model& model);

// FailedPrecondition naming comparison and input unless inputs are what they were taken for.
absl::Status CheckBound(const LengthBound& bound, const DecoderInputs& inputs,
                        const std::vector<PagedAttentionSite>& uses);

}  // namespace pagefuse
