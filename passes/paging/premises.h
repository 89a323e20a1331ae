// SPDX-License-Identifier: Apache-2.0
// What a graph may be paged under that is not so for all requests.
//
// Some graphs do otherwise with a few requests: rotations by "longrope" choose their factors by whether
// the greatest position, or the length of the text, is beyond a constant, positions may be counted
// over the tokens that are not a certain one, and a table of linear biases ends. All other requests
// are alike in every run, so that such a graph pages for these. Whoever runs it refuses the few.
#pragma once

#include <algorithm>
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

// metadata_props of a paged graph: the most tokens of a sequence for which it is what was exported,
// and the ids for which it is not, as a list in JSON.
inline constexpr std::string_view kMaxTokensKey = "pagefuse.max_tokens";
inline constexpr std::string_view kBarredTokensKey = "pagefuse.barred_tokens";

struct Premises {
  int64_t max_tokens = 0;       // of a sequence; 0: any number
  std::vector<int64_t> barred;  // ids that no token has
  // What inputs of the graph, by their names, were taken for, and the node that was settled by it.
  enum class Role { kPositions, kMask, kSized, kTokens, kMaskRows };
  struct Assumed {
    std::string input;
    Role role;
    std::string node;
  };
  std::vector<Assumed> assumed;

  // No sequence has more tokens than `most`; 0: any number.
  void LimitTokens(int64_t most) {
    if (most > 0) max_tokens = max_tokens == 0 ? most : std::min(max_tokens, most);
  }
};

// Replaces comparisons of a length with a constant by what they come to as long as no sequence has
// more than Premises::max_tokens tokens, with `bars` those of ids by what they come to without
// Premises::barred, and puts the branch that is then taken in place of an If. Takes the rows of a
// mask to be those of the batch where they have a size of their own. Nullopt if there is none of
// these.
absl::StatusOr<std::optional<Premises>> TakePremises(Model& model, bool bars);

// FailedPrecondition naming node and input unless inputs are what they were taken for.
absl::Status CheckPremises(const Premises& premises, const DecoderInputs& inputs,
                           const std::vector<PagedAttentionSite>& uses);

// To metadata_props.
void WritePremises(Model& model, const Premises& premises);

}  // namespace pagefuse
