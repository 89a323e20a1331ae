// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/microsoft/attention_lines.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"

namespace pagefuse::microsoft_ops {
namespace {

// `seen` [B, T] from lengths [B], or from ends and begins [2 B].
std::string SeenByLength(const ScoreMask& mask, bool has_begins) {
  std::string text =
      StrCat(mask.keys,
             "  none = Constant <value_int = 0> ()\n  one = Constant <value_int = 1> ()\n"
             "  scalar = Constant <value_ints: ints = [0]> ()\n  count = Squeeze (keys, scalar)\n"
             "  j = Range (none, count, one)\n  column = Constant <value_ints: ints = [1]> ()\n"
             "  places = Cast <to = 7> (",
             mask.seen_name, ")\n");
  if (!has_begins) {
    return text + "  end = Unsqueeze (places, column)\n  seen = Less (j, end)\n";
  }
  return StrCat(text, "  batch = Shape <start = 0, end = 1> (", mask.batched_name, ")\n",
                "  two = Constant <value_ints: ints = [2]> ()\n"
                "  twice = Mul (batch, two)\n  zeros = Expand (none, batch)\n"
                "  padded = Concat <axis = 0> (places, zeros)\n"
                "  ends = Slice (padded, scalar, batch, scalar)\n"
                "  begins = Slice (padded, batch, twice, scalar)\n"
                "  end = Unsqueeze (ends, column)\n  begin = Unsqueeze (begins, column)\n"
                "  before = Less (j, end)\n  behind = GreaterOrEqual (j, begin)\n"
                "  seen = And (before, behind)\n");
}

// `seen` [B, 1, S, T] of a mask of four axes. FailedPrecondition if nothing says which form it has.
absl::StatusOr<std::string> SeenByHead(const ScoreMask& mask) {
  const Shape& shape = *mask.seen->shape();
  const auto& batched = mask.batched->shape();
  const std::string cast = StrCat(" = Cast <to = 9> (", mask.seen_name, ")\n");
  if (batched && batched->rank() > 1 && ProvablyEqual(shape[2], (*batched)[1])) {
    return "  seen" + cast;
  }
  if (!ProvablyEqual(shape[2], shape[3])) {
    return absl::FailedPreconditionError(StrCat(
        mask.seen_name, ": expected [B, 1, S, T] or [B, 1, max, max], got ", shape.ToString()));
  }
  // Gathered: a slice would leave open that there are as many places as keys.
  return StrCat(mask.keys, "  of_places", cast,
                "  behind = Sub (keys, fresh)\n"
                "  scalar = Constant <value_ints: ints = [0]> ()\n"
                "  first_row = Squeeze (behind, scalar)\n  count = Squeeze (keys, scalar)\n"
                "  none = Constant <value_int = 0> ()\n  one = Constant <value_int = 1> ()\n"
                "  rows_read = Range (first_row, count, one)\n"
                "  columns_read = Range (none, count, one)\n"
                "  own_rows = Gather <axis = 2> (of_places, rows_read)\n"
                "  seen = Gather <axis = 3> (own_rows, columns_read)\n");
}

absl::StatusOr<std::string> SeenLines(const ScoreMask& mask) {
  const Shape& shape = *mask.seen->shape();
  if (shape.rank() == 4) return SeenByHead(mask);
  if (shape.rank() > 1) return StrCat("  seen = Cast <to = 9> (", mask.seen_name, ")\n");
  const auto& batched = mask.batched->shape();
  return SeenByLength(mask, !batched || !ProvablyEqual(shape[0], (*batched)[0]));
}

// `shown` [B, 1, S, T] of `seen`.
std::string ShownLines(int rank) {
  if (rank == 4) return "  shown = Identity (seen)\n";
  return StrCat("  lined = Constant <value_ints: ints = [", rank == 3 ? "1" : "1, 2",
                "]> ()\n  shown = Unsqueeze (seen, lined)\n");
}

}  // namespace

std::string TypedFloat(const Value& like, std::string_view like_name, std::string_view name,
                       std::string_view value) {
  if (like.dtype() == DataType::kFloat) {
    return StrCat("  ", name, " = Constant <value_float = ", value, "> ()\n");
  }
  return StrCat("  ", name, "_wide = Constant <value_float = ", value, "> ()\n", "  ", name,
                " = CastLike (", name, "_wide, ", like_name, ")\n");
}

absl::StatusOr<std::string> MaskLines(const ScoreMask& mask) {
  if (mask.seen == nullptr) {
    return std::string(mask.has_bias ? "  mask = Identity (attention_bias)\n" : "");
  }
  const auto& shape = mask.seen->shape();
  if (!shape || shape->rank() < 1 || shape->rank() > 4) {
    return absl::FailedPreconditionError(StrCat("the rank of ", mask.seen_name, " is not known"));
  }
  PF_ASSIGN_OR_RETURN(std::string text, SeenLines(mask));
  const char* name = mask.has_bias ? "padding" : "mask";
  StrAppend(&text, ShownLines(shape->rank()),
            TypedFloat(*mask.batched, mask.batched_name, "visible", "0.0"),
            TypedFloat(*mask.batched, mask.batched_name, "hidden", "@mask_filter_value"), "  ",
            name, " = Where (shown, visible, hidden)\n");
  if (mask.has_bias) StrAppend(&text, "  mask = Add (padding, attention_bias)\n");
  return text;
}

std::string HeadLines(std::string_view name, int64_t heads, int64_t size) {
  return StrCat("  ", name, "_target = Constant <value_ints: ints = [0, 0, ", heads, ", ", size,
                "]> ()\n", "  ", name, "_parts = Reshape (", name, "_rows, ", name, "_target)\n",
                "  ", name, " = Transpose <perm = [0, 2, 1, 3]> (", name, "_parts)\n");
}

std::string OutputLines(int64_t width) {
  return StrCat("  back = Transpose <perm = [0, 2, 1, 3]> (attended)\n",
                "  flat = Constant <value_ints: ints = [0, 0, ", width, "]> ()\n",
                "  output = Reshape (back, flat)\n");
}

}  // namespace pagefuse::microsoft_ops
