// SPDX-License-Identifier: Apache-2.0
// Restores the ops of loaded plug-ins when a file with bodies for these ops is read.
#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_split.h"

#include "pagefuse/ir/graph/body_domains.h"
#include "pagefuse/ops/registry/registry.h"
#include "pagefuse/passes/edit/graph_edit.h"
#include "pagefuse/passes/normalise/normalise.h"

namespace pagefuse {
namespace {

// The op's domain; empty where the call is of no op that is known.
std::string RestoredDomain(const Node& call, const std::vector<std::string>& domains) {
  for (const std::string& domain : domains) {
    if (!IsBodyDomain(call.domain(), domain)) continue;
    if (OpRegistry::Global().Find(domain, call.op_type(), 1) != nullptr) return domain;
  }
  return "";
}

}  // namespace

void RestorePluginCalls(Model& model) {
  const auto names = FindMetadata(model.metadata, kBodyDomains);
  if (!names) return;
  const std::vector<std::string> domains = absl::StrSplit(std::string(*names), '\n');
  bool all = true;
  for (const GraphScope& scope : AllGraphs(model)) {
    for (Node* node : NodesOf(*scope.graph)) {
      const std::string domain = RestoredDomain(*node, domains);
      if (!domain.empty()) {
        MoveCall(node, domain);
        (*scope.opsets)[domain] = 1;
        continue;
      }
      all = all && std::ranges::none_of(domains, [node](const std::string& other) {
              return IsBodyDomain(node->domain(), other);
            });
    }
  }
  if (!all) return;
  // All are ops again: what says what they mean is not called any more.
  const auto is_body = [&](const std::string& domain) {
    return std::ranges::any_of(domains,
                               [&](const std::string& base) { return IsBodyDomain(domain, base); });
  };
  std::erase_if(model.functions,
                [&](const Function& function) { return is_body(function.domain); });
  std::erase_if(model.opset_imports, [&](const auto& import) {
    return is_body(import.first) && std::ranges::find(domains, import.first) == domains.end();
  });
  std::erase_if(model.metadata, [](const auto& entry) { return entry.first == kBodyDomains; });
}

}  // namespace pagefuse
