// SPDX-License-Identifier: Apache-2.0
#include "tools/author/page_report.h"

#include <iostream>
#include <set>
#include <string>

#include "absl/strings/str_format.h"
#include "tools/cli/command.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/cache/page_plan.h"
#include "pagefuse/passes/explain/layers.h"
#include "pagefuse/runtime/cache_layout.h"
#include "pagefuse/runtime/prefix_tree.h"

namespace pagefuse::tools {
namespace {

constexpr int64_t kLengths[] = {1024, 4096, 32768};

int64_t PagesAt(const CacheLayout& layout, int64_t tokens) {
  int64_t pages = 0;
  for (const CacheGroup& group : layout.groups()) pages += BlocksAt(group, tokens);
  return pages;
}

// What the rows that are kept of such a text need.
double RowBytesAt(const CacheLayout& layout, int64_t tokens) {
  double bytes = 0;
  for (const CacheGroup& group : layout.groups()) {
    const int64_t rows = group.RowsOf(tokens) - group.FirstVisible(tokens);
    bytes += static_cast<double>(layout.BlockBytes(group)) * static_cast<double>(rows) /
             static_cast<double>(group.block_size);
  }
  return bytes;
}

int64_t LayersOf(const CacheGroup& group) {
  std::set<int> layers;
  for (const std::string& cache : group.caches) layers.insert(LayerNumber(cache));
  return static_cast<int64_t>(layers.size());
}

}  // namespace

absl::StatusOr<nlohmann::ordered_json> PageReport(const Model& model) {
  PF_ASSIGN_OR_RETURN(const CacheLayout layout, CacheLayout::FromModel(model));
  const auto bytes_at = [&](int64_t tokens) {
    return PagesAt(layout, tokens) * layout.page_bytes();
  };
  nlohmann::ordered_json json = {{"page_bytes", layout.page_bytes()},
                                 {"unit", PrefixTree::UnitOf(layout.groups())}};
  const double rows = RowBytesAt(layout, kPlannedTokens);
  json["waste"] = rows > 0 ? static_cast<double>(bytes_at(kPlannedTokens)) / rows - 1 : 0;
  json["parts"] = nlohmann::ordered_json::array();
  for (const CacheGroup& group : layout.groups()) {
    json["parts"].push_back({{"name", group.name},
                             {"layers", LayersOf(group)},
                             {"block_size", group.block_size},
                             {"block_bytes", layout.BlockBytes(group)}});
  }
  json["sequences"] = nlohmann::ordered_json::array();
  for (const int64_t tokens : kLengths) {
    json["sequences"].push_back(
        {{"tokens", tokens}, {"pages", PagesAt(layout, tokens)}, {"bytes", bytes_at(tokens)}});
  }
  return json;
}

void PrintPageReport(const nlohmann::ordered_json& json) {
  std::cout << "pages of " << json["page_bytes"].get<int64_t>() << " bytes, "
            << absl::StrFormat("%.1f", 100 * json["waste"].get<double>()) << " % lost at "
            << kPlannedTokens << " tokens; texts share whole " << json["unit"].get<int64_t>()
            << " tokens\n";
  for (const auto& part : json["parts"]) {
    std::cout << absl::StrFormat("  %-20s layers %3d, rows a block %4d, bytes of a block %8d\n",
                                 part["name"].get<std::string>(), part["layers"].get<int64_t>(),
                                 part["block_size"].get<int64_t>(),
                                 part["block_bytes"].get<int64_t>());
  }
  for (const auto& sequence : json["sequences"]) {
    std::cout << absl::StrFormat(
        "  a sequence of %5d tokens: %5d pages, %s\n", sequence["tokens"].get<int64_t>(),
        sequence["pages"].get<int64_t>(), HumanBytes(sequence["bytes"].get<int64_t>()));
  }
}

}  // namespace pagefuse::tools
