// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/runtime/plain_decoder.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/kernels/numeric/convert.h"

namespace pagefuse {
namespace {

// A row of integers as a batch of one, or alone, in the type that the input is declared with.
absl::StatusOr<Tensor> Row(const Value& input, const std::vector<int64_t>& values) {
  const auto count = static_cast<int64_t>(values.size());
  const std::vector<int64_t> dims =
      input.shape()->rank() == 1 ? std::vector<int64_t>{count} : std::vector<int64_t>{1, count};
  if (input.dtype() == DataType::kInt64) return Tensor::Of<int64_t>(dims, values);
  if (input.dtype() == DataType::kInt32) {
    return Tensor::Of<int32_t>(dims, std::vector<int32_t>(values.begin(), values.end()));
  }
  PF_ASSIGN_OR_RETURN(Tensor row, Tensor::Allocate(input.dtype(), dims));
  const std::vector<float> floats(values.begin(), values.end());
  PF_RETURN_IF_ERROR(EncodeFromFloat(input.dtype(), floats.data(), count, row.mutable_data()));
  return row;
}

// The axis of sequences: the first, or behind that of keys and values in one tensor.
int BatchAxis(const Shape& past, const Value& tokens) {
  for (int axis = 0; axis < past.rank(); ++axis) {
    if (ProvablyEqual(past[axis], (*tokens.shape())[0])) return axis;
  }
  return past.rank() == 5 && past[0].is_constant() ? 1 : 0;
}

// Rows that a past has from the first: a buffer that comes out as long as it went in holds as many as the window of its reader.
int64_t FirstRows(const PlainInputs::Past& past, int axis) {
  const auto& present = past.output->shape();
  const auto length = (*past.input->shape())[axis].symbol();
  if (!length || !present || present->rank() <= axis || (*present)[axis].symbol() != length)
    return 0;
  int64_t rows = 0;
  for (const Use& use : past.input->uses()) {
    rows = std::max(rows, use.node->IntAttribute("local_window_size", 0).value_or(0));
  }
  return rows;
}

// A size that the past does not declare is that of its present, if that does.
absl::StatusOr<Tensor> EmptyPast(const PlainInputs::Past& past, const Value& tokens) {
  const Shape& shape = *past.input->shape();
  const auto& present = past.output->shape();
  std::vector<int64_t> dims;
  for (int axis = 0; axis < shape.rank(); ++axis) {
    auto size = shape[axis].constant();
    if (!size && present && present->rank() == shape.rank()) size = (*present)[axis].constant();
    dims.push_back(size ? *size : FirstRows(past, axis));
  }
  dims[static_cast<size_t>(BatchAxis(shape, tokens))] = 1;
  PF_ASSIGN_OR_RETURN(Tensor rows, Tensor::Allocate(past.input->dtype(), std::move(dims)));
  // Rows that were not written yet are hidden, and a weight of 0 hides numbers alone.
  if (rows.byte_size() > 0) std::memset(rows.mutable_data(), 0, rows.byte_size());
  return rows;
}

// The last of the rows of logits.
absl::StatusOr<std::vector<float>> LastRow(const Value& output, const Tensor& logits) {
  const std::vector<int64_t>& dims = logits.dims();
  if (dims.size() < 2 || dims[0] != 1 || dims.back() == 0 || logits.size() == 0) {
    return absl::FailedPreconditionError(StrCat(
        "output \"", output.name(), "\": expected [1, S, V] or [1, V], got ", DimsToString(dims)));
  }
  std::vector<float> row(dims.back());
  const int64_t row_bytes = dims.back() * logits.byte_size() / logits.size();
  const auto* end = static_cast<const std::byte*>(logits.data()) + logits.byte_size();
  PF_RETURN_IF_ERROR(DecodeToFloat(logits.dtype(), end - row_bytes, dims.back(), row.data()));
  return row;
}

}  // namespace

absl::StatusOr<std::unique_ptr<PlainDecoder>> PlainDecoder::Create(Model model,
                                                                   const EngineOptions& options) {
  auto decoder = std::unique_ptr<PlainDecoder>(new PlainDecoder);
  SessionOptions session = options.session;
  session.pipeline.page = false;
  PF_ASSIGN_OR_RETURN(decoder->session_, Session::Create(std::move(model), session));
  const Model& made = decoder->session_->model();
  auto found = FindPlainInputs(*made.graph);
  if (!found.ok() && !session.optimise) found = FindPlainInputsBehindPasses(made);
  PF_ASSIGN_OR_RETURN(decoder->inputs_, std::move(found));
  const PlainInputs& inputs = decoder->inputs_;
  decoder->fetches_ = {inputs.logits->name()};
  for (const PlainInputs::Past& past : inputs.pasts) {
    decoder->fetches_.push_back(past.output->name());
  }
  decoder->vocabulary_ = inputs.logits->shape()->back(0).constant().value_or(0);
  decoder->on_step_ = options.on_step;
  return decoder;
}

absl::Status PlainDecoder::Begin() {
  pasts_.clear();
  for (const PlainInputs::Past& past : inputs_.pasts) {
    PF_ASSIGN_OR_RETURN(pasts_.emplace_back(), EmptyPast(past, *inputs_.tokens));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::map<std::string, Tensor>> PlainDecoder::Feeds(
    const std::vector<int64_t>& tokens, int64_t first) const {
  const auto total = static_cast<int64_t>(tokens.size());
  std::vector<int64_t> places;
  for (int64_t place = first; place < total; ++place) places.push_back(first_position_ + place);
  const std::vector<int64_t> zeros(places.size(), 0);
  std::map<std::string, Tensor> feeds;
  PF_ASSIGN_OR_RETURN(feeds[inputs_.tokens->name()],
                      Row(*inputs_.tokens, {tokens.begin() + first, tokens.end()}));
  if (inputs_.positions) {
    PF_ASSIGN_OR_RETURN(feeds[inputs_.positions->name()], Row(*inputs_.positions, places));
  }
  for (const Value* row : inputs_.places) {
    PF_ASSIGN_OR_RETURN(feeds[row->name()], Row(*row, places));
  }
  if (inputs_.mask) {
    PF_ASSIGN_OR_RETURN(feeds[inputs_.mask->name()],
                        Row(*inputs_.mask, std::vector<int64_t>(total, 1)));
  }
  for (const Value* segment : inputs_.segments) {
    PF_ASSIGN_OR_RETURN(feeds[segment->name()], Row(*segment, zeros));
  }
  for (const Value* sized : inputs_.sized) {
    const bool of_tokens = ProvablyEqual(sized->shape()->back(0), inputs_.tokens->shape()->back(0));
    PF_ASSIGN_OR_RETURN(feeds[sized->name()],
                        Row(*sized, of_tokens ? zeros : std::vector<int64_t>(total, 1)));
  }
  for (const Value* branch : inputs_.branches) {
    PF_ASSIGN_OR_RETURN(
        Tensor flag,
        Tensor::Allocate(DataType::kBool, std::vector<int64_t>(branch->shape()->rank(), 1)));
    *static_cast<bool*>(flag.mutable_data()) = true;
    feeds[branch->name()] = std::move(flag);
  }
  for (size_t i = 0; i < pasts_.size(); ++i) feeds[inputs_.pasts[i].input->name()] = pasts_[i];
  return feeds;
}

absl::StatusOr<std::vector<float>> PlainDecoder::Step(const std::vector<int64_t>& tokens,
                                                      int64_t first) {
  PF_ASSIGN_OR_RETURN(const auto feeds, Feeds(tokens, keeps_past() ? first : 0));
  if (on_run_) on_run_(feeds);
  const auto start = std::chrono::steady_clock::now();
  PF_ASSIGN_OR_RETURN(std::vector<Tensor> outputs, session_->Run(feeds, fetches_));
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const int64_t count = static_cast<int64_t>(tokens.size()) - first;
  const bool decode = first > 0;
  ++stats_.steps;
  (decode ? stats_.decode_seconds : stats_.prefill_seconds) += seconds;
  (decode ? stats_.decode_tokens : stats_.prefill_tokens) += count;
  if (on_step_) {
    PF_RETURN_IF_ERROR(on_step_(
        {session_.get(), decode, count, 0, start, seconds, session_->stats().device_seconds}));
  }
  int64_t bytes = 0;
  for (size_t i = 0; i < pasts_.size(); ++i) {
    pasts_[i] = std::move(outputs[i + 1]);
    bytes += pasts_[i].byte_size();
  }
  stats_.cache_bytes_per_token = bytes / static_cast<int64_t>(tokens.size());
  return LastRow(*inputs_.logits, outputs[0]);
}

absl::StatusOr<LogitRows> PlainDecoder::Logits(const std::vector<int64_t>& prompt,
                                               const std::vector<int64_t>& following,
                                               int64_t first_position) {
  PF_RETURN_IF_ERROR(Begin());
  first_position_ = first_position;
  const EngineStats stats = stats_;
  auto on_step = std::exchange(on_step_, nullptr);
  LogitRows rows;
  std::vector<int64_t> tokens = prompt;
  auto row = Step(tokens, 0);
  for (auto token = following.begin(); row.ok(); ++token) {
    rows.push_back(*row);
    if (token == following.end()) break;
    tokens.push_back(*token);
    row = Step(tokens, static_cast<int64_t>(tokens.size()) - 1);
  }
  pasts_.clear();
  first_position_ = 0;
  stats_ = stats;
  on_step_ = std::move(on_step);
  PF_RETURN_IF_ERROR(row.status());
  return rows;
}

absl::Status PlainDecoder::RunOne(const Request& request, Progress& progress, size_t completion,
                                  const OnToken& on_token) {
  PF_RETURN_IF_ERROR(Begin());
  int64_t first = 0;
  while (!progress.done) {
    PF_ASSIGN_OR_RETURN(const std::vector<float> row, Step(progress.tokens, first));
    first = static_cast<int64_t>(progress.tokens.size());
    HostLogits logits(Tensor::Of<float>({1, static_cast<int64_t>(row.size())}, row));
    AddToken(request, logits, 0, progress, completion, on_token);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<Completion>> PlainDecoder::Generate(const std::vector<Request>& requests,
                                                               const OnToken& on_token) {
  std::vector<Progress> progress = pagefuse::Begin(
      requests, [this](const Request& request) { return CheckRequest(request, vocabulary_); });
  for (size_t i = 0; i < progress.size(); ++i) {
    if (progress[i].done) continue;
    PF_RETURN_IF_ERROR(RunOne(requests[progress[i].request], progress[i], i, on_token));
  }
  pasts_.clear();
  return Completions(std::move(progress));
}

}  // namespace pagefuse
