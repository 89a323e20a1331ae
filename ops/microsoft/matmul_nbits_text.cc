// SPDX-License-Identifier: Apache-2.0
// MatMulNBits written out.
#include <string>
#include <string_view>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/microsoft/matmul_nbits.h"

namespace pagefuse::microsoft_ops {
namespace {

// "ints = [2, -1]" as the value of a Constant named `name`.
std::string IntsLine(std::string_view name, std::string_view values) {
  return StrCat("  ", name, " = Constant <value_ints: ints = [", values, "]> ()\n");
}

// Defines `to` [N, columns] in float from bytes that hold one code each.
std::string BytesText(const std::string& to, const std::string& from, int64_t n, int64_t columns) {
  return StrCat("  ", to, "_all = Cast <to = 1> (", from, ")\n",
                IntsLine(to + "_shape", StrCat(n, ", ", columns)), "  ", to, " = Reshape (", to,
                "_all, ", to, "_shape)\n");
}

// The first `columns` of `to`_flat [N, ..] in float.
std::string FirstColumnsText(const std::string& to, int64_t columns) {
  return StrCat(IntsLine(to + "_from", "0"), IntsLine(to + "_to", StrCat(columns)),
                IntsLine(to + "_axis", "1"), "  ", to, "_codes = Slice (", to, "_flat, ", to,
                "_from, ", to, "_to, ", to, "_axis)\n  ", to, " = Cast <to = 1> (", to,
                "_codes)\n");
}

// The same from bytes that hold two codes.
std::string NibblesText(const std::string& to, const std::string& from, int64_t n,
                        int64_t columns) {
  return StrCat("  ", to, "_even = BitwiseAnd (", from, ", mask)\n  ", to,
                "_odd = BitShift <direction = \"RIGHT\"> (", from, ", four)\n",
                IntsLine(to + "_shape", StrCat(n, ", -1, 1")), "  ", to, "_e = Reshape (", to,
                "_even, ", to, "_shape)\n  ", to, "_o = Reshape (", to, "_odd, ", to, "_shape)\n  ",
                to, "_pairs = Concat <axis = 2> (", to, "_e, ", to, "_o)\n",
                IntsLine(to + "_rows", StrCat(n, ", -1")), "  ", to, "_flat = Reshape (", to,
                "_pairs, ", to, "_rows)\n", FirstColumnsText(to, columns));
}

// The same from bytes that hold four.
std::string PairsOfBitsText(const std::string& to, const std::string& from, int64_t n,
                            int64_t columns) {
  return StrCat(IntsLine(to + "_shape", StrCat(n, ", -1, 1")), "  ", to, "_bytes = Reshape (", from,
                ", ", to, "_shape)\n  ", to, "_moved = BitShift <direction = \"RIGHT\"> (", to,
                "_bytes, places)\n  ", to, "_low = BitwiseAnd (", to, "_moved, mask)\n",
                IntsLine(to + "_rows", StrCat(n, ", -1")), "  ", to, "_flat = Reshape (", to,
                "_low, ", to, "_rows)\n", FirstColumnsText(to, columns));
}

std::string UnpackText(const NBitsSizes& s, const std::string& to, const std::string& from,
                       int64_t columns) {
  if (s.bits == 8) return BytesText(to, from, s.n, columns);
  return s.bits == 4 ? NibblesText(to, from, s.n, columns)
                     : PairsOfBitsText(to, from, s.n, columns);
}

// Defines `w` [N, padded K], the codes in float, and what unpacking needs.
std::string CodesText(const NBitsSizes& s, std::string_view codes) {
  const std::string known = s.bits == 2
                                ? "  mask = Constant <value: tensor = uint8 {3}> ()\n"
                                  "  places = Constant <value: tensor = uint8[4] {0, 2, 4, 6}> ()\n"
                                : "  mask = Constant <value: tensor = uint8 {15}> ()\n"
                                  "  four = Constant <value: tensor = uint8 {4}> ()\n";
  return known + UnpackText(s, "w", std::string(codes), s.blocks() * s.block);
}

// Defines `zero` of the shape `shape` that is defined, or a number that is that of all.
std::string ZerosText(const NBitsSizes& s, ZeroPoints zeros, std::string_view shape) {
  const std::string shaped = StrCat("  zero = Reshape (z, ", shape, ")\n");
  switch (zeros) {
    case ZeroPoints::kPacked:
      return UnpackText(s, "z", "zero_points", s.blocks()) + shaped;
    case ZeroPoints::kOfAType:
      return "  z = Cast <to = 1> (zero_points)\n" + shaped;
    case ZeroPoints::kNone:
      break;
  }
  return StrCat("  zero = Constant <value_float: float = ", int64_t{1} << (s.bits - 1), ".0> ()\n");
}

// Defines `decoded` [N, K] by the group that g_idx gives each column.
std::string GroupedRowsText(const NBitsSizes& s, ZeroPoints zeros) {
  std::string text = StrCat(CodesText(s, "B"), IntsLine("begin", "0"), IntsLine("end", StrCat(s.k)),
                            IntsLine("axis", "1"), IntsLine("first_axis", "0"),
                            "  columns = Slice (w, begin, end, axis)\n",
                            "  groups = Slice (g_idx, begin, end, first_axis)\n",
                            IntsLine("by_group", StrCat(s.n, ", ", s.blocks())),
                            "  s = Cast <to = 1> (scales)\n  group_scales = Reshape (s, by_group)\n"
                            "  scale = Gather <axis = 1> (group_scales, groups)\n",
                            ZerosText(s, zeros, "by_group"));
  const bool each = zeros != ZeroPoints::kNone;
  if (each) StrAppend(&text, "  column_zero = Gather <axis = 1> (zero, groups)\n");
  return StrCat(text, "  shifted = Sub (columns, ", each ? "column_zero" : "zero", ")\n",
                "  decoded = Mul (shifted, scale)\n");
}

}  // namespace

std::string DecodedRowsText(const NBitsSizes& s, std::string_view codes, ZeroPoints zeros) {
  const int64_t padded = s.blocks() * s.block;
  return StrCat(CodesText(s, codes),
                IntsLine("by_block", StrCat(s.n, ", ", s.blocks(), ", ", s.block)),
                IntsLine("one_each", StrCat(s.n, ", ", s.blocks(), ", 1")),
                "  blocks = Reshape (w, by_block)\n"
                "  s = Cast <to = 1> (scales)\n  scale = Reshape (s, one_each)\n",
                ZerosText(s, zeros, "one_each"),
                "  shifted = Sub (blocks, zero)\n  scaled = Mul (shifted, scale)\n",
                IntsLine("flat", StrCat(s.n, ", ", padded)), "  rows = Reshape (scaled, flat)\n",
                IntsLine("begin", "0"), IntsLine("end", StrCat(s.k)), IntsLine("axis", "1"),
                "  decoded = Slice (rows, begin, end, axis)\n");
}

absl::StatusOr<std::string> DecomposeMatMulNBits(const Node& node) {
  PF_ASSIGN_OR_RETURN(const NBitsSizes s, NBitsSizes::Of(node));
  const Value* zero_points = node.input(kNBitsZeros);
  const bool groups = node.input(kNBitsGroupIndex) != nullptr;
  const bool bias = node.input(kNBitsBias) != nullptr;
  const ZeroPoints zeros = zero_points == nullptr                     ? ZeroPoints::kNone
                           : zero_points->dtype() == DataType::kUint8 ? ZeroPoints::kPacked
                                                                      : ZeroPoints::kOfAType;
  std::string text =
      StrCat("MatMulNBits (A, B, scales", zeros != ZeroPoints::kNone ? ", zero_points" : "",
             groups ? ", g_idx" : "", bias ? ", bias" : "", ") => (Y) {\n",
             groups ? GroupedRowsText(s, zeros) : DecodedRowsText(s, "B", zeros),
             "  weight = Transpose <perm = [1, 0]> (decoded)\n  x = Cast <to = 1> (A)\n"
             "  product = MatMul (x, weight)\n");
  if (bias) StrAppend(&text, "  b = Cast <to = 1> (bias)\n  y = Add (product, b)\n");
  if (!bias) StrAppend(&text, "  y = Identity (product)\n");
  return text + "  Y = CastLike (y, A)\n}";
}

}  // namespace pagefuse::microsoft_ops
