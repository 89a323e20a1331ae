// SPDX-License-Identifier: Apache-2.0
// pagefuse reduce: a smaller model that fails for the same reason.
#include <chrono>
#include <cstdio>
#include <iostream>
#include <memory>
#include <optional>

#include "absl/strings/match.h"
#include "tools/author/pipeline_flags.h"
#include "tools/author/shell_check.h"
#include "tools/cli/subcommand.h"

#include "pagefuse/base/new_file.h"
#include "pagefuse/base/status_macros.h"
#include "pagefuse/ir/onnx/onnx_io.h"
#include "pagefuse/ir/text/text.h"
#include "pagefuse/passes/debug/reduce.h"

namespace pagefuse::tools {
namespace {

struct Flags {
  ModelFlags model;
  std::string output, check;
  bool verify = false, any_reason = false;
  PipelineFlags pipeline;
  SampleFlags samples;
};

absl::StatusOr<ReduceCheck> MakeCheck(const Flags& flags, const PipelineOptions& options) {
  if (flags.verify == !flags.check.empty()) {
    return absl::InvalidArgumentError("reduce needs one of --check and --verify");
  }
  if (flags.verify) return VerifyCheck(options);
  PF_RETURN_IF_ERROR(CheckShellCommand(flags.check));
  return ReduceCheck([command = flags.check](const ReduceCase& attempt) {
    const auto wrong = RunShellCheck(command, attempt.model, /*exports=*/false);
    return wrong.ok() ? *wrong : std::nullopt;
  });
}

// What the first rewrite that is wrong finds: a norm that fails as one op is less than the norm
// written out. Test data is for the inputs of the model as it is.
absl::StatusOr<std::optional<Model>> LaterForm(const Flags& flags, const Model& model,
                                               const PipelineOptions& options) {
  if (!flags.verify || !options.feeds.empty()) return std::nullopt;
  const std::optional<int64_t> number = FirstDifference(model, options);
  if (!number) return std::nullopt;
  PF_ASSIGN_OR_RETURN(Model later, ModelBefore(model, options, *number));
  return later;
}

absl::Status Write(const Flags& flags, const Model& model) {
  const bool text = flags.output.empty() || absl::EndsWith(flags.output, ".onnxtxt");
  if (!text) return SaveModel(model, flags.output);
  const std::string printed = PrintModel(model, {.max_elements = -1, .value_infos = false});
  if (!flags.output.empty()) return WriteWholeFile(flags.output, printed);
  std::cout << printed;
  return absl::OkStatus();
}

absl::Status Run(const Flags& flags) {
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  PF_ASSIGN_OR_RETURN(PipelineOptions options, ReadPipelineFlags(flags.pipeline));
  if (!flags.output.empty()) PF_RETURN_IF_ERROR(CheckNewFile(flags.output));
  PF_ASSIGN_OR_RETURN(Model model, ReadModel(flags.model, {.allow_missing_data = true}));
  PF_RETURN_IF_ERROR(ReadSampleFlags(flags.samples, model, options));
  PF_ASSIGN_OR_RETURN(const ReduceCheck check, MakeCheck(flags, options));
  ReduceOptions reduce{.any_reason = flags.any_reason, .samples = options.samples};
  reduce.feeds = options.feeds;
  PF_ASSIGN_OR_RETURN(const std::optional<Model> later, LaterForm(flags, model, options));
  reduce.later = later ? &*later : nullptr;
  PF_ASSIGN_OR_RETURN(const Reduction reduced, Reduce(model, check, reduce));
  const std::chrono::duration<double> seconds = Clock::now() - start;
  std::fprintf(stderr, "%s; %d checks, %.1f s; %s reason: %s\n", ReductionText(reduced).c_str(),
               reduced.checks, seconds.count(), flags.any_reason ? "last" : "same",
               reduced.reason.c_str());
  return Write(flags, reduced.smallest.model);
}

}  // namespace

void AddReduceCommand(Command app, Outcome& outcome) {
  auto flags = std::make_shared<Flags>();
  Command command =
      AddSubcommand(app, outcome, {"reduce", "makes a failing model small"}, flags, Run);
  AddModelArgument(command, flags->model);
  command.AddText("-o,--output", flags->output,
                  "file to write, text if it ends with .onnxtxt; the screen if left out");
  command.AddText("--check", flags->check,
                  "command that judges the written model, whose file is {}; fails if its status is "
                  "not 0");
  command.AddFlag("--verify", flags->verify,
                  "the passes are the check: numbers before and after each rewrite");
  command.AddFlag("--any-reason", flags->any_reason, "another failure will do too");
  AddPipelineFlags(command, flags->pipeline);
  AddSampleFlags(command, flags->samples);
  command.Footer(
      "Drops nodes by halves, outputs and constants as long as the check fails for the same reason "
      "(the first line that it prints, names and numbers aside); what a dropped node computed "
      "becomes an input with the numbers that it had. Status 1 if the whole model passes the check.");
}

}  // namespace pagefuse::tools
