// SPDX-License-Identifier: Apache-2.0
// "int4_per_token_head": Hadamard transform, then 4-bit codes, one float scale a row with a zero
// point in it.
#include <algorithm>
#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

#include "pagefuse/ops/kernels/formats/cache_format.h"
#include "pagefuse/ops/kernels/formats/row_codec.h"
#include "pagefuse/ops/kernels/numeric/convert.h"
#include "pagefuse/ops/kernels/numeric/dispatch.h"
#include "pagefuse/ops/kernels/numeric/packing.h"

namespace pagefuse {
namespace {

void Encode(const CacheFormat& /*format*/, const RowParams& params, const float* x, int64_t n,
            RowAddress row) {
  std::vector<float> y(x, x + n);
  for (int64_t i = 0; i < n; ++i) y[i] *= params.rht_signs[i];
  HadamardTransform(y.data(), n);
  RoundThrough(params.source_type, y.data(), n).IgnoreError();  // a type that the op has checked
  float low = y[0];
  float high = y[0];
  for (const float v : y) {
    low = std::min(low, v);
    high = std::max(high, v);
  }
  const float scale = std::max((high - low) / kInt4Max, kScaleFloor);
  // 0 for NaN.
  const float zero_point = std::min(std::max(0.0f, std::round(-low / scale)), kInt4Max);
  for (int64_t i = 0; i < n; ++i) {
    const float q = std::clamp(std::round(y[i] / scale + zero_point), 0.0f, kInt4Max);
    if (i % 2 == 0) row.data[i / 2] = 0;
    SetNibble(row.data, i, ConvertElement<uint8_t>(q));
  }
  StoreRowScale(PackZeroPoint(scale, zero_point), row);
}

float Decode(RowAddress row, int64_t n, float* codes) {
  const float stored = LoadRowScale(row);
  const float zero_point = ZeroPointOf(stored);
  for (int64_t i = 0; i < n; ++i) codes[i] = GetNibble(row.data, i) - zero_point;
  return WithoutZeroPoint(stored);
}

// The transform by butterflies: at distance h the row is [D / 2h, 2, h].
std::string HadamardText(std::string& values, int64_t head_size) {
  std::string text;
  for (int64_t h = 1; h < head_size; h *= 2) {
    const std::string next = absl::StrCat("$p_h", h);
    absl::StrAppend(
        &text,
        absl::StrReplaceAll(R"(  $h_shape = Constant <value_ints: ints = [0, 0, $pairs, 2, $n]> ()
  $h_pairs = Reshape ($values, $h_shape)
  $h_a, $h_b = Split <axis = 3, num_outputs = 2> ($h_pairs)
  $h_sum = Add ($h_a, $h_b)
  $h_difference = Sub ($h_a, $h_b)
  $h_both = Concat <axis = 3> ($h_sum, $h_difference)
  $h_flat = Constant <value_ints: ints = [0, 0, $size]> ()
  $h = Reshape ($h_both, $h_flat)
)",
                            {{"$h", next},
                             {"$values", values},
                             {"$pairs", absl::StrCat(head_size / (2 * h))},
                             {"$n", absl::StrCat(h)},
                             {"$size", absl::StrCat(head_size)}}));
    values = next;
  }
  return text;
}

// `value` rounded half away from zero, where it is not negative.
std::string RoundHalfUp(const char* value, const char* name) {
  return absl::StrReplaceAll(R"(  $name_whole = Floor ($value)
  $name_rest = Sub ($value, $name_whole)
  $name_up = GreaterOrEqual ($name_rest, $p_half)
  $name_more = Cast <to = 1> ($name_up)
  $name = Add ($name_whole, $name_more)
)",
                             {{"$value", value}, {"$name", name}});
}

// $p_stored: two codes a byte; $p_row_scale: the scale with the zero point in its low four bits.
constexpr char kPackText[] = R"(  $p_pair_shape = Constant <value_ints: ints = [0, 0, $half, 2]> ()
  $p_pairs = Reshape ($p_q, $p_pair_shape)
  $p_even, $p_odd = Split <axis = 3, num_outputs = 2> ($p_pairs)
  $p_sixteen = Constant <value_float: float = 16.0> ()
  $p_odd_high = Mul ($p_odd, $p_sixteen)
  $p_byte = Add ($p_even, $p_odd_high)
  $p_last = Constant <value_ints: ints = [3]> ()
  $p_bytes = Squeeze ($p_byte, $p_last)
  $p_stored = Cast <to = 2> ($p_bytes)
  $p_step_bits = BitCast <to = 12> ($p_step)
  $p_mask = Constant <value = uint32 {4294967280}> ()
  $p_high_bits = BitwiseAnd ($p_step_bits, $p_mask)
  $p_zero_bits = Cast <to = 12> ($p_zero_point)
  $p_scale_bits = BitwiseOr ($p_high_bits, $p_zero_bits)
  $p_row_scale = BitCast <to = 1> ($p_scale_bits)
)";

std::string Text(const EncodeText& options) {
  std::string y = "$p_signed";
  std::string text = "  $p_signed = Mul ($x, rht_signs)\n";
  absl::StrAppend(&text, HadamardText(y, options.head_size));
  if (options.source_type != DataType::kFloat) {
    absl::StrAppend(&text, "  $p_narrow = Cast <to = ", static_cast<int>(options.source_type),
                    "> (", y, ")\n  $p_y = Cast <to = 1> ($p_narrow)\n");
    y = "$p_y";
  }
  absl::StrAppend(&text, R"(  $p_axis = Constant <value_ints: ints = [2]> ()
  $p_low = ReduceMin <keepdims = 1> ($y, $p_axis)
  $p_high = ReduceMax <keepdims = 1> ($y, $p_axis)
  $p_zero = Constant <value_float: float = 0.0> ()
  $p_half = Constant <value_float: float = 0.5> ()
  $p_fifteen = Constant <value_float: float = 15.0> ()
  $p_floor = Constant <value_float: float = 1e-06> ()
  $p_range = Sub ($p_high, $p_low)
  $p_ratio = Div ($p_range, $p_fifteen)
  $p_step = Max ($p_ratio, $p_floor)
  $p_minus_low = Neg ($p_low)
  $p_zero_place = Div ($p_minus_low, $p_step)
  $p_zero_clipped = Clip ($p_zero_place, $p_zero, $p_fifteen)
)",
                  RoundHalfUp("$p_zero_clipped", "$p_zero_point"), R"(  $p_steps = Div ($y, $p_step)
  $p_place = Add ($p_steps, $p_zero_point)
  $p_clipped = Clip ($p_place, $p_zero, $p_fifteen)
)",
                  RoundHalfUp("$p_clipped", "$p_q"), kPackText);
  return absl::StrReplaceAll(text, {{"$y", y}, {"$half", absl::StrCat(options.head_size / 2)}});
}

}  // namespace

RowFormat Int4PerTokenHeadFormat() {
  return {.mode = KvQuantMode::kInt4PerTokenHead,
          .name = "int4_per_token_head",
          .cache_names = {{"int4_per_token_head", DataType::kUint8}},
          .types = {DataType::kUint8},
          .element = DataType::kUint8,
          .code_bits = 4,
          .scales = ScaleKind::kRow,
          .operand = RowOperand::kTransformed,
          .encode = Encode,
          .decode = Decode,
          .encode_text = Text,
          .decode_text = R"(  $p_low_mask = Constant <value = uint8 {15}> ()
  $p_four = Constant <value = uint8 {4}> ()
  $p_low = BitwiseAnd ($x, $p_low_mask)
  $p_high = BitShift <direction = "RIGHT"> ($x, $p_four)
  $p_pair = Constant <value_ints: ints = [4]> ()
  $p_low_column = Unsqueeze ($p_low, $p_pair)
  $p_high_column = Unsqueeze ($p_high, $p_pair)
  $p_pairs = Concat <axis = 4> ($p_low_column, $p_high_column)
  $p_row = Constant <value_ints: ints = [0, 0, 0, -1]> ()
  $p_codes = Reshape ($p_pairs, $p_row)
  $p_floats = Cast <to = 1> ($p_codes)
  $p_bits = BitCast <to = 12> ($scales)
  $p_zero_mask = Constant <value = uint32 {15}> ()
  $p_zero_bits = BitwiseAnd ($p_bits, $p_zero_mask)
  $p_zero_point = Cast <to = 1> ($p_zero_bits)
  $p_scale_bits = BitwiseXor ($p_bits, $p_zero_bits)
  $p_factor = BitCast <to = 1> ($p_scale_bits)
  $p_last = Constant <value_ints: ints = [3]> ()
  $p_zero_column = Unsqueeze ($p_zero_point, $p_last)
  $p_factor_column = Unsqueeze ($p_factor, $p_last)
  $p_centred = Sub ($p_floats, $p_zero_column)
  $p_numbers = Mul ($p_centred, $p_factor_column)
)"};
}

}  // namespace pagefuse
