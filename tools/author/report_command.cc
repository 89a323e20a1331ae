// SPDX-License-Identifier: Apache-2.0
// pagefuse report: what the passes made of a model, on one page.
#include <iostream>
#include <memory>

#include "tools/author/pipeline_flags.h"
#include "tools/author/report_data.h"
#include "tools/author/report_page.h"
#include "tools/cli/output.h"
#include "tools/cli/subcommand.h"

#include "pagefuse/base/new_file.h"
#include "pagefuse/base/status_macros.h"
#include "pagefuse/ir/graph/absent_data.h"

namespace pagefuse::tools {
namespace {

struct Flags {
  ModelFlags model;
  std::string output;
  bool json = false, no_times = false;
  PipelineFlags pipeline;
  SampleFlags samples;
};

absl::StatusOr<ReportSource> Read(const Flags& flags) {
  ReportSource source;
  PF_ASSIGN_OR_RETURN(const ModelFolder folder, FindModel(flags.model));
  source.path = folder.graph;
  PF_ASSIGN_OR_RETURN(source.options, ReadPipelineFlags(flags.pipeline));
  PF_ASSIGN_OR_RETURN(source.before, ReadModel(folder.graph, {.allow_missing_data = true}));
  source.after = source.before.Clone();
  // Of weights that are not there the graph is told, and no numbers.
  source.options.verify = CheckDataPresent(source.before).ok() &&
                          ReadSampleFlags(flags.samples, source.after, source.options).ok();
  source.options.log_rewrites = true;
  source.options.keep_going = true;
  source.options.side_by_side = true;
  source.options.explain = {"*"};
  PF_ASSIGN_OR_RETURN(source.pipeline, RunPipeline(source.after, source.options));
  source.layers = ReportLayers(source.after, source.pipeline.unfused);
  return source;
}

absl::Status Run(const Flags& flags) {
  if (flags.output.empty() && !flags.json) {
    return absl::InvalidArgumentError("report needs -o FILE or --json");
  }
  if (!flags.output.empty()) PF_RETURN_IF_ERROR(CheckNewFile(flags.output));
  PF_ASSIGN_OR_RETURN(const ReportSource source, Read(flags));
  ReportJson data = ReportData(source);
  if (!flags.no_times) data["times"] = ReportTimes(source);
  if (flags.json) std::cout << JsonText(data, 2) << "\n";
  if (flags.output.empty()) return absl::OkStatus();
  const std::string page = ReportPage(source, data);
  PF_RETURN_IF_ERROR(WriteWholeFile(flags.output, page));
  std::cerr << flags.output << ": " << HumanBytes(static_cast<int64_t>(page.size())) << "\n";
  return absl::OkStatus();
}

}  // namespace

void AddReportCommand(Command app, Outcome& outcome) {
  auto flags = std::make_shared<Flags>();
  Command command = AddSubcommand(
      app, outcome, {"report", "what the passes made of a model, on one page"}, flags, Run);
  AddModelArgument(command, flags->model);
  command.AddText("-o,--output", flags->output, "HTML file to write, which needs nothing else");
  command.AddFlag("--json", flags->json, "the data of the page on the screen");
  command.AddFlag("--no-times", flags->no_times, "measure nothing");
  AddPipelineFlags(command, flags->pipeline);
  AddSampleFlags(command, flags->samples);
}

}  // namespace pagefuse::tools
