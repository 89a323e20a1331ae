// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/runtime/step_logits.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

#include "pagefuse/base/status_macros.h"

namespace pagefuse {
namespace {

class PickedRows final : public StepLogits {
 public:
  PickedRows(std::unique_ptr<StepLogits> logits, std::vector<int64_t> places)
      : logits_(std::move(logits)),
        places_(std::move(places)),
        dims_{static_cast<int64_t>(places_.size()), logits_->columns()} {}

  const std::vector<int64_t>& dims() const override { return dims_; }
  absl::StatusOr<std::span<const float>> Row(int64_t row) override {
    return logits_->Row(places_[row]);
  }
  bool samples_side_by_side() const override { return logits_->samples_side_by_side(); }
  absl::StatusOr<SampledToken> Sample(int64_t row, Sampler& sampler,
                                      std::span<const int64_t> tokens, size_t prompt,
                                      const TokenLimits& limits) override {
    return logits_->Sample(places_[row], sampler, tokens, prompt, limits);
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

absl::StatusOr<Tensor> StepLogits::TakeAll() {
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

std::unique_ptr<StepLogits> PickRows(std::unique_ptr<StepLogits> logits,
                                     std::vector<int64_t> places) {
  return std::make_unique<PickedRows>(std::move(logits), std::move(places));
}

}  // namespace pagefuse
