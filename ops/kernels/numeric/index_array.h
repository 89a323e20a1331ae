// SPDX-License-Identifier: Apache-2.0
// Indices as tensors hold them: int32 or int64.
#pragma once

#include <cstdint>

#include "pagefuse/base/data_type.h"

namespace pagefuse {

struct IndexArray {
  DataType type = DataType::kUndefined;  // kInt32 or kInt64; undefined: there is none
  const void* data = nullptr;

  bool present() const { return type != DataType::kUndefined; }
  int64_t operator[](int64_t i) const {
    return type == DataType::kInt32 ? static_cast<const int32_t*>(data)[i]
                                    : static_cast<const int64_t*>(data)[i];
  }
};

}  // namespace pagefuse
