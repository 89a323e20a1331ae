// SPDX-License-Identifier: Apache-2.0
#include "tools/check/conformance.h"

#include <algorithm>
#include <set>

#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/registry/refused_ops.h"
#include "pagefuse/ops/registry/registry.h"

namespace pagefuse::tools {
namespace {

using OpName = std::pair<std::string, std::string>;

void CollectOps(const Graph& graph, std::set<OpName>& ops) {
  for (const auto& node : graph.nodes()) {
    ops.emplace(node->domain(), node->op_type());
    for (const Graph* subgraph : node->Subgraphs()) CollectOps(*subgraph, ops);
  }
}

std::string DomainName(const std::string& domain) { return domain.empty() ? "ai.onnx" : domain; }

}  // namespace

void Conformance::Add(const Model* read, Verdict verdict) {
  ++cases_[static_cast<int>(verdict)];
  if (read == nullptr || verdict > Verdict::kRefused) return;
  const Model& model = *read;
  std::set<OpName> ops;
  CollectOps(*model.graph, ops);
  for (const Function& function : model.functions) CollectOps(*function.body, ops);
  const auto known = [&](const OpName& op) {
    return OpRegistry::Global().Find(op.first, op.second, model.OpsetVersion(op.first)) != nullptr;
  };
  const bool all_known = std::all_of(ops.begin(), ops.end(), known);
  for (const OpName& op : ops) {
    if (model.FindFunction(op.first, op.second) != nullptr) continue;
    const bool blamed = verdict != Verdict::kRefused || all_known || !known(op);
    if (!blamed) continue;
    Counts& counts = ops_[op];
    int& count = verdict == Verdict::kPassed   ? counts.passed
                 : verdict == Verdict::kFailed ? counts.failed
                                               : counts.refused;
    ++count;
    const int version = static_cast<int>(model.OpsetVersion(op.first));
    counts.low = counts.low == 0 ? version : std::min(counts.low, version);
    counts.high = std::max(counts.high, version);
  }
}

std::string Conformance::Page() const {
  const std::string skipped =
      cases_[3] > 0 ? StrCat(", ", cases_[3], " had nothing to compare with") : "";
  std::string page = StrCat(
      "# Conformance\n\n"
      "Written by `pagefuse check DIR --allow-refused --report docs/conformance.md` over the test "
      "cases of the ONNX standard.\n\n",
      cases_[0], " cases passed, ", cases_[1], " failed, ", cases_[2],
      " were refused before anything ran", skipped,
      ".\n\nA case counts for every op in its model.\n\n"
      "| op | opsets | passed | failed | refused |\n|---|---|---|---|---|\n");
  std::map<std::string, std::string> reasons;  // reason -> refused ops
  for (const auto& [op, counts] : ops_) {
    const std::string name =
        op.first.empty() ? op.second : StrCat(DomainName(op.first), ".", op.second);
    const std::string_view why = WhyRefused(op.first, op.second);
    if (!why.empty()) {
      std::string& list = reasons[std::string(why)];
      StrAppend(&list, list.empty() ? "" : ", ", name, " (", counts.refused, ")");
      continue;
    }
    StrAppend(&page, "| ", name, " | ", counts.low,
              counts.low == counts.high ? "" : StrCat("-", counts.high), " | ", counts.passed,
              " | ", counts.failed, " | ", counts.refused, " |\n");
  }
  StrAppend(&page, "\n## Out of scope\n\nCases in parentheses.\n\n| kind | ops |\n|---|---|\n");
  for (const auto& [reason, list] : reasons) StrAppend(&page, "| ", reason, " | ", list, " |\n");
  StrAppend(&page,
            "\nCases with known ops are refused for a type that is not computed (strings, "
            "sequences, optionals), or training.\n");
  return page;
}

}  // namespace pagefuse::tools
