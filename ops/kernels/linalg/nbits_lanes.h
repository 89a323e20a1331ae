// SPDX-License-Identifier: Apache-2.0
// Weights of 4 and 8 bits in the order in which products of integers read them: 16 rows side by side,
// so that a lane of a vector, or a column of a matrix unit, is a row. One order for all processors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "pagefuse/ops/kernels/linalg/nbits.h"
#include "pagefuse/ops/kernels/numeric/small_float.h"

namespace pagefuse {

// The weight [n, k] of NBitsWeight, whose blocks are multiples of 32 elements, in groups of 16 rows.
// The last group may have fewer: its other lanes hold zeros. The memory is the caller's.
struct NBitsLanes {
  static constexpr int64_t kLanes = 16;

  int bits = 4;
  int64_t n = 0;
  int64_t k = 0;
  int64_t block = 0;
  // [groups][words()][16]: word w of lane c is bytes 4 w to 4 w + 3 of row 16 g + c.
  const uint32_t* codes = nullptr;
  // [groups][blocks()][16]: those of the lanes beside each other; either float16 or float.
  const Float16* half_scales = nullptr;
  const float* scales = nullptr;
  // Zero points in the same order, bytes or floats; neither: 2^(bits - 1).
  const uint8_t* zero_codes = nullptr;
  const float* zeros = nullptr;

  int64_t blocks() const { return (k + block - 1) / block; }
  int64_t words() const { return blocks() * block * bits / 32; }  // of a row
  int64_t groups() const { return (n + kLanes - 1) / kLanes; }
  bool has_scales() const { return half_scales != nullptr || scales != nullptr; }
  bool centred() const { return zero_codes == nullptr && zeros == nullptr; }
  // Where [group][i][0] lies in an array of `each` a row.
  static int64_t At(int64_t group, int64_t each, int64_t i) { return (group * each + i) * kLanes; }

  uint8_t Code(int64_t row, int64_t column) const;
  float Scale(int64_t row, int64_t index) const;
};

// `count` matrices of n rows, `each` numbers of a row one after the other. Each matrix becomes
// [groups][each][16] of these.
struct LaneRows {
  int64_t count = 1, n = 0, each = 0;

  int64_t groups() const { return (n + NBitsLanes::kLanes - 1) / NBitsLanes::kLanes; }
  int64_t lane_size() const { return count * groups() * each * NBitsLanes::kLanes; }
  // True if all groups are whole: rows can be packed where they lie.
  bool is_whole() const { return n % NBitsLanes::kLanes == 0; }
};
// With the workers of the call. `from` has any alignment, and may be `to` if is_whole(). `release` is
// called after bytes [begin, begin + bytes) were read for the last time, from any thread, in any
// order.
using ReleaseRowsFn = std::function<void(const void* begin, size_t bytes)>;
void PackLanes(const void* from, const LaneRows& rows, uint32_t* to,
               const ReleaseRowsFn& release = {});
void PackLanes(const void* from, const LaneRows& rows, float* to);
void PackLanes(const void* from, const LaneRows& rows, Float16* to);
void PackLanes(const void* from, const LaneRows& rows, uint8_t* to);

// A weight in lanes with memory of its own: all that `w` has, scales as float16 if all are that.
class OwnedLanes {
 public:
  explicit OwnedLanes(const NBitsWeight& w);
  const NBitsLanes& view() const { return view_; }

 private:
  std::vector<uint32_t> codes_;
  std::vector<Float16> half_scales_;
  std::vector<float> scales_, zeros_;
  std::vector<uint8_t> zero_codes_;
  NBitsLanes view_;
};

}  // namespace pagefuse
