// SPDX-License-Identifier: Apache-2.0
#include "tools/author/paged_layers.h"

#include <iostream>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_join.h"
#include "tools/cli/command.h"

#include "pagefuse/base/str_cat.h"
#include "pagefuse/runtime/cache_layout.h"

namespace pagefuse::tools {
namespace {

// "kv_cache.3.row" and "kv_cache_out.3.row" are the part "row" of layer 3.
struct CacheName {
  int64_t layer = 0;
  std::string part;
};
std::optional<CacheName> ReadCacheName(std::string_view name) {
  for (const std::string_view prefix : {"kv_cache.", "kv_cache_out."}) {
    if (!name.starts_with(prefix)) continue;
    const std::string_view rest = name.substr(prefix.size());
    const size_t dot = rest.find('.');
    CacheName read;
    if (dot == std::string_view::npos ||
        !absl::SimpleAtoi(AbslView(rest.substr(0, dot)), &read.layer)) {
      continue;
    }
    read.part = rest.substr(dot + 1);
    return read;
  }
  return std::nullopt;
}

using Counts = std::map<std::string, int>;

// Ops belong to the layer whose caches they read, or whose ops they follow.
std::map<int64_t, Counts> OpsByLayer(const Graph& graph) {
  std::map<int64_t, Counts> layers;
  std::map<const Node*, int64_t> of;
  for (const auto& node : graph.nodes()) {
    if (node->domain() != "pagefuse") continue;
    for (const Value* input : node->inputs()) {
      if (!input) continue;
      const auto name = ReadCacheName(input->name());
      const auto before = of.find(input->producer());
      if (!name && before == of.end()) continue;
      of[node.get()] = name ? name->layer : before->second;
      ++layers[of[node.get()]][node->op_type()];
      break;
    }
  }
  return layers;
}

nlohmann::ordered_json GroupsOf(const CacheLayout& layout) {
  nlohmann::ordered_json groups = nlohmann::ordered_json::array();
  for (const CacheGroup& group : layout.groups()) {
    Counts parts;
    for (const std::string& cache : group.caches) {
      const auto name = ReadCacheName(cache);
      ++parts[name ? name->part : cache];
    }
    groups.push_back({{"name", group.name},
                      {"kind", std::string(NameOf(group.kind))},
                      {"rows_kept", group.sliding_window},
                      {"tokens_per_row", group.tokens_per_row()},
                      {"block_size", group.block_size},
                      {"caches", parts}});
  }
  return groups;
}

// Layers with the same ops, in the order of the first of each kind.
nlohmann::ordered_json KindsOf(const std::map<int64_t, Counts>& layers) {
  nlohmann::ordered_json kinds = nlohmann::ordered_json::array();
  for (const auto& [layer, ops] : layers) {
    bool found = false;
    for (auto& kind : kinds) {
      if (kind["ops"] != nlohmann::ordered_json(ops)) continue;
      kind["layers"].push_back(layer);
      found = true;
    }
    if (!found) kinds.push_back({{"layers", {layer}}, {"ops", ops}});
  }
  return kinds;
}

int64_t BytesOfAllRows(const CacheLayout& layout) {
  int64_t bytes = 0;
  for (const CacheGroup& group : layout.groups()) {
    const bool of_tokens = group.kind == CacheKind::kFull || group.kind == CacheKind::kWindow;
    if (of_tokens) bytes += layout.BlockBytes(group) / group.block_size;
  }
  return bytes;
}

std::string Padded(std::string text, size_t width) {
  text.resize(std::max(text.size() + 2, width), ' ');
  return text;
}

std::string Kept(const nlohmann::ordered_json& group) {
  const int64_t rows = group["rows_kept"], tokens = group["tokens_per_row"];
  if (rows > 0) return StrCat("the last ", rows, " rows");
  return tokens == 1 ? std::string("all rows") : StrCat("a row for ", tokens, " tokens");
}

}  // namespace

nlohmann::ordered_json PagedLayers(const Model& model) {
  const auto layout = CacheLayout::FromModel(model);
  if (!layout.ok()) return {};
  return {{"caches", GroupsOf(*layout)},
          {"layers", KindsOf(OpsByLayer(*model.graph))},
          {"bytes_per_token", layout->bytes_per_token()},
          {"bytes_per_sequence", layout->bytes_per_sequence()},
          {"bytes_per_token_of_all_rows", BytesOfAllRows(*layout)}};
}

void PrintPagedLayers(const nlohmann::ordered_json& json) {
  if (json.empty()) return;
  constexpr size_t kName = 16, kKept = 22;
  std::cout << "would keep:\n";
  for (const auto& group : json["caches"]) {
    std::cout << "  " << Padded(group["name"], kName) << Padded(Kept(group), kKept)
              << JoinCounts(group["caches"]) << "\n";
  }
  std::cout << "  " << json["bytes_per_token"].get<int64_t>() << " bytes a token and "
            << json["bytes_per_sequence"].get<int64_t>() << " a sequence; all rows of tokens: "
            << json["bytes_per_token_of_all_rows"].get<int64_t>() << " bytes a token\n"
            << "by layer:\n";
  for (const auto& kind : json["layers"]) {
    std::vector<int64_t> layers = kind["layers"];
    std::cout << "  " << Padded(absl::StrJoin(layers, ", "), kName) << JoinCounts(kind["ops"])
              << "\n";
  }
}

}  // namespace pagefuse::tools
