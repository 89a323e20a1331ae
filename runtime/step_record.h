// SPDX-License-Identifier: Apache-2.0
// The inputs of a packed step, in one piece of memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "pagefuse/ir/tensor/tensor.h"

namespace pagefuse {

// What a step tells a graph besides its caches (CacheLayout), field after field: a device is given all
// of it by one copy, and finds each field by its offset. Fields stand in one order, and where they
// begin depends on their dims alone. Not thread-safe.
class StepRecord {
 public:
  // Of bytes; fields begin at multiples of it, and the bytes between them are zeros.
  static constexpr size_t kAlignment = 64;

  struct Field {
    std::string input;  // of the graph
    DataType dtype = DataType::kUndefined;
    std::vector<int64_t> dims;
    size_t offset = 0;  // of bytes()
  };

  // Begins the record of another step. Its memory is used again, unless tensors are left that view it.
  void Clear();
  // Values in the order of dims, as many as these say.
  absl::Status Add(std::string_view input, std::vector<int64_t> dims,
                   std::span<const int64_t> values) {
    return Append({std::string(input), DataType::kInt64, std::move(dims)}, std::as_bytes(values));
  }
  absl::Status Add(std::string_view input, std::vector<int64_t> dims,
                   std::span<const int32_t> values) {
    return Append({std::string(input), DataType::kInt32, std::move(dims)}, std::as_bytes(values));
  }

  // Other values of a field that is there.
  absl::Status Fill(std::string_view input, std::span<const int64_t> values);

  const std::vector<Field>& fields() const { return fields_; }
  std::span<const std::byte> bytes() const { return {buffer_ ? buffer_->data() : nullptr, size_}; }
  // Of each field a tensor by the name of its input, over `memory`, which begins with these bytes.
  absl::Status AddFeeds(const std::shared_ptr<Buffer>& memory,
                        std::map<std::string, Tensor>& feeds) const;
  // Over the record's own memory.
  absl::Status AddFeeds(std::map<std::string, Tensor>& feeds) const {
    return AddFeeds(buffer_, feeds);
  }

 private:
  absl::Status Append(Field field, std::span<const std::byte> values);
  absl::Status Grow(size_t size);

  std::vector<Field> fields_;
  std::shared_ptr<Buffer> buffer_;
  size_t size_ = 0;
};

}  // namespace pagefuse
