// SPDX-License-Identifier: Apache-2.0
// The parts of decompositions that make and read the bytes of grouped rows.
#include <tuple>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/kernels/numeric/small_float.h"
#include "pagefuse/ops/pagefuse/body_writer.h"

namespace pagefuse::pagefuse_ops {
namespace {

std::vector<int64_t> Dims(const std::vector<int64_t>& lead, std::vector<int64_t> tail) {
  tail.insert(tail.begin(), lead.begin(), lead.end());
  return tail;
}

// 2^CeilLog2(r) and the exponent: a logarithm rounded to the nearest whole is at most one too low.
std::pair<std::string, std::string> WritePowerOfTwo(BodyWriter& w, const std::string& r) {
  w.Comment("power-of-two scale: the exact ceiling of log2");
  const std::string near =
      w.Call("Round", {w.Call("Mul", {w.Call("Log", {r}), w.Float(1.44269504f)})});
  const std::string low = w.Call("Greater", {r, w.Call("Pow", {w.Float(2), near})});
  const std::string exponent = w.Call("Add", {near, w.Cast(low, DataType::kFloat)});
  return {w.Call("Pow", {w.Float(2), exponent}), exponent};
}

// e2m1 codes of y, nearest, ties to even, two a byte: a count of the borders below each magnitude.
std::string WriteE2m1(BodyWriter& w, const std::string& y, const GroupTextOptions& o) {
  w.Comment("E2M1: nearest, ties to even");
  const std::string magnitude = w.Call("Abs", {y});
  const std::pair<float, bool> borders[] = {{0.25f, false}, {0.75f, true}, {1.25f, false},
                                            {1.75f, true},  {2.5f, false}, {3.5f, true},
                                            {5.0f, false}};
  std::string code;
  for (const auto& [border, up] : borders) {
    const std::string past =
        w.Call(up ? "GreaterOrEqual" : "Greater", {magnitude, w.Float(border)});
    const std::string one = w.Cast(past, DataType::kInt32);
    code = code.empty() ? one : w.Call("Add", {code, one});
  }
  const std::string bits = w.BitCast(y, DataType::kInt32);
  const std::string negative = w.Call("Less", {bits, w.Cast(w.Int(0), DataType::kInt32)});
  const std::string sign =
      w.Call("Mul", {w.Cast(negative, DataType::kInt32), w.Cast(w.Int(8), DataType::kInt32)});
  const std::string pairs = w.Reshape(w.Call("Add", {code, sign}), Dims(o.lead, {o.size / 2, 2}));
  const auto [low, high] = w.AddPair(StrCat("Split <axis = -1, num_outputs = 2> (", pairs, ")"));
  const std::string shifted = w.Call("Mul", {high, w.Cast(w.Int(16), DataType::kInt32)});
  const std::string byte = w.Cast(w.Call("Add", {low, shifted}), DataType::kUint8);
  return w.Reshape(byte, Dims(o.lead, {o.size / 2}));
}

// The codes as uint8 [lead..., CodeBytes(size)], the scales as uint8 [lead..., groups * bytes].
std::string WriteCodeBytes(BodyWriter& w, const GroupText& text, const GroupTextOptions& o) {
  if (o.format.codes == GroupCodes::kE2M1) return text.codes;
  return w.Reshape(w.BitCast(text.codes, DataType::kUint8), Dims(o.lead, {o.size}));
}

std::string WriteScaleBytes(BodyWriter& w, const GroupText& text, const GroupTextOptions& o) {
  const int64_t groups = o.size / o.group;
  if (o.format.scale == GroupScale::kUe8m0) {
    const std::string biased =
        w.Call("Clip", {w.Call("Add", {text.exponent, w.Float(127)}), w.Float(0), w.Float(255)});
    return w.Reshape(w.Cast(biased, DataType::kUint8), Dims(o.lead, {groups}));
  }
  const std::string flat = w.Reshape(text.scale, {-1, groups});
  return w.Reshape(WriteBytes(w, flat, DataType::kFloat, groups), Dims(o.lead, {4 * groups}));
}

// Addresses of the bytes of each slot: int64 [slots..., width].
std::string WriteAddresses(BodyWriter& w, const std::string& slots, const PagedPart& part) {
  const std::string block_size = w.Int(part.block_size);
  const std::string block =
      w.Call("Mul", {w.Call("Div", {slots, block_size}), w.Int(part.block_bytes)});
  const std::string token = w.Call("Mul", {w.Call("Mod", {slots, block_size}), w.Int(part.stride)});
  std::string start = w.Call("Add", {block, token});
  if (part.base != 0) start = w.Call("Add", {start, w.Int(part.base)});
  const std::string bytes = w.Call("Range", {w.Int(0), w.Int(part.width), w.Int(1)});
  return w.Call("Add", {w.Call("Unsqueeze", {start, w.Ints({-1})}), bytes});
}

// The flat cache [bytes] with rows [N, width] put at the slots [N]; of two rows for one slot the
// later stays.
std::string WritePut(BodyWriter& w, const std::string& flat, const std::string& rows,
                     const std::string& slots, const PagedPart& part) {
  const std::string at = w.Reshape(WriteAddresses(w, slots, part), {-1});
  return w.Call("ScatterElements <axis = 0>", {flat, at, w.Reshape(rows, {-1})});
}

}  // namespace

GroupText WriteGroups(BodyWriter& w, const std::string& x, const GroupTextOptions& o) {
  const float largest = o.format.LargestCode();
  const std::string groups = w.Reshape(x, Dims(o.lead, {o.size / o.group, o.group}));
  const std::string amax = w.Call("ReduceMax", {w.Call("Abs", {groups}), w.Ints({-1})});
  std::string ratio;
  if (o.floor_last) {
    ratio =
        w.Call("Max", {w.Call("Div", {amax, w.Float(largest)}), w.Float(o.format.floor / largest)});
  } else {
    ratio = w.Call("Div", {w.Call("Max", {amax, w.Float(o.format.floor)}), w.Float(largest)});
  }
  GroupText text;
  if (o.format.scale == GroupScale::kFloat) {
    text.scale = ratio;
  } else {
    std::tie(text.scale, text.exponent) = WritePowerOfTwo(w, ratio);
  }
  std::string y = w.Call("Div", {groups, text.scale});
  if (o.format.codes == GroupCodes::kE2M1) {
    text.codes = WriteE2m1(w, y, o);
    return text;
  }
  if (o.clip) y = w.Call("Clip", {y, w.Float(-largest), w.Float(largest)});
  text.codes = w.Call("Cast <to = 17, saturate = 1>", {y});
  return text;
}

std::string WriteE2m1Elements(BodyWriter& w, const std::string& codes) {
  const std::string bytes = w.Cast(codes, DataType::kInt64);
  const std::string last = w.Ints({-1});
  const auto half = [&](std::string_view op) {
    return w.Call("Unsqueeze", {w.Call(op, {bytes, w.Int(16)}), last});
  };
  const std::string pairs = w.Call("Concat <axis = -1>", {half("Mod"), half("Div")});
  std::vector<std::string> numbers;
  for (const float number : kFloat4E2M1Table) numbers.push_back(absl::StrFormat("%.1f", number));
  const std::string table =
      w.Constant("e2m1", StrCat("value_floats: floats = [", absl::StrJoin(numbers, ", "), "]"));
  return w.Call("Gather <axis = 0>", {table, pairs});
}

std::string WriteUe8m0Scales(BodyWriter& w, const std::string& bytes) {
  const std::string exponents = w.Cast(bytes, DataType::kFloat);
  return w.Call("Pow", {w.Float(2), w.Call("Sub", {exponents, w.Float(127)})});
}

std::string WriteBytes(BodyWriter& w, const std::string& x, DataType type, int64_t count) {
  const DataType bits_type = type == DataType::kFloat ? DataType::kUint32 : DataType::kUint16;
  const int64_t size = type == DataType::kFloat ? 4 : 2;
  const std::string bits = w.BitCast(x, bits_type);
  const std::string mask = w.Cast(w.Int(255), bits_type);
  std::vector<std::string> bytes;
  for (int64_t i = 0; i < size; ++i) {
    std::string byte = bits;
    if (i > 0) {
      const std::string shift = w.Cast(w.Int(8 * i), bits_type);
      byte = w.Call("BitShift <direction = \"RIGHT\">", {bits, shift});
    }
    if (i + 1 < size) byte = w.Call("BitwiseAnd", {byte, mask});
    bytes.push_back(w.Call("Unsqueeze", {w.Cast(byte, DataType::kUint8), w.Ints({-1})}));
  }
  return w.Reshape(w.Call("Concat <axis = -1>", bytes), {-1, count * size});
}

std::string WriteFromBytes(BodyWriter& w, const std::string& bytes, DataType type,
                           const std::vector<int64_t>& dims) {
  const DataType bits_type = type == DataType::kFloat ? DataType::kUint32 : DataType::kUint16;
  const int64_t size = type == DataType::kFloat ? 4 : 2;
  const std::string wide = w.Cast(w.Reshape(bytes, Dims(dims, {size})), bits_type);
  std::string bits;
  for (int64_t i = 0; i < size; ++i) {
    std::string byte = w.Slice(wide, i, i + 1, -1);
    if (i > 0) {
      const std::string shift = w.Cast(w.Int(8 * i), bits_type);
      byte = w.Call("BitShift <direction = \"LEFT\">", {byte, shift});
    }
    bits = i == 0 ? byte : w.Call("BitwiseOr", {bits, byte});
  }
  return w.BitCast(w.Call("Squeeze", {bits, w.Ints({-1})}), type);
}

std::string WriteGroupedRead(BodyWriter& w, const GroupedRowFormat& format,
                             const std::vector<int64_t>& lead, const std::string& data,
                             const std::string& scales) {
  const int64_t groups = format.num_groups();
  const std::string codes =
      w.BitCast(w.Slice(data, 0, format.CodeBytes(), -1), DataType::kFloat8E4M3FN);
  const std::string values =
      w.Reshape(w.Cast(codes, DataType::kFloat), Dims(lead, {groups, format.group}));
  std::string scale;
  if (format.groups.scale == GroupScale::kUe8m0) {
    scale = WriteUe8m0Scales(w, w.Slice(scales, 0, groups, -1));
  } else {
    scale = WriteFromBytes(w, scales, DataType::kFloat, Dims(lead, {groups}));
  }
  const std::string product = w.Call("Mul", {values, w.Call("Unsqueeze", {scale, w.Ints({-1})})});
  const std::string coded =
      w.Cast(w.Reshape(product, Dims(lead, {format.coded})), DataType::kBfloat16);
  if (format.plain == 0) return coded;
  const int64_t at = format.PlainOffset();
  const std::string plain = w.Slice(data, at, at + 2 * format.plain, -1);
  return w.Call("Concat <axis = -1>",
                {coded, WriteFromBytes(w, plain, DataType::kBfloat16, Dims(lead, {format.plain}))});
}

void WriteRowPut(BodyWriter& w, const RowPut& put, const std::string& rows,
                 const std::string& slots) {
  const bool float8 = put.type == DataType::kFloat8E4M3FN;
  const std::string cache = float8 ? w.BitCast("kv_cache", DataType::kUint8) : "kv_cache";
  const std::string updated =
      w.Call("ScatterND",
             {w.Reshape(cache, {-1, put.width}), w.Call("Unsqueeze", {slots, w.Ints({1})}), rows});
  const std::string shape = w.Ints({-1, put.block_size, put.width});
  if (!float8) return w.Set("kv_cache_out", StrCat("Reshape (", updated, ", ", shape, ")"));
  const std::string paged = w.Call("Reshape", {updated, shape});
  w.Set("kv_cache_out", StrCat("BitCast <to = 17> (", paged, ")"));
}

std::string WriteTake(BodyWriter& w, const std::string& flat, const std::string& slots,
                      const PagedPart& part) {
  return w.Call("Gather <axis = 0>", {flat, WriteAddresses(w, slots, part)});
}

PagedPart DataPart(const GroupedRowFormat& format, const PagedBytes& paged) {
  return {paged.block_size, paged.block_bytes, 0, format.DataBytes(), format.DataBytes()};
}

PagedPart ScalePart(const GroupedRowFormat& format, const PagedBytes& paged) {
  const bool inline_scales = format.layout == GroupedLayout::kInline;
  return {paged.block_size, paged.block_bytes, format.ScaleBase(paged.block_size),
          inline_scales ? format.DataBytes() : format.ScaleBytes(), format.ScaleBytes()};
}

GroupedRowsText WriteGroupedRows(BodyWriter& w, const GroupedRowFormat& format,
                                 const std::string& rows) {
  const std::string coded = w.Cast(w.Slice(rows, 0, format.coded, 1), DataType::kFloat);
  const std::string plain = w.Slice(rows, format.coded, format.elements(), 1);
  return {coded, WriteBytes(w, plain, DataType::kBfloat16, format.plain)};
}

void WriteGroupedPut(BodyWriter& w, const GroupedPutText& put, const GroupedRowsText& rows,
                     const std::string& slots) {
  const GroupedRowFormat& format = put.format;
  const GroupTextOptions options = {.format = format.groups,
                                    .size = format.coded,
                                    .group = format.group,
                                    .floor_last = put.floor_last,
                                    .clip = put.clip};
  const GroupText groups = WriteGroups(w, rows.x, options);
  std::vector<std::string> data = {WriteCodeBytes(w, groups, options)};
  std::string scales = WriteScaleBytes(w, groups, options);
  if (format.scale_padding > 0) {
    // As many zeros a token, of any byte times 0.
    const std::string some = w.Cast(w.Slice(scales, 0, format.scale_padding, 1), DataType::kFloat);
    const std::string zeros = w.Cast(w.Call("Mul", {some, w.Float(0)}), DataType::kUint8);
    scales = w.Call("Concat <axis = 1>", {scales, zeros});
  }
  if (format.layout == GroupedLayout::kInline) data.push_back(scales);
  if (format.plain > 0) data.push_back(rows.tail);
  const std::string bytes = data.size() == 1 ? data[0] : w.Call("Concat <axis = 1>", data);
  w.Comment("bytes into the blocks");
  std::string flat = w.Reshape("kv_cache", {-1});
  flat = WritePut(w, flat, bytes, slots, DataPart(format, put.paged));
  if (format.layout == GroupedLayout::kSplit) {
    flat = WritePut(w, flat, scales, slots, ScalePart(format, put.paged));
  }
  std::vector<int64_t> dims = put.cache_dims;
  if (dims.empty()) dims = {-1, put.paged.block_bytes};
  w.Set("kv_cache_out", StrCat("Reshape (", flat, ", ", w.Ints(dims), ")"));
}

}  // namespace pagefuse::pagefuse_ops
