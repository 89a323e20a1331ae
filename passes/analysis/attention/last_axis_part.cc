// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/passes/analysis/attention/last_axis_part.h"

#include "pagefuse/passes/edit/axes.h"

namespace pagefuse {

std::optional<LastAxisHalves> FindHalves(const Value* first, const Value* second) {
  constexpr int kLastAxis = 3;
  const auto& shape = first->shape();
  if (!shape || shape->rank() != kLastAxis + 1) return std::nullopt;
  const auto low = PartOf(*first, kLastAxis, {}), high = PartOf(*second, kLastAxis, {});
  if (!low || !high || low->whole != high->whole || low->begin != 0 || high->begin != low->end) {
    return std::nullopt;
  }
  const auto& all = low->whole->shape();
  if (!all || (*all)[kLastAxis].constant() != high->end) return std::nullopt;
  return LastAxisHalves{low->whole, low->end, high->end - high->begin};
}

}  // namespace pagefuse
