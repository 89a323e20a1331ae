// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/kernels/formats/scaled_rows.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"

#include "pagefuse/ops/kernels/numeric/convert.h"
#include "pagefuse/ops/kernels/numeric/packing.h"

namespace pagefuse {
namespace {

constexpr int kNibbleZero = 8;  // the code of 0

void EncodeNibbles(const float* x, int64_t n, uint8_t* row) {
  const auto code = [&](int64_t i) {
    const float q = std::clamp(std::nearbyint(x[i]), -8.0f, 7.0f);
    return static_cast<uint8_t>(static_cast<int>(q) + kNibbleZero);
  };
  for (int64_t i = 0; i < n; i += 2) {
    const uint8_t high = i + 1 < n ? code(i + 1) : kNibbleZero;
    row[i / 2] = static_cast<uint8_t>(code(i) | high << 4);
  }
}

void DecodeNibbles(const uint8_t* row, int64_t n, float* x) {
  for (int64_t i = 0; i < n; ++i) {
    x[i] = static_cast<float>(static_cast<int>(GetNibble(row, i)) - kNibbleZero);
  }
}

}  // namespace

absl::Status ScaledRows::Check() const {
  if (scales.empty() ? IsFloatingPoint(element)
                     : element == DataType::kInt8 || element == DataType::kFloat8E4M3FN ||
                           (four_bits && element == DataType::kUint8)) {
    return absl::OkStatus();
  }
  return absl::UnimplementedError(absl::StrCat("no cache of ", std::string(DataTypeName(element)),
                                               scales.empty() ? " without" : " with", " scales"));
}

void ScaledRows::Encode(int64_t head, float* x, void* row) const {
  if (!scales.empty()) {
    const float* scale = scales.data() + (per_channel ? head * head_size : 0);
    const int64_t step = per_channel ? 1 : 0;
    for (int64_t i = 0; i < head_size; ++i) x[i] /= scale[i * step];
  }
  if (four_bits) {
    EncodeNibbles(x, head_size, static_cast<uint8_t*>(row));
    return;
  }
  if (element == DataType::kInt8) {
    for (int64_t i = 0; i < head_size; ++i) x[i] = std::nearbyint(x[i]);
  }
  EncodeFromFloat(element, x, head_size, row).IgnoreError();  // Check() was OK
}

void ScaledRows::Decode(int64_t head, const void* row, float* x) const {
  if (four_bits) {
    DecodeNibbles(static_cast<const uint8_t*>(row), head_size, x);
  } else {
    DecodeToFloat(element, row, head_size, x).IgnoreError();  // Check() was OK
  }
  if (scales.empty()) return;
  const float* scale = scales.data() + (per_channel ? head * head_size : 0);
  const int64_t step = per_channel ? 1 : 0;
  for (int64_t i = 0; i < head_size; ++i) x[i] *= scale[i * step];
}

}  // namespace pagefuse
