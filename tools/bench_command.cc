// pagefuse bench: how fast a model reads prompts and generates, for lists of lengths, batches and cache formats.
#include <chrono>
#include <iostream>
#include <memory>

#include "absl/strings/numbers.h"
#include "tools/bench_table.h"
#include "tools/command.h"
#include "tools/progress_line.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/ir/str_cat.h"
#include "pagefuse/runtime/decoder.h"
#include "pagefuse/runtime/model_folder.h"

namespace pagefuse::tools {
namespace {

struct Flags {
  std::string model, graph, format = "text";
  std::vector<std::string> prompts = {"512"}, generated = {"128"}, batches = {"1"}, caches;
  int64_t repetitions = 5;
  EngineOptions engine;
  SessionFlags session;
};

struct Plan {
  std::vector<int64_t> prompts, generated, batches;
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
    if (number > 0) numbers.push_back(number);
  }
  return numbers;
}

// Everything that can be wrong is told before the model is read.
absl::StatusOr<Plan> MakePlan(const Flags& flags, const ModelConfig& config) {
  Plan plan;
  PF_ASSIGN_OR_RETURN(plan.prompts, Numbers("--prompt-tokens", flags.prompts, 0));
  PF_ASSIGN_OR_RETURN(plan.generated, Numbers("--new-tokens", flags.generated, 0));
  PF_ASSIGN_OR_RETURN(plan.batches, Numbers("--batch", flags.batches, 1));
  PF_RETURN_IF_ERROR(BenchTable({}, flags.format).status());
  for (const auto* lengths : {&plan.prompts, &plan.generated}) {
    for (int64_t length : *lengths) {
      if (!config.max_positions || length < *config.max_positions) continue;
      return absl::InvalidArgumentError(
          StrCat(length, " tokens: expected less than ", *config.max_positions,
                 ", the positions of the model (", config.max_positions_file, ")"));
    }
  }
  return plan;
}

// Ids that differ, so that no two sequences look at the same rows.
std::vector<Request> Requests(int64_t batch, int64_t prompt, int64_t new_tokens,
                              int64_t vocabulary) {
  std::vector<Request> requests(batch);
  uint64_t draw = 1;
  for (Request& request : requests) {
    for (int64_t i = 0; i < prompt; ++i) {
      draw = draw * 6364136223846793005u + 1442695040888963407u;
      request.prompt.push_back(
          static_cast<int64_t>((draw >> 33) % std::max<int64_t>(vocabulary, 2)));
    }
    request.max_new_tokens = new_tokens;
  }
  return requests;
}

class Bench {
 public:
  Bench(const Flags& flags, Decoder& decoder, BenchRow row)
      : flags_(flags), decoder_(decoder), row_(std::move(row)) {}

  absl::Status Run(const Plan& plan, std::vector<BenchRow>& rows) {
    for (int64_t batch : plan.batches) {
      for (int64_t length : plan.prompts) {
        PF_ASSIGN_OR_RETURN(rows.emplace_back(), Measure(batch, StrCat("prompt ", length),
                                                         Requests(batch, length, 1, vocabulary())));
      }
      for (int64_t length : plan.generated) {
        PF_ASSIGN_OR_RETURN(rows.emplace_back(), Measure(batch, StrCat("generate ", length),
                                                         Requests(batch, 1, length, vocabulary())));
      }
    }
    return absl::OkStatus();
  }

 private:
  int64_t vocabulary() const { return decoder_.vocabulary(); }

  // All tokens that were computed, by the time of the steps alone.
  absl::StatusOr<double> TokensPerSecond(const std::vector<Request>& requests) {
    const EngineStats before = decoder_.stats();
    PF_ASSIGN_OR_RETURN(const std::vector<Completion> completions, decoder_.Generate(requests));
    PF_RETURN_IF_ERROR(FirstError(completions));
    const EngineStats after = decoder_.stats();
    const int64_t tokens =
        after.prefill_tokens - before.prefill_tokens + after.decode_tokens - before.decode_tokens;
    const double seconds = after.prefill_seconds - before.prefill_seconds + after.decode_seconds -
                           before.decode_seconds;
    return seconds > 0 ? static_cast<double>(tokens) / seconds : 0;
  }

  absl::StatusOr<BenchRow> Measure(int64_t batch, const std::string& test,
                                   const std::vector<Request>& requests) {
    ProgressLine progress;
    BenchRow row = row_;
    row.batch = batch;
    row.test = test;
    progress.Show(StrCat(row.cache, ", batch ", batch, ", ", test));
    PF_RETURN_IF_ERROR(decoder_.WarmUp(requests));
    for (int64_t i = 0; i < flags_.repetitions; ++i) {
      PF_ASSIGN_OR_RETURN(row.tokens_per_second.emplace_back(), TokensPerSecond(requests));
    }
    return row;
  }

  const Flags& flags_;
  Decoder& decoder_;
  BenchRow row_;
};

// The formats that were asked for; one without a name is the graph's own.
std::vector<std::optional<std::string>> Caches(const Flags& flags) {
  if (flags.caches.empty()) return {std::nullopt};
  return {flags.caches.begin(), flags.caches.end()};
}

absl::Status RunBench(Flags flags) {
  PF_ASSIGN_OR_RETURN(const ModelFolder folder, OpenModelFolder(flags.model, flags.graph));
  PF_ASSIGN_OR_RETURN(const Plan plan, MakePlan(flags, folder.config));
  PF_ASSIGN_OR_RETURN(flags.engine.session, MakeSessionOptions(flags.session));
  flags.engine.share_prefixes = false;  // every prompt is computed
  for (int64_t batch : plan.batches) {
    flags.engine.max_sequences = std::max(flags.engine.max_sequences, batch);
  }
  std::vector<BenchRow> rows;
  for (const auto& cache : Caches(flags)) {
    flags.engine.kv_cache = cache;
    const auto load = [&] { return ReadModel(folder.graph); };
    PF_ASSIGN_OR_RETURN(auto decoder, Decoder::Create(load, flags.engine));
    const Engine* engine = decoder->engine();
    if (engine == nullptr) std::cerr << "pagefuse: NOT PAGED: " << decoder->why_not_paged() << "\n";
    BenchRow row;
    row.model = flags.model;
    row.weights = flags.session.weights.format;
    row.cache = engine ? engine->cache_settings().format : "not paged";
    PF_RETURN_IF_ERROR(Bench(flags, *decoder, row).Run(plan, rows));
  }
  PF_ASSIGN_OR_RETURN(const std::string table, BenchTable(rows, flags.format));
  std::cout << table;
  return absl::OkStatus();
}

}  // namespace

void AddBenchCommand(Command app, Outcome& outcome) {
  auto flags = std::make_shared<Flags>();
  Command command = app.AddCommand("bench", "measures how fast a model reads prompts and generates",
                                   [flags, &outcome] { outcome.status = RunBench(*flags); });
  command.AddText("model", flags->model, "a model's folder, or the graph of a decoder").Required();
  command.AddText("--graph", flags->graph, "which of several graphs of a folder");
  command
      .AddList("-p,--prompt-tokens", flags->prompts, "lengths of prompts, with commas; 0 for none")
      .ShowsDefault();
  command
      .AddList("-n,--new-tokens", flags->generated, "tokens to generate, with commas; 0 for none")
      .ShowsDefault();
  command.AddList("-b,--batch", flags->batches, "sequences at once, with commas").ShowsDefault();
  command.AddList("--kv-cache", flags->caches,
                  "formats of the cache, with commas; the graph's own if left out");
  command
      .AddNumber("-r,--repetitions", flags->repetitions, {1, 1000},
                 "runs of each, behind one that warms up")
      .ShowsDefault();
  command.AddText("--format", flags->format, "text, md, csv or json").ShowsDefault();
  command
      .AddNumber("--max-tokens-per-step", flags->engine.max_tokens_per_step, {1, kMaxInt32},
                 "token budget of a step; longer prompts are prefilled in chunks")
      .ShowsDefault();
  AddSessionFlags(command, flags->session);
}

}  // namespace pagefuse::tools
