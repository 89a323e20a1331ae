// SPDX-License-Identifier: Apache-2.0
#include "tools/author/memory_page.h"

#include <algorithm>
#include <map>
#include <set>

#include "tools/cli/command.h"
#include "tools/cli/html_page.h"
#include "tools/cli/line_chart.h"

#include "pagefuse/base/str_cat.h"
#include "pagefuse/passes/explain/layers.h"
#include "pagefuse/runtime/cache_layout.h"

namespace pagefuse::tools {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kContexts[] = {2048, 8192, 32768, 131072};

// Bytes of a layer: of its weights, and of a row of its caches by group.
struct LayerBytes {
  int64_t weights = 0;
  std::map<std::string, int64_t> rows;
};
using Layers = std::map<int, LayerBytes>;

// Weights belong to the layer of the first node that reads them; -1 is for what is in none.
void AddWeights(const Graph& graph, const LayerReport& report, Layers& layers) {
  std::set<const Value*> counted;
  for (const auto& node : graph.nodes()) {
    const auto found = report.nodes.find(node.get());
    const int layer = found == report.nodes.end() ? -1 : found->second;
    for (const Value* input : node->inputs()) {
      if (input == nullptr || input->initializer() == nullptr) continue;
      if (counted.insert(input).second) layers[layer].weights += input->initializer()->byte_size();
    }
  }
}

// A cache is [num_blocks, block_size, ...].
int64_t RowBytes(const Value& cache, const CacheGroup& group) {
  if (!cache.shape() || cache.shape()->rank() < 2) return 0;
  std::vector<int64_t> block;
  for (int i = 1; i < cache.shape()->rank(); ++i) {
    block.push_back((*cache.shape())[i].constant().value_or(0));
  }
  return ByteSize(cache.dtype(), block).value_or(0) / std::max<int64_t>(group.block_size, 1);
}

void AddCaches(const Graph& graph, const std::vector<CacheGroup>& groups, Layers& layers) {
  for (const CacheGroup& group : groups) {
    for (const std::string& name : group.caches) {
      const Value* cache = graph.FindValue(name);
      if (cache != nullptr) layers[LayerNumber(name)].rows[group.name] += RowBytes(*cache, group);
    }
  }
}

Json GroupJson(const CacheGroup& group, const Layers& layers) {
  int64_t bytes = 0;
  int count = 0;
  for (const auto& [number, layer] : layers) {
    const auto rows = layer.rows.find(group.name);
    if (rows == layer.rows.end()) continue;
    bytes += rows->second;
    ++count;
  }
  return {{"name", group.name},
          {"layers", count},
          {"rows_kept", group.sliding_window},
          {"tokens_per_row", group.tokens_per_row()},
          {"row_bytes", bytes}};
}

int64_t BytesAt(const Json& group, int64_t tokens) {
  const int64_t kept = group["rows_kept"], per_row = group["tokens_per_row"];
  int64_t rows = (tokens + per_row - 1) / per_row;
  if (kept > 0) rows = std::min(rows, kept);
  return rows * group["row_bytes"].get<int64_t>();
}

std::string Kept(const Json& group) {
  const int64_t kept = group["rows_kept"], per_row = group["tokens_per_row"];
  if (kept > 0) return StrCat("the last ", kept, " rows");
  return per_row == 1 ? "a row for each token" : StrCat("a row for ", per_row, " tokens");
}

int64_t AllRowBytes(const Json& layer) {
  int64_t bytes = 0;
  for (const auto& [group, row] : layer["row_bytes"].items()) bytes += row.get<int64_t>();
  return bytes;
}

std::string LayersTable(const Json& memory) {
  int64_t most_weights = memory["other_weight_bytes"], most_rows = 1;
  for (const Json& layer : memory["layers"]) {
    most_weights = std::max(most_weights, layer["weight_bytes"].get<int64_t>());
    most_rows = std::max(most_rows, AllRowBytes(layer));
  }
  const auto share = [](int64_t bytes, int64_t most) {
    return most > 0 ? static_cast<double>(bytes) / static_cast<double>(most) : 0;
  };
  std::string rows;
  const auto add = [&](const std::string& name, int64_t weights, int64_t row_bytes,
                       const std::string& groups) {
    StrAppend(&rows, "<tr>", RowTitle(name),
              BarCell(share(weights, most_weights), HumanBytes(weights)),
              BarCell(share(row_bytes, most_rows), row_bytes > 0 ? HumanBytes(row_bytes) : ""),
              "<td>", groups, "</td></tr>");
  };
  for (const Json& layer : memory["layers"]) {
    std::string groups;
    for (const auto& [group, row] : layer["row_bytes"].items()) {
      StrAppend(&groups, groups.empty() ? "" : ", ", "<a href=\"#group-", EscapeHtml(group), "\">",
                EscapeHtml(group), "</a>");
    }
    add(StrCat("layer ", layer["layer"].get<int>()), layer["weight_bytes"], AllRowBytes(layer),
        groups);
  }
  add("outside of layers", memory["other_weight_bytes"], 0, "");
  return Table(
      {.caption =
           "Weights, and a row of the cache, by layer; what lies beside a layer counts in it",
       .titles = {"layer", "weights", "a row of its caches", "cache groups"}},
      rows);
}

std::string GroupsTable(const Json& memory) {
  if (memory["groups"].empty()) return "";
  std::vector<std::string> titles = {"group", "layers", "keeps", "a row of all layers"};
  std::set<size_t> numbers = {1, 3};
  for (const Json& context : memory["contexts"]) {
    numbers.insert(titles.size());
    titles.push_back(StrCat("at ", context["tokens"].get<int64_t>(), " tokens"));
  }
  std::string rows;
  for (const Json& group : memory["groups"]) {
    const std::string name = EscapeHtml(group["name"].get<std::string>());
    StrAppend(&rows, "<tr id=\"group-", name, "\">", RowTitle(name),
              NumberCell(StrCat(group["layers"].get<int>())), "<td class=\"short\">", Kept(group),
              "</td>", NumberCell(HumanBytes(group["row_bytes"])));
    for (const Json& context : memory["contexts"]) {
      rows += NumberCell(HumanBytes(context["bytes"][group["name"].get<std::string>()]));
    }
    rows += "</tr>";
  }
  return Table(
      {.caption = "The cache of one sequence, by group", .titles = titles, .numbers = numbers},
      rows);
}

std::string ContextFigure(const Json& memory) {
  LineChart chart{.title = "The cache of one sequence, by the length of its context",
                  .x_title = "tokens",
                  .y_title = "MiB"};
  for (const Json& group : memory["groups"]) {
    LineChart::Line line{.name = group["name"], .points = {}};
    for (const Json& context : memory["contexts"]) {
      const auto bytes = context["bytes"][line.name].get<double>();
      line.points.emplace_back(context["tokens"], bytes / (1 << 20));
    }
    chart.lines.push_back(std::move(line));
  }
  return ChartFigure(chart);
}

std::string Facts(const Json& summary) {
  std::string rows;
  const auto row = [&rows](std::string_view name, const std::string& value) {
    if (!value.empty())
      StrAppend(&rows, "<tr>", RowTitle(name), "<td>", EscapeHtml(value), "</td></tr>");
  };
  row("producer", summary.value("producer", ""));
  row("nodes", StrCat(summary["nodes"].get<int64_t>()));
  row("weights", HumanBytes(summary["initializer_bytes"]));
  row("runnable", summary.value("runnable", ""));
  const Json& fusions = summary["fusions"];
  const std::string fused = JoinCounts(fusions["fused"]);
  row("would fuse", fused.empty() ? "nothing" : fused);
  row("not paged", fusions.value("not_paged", ""));
  row("passes", fusions.value("error", ""));
  return Table({.caption = "What the model is", .titles = {}, .shows_caption = false}, rows);
}

}  // namespace

Json MemoryData(const Model& model) {
  Layers layers;
  AddWeights(*model.graph, ReportLayers(model, {}), layers);
  std::vector<CacheGroup> groups;
  if (const auto layout = CacheLayout::FromModel(model); layout.ok()) groups = layout->groups();
  AddCaches(*model.graph, groups, layers);
  Json json = {{"layers", Json::array()},
               {"other_weight_bytes", layers[-1].weights},
               {"groups", Json::array()},
               {"contexts", Json::array()}};
  for (const auto& [number, layer] : layers) {
    if (number < 0) continue;
    json["layers"].push_back(
        {{"layer", number}, {"weight_bytes", layer.weights}, {"row_bytes", Json(layer.rows)}});
  }
  for (const CacheGroup& group : groups) json["groups"].push_back(GroupJson(group, layers));
  if (groups.empty()) return json;
  for (const int64_t tokens : kContexts) {
    Json bytes = Json::object();
    for (const Json& group : json["groups"]) {
      bytes[group["name"].get<std::string>()] = BytesAt(group, tokens);
    }
    json["contexts"].push_back({{"tokens", tokens}, {"bytes", bytes}});
  }
  return json;
}

std::string MemoryPage(const std::string& title, const Json& summary, const Json& memory) {
  Json data = summary;
  data["memory"] = memory;
  return PageText({.title = title,
                   .kind = "pagefuse inspect",
                   .sections = {{"facts", "Facts", Facts(summary)},
                                {"layers", "Memory by layer", LayersTable(memory)},
                                {"groups", "Memory by cache group",
                                 ContextFigure(memory) + GroupsTable(memory)}},
                   .data_id = "inspect",
                   .data = data});
}

}  // namespace pagefuse::tools
