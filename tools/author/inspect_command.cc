// SPDX-License-Identifier: Apache-2.0
// pagefuse inspect: what a model file holds, and what the passes would make of it.
#include <iostream>
#include <map>
#include <memory>
#include <string>

#include "nlohmann/json.hpp"
#include "tools/author/memory_page.h"
#include "tools/author/page_report.h"
#include "tools/author/paged_layers.h"
#include "tools/cli/cache_flags.h"
#include "tools/cli/command.h"
#include "tools/cli/model_argument.h"
#include "tools/cli/output.h"

#include "pagefuse/base/new_file.h"
#include "pagefuse/base/short_message.h"
#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ir/graph/absent_data.h"
#include "pagefuse/ops/infer/infer.h"
#include "pagefuse/ops/registry/registry.h"
#include "pagefuse/passes/edit/graph_snapshot.h"
#include "pagefuse/passes/pipeline/pipeline_names.h"

namespace pagefuse::tools {
namespace {

struct Flags {
  ModelFlags model;
  std::string html;
  std::vector<std::string> options;
  CacheFlags cache;
  bool json = false;
  bool pages = false;
};

// `inferred`: what inference said of the model.
nlohmann::ordered_json Summary(const Model& model, const absl::Status& inferred) {
  nlohmann::ordered_json json;
  json["ir_version"] = model.ir_version;
  for (const auto& [domain, version] : model.opset_imports) {
    json["opsets"][domain.empty() ? "ai.onnx" : domain] = version;
  }
  json["producer"] = model.producer_name;
  json["graph"] = model.graph->name;
  for (const Value* input : model.graph->inputs()) json["inputs"][input->name()] = TypeText(*input);
  for (const Value* output : model.graph->outputs()) {
    json["outputs"][output->name()] = TypeText(*output);
  }
  json["nodes"] = model.graph->num_nodes();
  std::map<std::string, int> ops;
  for (const auto& node : model.graph->nodes()) ++ops[OpName(*node)];
  json["ops"] = ops;
  int64_t bytes = 0;
  const auto initializers = model.graph->initializers();
  for (const Value* value : initializers) bytes += value->initializer()->byte_size();
  json["initializers"] = initializers.size();
  json["initializer_bytes"] = bytes;
  json["functions"] = nlohmann::json::array();
  for (const Function& function : model.functions) {
    json["functions"].push_back(function.domain + "." + function.name);
  }
  for (const auto& [key, value] : model.metadata) json["metadata"][key] = value;
  absl::Status runnable = VerifyOps(model);
  if (runnable.ok()) runnable = CheckDataPresent(model);
  if (runnable.ok()) runnable = inferred;
  json["runnable"] = runnable.ok() ? "yes" : ShortMessage(StdView(runnable.message()));
  return json;
}

// What the passes make of the model: the fused ops and how many, and what they leave.
nlohmann::ordered_json Fusions(Model& model, const PipelineOptions& options) {
  nlohmann::ordered_json json = {{"fused", nlohmann::ordered_json::object()},
                                 {"left", nlohmann::ordered_json::array()}};
  const absl::StatusOr<PipelineReport> report = RunPipeline(model, options);
  if (!report.ok()) {
    json["error"] = ShortMessage(StdView(report.status().message()));
    return json;
  }
  for (const auto& [op, count] : CountOps(*model.graph, "pagefuse")) json["fused"][op] = count;
  if (nlohmann::ordered_json paged = PagedLayers(model); !paged.empty()) {
    json["paged"] = std::move(paged);
  }
  for (const UnfusedPlace& place : report->unfused) {
    json["left"].push_back({{"what", place.family},
                            {"count", place.places},
                            {"first", place.node},
                            {"rule", place.rule},
                            {"reason", place.reason}});
  }
  if (report->unfused.empty() && !report->why_not_paged.empty()) {
    json["not_paged"] = report->why_not_paged;
  }
  return json;
}

void PrintRow(const std::string& what, int count, const std::string& why) {
  constexpr size_t kWidth = 42;
  std::cout << "  " << ShortMessage(what)
            << std::string(what.size() < kWidth ? kWidth - what.size() : 1, ' ') << "x" << count
            << (why.empty() ? "" : "  " + ShortMessage(why)) << "\n";
}

void PrintFusions(const nlohmann::ordered_json& json) {
  if (json.contains("error")) {
    std::cout << "would fuse: nothing: " << json["error"].get<std::string>() << "\n";
    return;
  }
  std::cout << "would fuse:" << (json["fused"].empty() ? " nothing" : "") << "\n";
  for (const auto& [op, count] : json["fused"].items()) PrintRow(op, count.get<int>(), "");
  if (json.contains("paged")) PrintPagedLayers(json["paged"]);
  if (json.contains("not_paged")) {
    std::cout << "not paged: " << ShortMessage(json["not_paged"].get<std::string>()) << "\n";
  }
  if (json["left"].empty()) return;
  std::cout << "would leave:\n";
  for (const auto& place : json["left"]) {
    const std::string rule = place["rule"];
    PrintRow(place["what"], place["count"].get<int>(),
             StrCat("first ", place["first"].get<std::string>(),
                    rule.empty() ? "; no rule resembles it" : StrCat("; nearest is ", rule, ": "),
                    place["reason"].get<std::string>()));
  }
}

void Print(const nlohmann::ordered_json& json, int indent) {
  const std::string space(indent, ' ');
  for (const auto& [key, value] : json.items()) {
    if (value.is_object()) {
      std::cout << space << key << ":\n";
      Print(value, indent + 2);
    } else if (value.is_string()) {
      std::cout << space << ShortMessage(key) << ": " << ShortMessage(value.get<std::string>())
                << "\n";
    } else {
      std::cout << space << ShortMessage(key) << ": " << ShortMessage(JsonText(value)) << "\n";
    }
  }
}

absl::Status Inspect(const Flags& flags) {
  PipelineOptions options;
  PF_RETURN_IF_ERROR(ReadPassOptions(flags.options, options));
  PF_RETURN_IF_ERROR(ReadCacheFlags(flags.cache, options.options));
  PF_RETURN_IF_ERROR(CheckPipelineNames(options));
  if (flags.pages) options.options["cache_pages"] = "on";
  if (!flags.html.empty()) PF_RETURN_IF_ERROR(CheckNewFile(flags.html));
  PF_ASSIGN_OR_RETURN(Model model, ReadModel(flags.model, {.allow_missing_data = true}));
  // Shapes are told as far as they can be inferred; a model that contradicts itself is still shown.
  const absl::Status inferred = InferShapes(model);
  nlohmann::ordered_json json = Summary(model, inferred);
  if (!inferred.ok()) json["shapes"] = ShortMessage(StdView(inferred.message()));
  nlohmann::ordered_json fusions = Fusions(model, options);
  if (flags.pages) {
    PF_ASSIGN_OR_RETURN(fusions["pages"], PageReport(model));
  }
  if (!flags.html.empty()) {
    nlohmann::ordered_json summary = json;
    summary["fusions"] = fusions;
    PF_RETURN_IF_ERROR(
        WriteWholeFile(flags.html, MemoryPage(flags.model.path, summary, MemoryData(model))));
  }
  if (flags.json) {
    json["fusions"] = std::move(fusions);
    std::cout << JsonText(JsonResult("inspect", {flags.model.path}, json), 2) << "\n";
    return absl::OkStatus();
  }
  Print(json, 0);
  PrintFusions(fusions);
  if (flags.pages) PrintPageReport(fusions["pages"]);
  return absl::OkStatus();
}

}  // namespace

void AddInspectCommand(Command app, Outcome& outcome) {
  auto flags = std::make_shared<Flags>();
  Command command =
      app.AddCommand("inspect", "tells what a model file holds and what in it would fuse",
                     [flags, &outcome] { outcome.status = Inspect(*flags); });
  AddModelArgument(command, flags->model);
  AddPassOptions(command, flags->options);
  AddCacheFlags(command, flags->cache);
  command.AddFlag("--json", flags->json, "machine-readable output");
  command.AddFlag("--pages", flags->pages,
                  "how cache groups share pages of memory, and what sequences take of them");
  command.AddText(
      "--html", flags->html,
      "a file for a page of the memory that weights and cache take, by layer and cache group");
}

}  // namespace pagefuse::tools
