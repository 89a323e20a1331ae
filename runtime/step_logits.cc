// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/runtime/step_logits.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <optional>
#include <utility>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/runtime/device_sampler.h"
#include "pagefuse/runtime/session.h"

namespace pagefuse {
namespace {

class PickedRows final : public StepLogits {
 public:
  PickedRows(std::unique_ptr<StepLogits> logits, std::vector<int64_t> places)
      : logits_(std::move(logits)),
        places_(std::move(places)),
        dims_{static_cast<int64_t>(places_.size()), logits_->columns()} {}

  const std::vector<int64_t>& dims() const override { return dims_; }
  absl::Status Settle() override { return logits_->Settle(); }
  absl::StatusOr<std::span<const float>> Row(int64_t row) override {
    return logits_->Row(places_[row]);
  }
  bool samples_side_by_side() const override { return logits_->samples_side_by_side(); }
  absl::StatusOr<SampledToken> Sample(int64_t row, Sampler& sampler,
                                      std::span<const int64_t> tokens, size_t prompt,
                                      const TokenLimits& limits) override {
    return logits_->Sample(places_[row], sampler, tokens, prompt, limits);
  }
  bool draws_at_once() const override { return logits_->draws_at_once(); }
  absl::StatusOr<int64_t> DrawAtOnce(std::span<const RowDraw> draws) override {
    std::vector<RowDraw> placed(draws.begin(), draws.end());
    for (RowDraw& draw : placed) draw.row = places_[draw.row];
    return logits_->DrawAtOnce(placed);
  }

 private:
  std::unique_ptr<StepLogits> logits_;
  std::vector<int64_t> places_;
  std::vector<int64_t> dims_;
};

}  // namespace

int64_t StepLogits::rows() const {
  return std::accumulate(dims().begin(), dims().end() - 1, int64_t{1}, std::multiplies<>());
}

absl::StatusOr<SampledToken> StepLogits::Sample(int64_t row, Sampler& sampler,
                                                std::span<const int64_t> tokens, size_t prompt,
                                                const TokenLimits& limits) {
  PF_ASSIGN_OR_RETURN(const std::span<const float> logits, Row(row));
  return sampler.Next(logits, tokens, prompt, limits);
}

absl::StatusOr<int64_t> StepLogits::DrawAtOnce(std::span<const RowDraw>) { return 0; }

absl::StatusOr<Tensor> StepLogits::TakeAll() {
  PF_RETURN_IF_ERROR(Settle());
  PF_ASSIGN_OR_RETURN(Tensor all, Tensor::Allocate(DataType::kFloat, dims()));
  for (int64_t row = 0; row < rows(); ++row) {
    PF_ASSIGN_OR_RETURN(const std::span<const float> logits, Row(row));
    std::ranges::copy(logits, all.mutable_values<float>().begin() + row * columns());
  }
  return all;
}

absl::StatusOr<std::span<const float>> HostLogits::Row(int64_t row) {
  return logits_.values<float>().subspan(row * columns(), columns());
}

DeviceLogits::DeviceLogits(Tensor logits, Session& session, DeviceSampler* sampler)
    : logits_(std::move(logits)),
      session_(session),
      device_(*session.device()),
      sampler_(sampler) {}

absl::Status DeviceLogits::Settle() {
  TakeDrawn();
  if (!settled_) settled_ = session_.Settle();
  return *settled_;
}

void DeviceLogits::TakeDrawn() {
  if (taken_ == drawn_.size()) return;
  const absl::StatusOr<std::vector<int64_t>> tokens = sampler_->Take();
  // Where they cannot be had, rows are drawn on the host, which tells why.
  for (size_t i = 0; tokens.ok() && i < tokens->size(); ++i) {
    drawn_[taken_ + i].token = (*tokens)[i];
  }
  taken_ = drawn_.size();
}

absl::StatusOr<std::span<const float>> DeviceLogits::Row(int64_t row) {
  PF_RETURN_IF_ERROR(Settle());
  row_.resize(static_cast<size_t>(columns()));
  const size_t bytes = row_.size() * sizeof(float);
  PF_RETURN_IF_ERROR(device_.CopyToHost(
      row_.data(), static_cast<const std::byte*>(logits_.data()) + static_cast<size_t>(row) * bytes,
      bytes));
  return row_;
}

absl::StatusOr<Tensor> DeviceLogits::TakeAll() {
  PF_RETURN_IF_ERROR(Settle());
  PF_ASSIGN_OR_RETURN(Tensor all, Tensor::Allocate(DataType::kFloat, dims()));
  if (all.byte_size() == 0) return all;
  PF_RETURN_IF_ERROR(
      device_.CopyToHost(all.mutable_data(), logits_.data(), static_cast<size_t>(all.byte_size())));
  return all;
}

// Those rows one behind the other: where they lie so already, a view.
absl::StatusOr<Tensor> DeviceLogits::RowsOf(std::span<const int64_t> rows) const {
  const auto count = static_cast<int64_t>(rows.size());
  const auto bytes = static_cast<size_t>(columns()) * sizeof(float);
  bool in_order = true;
  for (int64_t i = 0; i < count; ++i) in_order = in_order && rows[i] == rows[0] + i;
  if (in_order) {
    return Tensor::View(DataType::kFloat, {count, columns()}, logits_.buffer(),
                        logits_.buffer_offset() + static_cast<size_t>(rows[0]) * bytes);
  }
  const auto* data = static_cast<const std::byte*>(logits_.data());
  PF_ASSIGN_OR_RETURN(Tensor picked,
                      Tensor::Allocate(DataType::kFloat, {count, columns()}, device_.memory()));
  for (int64_t i = 0; i < count; ++i) {
    PF_RETURN_IF_ERROR(device_.CopyOnDevice(
        static_cast<std::byte*>(picked.mutable_data()) + static_cast<size_t>(i) * bytes,
        data + static_cast<size_t>(rows[i]) * bytes, bytes));
  }
  return picked;
}

const DeviceLogits::Drawn* DeviceLogits::FindDrawn(int64_t row, const Sampler& sampler,
                                                   size_t position) const {
  const auto is_it = [&](const Drawn& drawn) {
    return drawn.sampler == &sampler && drawn.row == row && drawn.position == position;
  };
  // Mostly all rows were asked for, in order.
  const auto place = static_cast<size_t>(row);
  if (place < drawn_.size() && is_it(drawn_[place])) return &drawn_[place];
  const auto found = std::ranges::find_if(drawn_, is_it);
  return found == drawn_.end() ? nullptr : &*found;
}

absl::StatusOr<int64_t> DeviceLogits::DrawAtOnce(std::span<const RowDraw> draws) {
  TakeDrawn();
  std::vector<DrawPlan> plans;
  std::vector<int64_t> rows;
  std::vector<Drawn> drawn;
  for (const RowDraw& draw : draws) {
    std::optional<DrawPlan> plan = draw.sampler->Plan(draw.tokens, draw.prompt, draw.limits);
    if (!plan) continue;
    plans.push_back(*std::move(plan));
    rows.push_back(draw.row);
    drawn.push_back({draw.sampler, draw.row, draw.tokens.size(), -1});
  }
  if (plans.empty() || columns() == 0) return 0;
  PF_ASSIGN_OR_RETURN(const Tensor logits, RowsOf(rows));
  PF_RETURN_IF_ERROR(sampler_->Draw(logits, plans));
  drawn_.insert(drawn_.end(), drawn.begin(), drawn.end());
  return static_cast<int64_t>(drawn.size());
}

// What was not drawn at once, or has an error to be told, is drawn of the row here.
absl::StatusOr<SampledToken> DeviceLogits::Sample(int64_t row, Sampler& sampler,
                                                  std::span<const int64_t> tokens, size_t prompt,
                                                  const TokenLimits& limits) {
  PF_RETURN_IF_ERROR(Settle());
  const Drawn* drawn = FindDrawn(row, sampler, tokens.size());
  if (drawn != nullptr && drawn->token >= 0) return SampledToken{.token = drawn->token};
  return StepLogits::Sample(row, sampler, tokens, prompt, limits);
}

std::unique_ptr<StepLogits> PickRows(std::unique_ptr<StepLogits> logits,
                                     std::vector<int64_t> places) {
  return std::make_unique<PickedRows>(std::move(logits), std::move(places));
}

}  // namespace pagefuse
