// SPDX-License-Identifier: Apache-2.0
// Counts what a template costs, so that none runs forever or fills the memory. Lists may share their items: a value of a few items may
// take as long to compare or print as one of millions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "absl/status/status.h"

#include "pagefuse/base/str_cat.h"

namespace pagefuse::chat_template {

// InvalidArgument with this message, before which others say where and in what.
inline absl::Status Wrong(std::string_view what) {
  return absl::InvalidArgumentError(AbslView(what));
}

class Work {
 public:
  // One operation: an expression, a statement, two values that are compared, or 64 bytes or items
  // that are made.
  static constexpr int64_t kMaxOperations = 1'000'000;
  static constexpr size_t kMaxBytes = 8 << 20;  // of a text, the output among them
  static constexpr size_t kBytesAnOperation = 64;
  // Reading costs less than making.
  static constexpr size_t kReadsAnOperation = 1024;

  // An operation, and one more for as many bytes made. ResourceExhausted past the limits.
  absl::Status Charge(size_t made) {
    if (made > kMaxBytes) return TooLong();
    return Count(1 + static_cast<int64_t>(made / kBytesAnOperation));
  }
  // For texts that are only read, of any length together.
  absl::Status ChargeRead(size_t bytes) {
    return Count(static_cast<int64_t>(bytes / kReadsAnOperation));
  }
  static absl::Status TooLong() {
    return absl::ResourceExhaustedError(StrCat("more than ", kMaxBytes, " bytes of text"));
  }

 private:
  absl::Status Count(int64_t operations) {
    operations_ += operations;
    if (operations_ <= kMaxOperations) return absl::OkStatus();
    return absl::ResourceExhaustedError(StrCat("more than ", kMaxOperations, " operations"));
  }

  int64_t operations_ = 0;
};

}  // namespace pagefuse::chat_template
