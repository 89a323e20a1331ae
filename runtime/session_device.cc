// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/runtime/session_device.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ir/tensor/memory_budget.h"
#include "pagefuse/runtime/device_sampler.h"

namespace pagefuse {
namespace {

// Of a block, which is dense.
int64_t BlockBytes(const Tensor& cache) {
  return cache.dims()[0] == 0 ? 0 : cache.byte_size() / cache.dims()[0];
}

// From a block to the next one.
int64_t BlockStride(const Tensor& cache) {
  return cache.block_stride() > 0 ? cache.block_stride() : BlockBytes(cache);
}

}  // namespace

SessionDevice::SessionDevice(Session& session, const CacheLayout& layout)
    : session_(session), layout_(layout) {}
SessionDevice::~SessionDevice() = default;

double SessionDevice::device_seconds() const {
  return session_.stats().device_seconds + (sampler_ ? sampler_->device_seconds() : 0);
}

absl::Status SessionDevice::MakePages(int64_t num_pages) {
  const MemoryBudgetScope scope(session_.memory());
  feeds_ = tensors_ = {};  // the old ones go before the new ones come
  PF_ASSIGN_OR_RETURN(
      tensors_, layout_.Allocate(num_pages, [&](std::string_view cache) -> Allocator& {
        return session_.IsOnDevice(cache) ? session_.device()->memory() : HostAllocator();
      }));
  feeds_ = tensors_;
  return absl::OkStatus();
}

absl::Status SessionDevice::CopyPages(std::span<const PagedCache::Copy> copies) {
  for (const PagedCache::Copy& copy : copies) {
    for (const std::string& name : layout_.groups()[copy.group].caches) {
      PF_RETURN_IF_ERROR(CopyBlock(tensors_.at(name), copy));
    }
  }
  return absl::OkStatus();
}

absl::Status SessionDevice::CopyBlock(const Tensor& cache, const PagedCache::Copy& copy) {
  auto* blocks = static_cast<std::byte*>(Tensor(cache).mutable_data());
  const int64_t stride = BlockStride(cache);
  const auto bytes = static_cast<size_t>(BlockBytes(cache));
  if (!cache.buffer()->on_host()) {
    return session_.device()->CopyOnDevice(blocks + copy.to * stride, blocks + copy.from * stride,
                                           bytes);
  }
  std::copy_n(blocks + copy.from * stride, bytes, blocks + copy.to * stride);
  return absl::OkStatus();
}

absl::StatusOr<std::byte*> SessionDevice::BlockOf(std::string_view cache, int64_t page,
                                                  size_t bytes) {
  const auto found = tensors_.find(std::string(cache));
  if (found == tensors_.end()) {
    return absl::NotFoundError(StrCat("cache \"", cache, "\": the graph has none of that name"));
  }
  Tensor& tensor = found->second;
  const int64_t pages = tensor.dims()[0];
  if (page < 0 || page >= pages) {
    return absl::InvalidArgumentError(
        StrCat("cache \"", cache, "\": expected a page of 0 to ", pages - 1, ", got ", page));
  }
  if (bytes != static_cast<size_t>(BlockBytes(tensor))) {
    return absl::InvalidArgumentError(StrCat("cache \"", cache, "\": expected a block of ",
                                             BlockBytes(tensor), " bytes, got ", bytes));
  }
  return static_cast<std::byte*>(tensor.mutable_data()) + page * BlockStride(tensor);
}

absl::Status SessionDevice::ReadPage(std::string_view cache, int64_t page,
                                     std::span<std::byte> block) {
  PF_ASSIGN_OR_RETURN(const std::byte* from, BlockOf(cache, page, block.size()));
  if (session_.IsOnDevice(cache)) {
    return session_.device()->CopyToHost(block.data(), from, block.size());
  }
  std::copy_n(from, block.size(), block.data());
  return absl::OkStatus();
}

absl::Status SessionDevice::WritePage(std::string_view cache, int64_t page,
                                      std::span<const std::byte> block) {
  PF_ASSIGN_OR_RETURN(std::byte * to, BlockOf(cache, page, block.size()));
  if (session_.IsOnDevice(cache)) {
    return session_.device()->CopyToDevice(to, block.data(), block.size());
  }
  std::ranges::copy(block, to);
  return absl::OkStatus();
}

// The record's memory serves other ones.
void SessionDevice::LetGo(const StepRecord& record) {
  for (const StepRecord::Field& field : record.fields()) feeds_[field.input] = Tensor();
}

void SessionDevice::Prepare(const StepRecord& record) {
  is_prepared_ = record.AddFeeds(feeds_).ok() && session_.Prepare(feeds_, {"input_ids"}).ok();
  LetGo(record);
}

absl::StatusOr<std::unique_ptr<StepLogits>> SessionDevice::RunPrepared(const StepRecord& record) {
  if (!std::exchange(is_prepared_, false)) return Run(record);
  return LogitsOf(session_.RunPrepared({"logits"}));
}

absl::StatusOr<std::unique_ptr<StepLogits>> SessionDevice::Run(const StepRecord& record) {
  PF_RETURN_IF_ERROR(record.AddFeeds(feeds_));
  absl::StatusOr<std::vector<Tensor>> ran = session_.RunInPlace(feeds_, {"logits"});
  LetGo(record);
  return LogitsOf(std::move(ran));
}

absl::StatusOr<std::unique_ptr<StepLogits>> SessionDevice::LogitsOf(
    absl::StatusOr<std::vector<Tensor>> ran) {
  PF_ASSIGN_OR_RETURN(std::vector<Tensor> outputs, std::move(ran));
  if (outputs[0].buffer() == nullptr || outputs[0].buffer()->on_host()) {
    PF_RETURN_IF_ERROR(session_.Settle());
    return std::make_unique<HostLogits>(std::move(outputs[0]));
  }
  if (!made_sampler_) {
    PF_ASSIGN_OR_RETURN(sampler_, DeviceSampler::Create(session_.device()));
    made_sampler_ = true;
  }
  return std::make_unique<DeviceLogits>(std::move(outputs[0]), session_, sampler_.get());
}

}  // namespace pagefuse
