// SPDX-License-Identifier: Apache-2.0
#include "as_exported.h"

#include <algorithm>
#include <utility>

#include "../decoders/decoder_feeds.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/infer/infer.h"
#include "pagefuse/ops/kernels/numeric/convert.h"
#include "pagefuse/ops/pagefuse/sampling/logit_row.h"

namespace pagefuse::fuzz {
namespace {

constexpr RunLimits kLimits = {.max_tensor_bytes = 1 << 26, .max_body_runs = 10'000};

// An output that is not as the model declares it: the graph is no valid one.
absl::Status CheckDeclared(const Value& output, const Tensor& found) {
  const auto& shape = output.shape();
  bool same = output.dtype() == found.dtype() && (!shape || shape->rank() == found.rank());
  for (int axis = 0; same && shape && axis < shape->rank(); ++axis) {
    const auto declared = (*shape)[axis].constant();
    same = !declared || *declared == found.dims()[static_cast<size_t>(axis)];
  }
  if (same) return absl::OkStatus();
  return absl::FailedPreconditionError(
      StrCat("output \"", output.name(), "\" is not as it is declared"));
}

absl::StatusOr<std::vector<float>> LastRow(const Tensor& logits) {
  const auto& dims = logits.dims();
  if (dims.size() < 2 || logits.size() == 0 || !IsFloatingPoint(logits.dtype())) {
    return absl::FailedPreconditionError("no row of logits");
  }
  std::vector<float> row(static_cast<size_t>(dims.back()));
  const int64_t bytes = dims.back() * logits.byte_size() / logits.size();
  const auto* end = static_cast<const std::byte*>(logits.data()) + logits.byte_size();
  PF_RETURN_IF_ERROR(DecodeToFloat(logits.dtype(), end - bytes, dims.back(), row.data()));
  return row;
}

}  // namespace

SessionOptions FuzzSession(bool optimise) {
  SessionOptions options;
  options.num_threads = 1;
  options.limits = kLimits;
  options.optimise = optimise;
  options.load_passes = optimise;
  options.pipeline.page = false;
  return options;
}

bool HasLikeliest(const std::vector<float>& row) { return LogitRow::Of(row).ok(); }

absl::StatusOr<AsExported> AsExported::Create(const DecoderCase& decoder) {
  AsExported exported;
  exported.typed_ = Copy(decoder);
  PF_RETURN_IF_ERROR(InferShapes(exported.typed_.model));
  PF_ASSIGN_OR_RETURN(exported.session_,
                      Session::Create(decoder.model.Clone(), FuzzSession(/*optimise=*/false)));
  exported.fetches_ = {decoder.logits};
  for (const auto& [past, present] : decoder.presents) {
    exported.pasts_.push_back(past);
    exported.fetches_.push_back(present);
  }
  return exported;
}

absl::StatusOr<std::vector<float>> AsExported::Step(const std::vector<int64_t>& tokens,
                                                    int64_t first) {
  if (pasts_.empty()) first = 0;
  PF_ASSIGN_OR_RETURN(const Feeds feeds, StepFeeds(typed_, tokens, first, past_));
  PF_ASSIGN_OR_RETURN(std::vector<Tensor> outputs, session_->Run(feeds, fetches_));
  for (size_t i = 0; i < fetches_.size(); ++i) {
    const Value* declared = typed_.model.graph->FindValue(fetches_[i]);
    PF_RETURN_IF_ERROR(CheckDeclared(*declared, outputs[i]));
  }
  for (size_t i = 0; i < pasts_.size(); ++i) past_[pasts_[i]] = std::move(outputs[i + 1]);
  PF_ASSIGN_OR_RETURN(std::vector<float> row, LastRow(outputs[0]));
  vocabulary_ = static_cast<int64_t>(row.size());
  return row;
}

absl::StatusOr<Generation> AsExported::Generate(const std::vector<int64_t>& prompt,
                                                int64_t new_tokens) {
  Generation made;
  made.request = {.prompt = prompt, .keep_logits = true};
  std::vector<int64_t> tokens = prompt;
  past_.clear();
  int64_t first = 0;
  for (int64_t i = 0; i < new_tokens; ++i) {
    PF_ASSIGN_OR_RETURN(std::vector<float> row, Step(tokens, first));
    first = static_cast<int64_t>(tokens.size());
    const bool ends = !HasLikeliest(row);
    const auto best = std::max_element(row.begin(), row.end()) - row.begin();
    tokens.push_back(best);
    made.request.forced.push_back(best);
    made.logits.push_back(std::move(row));
    if (ends) break;
  }
  made.request.max_new_tokens = static_cast<int64_t>(made.logits.size());
  return made;
}

absl::StatusOr<std::vector<std::vector<float>>> AsExported::Replay(const Generation& generation) {
  std::vector<std::vector<float>> rows;
  std::vector<int64_t> tokens = generation.request.prompt;
  past_.clear();
  int64_t first = 0;
  for (const int64_t token : generation.request.forced) {
    PF_ASSIGN_OR_RETURN(rows.emplace_back(), Step(tokens, first));
    first = static_cast<int64_t>(tokens.size());
    tokens.push_back(token);
  }
  return rows;
}

}  // namespace pagefuse::fuzz
