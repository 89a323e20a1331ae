// SPDX-License-Identifier: Apache-2.0
// optimize(path): what `pagefuse opt` does; register_rules(text): rules for all that load a model;
// load_plugin(path): ops, kernels and rules for the process.
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "bindings/parts.h"
#include "bindings/status.h"
#include "pybind11/stl.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/ir/onnx/onnx_io.h"
#include "pagefuse/ir/text/text.h"
#include "pagefuse/passes/lower/lower.h"
#include "pagefuse/passes/pipeline/pipeline.h"
#include "pagefuse/passes/pipeline/placed_rules.h"
#include "pagefuse/plugin/loader/load_plugin.h"

namespace pagefuse::python {
namespace {

namespace py = pybind11;

struct Arguments {
  std::optional<std::string> output;
  PipelineOptions pipeline;
  bool bodies = true;  // functions by which other runtimes run the file
  std::optional<int64_t> target_opset;
};

struct Result {
  PipelineReport report;
  std::string text;     // the graph, if it went to no file
  std::string written;  // what the file holds besides
};

absl::Status Write(Model& model, const Arguments& arguments, Result& result) {
  if (arguments.bodies) {
    PipelineOptions options = {.passes = ExportStage()};
    if (arguments.target_opset) {
      options.options["target_opset"] = std::to_string(*arguments.target_opset);
    }
    PF_RETURN_IF_ERROR(RunPipeline(model, options).status());
    result.written = WrittenReport(model);
  }
  return SaveModel(model, *arguments.output);
}

absl::StatusOr<Result> Optimize(const std::string& path, const Arguments& arguments) {
  PF_ASSIGN_OR_RETURN(Model model, LoadModel(path, {.allow_missing_data = !arguments.output}));
  Result result;
  PF_ASSIGN_OR_RETURN(result.report, RunPipeline(model, arguments.pipeline));
  if (arguments.output) {
    PF_RETURN_IF_ERROR(Write(model, arguments, result));
  } else {
    result.text = PrintModel(model, {.max_elements = 16, .value_infos = true});
  }
  return result;
}

py::dict ReportOf(const Result& result) {
  py::list unfused;
  for (const UnfusedPlace& place : result.report.unfused) {
    py::dict entry;
    entry["family"] = place.family;
    entry["node"] = place.node;
    entry["places"] = place.places;
    entry["rule"] = place.rule;
    entry["reason"] = place.reason;
    unfused.append(entry);
  }
  py::dict report;
  report["rewrites"] = result.report.counts;
  report["why_not_paged"] = result.report.why_not_paged;
  report["unfused"] = unfused;
  report["written"] = result.written;
  report["text"] = result.text;
  return report;
}

// All or nothing.
void RegisterRules(const std::string& text, const std::string& name) {
  std::vector<RuleFile> rules = RegisteredRules();
  rules.push_back({name, text});
  Check(ReadRuleFiles(rules).status());
  RegisteredRules() = std::move(rules);
}

py::dict LoadPluginFile(const std::string& path) {
  const Plugin plugin = Unwrap(LoadPlugin(path));
  py::dict entry;
  entry["name"] = plugin.name;
  entry["version"] = plugin.version;
  py::list ops, rules;
  for (const Plugin::Op& op : plugin.ops) ops.append(op.name);
  for (const Plugin::Rule& rule : plugin.rules) rules.append(rule.name);
  entry["ops"] = ops;
  entry["rules"] = rules;
  return entry;
}

}  // namespace

std::vector<RuleFile>& RegisteredRules() {
  static std::vector<RuleFile> rules;
  return rules;
}

void BindOptimize(py::module_& module) {
  module.def("load_plugin", &LoadPluginFile, py::arg("path"));
  module.def("register_rules", &RegisterRules, py::arg("text"), py::arg("name"));
  module.def(
      "optimize",
      [](const std::string& path, const std::optional<std::string>& output, bool page,
         const std::vector<std::string>& disabled,
         const std::map<std::string, std::string>& options, bool function_bodies,
         std::optional<int64_t> target_opset) {
        Arguments arguments{.output = output,
                            .pipeline = {.disabled = disabled,
                                         .options = options,
                                         .page = page,
                                         .rules = RegisteredRules()},
                            .bodies = function_bodies,
                            .target_opset = target_opset};
        const auto run = [&] {
          const py::gil_scoped_release nothing_of_python;
          return Optimize(path, arguments);
        };
        return ReportOf(Unwrap(run()));
      },
      py::arg("path"), py::arg("output") = py::none(), py::kw_only(), py::arg("page") = true,
      py::arg("disabled") = std::vector<std::string>(),
      py::arg("options") = std::map<std::string, std::string>(), py::arg("function_bodies") = true,
      py::arg("target_opset") = py::none());
}

}  // namespace pagefuse::python
