// SPDX-License-Identifier: Apache-2.0
// pagefuse batch: answers the requests of a file.
#include <algorithm>
#include <chrono>
#include <csignal>
#include <iostream>
#include <limits>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "tools/cli/output.h"
#include "tools/cli/subcommand.h"
#include "tools/cli/verbosity.h"
#include "tools/run/generate.h"
#include "tools/run/load_served.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/serve/batch.h"

namespace pagefuse::tools {
namespace {

struct BatchFlags {
  GenerateFlags generate;
  ServedFlags served;
  std::string input, output, shard = "0/1";
  bool strict = false;
};

// While one of these lives, SIGTERM and SIGINT are noted and nothing else.
class StopSignals {
 public:
  StopSignals() {
    came_ = 0;
    struct sigaction action = {};
    action.sa_handler = [](int) { came_ = 1; };
    sigaction(SIGTERM, &action, &term_);
    sigaction(SIGINT, &action, &interrupt_);
  }
  ~StopSignals() {
    sigaction(SIGTERM, &term_, nullptr);
    sigaction(SIGINT, &interrupt_, nullptr);
  }
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;
  static bool Came() { return came_ != 0; }

 private:
  static volatile std::sig_atomic_t came_;
  struct sigaction term_, interrupt_;
};
volatile std::sig_atomic_t StopSignals::came_ = 0;

// "I/N"
absl::StatusOr<serve::BatchShard> ReadShard(const std::string& text) {
  serve::BatchShard shard;
  const size_t slash = std::min(text.find('/'), text.size());
  const auto number = [&](size_t begin, size_t size, int64_t& value) {
    return absl::SimpleAtoi(AbslView(text).substr(begin, size), &value);
  };
  if (slash < text.size() && number(0, slash, shard.index) &&
      number(slash + 1, text.npos, shard.count) && shard.index >= 0 && shard.index < shard.count) {
    return shard;
  }
  return absl::InvalidArgumentError(
      StrCat("--shard: expected I/N with 0 <= I < N, as 0/4, got \"", text, "\""));
}

// How many lines there are to run. All of the input is looked at before the model is: what does not
// belong together is told at once.
absl::StatusOr<int64_t> CountLines(const std::string& path, const serve::BatchShard& shard,
                                   const serve::BatchOutput& output) {
  ProgressStage progress(StrCat("reading ", path), 0, "lines");
  PF_ASSIGN_OR_RETURN(serve::BatchInput input, serve::BatchInput::Open(path, shard));
  int64_t count = 0;
  while (true) {
    PF_ASSIGN_OR_RETURN(const auto line, input.Next());
    if (!line) break;
    if (!output.Has(*line)) ++count;
    progress.Reach(input.lines());
  }
  PF_RETURN_IF_ERROR(output.CheckInput(input));
  return count;
}

// Full batches, and as many again that are read and told meanwhile.
int64_t InFlight(const serve::ServedModel& model, const EngineOptions& options) {
  constexpr int64_t kUsualSequences = 64;
  if (model.decoder->engine() == nullptr) return 2;
  return 2 *
         options.max_sequences.value_or(std::min(kUsualSequences, options.max_tokens_per_step / 2));
}

void TellBatch(const serve::BatchResult& result, const serve::BatchOutput& output, double seconds) {
  for (const std::string& names : result.ignored) {
    std::cerr << "pagefuse: not known, and ignored: " << names
              << " (--strict makes this an error)\n";
  }
  if (!PrintsFiguresLine() && ChosenVerbosity() != Verbosity::kVerbose) return;
  const int64_t lines = result.answered + result.failed;
  std::cerr << Dimmed(absl::StrFormat(
                   "%d lines in %.1f s, %.1f a second; %d were there", lines, seconds,
                   seconds > 0 ? static_cast<double>(lines) / seconds : 0, output.kept()))
            << "\n";
}

absl::Status StatusOf(const BatchFlags& flags, const serve::BatchResult& result,
                      const serve::BatchOutput& output) {
  const int64_t there = output.kept() + result.answered + result.failed;
  if (result.stopped) {
    return absl::CancelledError(StrCat("stopped with ", there, " answers in \"", flags.output,
                                       "\"; the same command goes on behind them"));
  }
  const int64_t failed = output.kept_failures() + result.failed;
  if (failed == 0) return absl::OkStatus();
  return absl::FailedPreconditionError(
      StrCat(failed, " of ", there, " lines have no answer; \"", flags.output,
             "\" says why, and lines that are deleted there are run again"));
}

absl::Status Batch(const BatchFlags& given) {
  BatchFlags flags = given;
  GenerateFlags& generate = flags.generate;
  PF_ASSIGN_OR_RETURN(const serve::BatchShard shard, ReadShard(flags.shard));
  PF_RETURN_IF_ERROR(ReadServedFlags(generate));
  PF_ASSIGN_OR_RETURN(serve::BatchInput input, serve::BatchInput::Open(flags.input, shard));
  PF_ASSIGN_OR_RETURN(const auto output, serve::BatchOutput::Open(flags.output));
  PF_ASSIGN_OR_RETURN(const int64_t to_run, CountLines(flags.input, shard, *output));
  if (to_run == 0) return StatusOf(flags, {}, *output);
  PF_ASSIGN_OR_RETURN(serve::ServedModel model, LoadServed(generate, flags.served));
  PF_RETURN_IF_ERROR(output->CheckModel(model));

  const int64_t in_flight = InFlight(model, generate.engine);
  serve::ServiceOptions options = {.strict = flags.strict};
  options.limits.waiting_requests = std::numeric_limits<int64_t>::max();
  serve::Log log(serve::Log::Form::kNone);
  serve::Service service(std::move(model), options, &log);
  const StopSignals signals;
  const auto start = std::chrono::steady_clock::now();
  PF_ASSIGN_OR_RETURN(
      const serve::BatchResult result,
      serve::RunBatch(service, input, *output,
                      {.in_flight = in_flight, .to_run = to_run, .stops = &StopSignals::Came}));
  TellBatch(result, *output,
            std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  return StatusOf(flags, result, *output);
}

}  // namespace

void AddBatchCommand(Command app, Outcome& outcome) {
  auto flags = std::make_shared<BatchFlags>();
  flags->generate.session.weights.format = ServedWeights();
  Command command = AddSubcommand(
      app, outcome,
      {"batch", "answers a file of requests, a line each, as OpenAI's Batch API takes them"}, flags,
      &Batch);
  AddModelArgument(command, flags->generate.model);
  command
      .AddText("requests", flags->input,
               "a file with {\"custom_id\", \"method\", \"url\", \"body\"} a line")
      .Required();
  command.Group("Requests");
  command
      .AddText(
          "-o,--output", flags->output,
          "answers, a line each, in the order in which they are done; what a file of that name "
          "has is kept, and only the rest is run")
      .Required();
  command
      .AddText("--shard", flags->shard,
               "I/N: every N-th line, from line I on, of which the first is 0")
      .ShowsDefault();
  command.AddFlag("--strict", flags->strict, "parameters that are not known are errors");
  AddServedFlags(command, flags->generate, flags->served);
  AddSamplingFlags(command, flags->generate.sampling);
  command.Group("Cache");
  AddEngineFlags(command, flags->generate);
  AddSessionFlags(command, flags->generate.session);
  AddLoadFlags(command, flags->generate.session);
}

}  // namespace pagefuse::tools
