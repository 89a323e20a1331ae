// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/runtime/paged_model.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "absl/strings/numbers.h"
#include "nlohmann/json.hpp"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/passes/paging/premises.h"
#include "pagefuse/runtime/dense_caches.h"

namespace pagefuse {
namespace {

constexpr const char *kLogits = "logits", *kLogitRows = "logit_rows";

// Why insert-paged-cache left the graph alone: where attention is written out in a way that no rule
// takes, what the nearest one says of it.
std::string ReasonNotPaged(const PipelineReport& report) {
  std::string reason;
  if (!report.why_not_paged.empty()) reason = ": " + report.why_not_paged;
  for (const UnfusedPlace& place : report.unfused) {
    if (place.family != "attention written out" || place.rule.empty()) continue;
    return StrCat(reason, "; nearest is ", place.rule, ": ", place.reason);
  }
  return reason;
}

absl::StatusOr<std::optional<int64_t>> ReadMaxTokens(const Model& model) {
  const auto text = FindMetadata(model.metadata, kMaxTokensKey);
  if (!text) return std::optional<int64_t>();
  int64_t tokens = 0;
  if (absl::SimpleAtoi(AbslView(*text), &tokens) && tokens > 0) return std::optional(tokens);
  return absl::InvalidArgumentError(
      StrCat("metadata \"", kMaxTokensKey, "\": expected a positive number, got \"", *text, "\""));
}

absl::StatusOr<std::vector<int64_t>> ReadBarredTokens(const Model& model) {
  const auto text = FindMetadata(model.metadata, kBarredTokensKey);
  if (!text) return std::vector<int64_t>();
  const auto json = nlohmann::json::parse(*text, nullptr, /*allow_exceptions=*/false);
  const auto is_id = [](const nlohmann::json& id) { return id.is_number_integer(); };
  if (json.is_array() && std::ranges::all_of(json, is_id)) return json.get<std::vector<int64_t>>();
  return absl::InvalidArgumentError(
      StrCat("metadata \"", kBarredTokensKey, "\": expected a list of ids, got \"", *text, "\""));
}

}  // namespace

PipelineOptions PagedPipeline(const PagedModelOptions& options) {
  PipelineOptions pipeline = options.session.pipeline;
  if (options.kv_cache) pipeline.options["kv_cache"] = *options.kv_cache;
  if (options.block_size) pipeline.options["block_size"] = StrCat(*options.block_size);
  if (options.all_logits) pipeline.options["logits"] = "all";
  if (options.in_pages) pipeline.options["cache_pages"] = "on";
  return pipeline;
}

absl::StatusOr<std::unique_ptr<PagedModel>> PagedModel::Create(Model model,
                                                               const PagedModelOptions& options) {
  auto paged = std::unique_ptr<PagedModel>(new PagedModel);
  SessionOptions session = options.session;
  session.pipeline = PagedPipeline(options);
  PF_ASSIGN_OR_RETURN(paged->session_, Session::Create(std::move(model), session));
  auto layout = CacheLayout::FromModel(paged->session_->model());
  if (layout.status().code() == absl::StatusCode::kFailedPrecondition) {
    return absl::FailedPreconditionError(
        StrCat(std::string(layout.status().message()), ReasonNotPaged(paged->session_->report())));
  }
  PF_RETURN_IF_ERROR(layout.status());
  paged->layout_ = *std::move(layout);
  PF_ASSIGN_OR_RETURN(paged->max_tokens_, ReadMaxTokens(paged->session_->model()));
  PF_ASSIGN_OR_RETURN(paged->barred_tokens_, ReadBarredTokens(paged->session_->model()));
  paged->settings_ = CacheSettingsOf(paged->session_->model()).value_or(CacheSettings{"none"});
  const Value* logits = paged->session_->model().graph->FindValue(kLogits);
  if (!logits || !logits->is_output() || !logits->shape() || logits->shape()->rank() < 2 ||
      logits->dtype() != DataType::kFloat) {
    return absl::FailedPreconditionError("the fused graph has no float output \"logits\"");
  }
  paged->all_logits_ = options.all_logits;
  const Value* rows = paged->session_->model().graph->FindValue(kLogitRows);
  paged->takes_rows_ = rows != nullptr && rows->is_input();
  paged->vocabulary_ = logits->shape()->back(0).constant().value_or(0);
  PF_RETURN_IF_ERROR(paged->MakeDevice(options));
  PF_RETURN_IF_ERROR(paged->Reserve({}, 0));
  return paged;
}

absl::Status PagedModel::MakeDevice(const PagedModelOptions& options) {
  std::vector<std::string> apart;
  if (options.in_pages) {
    for (DenseCache& dense : DenseCaches(layout_, *session_)) apart.push_back(dense.cache);
  } else {
    for (const auto& [name, cache] : layout_.tensors()) apart.push_back(name);
  }
  layout_.KeepApart(apart);
  if (options.device) {
    PF_ASSIGN_OR_RETURN(device_, options.device(*session_, layout_));
    return absl::OkStatus();
  }
  auto host = std::make_unique<SessionDevice>(*session_, layout_);
  host_ = host.get();
  device_ = std::move(host);
  return absl::OkStatus();
}

std::optional<int64_t> PagedModel::Capacity(int64_t step_tokens) const {
  const auto grows = [](const CacheGroup& group) { return group.sliding_window == 0; };
  if (std::ranges::none_of(layout_.groups(), grows)) return std::nullopt;
  int64_t fits = 0;
  for (int64_t beyond = std::numeric_limits<int32_t>::max(); beyond - fits > 1;) {
    const int64_t middle = fits + (beyond - fits) / 2;
    const int64_t pages = layout_.PagesFor({middle}, step_tokens);
    (pages <= cache_->pool().num_pages() ? fits : beyond) = middle;
  }
  return fits;
}

absl::Status PagedModel::CheckLength(int64_t tokens) const {
  if (!max_tokens_ || tokens <= *max_tokens_) return absl::OkStatus();
  return absl::InvalidArgumentError(
      StrCat("a sequence of ", tokens, " tokens: expected ", *max_tokens_,
             " at most, behind which the graph as it was exported computes otherwise; longer ones "
             "run as it was exported, without options of pages"));
}

absl::Status PagedModel::CheckRoom(int64_t tokens, int64_t step_tokens) const {
  const int64_t needed = layout_.PagesFor({tokens}, step_tokens);
  if (needed <= cache_->pool().num_pages()) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      StrCat("prompt and max_new_tokens: needs ", needed, " pages of ", layout_.bytes_per_page(),
             " bytes at ", tokens, " tokens, the cache has ", cache_->pool().num_pages(),
             ": at most ", Capacity(step_tokens).value_or(0), " tokens"));
}

absl::Status PagedModel::CheckTokens(std::span<const int64_t> tokens) const {
  const auto barred = std::ranges::find_if_not(tokens, [&](int64_t token) { return Runs(token); });
  if (barred == tokens.end()) return absl::OkStatus();
  return absl::InvalidArgumentError(StrCat(
      "token ", *barred,
      ": expected another one, as the graph that was exported does otherwise with this; texts "
      "with it run as it was exported, without options of pages"));
}

int64_t PagedModel::NextThatRuns(int64_t token) const {
  for (size_t i = 0; i < barred_tokens_.size() && !Runs(token); ++i) {
    token = vocabulary_ > 0 ? (token + 1) % vocabulary_ : token + 1;
  }
  return token;
}

absl::Status PagedModel::Reserve(const std::vector<int64_t>& lengths, int64_t step_tokens) {
  return ReservePages(layout_.PagesFor(lengths, step_tokens));
}

absl::Status PagedModel::ReservePages(int64_t pages, const PagedCache::Options& options) {
  if (pages > layout_.MostPages()) {
    return absl::ResourceExhaustedError(
        StrCat("the cache: expected ", layout_.MostPages(), " pages at most, got ", pages));
  }
  const absl::Status made = device_->MakePages(pages);
  cache_ = std::make_unique<PagedCache>(layout_.groups(), made.ok() ? pages : 0, options);
  if (made.ok()) return made;
  return absl::Status(made.code(), StrCat("the cache: ", StdView(made.message())));
}

absl::Status PagedModel::Pack(const std::vector<int64_t>& input_ids, const StepMetadata& step,
                              Packed& packed) const {
  for (const int64_t position : step.positions) PF_RETURN_IF_ERROR(CheckLength(position + 1));
  const auto sequences = static_cast<int64_t>(step.seq_lens.size());
  packed.pads = session_->device() != nullptr && takes_rows_ && PaddedStep::Suits(step) &&
                PaddedSequences(sequences) != sequences;
  if (!packed.pads) return layout_.WriteRecord(input_ids, step, packed.record);
  packed.padded.Fill(input_ids, step);
  return layout_.WriteRecord(packed.padded.input_ids, packed.padded.metadata, packed.record);
}

absl::StatusOr<std::unique_ptr<StepLogits>> PagedModel::RunStep(
    const std::vector<int64_t>& input_ids, const StepMetadata& step) {
  PF_RETURN_IF_ERROR(CheckTokens(input_ids));
  PF_RETURN_IF_ERROR(Pack(input_ids, step, packed_[last_]));
  PF_RETURN_IF_ERROR(device_->CopyPages(cache_->TakeCopies()));
  PF_ASSIGN_OR_RETURN(std::unique_ptr<StepLogits> logits, device_->Run(packed_[last_].record));
  return RowsOfStep(std::move(logits), step);
}

bool PagedModel::Prepare(const StepMetadata& step) {
  Packed& packed = packed_[1 - last_];
  if (!Pack(std::vector<int64_t>(step.positions.size()), step, packed).ok()) return false;
  device_->Prepare(packed.record);
  return true;
}

absl::StatusOr<std::unique_ptr<StepLogits>> PagedModel::RunPrepared(
    const std::vector<int64_t>& input_ids, const StepMetadata& step) {
  last_ = 1 - last_;
  Packed& packed = packed_[last_];
  PF_RETURN_IF_ERROR(CheckTokens(input_ids));
  std::vector<int64_t> ids = input_ids;
  if (packed.pads) ids.resize(packed.padded.input_ids.size(), 0);
  PF_RETURN_IF_ERROR(packed.record.Fill("input_ids", ids));
  PF_RETURN_IF_ERROR(device_->CopyPages(cache_->TakeCopies()));
  PF_ASSIGN_OR_RETURN(std::unique_ptr<StepLogits> logits, device_->RunPrepared(packed.record));
  return RowsOfStep(std::move(logits), step);
}

// Of what packed_[last_] gave.
absl::StatusOr<std::unique_ptr<StepLogits>> PagedModel::RowsOfStep(
    std::unique_ptr<StepLogits> logits, const StepMetadata& step) const {
  const Packed& packed = packed_[last_];
  PF_RETURN_IF_ERROR(CheckLogits(logits->dims(), packed.pads ? packed.padded.metadata : step));
  if (packed.pads) {
    return FirstRows(std::move(logits), static_cast<int64_t>(step.logit_rows.size()));
  }
  if (all_logits_ || takes_rows_) return logits;
  return WantedRows(std::move(logits), step);
}

absl::StatusOr<Tensor> PagedModel::Run(const std::vector<int64_t>& input_ids,
                                       const StepMetadata& step) {
  PF_ASSIGN_OR_RETURN(const std::unique_ptr<StepLogits> logits, RunStep(input_ids, step));
  return logits->TakeAll();
}

// Without those that a step was filled up with.
std::unique_ptr<StepLogits> PagedModel::FirstRows(std::unique_ptr<StepLogits> logits,
                                                  int64_t count) {
  std::vector<int64_t> places(static_cast<size_t>(count));
  std::iota(places.begin(), places.end(), int64_t{0});
  return PickRows(std::move(logits), std::move(places));
}

// Nothing is read beyond what the graph gave.
absl::Status PagedModel::CheckLogits(const std::vector<int64_t>& dims,
                                     const StepMetadata& step) const {
  const auto tokens = static_cast<int64_t>(step.positions.size());
  const auto rows =
      static_cast<int64_t>(takes_rows_ ? step.logit_rows.size() : step.seq_lens.size());
  const bool by_row = !all_logits_ && dims.size() == 2 && dims[0] == rows;
  const bool by_token =
      (all_logits_ || !takes_rows_) && dims.size() == 3 && dims[0] == 1 && dims[1] == tokens;
  if (by_row || by_token) return absl::OkStatus();
  return absl::FailedPreconditionError(StrCat(
      "output \"", kLogits, "\": expected [", rows, ", V] or [1, ", tokens, ", V] after a step of ",
      step.seq_lens.size(), " sequences, got ", DimsToString(dims)));
}

// Of all rows [1, T, V], where select-logits found no place in the graph, or of those of last tokens
// [B, V], in a file that was paged before graphs took rows.
absl::StatusOr<std::unique_ptr<StepLogits>> PagedModel::WantedRows(
    std::unique_ptr<StepLogits> logits, const StepMetadata& step) const {
  const std::vector<int32_t>& starts = step.query_start_loc;
  std::vector<int64_t> places = step.logit_rows;
  for (int64_t& place : places) {
    if (logits->dims().size() != 2) break;
    const auto end = std::ranges::upper_bound(starts, place);
    if (*end != place + 1) {
      return absl::FailedPreconditionError(
          StrCat("output \"", kLogits, "\": expected a row for token ", place,
                 " of the step, got those of the last tokens of sequences"));
    }
    place = end - starts.begin() - 1;
  }
  return PickRows(std::move(logits), std::move(places));
}

absl::StatusOr<Tensor> PagedModel::Step(const std::vector<Tokens>& tokens) {
  std::vector<StepEntry> entries;
  std::vector<int64_t> input_ids;
  for (const Tokens& part : tokens) {
    entries.push_back({part.sequence, static_cast<int64_t>(part.ids.size())});
    input_ids.insert(input_ids.end(), part.ids.begin(), part.ids.end());
  }
  PF_ASSIGN_OR_RETURN(StepMetadata step, cache_->Append(entries));
  return Run(input_ids, step);
}

}  // namespace pagefuse
