// SPDX-License-Identifier: Apache-2.0
// A paged graph together with its cache: the session, the accounts of pages, and the device that has
// them and runs steps.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "pagefuse/ops/cache/cache_settings.h"
#include "pagefuse/runtime/cache_layout.h"
#include "pagefuse/runtime/padded_step.h"
#include "pagefuse/runtime/paged_cache.h"
#include "pagefuse/runtime/session.h"
#include "pagefuse/runtime/session_device.h"
#include "pagefuse/runtime/step_device.h"

namespace pagefuse {

struct PagedModelOptions {
  SessionOptions session = {};
  // A name of kernels/formats/cache_choice.h; unset: none, or what a graph has that was paged
  // before. It is an error to ask such a graph for another format or block size.
  std::optional<std::string> kv_cache = {};
  std::optional<int64_t> block_size = {};  // tokens a block; unset: 16, or what the graph has
  // Caches lie in pages of one size, which all groups share (page_plan.h), as far as ops take them so;
  // false: each is a dense tensor, as other runtimes have them.
  bool in_pages = true;
  bool all_logits = false;  // a row of logits for every token instead of those that are wanted
  StepDeviceMaker device = nullptr;  // null: the host
};

// What the options come to for the passes.
PipelineOptions PagedPipeline(const PagedModelOptions& options);

// Not thread-safe.
class PagedModel {
 public:
  // Runs the pipeline on the model. FailedPrecondition, saying why, if the graph could not be
  // paged.
  static absl::StatusOr<std::unique_ptr<PagedModel>> Create(Model model,
                                                            const PagedModelOptions& options);

  // Tokens of one sequence that the cache holds in steps of at most `step_tokens`; nullopt where no
  // group keeps all rows.
  std::optional<int64_t> Capacity(int64_t step_tokens) const;

  // The most tokens of a sequence for which the graph is what was exported; nullopt: any number.
  std::optional<int64_t> max_tokens() const { return max_tokens_; }
  // InvalidArgument, saying why, for a sequence of which more tokens are run.
  absl::Status CheckLength(int64_t tokens) const;
  // ResourceExhausted, saying what is needed, what there is and how many tokens fit, for a sequence
  // that does not fit alone in the cache.
  absl::Status CheckRoom(int64_t tokens, int64_t step_tokens) const;
  // False for a token with which the graph is not what was exported.
  bool Runs(int64_t token) const { return std::ranges::count(barred_tokens_, token) == 0; }
  bool runs_all_tokens() const { return barred_tokens_.empty(); }
  // InvalidArgument, saying why, for one of these among tokens.
  absl::Status CheckTokens(std::span<const int64_t> tokens) const;
  // The token, or the next one of the vocabulary that runs.
  int64_t NextThatRuns(int64_t token) const;

  // Makes the cache: room for sequences of these lengths at once in steps of at most `step_tokens`.
  // Drops all sequences of the old cache.
  absl::Status Reserve(const std::vector<int64_t>& lengths, int64_t step_tokens);
  // With so many pages instead. ResourceExhausted if there is no memory for them.
  absl::Status ReservePages(int64_t pages, const PagedCache::Options& options = {});

  // Runs one packed step whose slots were taken from cache(); the logits [R, V] of the tokens of
  // step.logit_rows, or [1, T, V] with all_logits, until the next step. Errors as CheckLength and
  // CheckTokens; FailedPrecondition if the graph does not compute these rows.
  absl::StatusOr<std::unique_ptr<StepLogits>> RunStep(const std::vector<int64_t>& input_ids,
                                                      const StepMetadata& step);
  // Does what the host does for the step behind the one that the device is at, but for its tokens: then
  // RunPrepared is RunStep of it, if no other step was run or prepared meanwhile. False where it is wrong.
  bool Prepare(const StepMetadata& step);
  absl::StatusOr<std::unique_ptr<StepLogits>> RunPrepared(const std::vector<int64_t>& input_ids,
                                                          const StepMetadata& step);
  // All of these logits.
  absl::StatusOr<Tensor> Run(const std::vector<int64_t>& input_ids, const StepMetadata& step);

  // The usual case: appends tokens to sequences of cache() and runs them; a row of logits for each
  // sequence with tokens.
  struct Tokens {
    SequenceId sequence;
    std::vector<int64_t> ids;
  };
  absl::StatusOr<Tensor> Step(const std::vector<Tokens>& tokens);

  PagedCache& cache() { return *cache_; }
  const PagedCache& cache() const { return *cache_; }
  StepDevice& device() { return *device_; }
  // By graph input name; only where the host is the device.
  std::map<std::string, Tensor>& cache_tensors() { return host_->tensors(); }
  // That the session's device took for steps, and for draws behind them.
  double device_seconds() const { return host_ == nullptr ? 0 : host_->device_seconds(); }
  // What the graph's cache is, whatever was asked for.
  const CacheSettings& cache_settings() const { return settings_; }
  const CacheLayout& layout() const { return layout_; }
  Session& session() { return *session_; }
  const Session& session() const { return *session_; }
  int64_t vocabulary() const { return vocabulary_; }

 private:
  PagedModel() = default;
  // A step as the device is told it.
  struct Packed {
    StepRecord record;
    PaddedStep padded;  // with a device
    bool pads = false;
  };
  absl::Status MakeDevice(const PagedModelOptions& options);
  absl::Status Pack(const std::vector<int64_t>& input_ids, const StepMetadata& step,
                    Packed& packed) const;
  absl::StatusOr<std::unique_ptr<StepLogits>> RowsOfStep(std::unique_ptr<StepLogits> logits,
                                                         const StepMetadata& step) const;
  absl::Status CheckLogits(const std::vector<int64_t>& dims, const StepMetadata& step) const;
  static std::unique_ptr<StepLogits> FirstRows(std::unique_ptr<StepLogits> logits, int64_t count);
  absl::StatusOr<std::unique_ptr<StepLogits>> WantedRows(std::unique_ptr<StepLogits> logits,
                                                         const StepMetadata& step) const;

  std::unique_ptr<Session> session_;
  CacheSettings settings_;
  CacheLayout layout_;
  std::unique_ptr<PagedCache> cache_;
  std::array<Packed, 2> packed_;  // in turn: of the step that runs, and of the one that is prepared
  size_t last_ = 0;
  std::unique_ptr<StepDevice> device_;
  SessionDevice* host_ = nullptr;  // the device, or none
  std::optional<int64_t> max_tokens_;
  std::vector<int64_t> barred_tokens_;
  int64_t vocabulary_ = 0;
  bool all_logits_ = false;
  bool takes_rows_ = false;  // the input logit_rows
};

}  // namespace pagefuse
