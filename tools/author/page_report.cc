// SPDX-License-Identifier: Apache-2.0
#include "tools/author/page_report.h"

#include <iostream>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "tools/cli/command.h"

#include "pagefuse/base/short_message.h"
#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/cache/page_plan.h"
#include "pagefuse/passes/explain/layers.h"
#include "pagefuse/runtime/cache_layout.h"
#include "pagefuse/runtime/dense_caches.h"
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

// Caches that take no room in pages.
void FindBesidePages(Model& model, CacheLayout& layout, nlohmann::ordered_json& json) {
  const auto dense = DenseCaches(layout, model);
  if (!dense.ok()) {
    json["beside_pages_error"] = ShortMessage(StdView(dense.status().message()));
    return;
  }
  std::vector<std::string> apart;
  json["beside_pages"] = nlohmann::ordered_json::array();
  for (const DenseCache& cache : *dense) {
    apart.push_back(cache.cache);
    json["beside_pages"].push_back({{"cache", cache.cache}, {"reader", cache.reader}});
  }
  layout.KeepApart(apart);
  json["bytes_beside_a_page"] = layout.bytes_per_page() - layout.page_bytes();
}

void PrintBesidePages(const nlohmann::ordered_json& json) {
  if (json.contains("beside_pages_error")) {
    std::cout << "  caches beside the pages are not known: "
              << json["beside_pages_error"].get<std::string>() << "\n";
    return;
  }
  for (const auto& cache : json["beside_pages"]) {
    std::cout << "  " << ShortMessage(DenseCache{cache["cache"], cache["reader"]}.Text()) << "\n";
  }
  if (json["beside_pages"].empty()) return;
  std::cout << "  these take " << json["bytes_beside_a_page"].get<int64_t>()
            << " bytes for each page\n";
}

}  // namespace

absl::StatusOr<nlohmann::ordered_json> PageReport(Model& model) {
  PF_ASSIGN_OR_RETURN(CacheLayout layout, CacheLayout::FromModel(model));
  nlohmann::ordered_json beside;
  FindBesidePages(model, layout, beside);
  const auto bytes_at = [&](int64_t tokens) {
    return PagesAt(layout, tokens) * layout.bytes_per_page();
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
  json.update(beside);
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
  PrintBesidePages(json);
  for (const auto& sequence : json["sequences"]) {
    std::cout << absl::StrFormat(
        "  a sequence of %5d tokens: %5d pages, %s\n", sequence["tokens"].get<int64_t>(),
        sequence["pages"].get<int64_t>(), HumanBytes(sequence["bytes"].get<int64_t>()));
  }
}

}  // namespace pagefuse::tools
