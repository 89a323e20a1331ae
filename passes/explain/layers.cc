// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/passes/explain/layers.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_join.h"

#include "pagefuse/base/str_cat.h"
#include "pagefuse/passes/edit/op_types.h"
#include "pagefuse/passes/explain/fusion_families.h"

namespace pagefuse {
namespace {

// The number behind a word, and a dot, an underscore or nothing between them.
int NumberBehind(const std::string& name, size_t at) {
  if (at < name.size() && (name[at] == '.' || name[at] == '_')) ++at;
  size_t end = at;
  while (end < name.size() && absl::ascii_isdigit(name[end])) ++end;
  int number = -1;
  if (end == at || !absl::SimpleAtoi(name.substr(at, end - at), &number)) return -1;
  return number;
}

// An AddNorm stands between two branches, and so between two layers as often as in one.
bool IsFused(const Node& node) {
  return node.domain() == "pagefuse" && !IsAnyOf(node, {"AddNorm", "Elementwise"}, "pagefuse");
}

// Ops that a layer has one of, between its inserts and its MLP.
bool IsMarker(const Node& node, const absl::flat_hash_set<std::string>& written_out) {
  if (IsAttentionOp(node)) return true;
  if (node.output(0) != nullptr && written_out.contains(node.output(0)->name())) return true;
  return node.domain() == "pagefuse" && absl::EndsWith(node.op_type(), "Attention");
}

// What a layer has behind its attention.
bool IsOfMlp(const Node& node) {
  return node.Is("GatedLinear", "pagefuse") || node.Is("GroupedMatMul", "pagefuse") ||
         node.Is("Gelu") || node.Is("Erf") || node.Is("Tanh") || node.Is("Sigmoid");
}

// What stands in front of the attention that it belongs to.
bool IsInFront(const Node& node) { return !IsOfMlp(node) && !node.Is("Mul"); }

int NamedLayer(const Node& node) {
  int layer = LayerNumber(node.name);
  for (const auto* values : {&node.outputs(), &node.inputs()}) {
    for (const Value* value : *values) {
      if (layer < 0 && value != nullptr) layer = LayerNumber(value->name());
    }
  }
  return layer;
}

class Reader {
 public:
  Reader(const Model& model, const std::vector<UnfusedPlace>& unfused)
      : graph_(*model.graph), unfused_(unfused) {}

  LayerReport Run() {
    for (const UnfusedPlace& place : unfused_) {
      if (!absl::StartsWith(place.family, "attention")) continue;
      written_out_.insert(place.values.begin(), place.values.end());
    }
    NumberNodes();
    for (const auto& node : graph_.nodes()) {
      const int layer = report_.nodes.at(node.get());
      if (IsFused(*node) && layer >= 0) ++report_.ops[layer][node->op_type()];
    }
    AddLeftovers();
    FindMissing();
    return std::move(report_);
  }

 private:
  // Markers first, by name or in their order; then what stands before or behind them. From a marker
  // to the last op of an MLP before the next one all is behind.
  void NumberNodes() {
    std::vector<int> behind;  // by position: the last marker's layer
    int last = -1;
    for (const auto& node : graph_.nodes()) {
      if (IsMarker(*node, written_out_)) {
        const int named = NamedLayer(*node);
        last = named >= 0 ? named : last + 1;
        report_.ops[last];
      }
      behind.push_back(last);
    }
    int next = -1;
    bool behind_mlp = true;
    size_t position = behind.size();
    for (auto it = graph_.nodes().rbegin(); it != graph_.nodes().rend(); ++it) {
      const Node& node = **it;
      --position;
      const bool marks = IsMarker(node, written_out_);
      if (marks) next = behind[position];
      behind_mlp = marks || (behind_mlp && !IsOfMlp(node));
      const int named = NamedLayer(node);
      int layer = marks ? behind[position] : named;
      const bool in_front = IsInFront(node) && next >= 0 && (behind_mlp || behind[position] < 0);
      if (layer < 0) layer = in_front ? next : behind[position];
      report_.nodes[&node] = layer;
    }
  }

  void AddLeftovers() {
    absl::flat_hash_map<std::string, const UnfusedPlace*> places;
    for (const UnfusedPlace& place : unfused_) {
      for (const std::string& value : place.values) places[value] = &place;
    }
    for (const auto& node : graph_.nodes()) {
      const Value* output = node->output(0);
      const auto found = output == nullptr ? places.end() : places.find(output->name());
      if (found == places.end()) continue;
      report_.leftovers.push_back(
          {report_.nodes.at(node.get()), output->name(), node->op_type(), *found->second});
    }
  }

  void FindMissing() {
    absl::flat_hash_set<int> unfinished;
    for (const Leftover& leftover : report_.leftovers) unfinished.insert(leftover.layer);
    std::map<std::string, int> having;
    for (const auto& [layer, ops] : report_.ops) {
      for (const auto& [op, count] : ops) ++having[op];
    }
    for (const auto& [op, layers] : having) {
      if (2 * layers <= static_cast<int>(report_.ops.size())) continue;
      LayerReport::Missing missing{.op = op, .expected = 0, .found = 0};
      for (const auto& [layer, ops] : report_.ops) {
        const bool has = ops.contains(op);
        missing.found += has ? 1 : 0;
        missing.expected += has || unfinished.contains(layer) ? 1 : 0;
      }
      if (missing.expected > missing.found) report_.missing.push_back(missing);
    }
  }

  const Graph& graph_;
  const std::vector<UnfusedPlace>& unfused_;
  absl::flat_hash_set<std::string> written_out_;
  LayerReport report_;
};

// "0-2, 4"
std::string Ranges(const std::vector<int>& numbers) {
  std::vector<std::string> ranges;
  for (size_t i = 0; i < numbers.size();) {
    size_t end = i;
    while (end + 1 < numbers.size() && numbers[end + 1] == numbers[end] + 1) ++end;
    ranges.push_back(i == end ? StrCat(numbers[i]) : StrCat(numbers[i], "-", numbers[end]));
    i = end + 1;
  }
  return absl::StrJoin(ranges, ", ");
}

std::string OpsText(const std::map<std::string, int>& ops) {
  std::string text;
  for (const auto& [op, count] : ops) {
    StrAppend(&text, text.empty() ? "" : ", ", op, count > 1 ? StrCat(" x", count) : "");
  }
  return text.empty() ? "nothing" : text;
}

}  // namespace

int LayerNumber(const std::string& name) {
  for (const std::string_view word : {"kv_cache", "kv_cache_out", "layers", "layer", "blocks"}) {
    for (size_t at = name.find(word); at != std::string::npos; at = name.find(word, at + 1)) {
      const bool starts = at == 0 || std::isalpha(static_cast<unsigned char>(name[at - 1])) == 0;
      const int number = starts ? NumberBehind(name, at + word.size()) : -1;
      if (number >= 0) return number;
    }
  }
  return -1;
}

std::vector<MissedMatch> NearPlaces(const Model& model, const std::vector<MissedMatch>& misses) {
  // A root alone may be that of anything.
  constexpr int kLeastMatched = 2;
  std::vector<MissedMatch> places;
  for (const MissedMatch& miss : misses) {
    const bool reads = miss.pattern_nodes == 0 && absl::StartsWith(miss.rule, "fuse-") &&
                       miss.rule != "fuse-elementwise" && miss.matched_nodes >= kLeastMatched;
    const Value* value = reads ? model.graph->FindValue(miss.at) : nullptr;
    if (value == nullptr || value->producer() == nullptr || IsFused(*value->producer())) continue;
    // Several rules may have come as near.
    const auto further = [&miss](const MissedMatch& place) {
      return place.at == miss.at && place.matched_nodes > miss.matched_nodes;
    };
    const auto nearer = [&miss](const MissedMatch& place) {
      return place.at == miss.at && place.matched_nodes < miss.matched_nodes;
    };
    if (std::ranges::any_of(places, further)) continue;
    std::erase_if(places, nearer);
    places.push_back(miss);
  }
  std::ranges::stable_sort(places, [](const MissedMatch& a, const MissedMatch& b) {
    return a.matched_nodes > b.matched_nodes;
  });
  return places;
}

LayerReport ReportLayers(const Model& model, const std::vector<UnfusedPlace>& unfused) {
  return Reader(model, unfused).Run();
}

std::vector<std::string> LayerLines(const LayerReport& report) {
  std::vector<std::pair<std::string, std::vector<int>>> kinds;
  for (const auto& [layer, ops] : report.ops) {
    const std::string text = OpsText(ops);
    auto kind =
        std::ranges::find_if(kinds, [&text](const auto& known) { return known.first == text; });
    if (kind == kinds.end()) kind = kinds.insert(kinds.end(), {text, {}});
    kind->second.push_back(layer);
  }
  std::vector<std::string> lines;
  for (const auto& [text, layers] : kinds) {
    lines.push_back(StrCat(layers.size() == 1 ? "layer " : "layers ", Ranges(layers), "  ", text));
  }
  return lines;
}

}  // namespace pagefuse
