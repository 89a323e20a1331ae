// SPDX-License-Identifier: Apache-2.0
// pagefuse verify: numbers before and after every rewrite of the pipeline.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <iostream>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "tools/author/pipeline_flags.h"
#include "tools/cli/device_flag.h"
#include "tools/cli/subcommand.h"

#include "pagefuse/base/short_message.h"
#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/registry/registry.h"
#include "pagefuse/passes/verify/compare_models.h"
#include "pagefuse/runtime/rewrite_check.h"

namespace pagefuse::tools {
namespace {

struct Flags {
  ModelFlags model;
  PipelineFlags pipeline;
  SampleFlags samples;
  std::string device = kHostDevice;
};

// The first difference of each rule, and everything that was not compared.
void PrintPlaces(const PipelineReport& report) {
  std::set<std::string> told;
  for (const Rewrite& rewrite : report.log) {
    if (rewrite.numbers != Rewrite::Numbers::kDiffer || !told.insert(rewrite.rule).second) continue;
    std::cout << ShortMessage(StrCat(RewriteName(rewrite, report.rewrites), ": ", rewrite.detail))
              << "\n";
  }
  for (const std::string& line : NotComparedLines(report.log))
    std::cout << ShortMessage(line) << "\n";
}

bool Differs(const PipelineReport& report) {
  for (const Rewrite& rewrite : report.log) {
    if (rewrite.numbers == Rewrite::Numbers::kDiffer) return true;
  }
  return false;
}

bool ComparedAny(const PipelineReport& report) {
  return report.log.empty() || std::ranges::any_of(report.log, [](const Rewrite& rewrite) {
           return rewrite.numbers != Rewrite::Numbers::kNotCompared;
         });
}

// Whether the inputs or outputs of the graph became others on the way: then no rewrite behind that was
// compared with what the graph gave.
bool ChangedInterface(const Model& before, const Model& after) {
  return !SameInterface(InterfaceOf(*before.graph), InterfaceOf(*after.graph));
}

// Whether the graph runs as far as the one before does. What does not run was compared with nothing.
bool RunsAsBefore(const Model& before, const Model& after) {
  if (!VerifyOps(before).ok()) return true;
  const absl::Status runs = VerifyOps(after);
  if (!runs.ok()) std::cout << "does not run: " << ShortMessage(StdView(runs.message())) << "\n";
  return runs.ok();
}

// Prints what became of the logits; false if they differ.
absl::StatusOr<bool> PrintPaging(const Model& model, const PipelineOptions& options,
                                 std::shared_ptr<DeviceContext> device) {
  EngineOptions engine;
  engine.session.device = std::move(device);
  engine.session.pipeline = options;
  engine.session.pipeline.verify = false;
  engine.session.pipeline.feeds.clear();
  const absl::StatusOr<int64_t> probes = CompareRewrites(model, engine, {.seconds = 60});
  const absl::Status& status = probes.status();
  if (status.ok()) {
    std::cout << "paging: logits of " << *probes << " probes equal\n";
    return true;
  }
  if (absl::IsUnimplemented(status)) {
    std::cout << "paging: not compared: " << ShortMessage(StdView(status.message())) << "\n";
    return true;
  }
  if (!absl::IsInvalidArgument(status)) return status;
  std::cout << "paging: " << ShortMessage(StdView(status.message())) << "\n";
  return false;
}

absl::StatusOr<int> Run(const Flags& flags) {
  using Clock = std::chrono::steady_clock;
  PF_ASSIGN_OR_RETURN(PipelineOptions options, ReadPipelineFlags(flags.pipeline));
  PF_ASSIGN_OR_RETURN(std::shared_ptr<DeviceContext> device, ReadDeviceFlag(flags.device));
  PF_ASSIGN_OR_RETURN(Model model, ReadModel(flags.model, {.allow_missing_data = true}));
  PF_RETURN_IF_ERROR(ReadSampleFlags(flags.samples, model, options));
  options.verify = true;
  options.keep_going = true;
  const Model before = model.Clone();
  const auto start = Clock::now();
  PF_ASSIGN_OR_RETURN(const PipelineReport report, RunPipeline(model, options));
  const std::chrono::duration<double> seconds = Clock::now() - start;
  PrintPlaces(report);
  std::printf("%s; %.1f s\n", VerifySummary(report.log).c_str(), seconds.count());
  std::fflush(stdout);
  if (flags.samples.data.empty() && !ComparedAny(report)) {
    std::cout << "made-up inputs do not fit the graph: --data DIR takes those of a test case\n";
  }
  bool equal = !Differs(report) && RunsAsBefore(before, model);
  if (ChangedInterface(before, model)) {
    PF_ASSIGN_OR_RETURN(const bool same, PrintPaging(before, options, std::move(device)));
    equal = equal && same;
  }
  return equal ? kDone : kWrongInput;
}

}  // namespace

void AddVerifyCommand(Command app, Outcome& outcome) {
  auto flags = std::make_shared<Flags>();
  Command command = AddSubcommand(
      app, outcome, {"verify", "compares numbers before and after every rewrite of the passes"},
      flags, Run);
  AddModelArgument(command, flags->model);
  AddPipelineFlags(command, flags->pipeline);
  AddSampleFlags(command, flags->samples);
  AddDeviceFlag(command, flags->device,
                "where probes run through graphs that paging changes: cpu, cuda or cuda:N");
  command.Footer(
      "What a rewrite made is evaluated on the values of one run of the model, and has to give what "
      "was there before, up to 2e-4\n(float), 2e-3 (float16), 1.6e-2 (bfloat16) relative and "
      "absolute. Where paging changes inputs and outputs, probes\nrun "
      "through both graphs instead, as when a model is loaded. Weights that are not there are made up. Status 1 if anything "
      "differs or does not run\nany longer, 0 if all that was compared is equal.");
}

}  // namespace pagefuse::tools
