// SPDX-License-Identifier: Apache-2.0
// The engine takes prompts and gives tokens, with many sequences in one packed step.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "pagefuse/ops/cache/cache_settings.h"
#include "pagefuse/runtime/paged_cache.h"
#include "pagefuse/runtime/request.h"
#include "pagefuse/runtime/session.h"

namespace pagefuse {

class PagedModel;

// A packed step that has just run.
struct EngineStep {
  const Session* session;  // its Profile() is this step's
  bool decode;             // one token a sequence
  int64_t tokens;
  std::chrono::steady_clock::time_point start;
  double seconds;
};

struct EngineOptions {
  SessionOptions session = {};
  // As in PagedModelOptions.
  std::optional<std::string> kv_cache = {};
  std::optional<int64_t> block_size = {};
  int64_t max_tokens_per_step =
      512;  // token budget, at least 4: prompts longer than what is left are prefilled in pieces
  // At most half of max_tokens_per_step, so that prompts have the rest; nullopt: 64 or that half.
  std::optional<int64_t> max_sequences = {};
  int64_t cache_tokens =
      0;  // tokens that groups without a window can hold in all; 0: what the requests need
  bool share_prefixes = true;  // what prompts begin with alike is computed once
  // Called after every step; an error ends the call that made the step, and is its own. May be null.
  std::function<absl::Status(const EngineStep&)> on_step = nullptr;
};

// InvalidArgument naming option, expected and given for numbers that no graph runs with.
absl::Status CheckEngineOptions(const EngineOptions& options);

struct EngineStats {
  int64_t steps = 0;
  int64_t prefill_tokens = 0;
  int64_t shared_tokens = 0;  // of prompts that begin alike, computed for one of them
  int64_t decode_tokens = 0;
  double prefill_seconds = 0;
  double decode_seconds = 0;
  int64_t cache_bytes_per_token = 0;     // by which a sequence grows with each, scales included
  int64_t cache_bytes_per_sequence = 0;  // besides: of windows and states, which do not grow
  int64_t peak_blocks = 0;
};

// Runs requests to the end with continuous batching: decode first, then pieces of prompts within the
// token budget. Prompts that begin alike share the cache of it. Requests never change each other's
// results. Not thread-safe.
class Engine {
 public:
  static absl::StatusOr<std::unique_ptr<Engine>> Load(const std::string& path,
                                                      const EngineOptions& options);
  static absl::StatusOr<std::unique_ptr<Engine>> Create(Model model, const EngineOptions& options);
  // Over a model that these options have made already.
  static absl::StatusOr<std::unique_ptr<Engine>> Create(std::unique_ptr<PagedModel> model,
                                                        const EngineOptions& options);
  ~Engine();

  // Generates all samples of all requests; completions in their order. A request that CheckRequest
  // refuses (InvalidArgument), or that alone does not fit in the cache (ResourceExhausted), ends before
  // any step with FinishReason::kRefused, and logits that are no numbers end a completion; the others
  // are as without them. On return no block is in use, whatever happened. `on_token` may be null.
  absl::StatusOr<std::vector<Completion>> Generate(const std::vector<Request>& requests,
                                                   const OnToken& on_token = nullptr);

  // As Generate of one request with one sample, over a cache that is kept from call to call: what
  // the prompt has in common with the last prompt, or with that and its answer, is not computed
  // again. `room`: tokens that the whole text may come to, for which the cache is made. What refuses
  // or ends the completion is the status; where that is Cancelled, of on_step, what was kept stays.
  absl::StatusOr<Completion> Continue(const Request& request, int64_t room,
                                      const OnToken& on_token = nullptr);

  // Makes a Generate of requests like these (their number, the lengths of their prompts, their
  // max_new_tokens) cost as much the first time as later: see Session::WarmUp. Prefills them twice.
  // Results of later calls and stats() are as without it. Requests that are refused count for
  // nothing.
  absl::Status WarmUp(const std::vector<Request>& requests);

  // Tokens of one text that fit into what EngineOptions::cache_tokens gives; nullopt where the cache
  // is made for what the requests need.
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

 private:
  struct Impl;
  explicit Engine(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace pagefuse
