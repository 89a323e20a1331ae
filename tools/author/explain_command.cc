// SPDX-License-Identifier: Apache-2.0
// pagefuse explain: what fused, what did not, and why.
#include <algorithm>
#include <iostream>
#include <memory>
#include <optional>

#include "absl/strings/match.h"
#include "tools/author/pipeline_flags.h"
#include "tools/cli/output.h"
#include "tools/cli/subcommand.h"

#include "pagefuse/base/short_message.h"
#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/passes/explain/layers.h"
#include "pagefuse/passes/explain/near_misses.h"
#include "pagefuse/passes/pipeline/pipeline_names.h"

namespace pagefuse::tools {
namespace {

using Json = nlohmann::ordered_json;

struct Flags {
  ModelFlags model;
  std::vector<std::string> rules;
  std::optional<std::string> at;
  std::optional<int64_t> layer;
  bool all = false, json = false, strict = false;
  PipelineFlags pipeline;
};

constexpr size_t kColumn = 46;

std::string Cell(const std::string& text) {
  constexpr std::string_view kMore = "...";
  if (text.size() <= kColumn) return text + std::string(kColumn - text.size(), ' ');
  return text.substr(0, kColumn - kMore.size()) + std::string(kMore);
}

// Pattern beside graph; marked are the nodes that the match did not get to.
void PrintSides(const MissedMatch& miss) {
  if (miss.side_by_side.empty()) return;
  std::cout << "    " << Cell("pattern") << "  graph\n";
  for (const auto& [pattern, graph] : miss.side_by_side) {
    std::cout << (graph.empty() ? "  > " : "    ") << Cell(pattern) << "  "
              << (graph.empty() ? "-" : graph) << "\n";
  }
}

// `rms-norm (form "pow sqrt-div") 6 of 7 nodes`
std::string HowFar(const MissedMatch& miss) {
  std::string text = miss.rule;
  if (!miss.variant.empty()) StrAppend(&text, " (form \"", miss.variant, "\")");
  if (miss.pattern_nodes > 0) {
    // Views that the pattern lacks count as matched.
    StrAppend(&text, " ", std::min(miss.matched_nodes, miss.pattern_nodes), " of ",
              miss.pattern_nodes, " nodes");
  }
  return text;
}

bool IsNear(const MissedMatch& miss) {
  return miss.pattern_nodes == 0 || 2 * miss.matched_nodes >= miss.pattern_nodes;
}

void PrintMiss(const MissedMatch& miss) {
  std::cout << "  failed: " << ShortMessage(miss.condition) << "\n";
  PrintSides(miss);
}

void PrintLeftover(const Leftover& leftover, bool all) {
  if (leftover.layer >= 0) std::cout << "layer " << leftover.layer << ", ";
  std::cout << leftover.op << " \"" << leftover.value << "\": " << leftover.place.family;
  const MissedMatch& miss = leftover.place.nearest;
  if (miss.rule.empty()) {
    std::cout << "; no rule resembles it\n";
  } else if (!all && !IsNear(miss)) {
    std::cout << "; nearest is " << HowFar(miss) << " (--all shows it)\n";
  } else {
    std::cout << "; " << HowFar(miss) << "\n";
    PrintMiss(miss);
  }
}

// Leftovers that differ in nothing but their place are shown once.
bool Alike(const Leftover& a, const Leftover& b) {
  return a.place.family == b.place.family && a.place.rule == b.place.rule &&
         WithoutNumbers(a.place.reason) == WithoutNumbers(b.place.reason);
}

void PrintLeftovers(const std::vector<Leftover>& leftovers, bool all) {
  std::vector<bool> told(leftovers.size(), false);
  for (size_t i = 0; i < leftovers.size(); ++i) {
    if (told[i]) continue;
    PrintLeftover(leftovers[i], all);
    std::vector<std::string> others;
    for (size_t j = i + 1; j < leftovers.size(); ++j) {
      if (told[j] || !Alike(leftovers[i], leftovers[j])) continue;
      told[j] = true;
      others.push_back(
          StrCat(leftovers[j].layer >= 0 ? StrCat("layer ", leftovers[j].layer, " ") : "", "\"",
                 leftovers[j].value, "\""));
    }
    if (others.empty()) continue;
    std::cout << "  also at";
    constexpr size_t kMost = 6;
    for (size_t j = 0; j < std::min(kMost, others.size()); ++j) {
      std::cout << (j == 0 ? " " : ", ") << others[j];
    }
    if (others.size() > kMost) std::cout << " and " << others.size() - kMost << " more";
    std::cout << "\n";
  }
}

// How often the rules fired that were asked for by name.
void PrintFired(const PipelineReport& report, const std::vector<std::string>& names) {
  for (const PassRule& rule : ExplainedRules(names)) {
    const auto count = report.counts.find(rule.name);
    if (count == report.counts.end()) continue;
    std::cout << rule.name << " fired "
              << (count->second == 1 ? "once" : StrCat(count->second, " times")) << "\n";
  }
}

// The misses of rules that were asked for.
void PrintMisses(const PipelineReport& report, const Flags& flags) {
  int far = 0;
  for (const MissedMatch& miss : report.misses) {
    if (flags.at && miss.at != *flags.at) continue;
    if (!flags.all && !IsNear(miss)) {
      ++far;
      continue;
    }
    std::cout << HowFar(miss) << " at \"" << miss.at << "\"";
    if (miss.places > 1) std::cout << " and " << miss.places - 1 << " like it";
    std::cout << "\n";
    PrintMiss(miss);
  }
  if (far > 0) {
    std::cout << far << (far == 1 ? " candidate" : " candidates")
              << " of which less than half of the pattern fits (--all)\n";
  }
}

// What fusions that compare numbers came near to.
void PrintNear(const std::vector<MissedMatch>& places, bool all) {
  constexpr size_t kMost = 8;
  const size_t count = all ? places.size() : std::min(places.size(), kMost);
  for (size_t i = 0; i < count; ++i) std::cout << "near: " << MissText(places[i]) << "\n";
  if (count < places.size()) {
    std::cout << "near: " << places.size() - count << " more places (--all shows them)\n";
  }
}

Json MissJson(const MissedMatch& miss) {
  Json sides = Json::array();
  for (const auto& [pattern, graph] : miss.side_by_side) {
    sides.push_back({{"pattern", pattern}, {"graph", graph}});
  }
  return {{"rule", miss.rule},
          {"variant", miss.variant},
          {"at", miss.at},
          {"matched", miss.matched_nodes},
          {"nodes", miss.pattern_nodes},
          {"failed", miss.condition},
          {"side_by_side", sides}};
}

void PrintJson(const LayerReport& layers, const std::vector<MissedMatch>& near) {
  Json ops = Json::array(), leftovers = Json::array(), missing = Json::array(),
       misses = Json::array();
  for (const auto& [layer, counts] : layers.ops) {
    ops.push_back({{"layer", layer}, {"ops", counts}});
  }
  for (const Leftover& leftover : layers.leftovers) {
    leftovers.push_back({{"layer", leftover.layer},
                         {"value", leftover.value},
                         {"op", leftover.op},
                         {"family", leftover.place.family},
                         {"nearest", MissJson(leftover.place.nearest)}});
  }
  for (const LayerReport::Missing& one : layers.missing) {
    missing.push_back({{"op", one.op}, {"expected", one.expected}, {"found", one.found}});
  }
  for (const MissedMatch& miss : near) misses.push_back(MissJson(miss));
  std::cout << JsonText({{"layers", ops},
                         {"leftovers", leftovers},
                         {"missing", missing},
                         {"misses", misses}},
                        2)
            << "\n";
}

void Filter(const Flags& flags, LayerReport& layers) {
  std::erase_if(layers.leftovers, [&flags](const Leftover& leftover) {
    return (flags.layer && leftover.layer != *flags.layer) ||
           (flags.at && leftover.value != *flags.at);
  });
  std::erase_if(layers.ops,
                [&flags](const auto& ops) { return flags.layer && ops.first != *flags.layer; });
}

absl::StatusOr<int> Run(const Flags& flags) {
  PF_ASSIGN_OR_RETURN(PipelineOptions options, ReadPipelineFlags(flags.pipeline));
  PF_ASSIGN_OR_RETURN(Model model, ReadModel(flags.model, {.allow_missing_data = true}));
  options.side_by_side = true;
  options.explain = flags.rules;
  if (flags.rules.empty()) options.explain = {"*"};
  PF_ASSIGN_OR_RETURN(const PipelineReport report, RunPipeline(model, options));
  LayerReport layers = ReportLayers(model, report.unfused);
  const bool complete = layers.leftovers.empty() && layers.missing.empty();
  if (flags.layer && !layers.ops.contains(static_cast<int>(*flags.layer))) {
    return absl::NotFoundError(
        StrCat("--layer: there is no layer ", *flags.layer, "; the graph has ", layers.ops.size()));
  }
  Filter(flags, layers);
  if (flags.json) {
    PrintJson(layers,
              flags.rules.empty() && !flags.at ? NearPlaces(model, report.misses) : report.misses);
  } else if (!flags.rules.empty() || flags.at) {
    if (std::count(flags.rules.begin(), flags.rules.end(), "*") == 0) {
      PrintFired(report, flags.rules);
    }
    PrintMisses(report, flags);
    if (flags.rules.empty()) PrintLeftovers(layers.leftovers, flags.all);
    for (const std::string& line : report.unmissed) {
      if (!flags.at && !absl::StrContains(line, " fired")) std::cout << line << "\n";
    }
  } else {
    for (const std::string& line : LayerLines(layers)) std::cout << line << "\n";
    PrintLeftovers(layers.leftovers, flags.all);
    PrintNear(NearPlaces(model, report.misses), flags.all);
    for (const LayerReport::Missing& missing : layers.missing) {
      std::cout << "expected " << missing.expected << " " << missing.op << ", found "
                << missing.found << "\n";
    }
    if (!report.why_not_paged.empty()) std::cout << "not paged: " << report.why_not_paged << "\n";
  }
  return flags.strict && !complete ? kWrongInput : kDone;
}

}  // namespace

void AddExplainCommand(Command app, Outcome& outcome) {
  auto flags = std::make_shared<Flags>();
  Command command = AddSubcommand(
      app, outcome, {"explain", "tells what fused, what did not, and why"}, flags, Run);
  AddModelArgument(command, flags->model);
  command.AddList("--rule", flags->rules,
                  "tell where these rules, or the rules of these passes, came near (* for all)");
  command.AddText("--at", flags->at, "tell of this value alone");
  command.AddNumber("--layer", flags->layer, {.least = 0}, "tell of this layer alone");
  command.AddFlag("--all", flags->all, "also rules of which less than half of the nodes fit");
  command.AddFlag("--strict", flags->strict,
                  "status 1 if something was left that a rule might have taken");
  command.AddFlag("--json", flags->json, "machine-readable output");
  AddPipelineFlags(command, flags->pipeline);
}

}  // namespace pagefuse::tools
