// SPDX-License-Identifier: Apache-2.0
// The logits of a step, which may stay where they were computed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"

#include "pagefuse/ir/tensor/tensor.h"
#include "pagefuse/runtime/sampler.h"

namespace pagefuse {

// Rows of float32, as many as the dims before the last one say together. Not thread-safe.
class StepLogits {
 public:
  virtual ~StepLogits() = default;

  // [R, V] of the tokens that were asked for, or [1, T, V] of all.
  virtual const std::vector<int64_t>& dims() const = 0;
  int64_t columns() const { return dims().back(); }
  int64_t rows() const;

  // A row [V] in the host's memory, as long as this lives and no other one is asked for.
  virtual absl::StatusOr<std::span<const float>> Row(int64_t row) = 0;
  // Whether Sample may be called by several threads at one time, each with a sampler of its own.
  virtual bool samples_side_by_side() const { return false; }
  // What Sampler::Next takes of a row, with its errors. One whose rows are elsewhere may draw there, by the
  // arithmetic of token_weights.h, where the sampler needs nothing else of them.
  virtual absl::StatusOr<SampledToken> Sample(int64_t row, Sampler& sampler,
                                              std::span<const int64_t> tokens, size_t prompt,
                                              const TokenLimits& limits);
  // All rows, [R, V] or [1, T, V], in the host's memory. The last call.
  virtual absl::StatusOr<Tensor> TakeAll();
};

// Those that the host has computed.
class HostLogits final : public StepLogits {
 public:
  // float32, of one dim at least.
  explicit HostLogits(Tensor logits) : logits_(std::move(logits)) {}
  const std::vector<int64_t>& dims() const override { return logits_.dims(); }
  absl::StatusOr<std::span<const float>> Row(int64_t row) override;
  absl::StatusOr<Tensor> TakeAll() override { return std::move(logits_); }
  bool samples_side_by_side() const override { return true; }

 private:
  Tensor logits_;
};

// Rows `places` of others, as [places, V].
std::unique_ptr<StepLogits> PickRows(std::unique_ptr<StepLogits> logits,
                                     std::vector<int64_t> places);

}  // namespace pagefuse
