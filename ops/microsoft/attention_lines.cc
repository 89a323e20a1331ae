#include "pagefuse/ops/microsoft/attention_lines.h"

#include "pagefuse/ir/str_cat.h"

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
  if (!shape || shape->rank() < 1 || shape->rank() > 3) {
    return absl::FailedPreconditionError(StrCat("the rank of ", mask.seen_name, " is not known"));
  }
  std::string text;
  if (shape->rank() == 1) {
    const auto& batched = mask.batched->shape();
    const bool has_begins = !batched || !ProvablyEqual((*shape)[0], (*batched)[0]);
    text = SeenByLength(mask, has_begins);
  } else {
    text = StrCat("  seen = Cast <to = 9> (", mask.seen_name, ")\n");
  }
  const char* name = mask.has_bias ? "padding" : "mask";
  StrAppend(&text, "  lined = Constant <value_ints: ints = [", shape->rank() == 3 ? "1" : "1, 2",
            "]> ()\n  shown = Unsqueeze (seen, lined)\n",
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
