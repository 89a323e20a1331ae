// SPDX-License-Identifier: Apache-2.0
// The logits of a step, which may stay where they were computed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/statusor.h"

#include "pagefuse/base/device.h"
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

  // Waits until they are computed and what DrawAtOnce was asked for is drawn; the errors of a device. Other calls
  // that need it call it.
  virtual absl::Status Settle() { return absl::OkStatus(); }
  // A row [V] in the host's memory, as long as this lives and no other one is asked for.
  virtual absl::StatusOr<std::span<const float>> Row(int64_t row) = 0;
  // Whether Sample may be called by several threads at one time, each with a sampler of its own.
  virtual bool samples_side_by_side() const { return false; }
  // What Sampler::Next takes of a row, with its errors. One whose rows are elsewhere may draw there, by the
  // arithmetic of token_weights.h, where the sampler needs nothing else of them.
  virtual absl::StatusOr<SampledToken> Sample(int64_t row, Sampler& sampler,
                                              std::span<const int64_t> tokens, size_t prompt,
                                              const TokenLimits& limits);
  // What Sample is going to be asked for, where the rows are elsewhere: all of it is asked for at once, behind the
  // logits. How many were asked for; an error of what could not be drawn at all.
  struct RowDraw {
    int64_t row;
    Sampler* sampler;
    std::span<const int64_t> tokens;
    size_t prompt;
    TokenLimits limits;
  };
  virtual bool draws_at_once() const { return false; }
  virtual absl::StatusOr<int64_t> DrawAtOnce(std::span<const RowDraw> draws);
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

class DeviceSampler;
class Session;

// Those that a session's device has computed, or computes still; it draws of them what it can.
class DeviceLogits final : public StepLogits {
 public:
  // float32 on the device, of two dims at least, of a run in place; `sampler` may be null, and both outlive it.
  DeviceLogits(Tensor logits, Session& session, DeviceSampler* sampler);
  const std::vector<int64_t>& dims() const override { return logits_.dims(); }
  absl::Status Settle() override;
  absl::StatusOr<std::span<const float>> Row(int64_t row) override;
  bool draws_at_once() const override { return sampler_ != nullptr; }
  absl::StatusOr<int64_t> DrawAtOnce(std::span<const RowDraw> draws) override;
  absl::StatusOr<SampledToken> Sample(int64_t row, Sampler& sampler,
                                      std::span<const int64_t> tokens, size_t prompt,
                                      const TokenLimits& limits) override;
  absl::StatusOr<Tensor> TakeAll() override;

 private:
  struct Drawn {
    const Sampler* sampler;
    int64_t row;
    size_t position;
    int64_t token;
  };
  // What the sampler was asked for last.
  void TakeDrawn();
  // The device's draw for a row; null if none was asked for.
  const Drawn* FindDrawn(int64_t row, const Sampler& sampler, size_t position) const;
  absl::StatusOr<Tensor> RowsOf(std::span<const int64_t> rows) const;

  Tensor logits_;
  Session& session_;
  DeviceContext& device_;
  DeviceSampler* sampler_;
  std::vector<Drawn> drawn_;
  size_t taken_ = 0;  // of drawn_: tokens that are here
  std::optional<absl::Status> settled_;
  std::vector<float> row_;
};

// Rows `places` of others, as [places, V].
std::unique_ptr<StepLogits> PickRows(std::unique_ptr<StepLogits> logits,
                                     std::vector<int64_t> places);

}  // namespace pagefuse
