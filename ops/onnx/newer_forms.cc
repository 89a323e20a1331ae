// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/onnx/newer_forms.h"

#include <string>

#include "absl/strings/str_replace.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"

namespace pagefuse::onnx_ops {
namespace {

absl::StatusOr<int> RankOf(const Node& node) {
  const Value* x = node.input(0);
  if (x != nullptr && x->shape()) return x->shape()->rank();
  return absl::FailedPreconditionError(
      StrCat(node.Description(), ": input 0: expected a known rank to write its body"));
}

// The parts of a rotation. X as tokens, then heads: [B, S, H, D].
// No size is left to Reshape, which has none for it where there are no tokens.
constexpr char kHeadsOfRows[] = R"(  zeros = Constant <value_ints: ints = [0, 0]> ()
  heads = Constant <value_int: int = @num_heads> ()
  first = Constant <value_ints: ints = [0]> ()
  head_list = Unsqueeze (heads, first)
  width = Shape <start: int = 2> (X)
  head_size = Div (width, head_list)
  by_head = Concat <axis: int = 0> (zeros, head_list, head_size)
  x = Reshape (X, by_head)
)";
constexpr char kHeadsOfTensor[] = "  x = Transpose <perm: ints = [0, 2, 1, 3]> (X)\n";
constexpr char kWide[] = R"(  last = Constant <value_ints: ints = [-1]> ()
  head_axis = Constant <value_ints: ints = [2]> ()
  wide = Cast <to: int = 1> (x)
)";

// Cosines or sines of each token, [B, S, 1, R / 2].
std::string TableRows(const char* table, bool by_position) {
  return absl::StrReplaceAll(
      StrCat(by_position ? "  $t_rows = Gather <axis: int = 0> ($t_cache, position_ids)\n"
                         : "  $t_rows = Identity ($t_cache)\n",
             "  $t_wide = Cast <to: int = 1> ($t_rows)\n  $t = Unsqueeze ($t_wide, head_axis)\n"),
      {{"$t", table}});
}

constexpr char kSomeChannels[] = R"(  begin = Constant <value_ints: ints = [0]> ()
  size = Constant <value_int: int = @rotary_embedding_dim> ()
  size_axis = Constant <value_ints: ints = [0]> ()
  size_list = Unsqueeze (size, size_axis)
  end = Constant <value_ints: ints = [2147483647]> ()
  turning = Slice (wide, begin, size_list, last)
  staying = Slice (wide, size_list, end, last)
)";

// Pairs (a, b): neighbours, or as far apart as half of what turns.
constexpr char kNeighbours[] = R"(  first_of_pair = Constant <value_ints: ints = [0]> ()
  second_of_pair = Constant <value_ints: ints = [1]> ()
  end_of_row = Constant <value_ints: ints = [2147483647]> ()
  by_pair = Constant <value_ints: ints = [2]> ()
  a = Slice (turning, first_of_pair, end_of_row, last, by_pair)
  b = Slice (turning, second_of_pair, end_of_row, last, by_pair)
)";
constexpr char kHalves[] = "  a, b = Split <axis: int = -1, num_outputs: int = 2> (turning)\n";
constexpr char kTurn[] = R"(  a_cos = Mul (a, cos)
  b_sin = Mul (b, sin)
  b_cos = Mul (b, cos)
  a_sin = Mul (a, sin)
  new_a = Sub (a_cos, b_sin)
  new_b = Add (b_cos, a_sin)
)";
constexpr char kJoinNeighbours[] = R"(  new_a_last = Unsqueeze (new_a, last)
  new_b_last = Unsqueeze (new_b, last)
  new_pairs = Concat <axis: int = -1> (new_a_last, new_b_last)
  row_sizes = Shape (turning)
  turned = Reshape (new_pairs, row_sizes)
)";
constexpr char kJoinHalves[] = "  turned = Concat <axis: int = -1> (new_a, new_b)\n";

}  // namespace

absl::StatusOr<std::string> SwishBody(const Node& node) {
  const bool is_double = node.input(0) != nullptr && node.input(0)->dtype() == DataType::kDouble;
  return absl::StrReplaceAll(R"(
Swish (X) => (Y) {
  x = $wide (X)
  alpha = Constant <value_float: float = @alpha> ()
  factor = CastLike (alpha, x)
  scaled = Mul (factor, x)
  gate = Sigmoid (scaled)
  y = Mul (x, gate)
  Y = CastLike (y, X)
})",
                             {{"$wide", is_double ? "Identity" : "Cast <to: int = 1>"}});
}

absl::StatusOr<std::string> RmsNormBody(const Node& node) {
  PF_ASSIGN_OR_RETURN(int64_t axis, node.IntAttribute("axis", -1));
  // From the back, so that one body serves every rank.
  if (axis >= 0) {
    PF_ASSIGN_OR_RETURN(const int rank, RankOf(node));
    axis -= rank;
  }
  std::string axes;
  for (int64_t i = axis; i < 0; ++i) StrAppend(&axes, axes.empty() ? "" : ", ", i);
  // Statistics of double are double, whatever stash_type says.
  const bool is_double = node.input(0) != nullptr && node.input(0)->dtype() == DataType::kDouble;
  const char* wide = is_double ? "Identity" : "Cast <to: int = @stash_type>";
  return absl::StrReplaceAll(R"(
RMSNormalization (X, scale) => (Y) {
  wide = $wide (X)
  square = Mul (wide, wide)
  axes = Constant <value_ints: ints = [$axes]> ()
  mean = ReduceMean <keepdims: int = 1> (square, axes)
  epsilon = Constant <value_float: float = @epsilon> ()
  floor = CastLike (epsilon, wide)
  floored = Add (mean, floor)
  root = Sqrt (floored)
  normed = Div (wide, root)
  wide_scale = CastLike (scale, wide)
  scaled = Mul (normed, wide_scale)
  Y = CastLike (scaled, scale)
})",
                             {{"$axes", axes}, {"$wide", wide}});
}

absl::StatusOr<std::string> RotaryBody(const Node& node) {
  PF_ASSIGN_OR_RETURN(const int rank, RankOf(node));
  PF_ASSIGN_OR_RETURN(const int64_t interleaved, node.IntAttribute("interleaved", 0));
  PF_ASSIGN_OR_RETURN(const int64_t rotated, node.IntAttribute("rotary_embedding_dim", 0));
  const bool by_position = node.input(3) != nullptr;
  return StrCat("RotaryEmbedding (X, cos_cache, sin_cache", by_position ? ", position_ids" : "",
                ") => (Y) {\n", rank == 3 ? kHeadsOfRows : kHeadsOfTensor, kWide,
                TableRows("cos", by_position), TableRows("sin", by_position),
                rotated > 0 ? kSomeChannels : "  turning = Identity (wide)\n",
                interleaved != 0 ? kNeighbours : kHalves, kTurn,
                interleaved != 0 ? kJoinNeighbours : kJoinHalves,
                rotated > 0 ? "  whole = Concat <axis: int = -1> (turned, staying)\n"
                            : "  whole = Identity (turned)\n",
                "  y = CastLike (whole, X)\n",
                rank == 3 ? "  sizes = Shape (X)\n  Y = Reshape (y, sizes)\n}"
                          : "  Y = Transpose <perm: ints = [0, 2, 1, 3]> (y)\n}");
}

}  // namespace pagefuse::onnx_ops
