// SPDX-License-Identifier: Apache-2.0
#include "fake_device.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "pagefuse/base/status_macros.h"

namespace pagefuse {
namespace {

// Bytes of the device are these when the host looks at them.
constexpr std::byte kVeil{0x5A};

class VeiledLogits final : public StepLogits {
 public:
  VeiledLogits(const Tensor& logits, std::shared_ptr<FakeDevice::Counts> counts, bool draws)
      : dims_(logits.dims()), counts_(std::move(counts)), draws_(draws), row_(columns()) {
    const auto* from = static_cast<const std::byte*>(logits.data());
    memory_.assign(from, from + logits.byte_size());
    for (std::byte& byte : memory_) byte ^= kVeil;
  }

  const std::vector<int64_t>& dims() const override { return dims_; }
  absl::StatusOr<std::span<const float>> Row(int64_t row) override {
    ++counts_->rows;
    return Unveiled(row);
  }
  absl::StatusOr<SampledToken> Sample(int64_t row, Sampler& sampler,
                                      std::span<const int64_t> tokens, size_t prompt,
                                      const TokenLimits& limits) override {
    if (!draws_) return StepLogits::Sample(row, sampler, tokens, prompt, limits);
    ++counts_->draws;
    return sampler.Next(Unveiled(row), tokens, prompt, limits);
  }

 private:
  std::span<const float> Unveiled(int64_t row) {
    EXPECT_LT(row, rows());
    const auto to = std::as_writable_bytes(std::span(row_));
    std::copy_n(memory_.begin() + row * static_cast<int64_t>(to.size()), to.size(), to.begin());
    for (std::byte& byte : to) byte ^= kVeil;
    return row_;
  }

  std::vector<int64_t> dims_;
  std::shared_ptr<FakeDevice::Counts> counts_;
  bool draws_;
  std::vector<std::byte> memory_;
  std::vector<float> row_;
};

}  // namespace

StepDeviceMaker FakeDevice::Maker(std::shared_ptr<Counts> counts, bool draws) {
  return [counts, draws](Session& session,
                         const CacheLayout& layout) -> absl::StatusOr<std::unique_ptr<StepDevice>> {
    return std::make_unique<FakeDevice>(session, layout, counts, draws);
  };
}

StepDeviceMaker TestDevice() {
  const char* device = std::getenv("PAGEFUSE_TEST_DEVICE");
  if (device == nullptr) return nullptr;
  PF_CHECK(std::string_view(device) == "fake");
  return FakeDevice::Maker();
}

absl::StatusOr<std::unique_ptr<StepLogits>> FakeDevice::Run(const StepRecord& record) {
  ++counts_->steps;
  counts_->record_bytes += static_cast<int64_t>(record.bytes().size());
  PF_ASSIGN_OR_RETURN(const auto memory, Buffer::Allocate(record.bytes().size()));
  std::ranges::copy(record.bytes(), memory->data());
  std::map<std::string, Tensor> feeds = pages_.tensors();
  PF_RETURN_IF_ERROR(record.AddFeeds(memory, feeds));
  PF_ASSIGN_OR_RETURN(const std::vector<Tensor> outputs, session_.Run(feeds, {"logits"}));
  return std::make_unique<VeiledLogits>(outputs[0], counts_, draws_);
}

}  // namespace pagefuse
