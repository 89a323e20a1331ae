// SPDX-License-Identifier: Apache-2.0
// The engine takes prompts and gives tokens, with many sequences in one packed step.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "pagefuse/ops/cache/cache_settings.h"
#include "pagefuse/runtime/paged_cache.h"
#include "pagefuse/runtime/request.h"
#include "pagefuse/runtime/session.h"
#include "pagefuse/runtime/step_device.h"

namespace pagefuse {

class PagedModel;

// A packed step that has just run.
struct EngineStep {
  const Session* session;  // its Profile() is this step's
  bool decode;             // one token a sequence
  int64_t tokens;
  int64_t shared_tokens;  // of prompts that begin with it, which the cache knew
  std::chrono::steady_clock::time_point start;
  double seconds;
  double device_seconds;  // that a device took for all steps by now, and for draws behind them
};

enum class PrefixReuse {
  kOff,
  kExact,  // tokens that were read: answers have the same bits as without
  kAll,    // also tokens that were written; their rows have sums in another order than read ones
};
// Of "off", "exact" or "all", as people write it; InvalidArgument for another name.
absl::StatusOr<PrefixReuse> ParsePrefixReuse(std::string_view name);
// EngineOptions::drafts of "auto" or "off"; InvalidArgument for another name.
absl::StatusOr<bool> ParseDrafts(std::string_view name);
// EngineOptions::step_seconds of whole milliseconds; InvalidArgument for fewer than one, and for more
// than an int32 has.
absl::StatusOr<double> StepSecondsOf(int64_t milliseconds);

struct EngineOptions {
  SessionOptions session = {};
  // As in PagedModelOptions.
  std::optional<std::string> kv_cache = {};
  std::optional<int64_t> block_size = {};
  int64_t max_tokens_per_step =
      512;  // token budget, at least 4: prompts longer than what is left are prefilled in pieces
  // At most half of max_tokens_per_step, so that prompts have the rest; nullopt: 64 or that half.
  std::optional<int64_t> max_sequences = {};
  // The cache is made once, of so many tokens that groups without a window can hold in all, or of so
  // many bytes; 0: of 60 % of the memory that is left when the weights are there. Pages of memory are
  // taken as they are first used.
  int64_t cache_tokens = 0;
  int64_t cache_bytes = 0;
  // What texts begin with alike is computed once, in one call or in several.
  PrefixReuse prefix_reuse = PrefixReuse::kExact;
  // While nothing else is there to do, answers are read into the cache, as a next turn will read them.
  bool rereads = true;
  // Guesses of next tokens are run with them, where the text repeats itself (Drafts).
  bool drafts = true;
  // What a step with pieces of prompts may take while others decode, by the speed of those before;
  // more than 0.
  double step_seconds = 0.2;
  // Where steps run; null: on the host.
  StepDeviceMaker device = nullptr;
  // Called after every step; an error ends the requests of the step, as one that failed, and a
  // Generate, whose own it is. May be null.
  std::function<absl::Status(const EngineStep&)> on_step = nullptr;
};

// InvalidArgument naming option, expected and given for numbers that no graph runs with.
absl::Status CheckEngineOptions(const EngineOptions& options);

struct EngineStats {
  int64_t steps = 0;
  int64_t prefill_tokens = 0;
  int64_t shared_tokens = 0;  // of prompts, which earlier ones began with
  int64_t decode_tokens = 0;
  int64_t draft_tokens = 0;  // that were guessed, and
  int64_t drafts_right = 0;  // of these in decode_tokens
  int64_t device_draws = 0;  // tokens that a device was asked for, behind their logits
  int64_t preemptions = 0;
  int64_t recomputed_tokens = 0;   // that were computed before their request had to give way
  int64_t prefix_lost_tokens = 0;  // known beginnings behind which windows and states were gone
  double prefill_seconds = 0;
  double decode_seconds = 0;
  double plan_seconds = 0;               // of the scheduler, before the graph runs
  double sample_seconds = 0;             // behind it: the host's draws, and what sinks do
  int64_t cache_bytes_per_token = 0;     // by which a sequence grows with each, scales included
  int64_t cache_bytes_per_sequence = 0;  // besides: of windows and states, which do not grow
  int64_t bytes_per_page = 0;            // of the cache
  int64_t hit_unit =
      0;  // tokens: what texts begin with alike is found in multiples; 0: not looked for
  int64_t peak_pages = 0;  // that sequences held at one time
};

using RequestId = int64_t;

// What a request is told, by the thread that steps the engine: with a device it may be told of a token in the
// call of Step behind the one that took it, while the next step runs. It must not block; one that throws ends its
// request alone, as failed.
struct Sink {
  // The first tokens of the prompt are about to be computed, or were known; may be null.
  std::function<void()> on_start = nullptr;
  OnToken on_token = nullptr;  // NewToken::completion is the sample; may be null
  // Each of the samples, in any order: `sample` is its place.
  std::function<void(int64_t sample, Completion)> on_done = nullptr;  // may be null
};

// What a step did.
struct StepReport {
  int64_t tokens = 0;                // 0: nothing was there to do, or the step failed
  int64_t running = 0, waiting = 0;  // requests after it, of those that may run at once
  bool rereads = false;              // an answer, which nobody waits for
};

// Takes requests at any time and runs them with continuous batching, one step after another (see
// Scheduler). Requests never change each other's results. The cache and what it knows of earlier
// texts stay. Submit and Cancel may be called by any thread at any time, all others by one.
class Engine {
 public:
  static absl::StatusOr<std::unique_ptr<Engine>> Load(const std::string& path,
                                                      const EngineOptions& options);
  static absl::StatusOr<std::unique_ptr<Engine>> Create(Model model, const EngineOptions& options);
  // Over a model that these options have made already.
  static absl::StatusOr<std::unique_ptr<Engine>> Create(std::unique_ptr<PagedModel> model,
                                                        const EngineOptions& options);
  ~Engine();

  // A request that runs with the next steps. Refused at once, with nothing told to the sink:
  // InvalidArgument as CheckRequest, ResourceExhausted if it alone does not fit in the cache.
  absl::StatusOr<RequestId> Submit(Request request, Sink sink);
  // Ends what is left of a request, as kCancelled, when the step that runs is done, or in the next
  // call of Step. Nothing if it is not there any more.
  void Cancel(RequestId id);
  // Runs one step, if there is work. A step that fails gives back what it took and ends the requests
  // that it ran, as kFailed, or the one whose token the error is of; others go on.
  StepReport Step();

  // Generates all samples of all requests; completions in their order. Submit of all, and Step until
  // they are done. A request that is refused ends with FinishReason::kRefused, and logits that are no
  // numbers end a completion; the others are as without them. On return no block is held, whatever
  // happened. `on_token` may be null.
  absl::StatusOr<std::vector<Completion>> Generate(const std::vector<Request>& requests,
                                                   const OnToken& on_token = nullptr);

  // Makes a Generate of requests like these (their number, the lengths of their prompts, their
  // max_new_tokens) cost as much the first time as later: see Session::WarmUp. Prefills them twice.
  // Results of later calls and stats() are as without it. Requests that are refused count for
  // nothing.
  absl::Status WarmUp(const std::vector<Request>& requests);

  // Tokens of one text that fit into the cache; nullopt where no group keeps all rows.
  std::optional<int64_t> capacity() const;
  // PagedModel::max_tokens: a request that runs more is refused.
  std::optional<int64_t> max_tokens() const;
  // PagedModel::Runs: a request with another token is refused, and a completion that goes on
  // with one ends as FailedPrecondition.
  bool Runs(int64_t token) const;
  bool runs_all_tokens() const;
  int64_t NextThatRuns(int64_t token) const;

  const Session& session() const;
  const PagedCache& cache() const;
  // What the graph's cache is, whatever the options asked for.
  const CacheSettings& cache_settings() const;
  EngineStats stats() const;
  int64_t vocabulary() const;  // 0: not declared
  // Forgets all texts of which no request holds pages. By the thread that steps.
  void ForgetTexts();

 private:
  struct Impl;
  explicit Engine(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace pagefuse
