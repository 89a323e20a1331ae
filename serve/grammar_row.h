// SPDX-License-Identifier: Apache-2.0
// Grammars one behind the other, of which some may not have come to be.
#pragma once

#include <initializer_list>
#include <vector>

#include "absl/status/statusor.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/text/grammar/grammar.h"

namespace pagefuse::serve {

// Grammar::Sequence, or the first error.
inline absl::StatusOr<Grammar::Ptr> InRow(
    std::initializer_list<absl::StatusOr<Grammar::Ptr>> parts) {
  std::vector<Grammar::Ptr> all;
  for (const absl::StatusOr<Grammar::Ptr>& part : parts) {
    PF_RETURN_IF_ERROR(part.status());
    all.push_back(*part);
  }
  return Grammar::Sequence(all);
}

}  // namespace pagefuse::serve
