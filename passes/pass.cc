// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/passes/pass.h"

namespace pagefuse {

PassContext::PassContext() = default;
PassContext::PassContext(PassContext&&) noexcept = default;
PassContext& PassContext::operator=(PassContext&&) noexcept = default;
PassContext::~PassContext() = default;

std::string PassContext::Option(std::string_view name, std::string_view default_value) const {
  auto it = options.find(std::string(name));
  return it == options.end() ? std::string(default_value) : it->second;
}

void PassContext::AddMissedMatch(std::string_view rule, std::string_view at,
                                 std::string_view condition, int matched_nodes) {
  misses.push_back({std::string(rule), std::string(at), std::string(condition), matched_nodes});
}

absl::Status PassContext::Rewrote(const Model& model, std::string_view rule) {
  ++counts[std::string(rule)];
  return after_rewrite ? after_rewrite(model, rule) : absl::OkStatus();
}

}  // namespace pagefuse
