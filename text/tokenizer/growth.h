// SPDX-License-Identifier: Apache-2.0
// What the steps of a tokenizer may make of a text. A step may write several characters for one, and every step may do so again:
// thirty that double a text make a billion of it.
#pragma once

#include <cstddef>
#include <string_view>

#include "absl/status/status.h"

#include "pagefuse/base/str_cat.h"

namespace pagefuse {

class Growth {
 public:
  // Unicode's normal forms make 18 bytes of one at most, escapes of bytes 6.
  explicit Growth(size_t size) : size_(size), most_(kSpare + kMostTimes * size) {}

  size_t most() const { return most_; }
  // All steps together, one behind the other, walk over `made` bytes more. ResourceExhausted, naming
  // `what`, if that is more than a text of this size may become, or than all of them may take.
  absl::Status Add(size_t made, std::string_view what) {
    walked_ += made;
    if (made <= most_ && walked_ / kMostSteps <= most_) return absl::OkStatus();
    return absl::ResourceExhaustedError(StrCat(what, " makes ", made > most_ ? "" : "in all ",
                                               "more than ", most_, " bytes of a text of ", size_));
  }

 private:
  static constexpr size_t kSpare = 1024, kMostTimes = 64, kMostSteps = 16;
  size_t size_, most_;
  size_t walked_ = 0;
};

}  // namespace pagefuse
