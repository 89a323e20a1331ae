// SPDX-License-Identifier: Apache-2.0
// pagefuse bench: how fast a model reads prompts and generates, for lists of lengths, batches and cache formats.
#include <algorithm>
#include <iostream>
#include <map>
#include <memory>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/time/clock.h"
#include "tools/cli/cache_flags.h"
#include "tools/cli/command.h"
#include "tools/cli/model_argument.h"
#include "tools/run/bench_table.h"

#include "pagefuse/base/new_file.h"
#include "pagefuse/base/progress.h"
#include "pagefuse/base/short_message.h"
#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/runtime/decoder.h"
#include "pagefuse/runtime/model_folder.h"

namespace pagefuse::tools {
namespace {

struct Flags {
  ModelFlags model;
  std::string html, format = "text", check_paging = "once";
  std::vector<std::string> prompts = {"512"}, generated = {"128"}, depths = {"0"}, batches = {"1"};
  std::vector<std::string> caches, weights = {"float32"};
  int64_t repetitions = 5;
  bool json = false;
  EngineOptions engine;
  SessionFlags session;
};

struct Plan {
  std::vector<int64_t> prompts, generated, depths, batches;
  std::vector<WeightFormat> weights;
};

absl::StatusOr<std::vector<int64_t>> Numbers(const char* flag,
                                             const std::vector<std::string>& texts, int64_t least) {
  std::vector<int64_t> numbers;
  for (const std::string& text : texts) {
    int64_t number = 0;
    if (!absl::SimpleAtoi(text, &number) || number < least || number > kMaxInt32) {
      return absl::InvalidArgumentError(
          StrCat(flag, ": expected ", least, " to ", kMaxInt32, ", got \"", text, "\""));
    }
    numbers.push_back(number);
  }
  return numbers;
}

// Lengths, of which 0 says that nothing of the kind is measured.
absl::StatusOr<std::vector<int64_t>> Lengths(const char* flag,
                                             const std::vector<std::string>& texts) {
  PF_ASSIGN_OR_RETURN(std::vector<int64_t> lengths, Numbers(flag, texts, 0));
  std::erase(lengths, 0);
  return lengths;
}

int64_t Largest(const std::vector<int64_t>& numbers) {
  return numbers.empty() ? 0 : *std::max_element(numbers.begin(), numbers.end());
}

absl::Status FitsPositions(int64_t length, const ModelConfig& config) {
  if (!config.max_positions || length < *config.max_positions) return absl::OkStatus();
  return absl::InvalidArgumentError(StrCat(length, " tokens: expected less than ",
                                           *config.max_positions, ", the positions of the model (",
                                           config.max_positions_file, ")"));
}

// Everything that can be wrong is told before the model is read.
absl::StatusOr<Plan> MakePlan(const Flags& flags, const ModelConfig& config) {
  Plan plan;
  PF_ASSIGN_OR_RETURN(plan.prompts, Lengths("--prompt-tokens", flags.prompts));
  PF_ASSIGN_OR_RETURN(plan.generated, Lengths("--new-tokens", flags.generated));
  PF_ASSIGN_OR_RETURN(plan.depths, Numbers("--depth", flags.depths, 0));
  PF_ASSIGN_OR_RETURN(plan.batches, Numbers("--batch", flags.batches, 1));
  for (const std::string& name : flags.weights) {
    std::map<std::string, std::string> options;
    PF_ASSIGN_OR_RETURN(
        plan.weights.emplace_back(),
        ReadWeightFlags({.format = name, .exclude = flags.session.weights.exclude}, options));
  }
  PF_RETURN_IF_ERROR(BenchTable({}, flags.format).status());
  PF_RETURN_IF_ERROR(FitsPositions(Largest(plan.prompts), config));
  if (!plan.generated.empty()) {
    PF_RETURN_IF_ERROR(FitsPositions(Largest(plan.depths) + Largest(plan.generated), config));
  }
  return plan;
}

// Ids that differ, so that no two sequences look at the same rows, of those that run paged.
std::vector<Request> Requests(int64_t batch, int64_t prompt, int64_t new_tokens,
                              const Decoder& decoder) {
  const int64_t vocabulary = std::max<int64_t>(decoder.vocabulary(), 2);
  std::vector<Request> requests(batch);
  uint64_t draw = 1;
  for (Request& request : requests) {
    for (int64_t i = 0; i < prompt; ++i) {
      draw = draw * 6364136223846793005u + 1442695040888963407u;
      const auto id = static_cast<int64_t>((draw >> 33) % vocabulary);
      request.prompt.push_back(decoder.engine() ? decoder.engine()->NextThatRuns(id) : id);
    }
    request.max_new_tokens = new_tokens;
  }
  return requests;
}

// The steps in which all sequences generate, and nothing else is computed. A run ends behind as many as
// are asked for.
class FullSteps {
 public:
  FullSteps() = default;
  FullSteps(int64_t sequences, int64_t steps)
      : sequences_(sequences), steps_(steps), left_(steps) {}
  // What the engine tells of every step.
  absl::Status Take(const EngineStep& step) {
    if (!step.decode || step.tokens != sequences_) return absl::OkStatus();
    seconds_ += step.seconds;
    if (step.session->device() != nullptr) TakeDeviceTime(step.device_seconds);
    return --left_ > 0 ? absl::OkStatus() : absl::CancelledError("all steps are timed");
  }
  // Of a step on a device but the first one, and what the device took of it; 0 where there is none.
  double StepMs() const { return timed_ > 0 ? 1e3 * timed_seconds_ / timed_ : 0; }
  double DeviceMs() const { return timed_ > 0 ? 1e3 * device_seconds_ / timed_ : 0; }
  // 0 where there were too few.
  double TokensPerSecond() const {
    return left_ > 0 || seconds_ <= 0 ? 0 : static_cast<double>(sequences_ * steps_) / seconds_;
  }

 private:
  // `total` is what the device took for all steps by now.
  void TakeDeviceTime(double total) {
    if (last_total_ > 0) {
      device_seconds_ += total - last_total_;
      timed_seconds_ = seconds_ - first_seconds_;
      ++timed_;
    } else {
      first_seconds_ = seconds_;
    }
    last_total_ = total;
  }

  int64_t sequences_ = 0, steps_ = 0, left_ = 0;
  double seconds_ = 0;
  int64_t timed_ = 0;
  double first_seconds_ = 0, timed_seconds_ = 0, device_seconds_ = 0, last_total_ = 0;
};

class Bench {
 public:
  // `full` is told of the decoder's steps.
  Bench(const Flags& flags, Decoder& decoder, FullSteps& full, BenchRow row)
      : flags_(flags), decoder_(decoder), full_(full), row_(std::move(row)) {}

  absl::Status Run(const Plan& plan, std::vector<BenchRow>& rows) {
    for (int64_t batch : plan.batches) {
      row_.batch = batch;
      for (int64_t length : plan.prompts) {
        PF_RETURN_IF_ERROR(Prompt(length, rows));
      }
      for (int64_t length : plan.generated) {
        for (int64_t depth : plan.depths) PF_RETURN_IF_ERROR(Generated(length, depth, rows));
      }
    }
    return absl::OkStatus();
  }

 private:
  absl::Status Prompt(int64_t length, std::vector<BenchRow>& rows) {
    BenchRow row = row_;
    row.test = StrCat("prompt ", length);
    row.tokens = length;
    return Measure(Requests(row_.batch, length, 1, decoder_), std::move(row), rows);
  }

  // Behind a prompt of `depth` tokens, which is not timed. Without one the single token that has to be there
  // is, as it costs what the others do.
  absl::Status Generated(int64_t length, int64_t depth, std::vector<BenchRow>& rows) {
    BenchRow row = row_;
    row.test = depth > 0 ? StrCat("generate ", length, " at ", depth) : StrCat("generate ", length);
    row.generates = true;
    row.tokens = length;
    row.depth = depth;
    // The step that reads the prompt gives the first of the new tokens.
    int64_t new_tokens = depth > 0 ? length + 1 : length;
    if (decoder_.engine() != nullptr) new_tokens += std::min(Lead(depth), Room(depth + new_tokens));
    return Measure(Requests(row_.batch, std::max<int64_t>(depth, 1), new_tokens, decoder_),
                   std::move(row), rows);
  }

  // How many tokens the first sequence may have more than the last one, whose prompt is read later:
  // prompts have half of a step.
  int64_t Lead(int64_t depth) const {
    const int64_t read = std::max<int64_t>(flags_.engine.max_tokens_per_step / 2 - 2, 1);
    return row_.batch > 1 ? row_.batch * depth / read + row_.batch : 0;
  }

  // How much longer than this a text may be.
  int64_t Room(int64_t length) const {
    const int64_t most = std::min(decoder_.engine()->max_tokens().value_or(kMaxInt32),
                                  decoder_.capacity().value_or(kMaxInt32));
    return std::max<int64_t>(most - length, 0);
  }

  // What was computed, by the time of the steps alone.
  absl::StatusOr<double> TokensPerSecond(const std::vector<Request>& requests, BenchRow& row) {
    if (row.generates && decoder_.engine() != nullptr) return Generating(requests, row);
    const EngineStats before = decoder_.stats();
    PF_ASSIGN_OR_RETURN(const std::vector<Completion> completions, decoder_.Generate(requests));
    PF_RETURN_IF_ERROR(FirstError(completions));
    const EngineStats after = decoder_.stats();
    int64_t tokens = after.decode_tokens - before.decode_tokens;
    double seconds = after.decode_seconds - before.decode_seconds;
    if (row.depth == 0) {
      tokens += after.prefill_tokens - before.prefill_tokens;
      seconds += after.prefill_seconds - before.prefill_seconds;
    }
    return seconds > 0 ? static_cast<double>(tokens) / seconds : 0;
  }

  // Tokens of steps in which all sequences generate.
  absl::StatusOr<double> Generating(const std::vector<Request>& requests, BenchRow& row) {
    full_ = FullSteps(row.batch, row.tokens);
    const absl::StatusOr<std::vector<Completion>> completions = decoder_.Generate(requests);
    const FullSteps full = std::exchange(full_, FullSteps());
    const double rate = full.TokensPerSecond();
    row.step_ms = full.StepMs();
    row.device_ms = full.DeviceMs();
    if (rate > 0) return rate;
    PF_RETURN_IF_ERROR(completions.status());
    PF_RETURN_IF_ERROR(FirstError(*completions));
    return absl::FailedPreconditionError(
        StrCat("batch ", row.batch, ", ", row.test, ": fewer than ", row.tokens,
               " steps in which all sequences generate: the cache has ", *decoder_.capacity(),
               " tokens for them"));
  }

  absl::Status Measure(const std::vector<Request>& requests, BenchRow row,
                       std::vector<BenchRow>& rows) {
    ProgressStage progress(
        StrCat(row.weights, ", ", row.cache, ", batch ", row.batch, ", ", row.test),
        flags_.repetitions);
    PF_RETURN_IF_ERROR(decoder_.WarmUp(requests));
    for (int64_t i = 0; i < flags_.repetitions; ++i) {
      progress.Reach(i);
      PF_ASSIGN_OR_RETURN(const double rate, TokensPerSecond(requests, row));
      row.tokens_per_second.push_back(rate);
    }
    rows.push_back(std::move(row));
    return absl::OkStatus();
  }

  const Flags& flags_;
  Decoder& decoder_;
  FullSteps& full_;
  BenchRow row_;
};

// The formats that were asked for; one without a name is the graph's own.
std::vector<std::optional<std::string>> Caches(const Flags& flags) {
  if (flags.caches.empty()) return {std::nullopt};
  return {flags.caches.begin(), flags.caches.end()};
}

// All that is measured with one format of weights and one of the cache.
absl::Status RunOne(Flags flags, const ModelFolder& folder, const Plan& plan,
                    std::vector<BenchRow>& rows) {
  FullSteps full;
  flags.engine.on_step = [&full](const EngineStep& step) { return full.Take(step); };
  const absl::Time start = absl::Now();
  const auto load = [&] { return ReadModel(folder.graph); };
  PF_ASSIGN_OR_RETURN(const CheckPaging check, ParseCheckPaging(flags.check_paging));
  PF_ASSIGN_OR_RETURN(auto decoder, Decoder::Create(load, flags.engine, {.check_paging = check}));
  const Engine* engine = decoder->engine();
  if (engine == nullptr)
    std::cerr << "pagefuse: NOT PAGED: " << ShortMessage(decoder->why_not_paged()) << "\n";
  if (engine != nullptr && decoder->verdict()) PrintVerdict(*decoder->verdict());
  BenchRow row;
  row.model = flags.model.path;
  row.weights = flags.session.weights.format;
  row.cache = engine ? engine->cache_settings().format : "not paged";
  row.load_seconds = absl::ToDoubleSeconds(absl::Now() - start);
  return Bench(flags, *decoder, full, row).Run(plan, rows);
}

absl::Status RunBench(Flags flags) {
  PF_ASSIGN_OR_RETURN(const ModelFolder folder, FindModel(flags.model));
  PF_ASSIGN_OR_RETURN(const Plan plan, MakePlan(flags, folder.config));
  if (!flags.html.empty()) PF_RETURN_IF_ERROR(CheckNewFile(flags.html));
  // Batches larger than usual have a step that holds them.
  const int64_t largest = std::max<int64_t>(Largest(plan.batches), 2);
  flags.engine.max_tokens_per_step = std::max(flags.engine.max_tokens_per_step, 2 * largest);
  flags.engine.max_sequences = flags.engine.max_tokens_per_step / 2;
  flags.engine.prefix_reuse = PrefixReuse::kOff;  // every prompt is computed
  flags.engine.drafts = false;                    // and every token alone
  flags.engine.step_seconds = 3600;               // nobody waits for a prompt's piece
  std::vector<BenchRow> rows;
  for (const WeightFormat& weights : plan.weights) {
    flags.session.weights.format = weights.name;
    PF_ASSIGN_OR_RETURN(flags.engine.session, MakeSessionOptions(flags.session));
    for (const auto& cache : Caches(flags)) {
      flags.engine.kv_cache = cache;
      PF_RETURN_IF_ERROR(RunOne(flags, folder, plan, rows));
    }
  }
  PF_ASSIGN_OR_RETURN(const std::string table,
                      BenchTable(rows, flags.json ? "json" : flags.format));
  std::cout << table;
  if (!flags.html.empty())
    PF_RETURN_IF_ERROR(WriteWholeFile(flags.html, BenchPage(flags.model.path, rows)));
  return absl::OkStatus();
}

}  // namespace

void AddBenchCommand(Command app, Outcome& outcome) {
  auto flags = std::make_shared<Flags>();
  Command command = app.AddCommand("bench", "measures how fast a model reads prompts and generates",
                                   [flags, &outcome] { outcome.status = RunBench(*flags); });
  AddModelArgument(command, flags->model);
  command
      .AddList("-p,--prompt-tokens", flags->prompts, "lengths of prompts, with commas; 0 for none")
      .ShowsDefault();
  command
      .AddList("-n,--new-tokens", flags->generated, "tokens to generate, with commas; 0 for none")
      .ShowsDefault();
  command
      .AddList("-d,--depth", flags->depths,
               "tokens of context to generate behind, which are not timed, with commas")
      .ShowsDefault();
  command.AddList("-b,--batch", flags->batches, "sequences at once, with commas").ShowsDefault();
  command.AddList("--kv-cache", flags->caches,
                  "formats of the cache, with commas; the graph's own if left out");
  command
      .AddNumber("-r,--repetitions", flags->repetitions, {1, 1000},
                 "runs of each, behind one that warms up")
      .ShowsDefault();
  const Option format =
      command.AddText("--format", flags->format, "text, md, csv or json").ShowsDefault();
  command.AddFlag("--json", flags->json, "as --format json").Excludes(format);
  command.AddText("--html", flags->html,
                  "a file for the same as a page: lines over depth, length and batch, and a table");
  AddCheckPagingFlag(command, flags->check_paging);
  command
      .AddNumber("--max-tokens-per-step", flags->engine.max_tokens_per_step, {4, kMaxInt32},
                 "token budget of a step; longer prompts are prefilled in pieces")
      .ShowsDefault();
  AddWeightsList(command, flags->weights, flags->session.weights);
  AddRunFlags(command, flags->session);
}

}  // namespace pagefuse::tools
