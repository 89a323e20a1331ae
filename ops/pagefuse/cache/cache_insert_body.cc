#include "pagefuse/ops/pagefuse/cache/cache_insert_body.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/substitute.h"

#include "pagefuse/base/status_macros.h"

namespace pagefuse::pagefuse_ops {
namespace {

bool IsFloat8Twin(DataType type) {
  return type == DataType::kFloat8E4M3FN || type == DataType::kUint8;
}

// Writes the nodes of one side. Names start with the side's prefix: `$p` in the texts below.
class SideWriter {
 public:
  SideWriter(const InsertBody& body, const InsertNames& names) : body_(body), names_(names) {}

  std::string Write() {
    GatherRows();
    switch (body_.mode) {
      case KvQuantMode::kNone:
        PlainRows();
        break;
      case KvQuantMode::kFp8PerTensor:
        Fp8TensorRows();
        break;
      case KvQuantMode::kInt8PerTokenHead:
      case KvQuantMode::kFp8PerTokenHead:
        ScaledRows();
        break;
      case KvQuantMode::kInt4PerTokenHead:
        Int4Rows();
        break;
    }
    Scatter();
    return text_;
  }

 private:
  void Add(const std::string& nodes) {
    absl::StrAppend(&text_, absl::StrReplaceAll(nodes, {{"$p", names_.prefix},
                                                        {"$source", names_.source},
                                                        {"$scales", names_.scale_cache},
                                                        {"$cache", names_.cache},
                                                        {"$scale", names_.scale}}));
  }

  bool CacheIsFloat8() const {
    return body_.mode == KvQuantMode::kFp8PerTensor ||
           body_.mode == KvQuantMode::kFp8PerTokenHead ||
           body_.cache_type == DataType::kFloat8E4M3FN;
  }
  // Bytes go to the cache as they are.
  bool Copies() const {
    const bool plain = body_.mode == KvQuantMode::kNone || body_.mode == KvQuantMode::kFp8PerTensor;
    if (!plain) return false;
    return CacheIsFloat8() ? IsFloat8Twin(body_.source_type)
                           : body_.source_type == body_.cache_type;
  }

  // $p_rows: the kept rows; uint8 where the source is float8, which Gather does not take.
  void GatherRows() {
    if (body_.source_type == DataType::kFloat8E4M3FN) {
      Add("  $p_bytes = BitCast <to = 2> ($source)\n"
          "  $p_rows = Gather <axis = 0> ($p_bytes, keep)\n");
    } else {
      Add("  $p_rows = Gather <axis = 0> ($source, keep)\n");
    }
  }

  // The name of the kept rows as float.
  std::string FloatRows() {
    if (body_.source_type == DataType::kFloat) return "$p_rows";
    if (IsFloat8Twin(body_.source_type)) {
      Add("  $p_codes8 = BitCast <to = 17> ($p_rows)\n"
          "  $p_float = Cast <to = 1> ($p_codes8)\n");
    } else {
      Add("  $p_float = Cast <to = 1> ($p_rows)\n");
    }
    return "$p_float";
  }

  // float8 values as bytes, $p_stored: ScatterND does not take float8.
  void StoreFloat8(const std::string& values) {
    Add(absl::StrCat("  $p_stored = BitCast <to = 2> (", values, ")\n"));
  }

  void PlainRows() {
    if (Copies()) {
      stored_ = "$p_rows";
      return;
    }
    const bool from_twin = IsFloat8Twin(body_.source_type);
    const std::string rows = from_twin ? FloatRows() : "$p_rows";
    if (from_twin && body_.cache_type == DataType::kFloat) {
      stored_ = rows;
      return;
    }
    Add(absl::StrCat("  $p_cast = Cast <to = ", static_cast<int>(body_.cache_type), "> (", rows,
                     ")\n"));
    if (CacheIsFloat8()) {
      StoreFloat8("$p_cast");
    } else {
      stored_ = "$p_cast";
    }
  }

  void Fp8TensorRows() {
    if (Copies()) {
      stored_ = "$p_rows";
      return;
    }
    const std::string rows = FloatRows();
    if (body_.scale_per_head) {
      Add("  $p_one = Constant <value_ints: ints = [1]> ()\n"
          "  $p_column = Unsqueeze ($scale, $p_one)\n");
      Add(absl::StrCat("  $p_scaled = Div (", rows, ", $p_column)\n"));
      Add("  $p_codes = Cast <to = 17> ($p_scaled)\n");
    } else {
      Add("  $p_factor = Squeeze ($scale)\n");
      Add(absl::StrCat("  $p_codes = QuantizeLinear <output_dtype = 17, saturate = 1> (", rows,
                       ", $p_factor)\n"));
    }
    StoreFloat8("$p_codes");
  }

  // One scale a (token, head): int8 and float8.
  void ScaledRows() {
    const bool int8 = body_.mode == KvQuantMode::kInt8PerTokenHead;
    const std::string rows = FloatRows();
    Add(absl::StrCat("  $p_largest_code = Constant <value_float: float = ",
                     int8 ? "127.0" : "448.0", "> ()\n  $p_abs = Abs (", rows, ")\n"));
    Add("  $p_axis = Constant <value_ints: ints = [2]> ()\n"
        "  $p_amax = ReduceMax <keepdims = 1> ($p_abs, $p_axis)\n"
        "  $p_ratio = Div ($p_amax, $p_largest_code)\n"
        "  $p_floor = Constant <value_float: float = 1e-06> ()\n"
        "  $p_row_scale = Max ($p_ratio, $p_floor)\n"
        "  $p_inverse = Reciprocal ($p_row_scale)\n");
    Add(absl::StrCat("  $p_scaled = Mul (", rows, ", $p_inverse)\n"));
    std::string scaled = "$p_scaled";
    if (int8 && body_.rounding == Int8Rounding::kHalfEven) {
      Add("  $p_rounded = Round ($p_scaled)\n");
      scaled = "$p_rounded";
    }
    Add(absl::StrCat(
        "  $p_least_code = Constant <value_float: float = ", int8 ? "-128.0" : "-448.0",
        "> ()\n  $p_clipped = Clip (", scaled, ", $p_least_code, $p_largest_code)\n"));
    if (int8) {
      Add("  $p_stored = Cast <to = 3> ($p_clipped)\n");
    } else {
      Add("  $p_codes = Cast <to = 17> ($p_clipped)\n");
      StoreFloat8("$p_codes");
    }
  }

  // The transform by butterflies: at distance h the row is [D / 2h, 2, h].
  std::string Hadamard(std::string values) {
    for (int64_t h = 1; h < body_.head_size; h *= 2) {
      const std::string next = absl::StrCat("$p_h", h);
      Add(
          absl::Substitute("  $0_shape = Constant <value_ints: ints = [0, 0, $1, 2, $2]> ()\n"
                           "  $0_pairs = Reshape ($3, $0_shape)\n"
                           "  $0_a, $0_b = Split <axis = 3, num_outputs = 2> ($0_pairs)\n"
                           "  $0_sum = Add ($0_a, $0_b)\n"
                           "  $0_difference = Sub ($0_a, $0_b)\n"
                           "  $0_both = Concat <axis = 3> ($0_sum, $0_difference)\n"
                           "  $0_flat = Constant <value_ints: ints = [0, 0, $4]> ()\n"
                           "  $0 = Reshape ($0_both, $0_flat)\n",
                           next, body_.head_size / (2 * h), h, values, body_.head_size));
      values = next;
    }
    return values;
  }

  // value rounded half away from zero, where it is not negative.
  void RoundHalfUp(const std::string& value, const std::string& name) {
    Add(
        absl::Substitute("  $1_whole = Floor ($0)\n"
                         "  $1_rest = Sub ($0, $1_whole)\n"
                         "  $1_up = GreaterOrEqual ($1_rest, $$p_half)\n"
                         "  $1_more = Cast <to = 1> ($1_up)\n"
                         "  $1 = Add ($1_whole, $1_more)\n",
                         value, name));
  }

  void Int4Rows() {
    const std::string rows = FloatRows();
    Add(absl::StrCat("  $p_signed = Mul (", rows, ", rht_signs)\n"));
    std::string y = Hadamard("$p_signed");
    if (body_.source_type != DataType::kFloat) {
      Add(
          absl::Substitute("  $$p_narrow = Cast <to = $0> ($1)\n"
                           "  $$p_y = Cast <to = 1> ($$p_narrow)\n",
                           static_cast<int>(body_.source_type), y));
      y = "$p_y";
    }
    Add(
        absl::Substitute("  $$p_axis = Constant <value_ints: ints = [2]> ()\n"
                         "  $$p_low = ReduceMin <keepdims = 1> ($0, $$p_axis)\n"
                         "  $$p_high = ReduceMax <keepdims = 1> ($0, $$p_axis)\n",
                         y));
    Add("  $p_zero = Constant <value_float: float = 0.0> ()\n"
        "  $p_half = Constant <value_float: float = 0.5> ()\n"
        "  $p_fifteen = Constant <value_float: float = 15.0> ()\n"
        "  $p_floor = Constant <value_float: float = 1e-06> ()\n"
        "  $p_range = Sub ($p_high, $p_low)\n"
        "  $p_ratio = Div ($p_range, $p_fifteen)\n"
        "  $p_step = Max ($p_ratio, $p_floor)\n"
        "  $p_minus_low = Neg ($p_low)\n"
        "  $p_zero_place = Div ($p_minus_low, $p_step)\n"
        "  $p_zero_clipped = Clip ($p_zero_place, $p_zero, $p_fifteen)\n");
    RoundHalfUp("$p_zero_clipped", "$p_zero_point");
    Add(absl::StrCat("  $p_steps = Div (", y, ", $p_step)\n"));
    Add("  $p_place = Add ($p_steps, $p_zero_point)\n"
        "  $p_clipped = Clip ($p_place, $p_zero, $p_fifteen)\n");
    RoundHalfUp("$p_clipped", "$p_q");
    PackInt4();
  }

  // $p_stored: two codes a byte; $p_row_scale: the scale with the zero point in its low four bits.
  void PackInt4() {
    Add(
        absl::Substitute("  $$p_pair_shape = Constant <value_ints: ints = [0, 0, $0, 2]> ()\n"
                         "  $$p_pairs = Reshape ($$p_q, $$p_pair_shape)\n"
                         "  $$p_even, $$p_odd = Split <axis = 3, num_outputs = 2> ($$p_pairs)\n"
                         "  $$p_sixteen = Constant <value_float: float = 16.0> ()\n"
                         "  $$p_odd_high = Mul ($$p_odd, $$p_sixteen)\n"
                         "  $$p_byte = Add ($$p_even, $$p_odd_high)\n"
                         "  $$p_last = Constant <value_ints: ints = [3]> ()\n"
                         "  $$p_bytes = Squeeze ($$p_byte, $$p_last)\n"
                         "  $$p_stored = Cast <to = 2> ($$p_bytes)\n"
                         "  $$p_step_bits = BitCast <to = 12> ($$p_step)\n"
                         "  $$p_mask = Constant <value = uint32 {4294967280}> ()\n"
                         "  $$p_high_bits = BitwiseAnd ($$p_step_bits, $$p_mask)\n"
                         "  $$p_zero_bits = Cast <to = 12> ($$p_zero_point)\n"
                         "  $$p_scale_bits = BitwiseOr ($$p_high_bits, $$p_zero_bits)\n"
                         "  $$p_row_scale = BitCast <to = 1> ($$p_scale_bits)\n",
                         body_.head_size / 2));
  }

  // Puts $p_row_scale and the stored rows into the caches, seen as [slots, ...].
  void Scatter() {
    const CacheFormat format{.mode = body_.mode};
    if (format.has_row_scales()) {
      Add("  $p_scale_tail = Shape <start = 2> ($scales)\n"
          "  $p_scale_slots = Concat <axis = 0> (minus_one, $p_scale_tail)\n"
          "  $p_old_scales = Reshape ($scales, $p_scale_slots)\n"
          "  $p_new_scales = Squeeze ($p_row_scale, $p_axis)\n"
          "  $p_all_scales = ScatterND ($p_old_scales, slots, $p_new_scales)\n"
          "  $p_scale_shape = Shape ($scales)\n"
          "  $scales_out = Reshape ($p_all_scales, $p_scale_shape)\n");
    }
    const bool cast = body_.cache_type == DataType::kFloat8E4M3FN;
    if (cast) Add("  $p_cache = BitCast <to = 2> ($cache)\n");
    Add("  $p_tail = Shape <start = 2> ($cache)\n"
        "  $p_by_slot = Concat <axis = 0> (minus_one, $p_tail)\n");
    Add(
        absl::Substitute("  $$p_old = Reshape ($0, $$p_by_slot)\n"
                         "  $$p_new = ScatterND ($$p_old, slots, $1)\n"
                         "  $$p_shape = Shape ($$cache)\n",
                         cast ? "$p_cache" : "$cache", stored_));
    if (cast) {
      Add("  $p_paged = Reshape ($p_new, $p_shape)\n"
          "  $cache_out = BitCast <to = 17> ($p_paged)\n");
    } else {
      Add("  $cache_out = Reshape ($p_new, $p_shape)\n");
    }
  }

  const InsertBody& body_;
  const InsertNames& names_;
  std::string text_;
  std::string stored_ = "$p_stored";
};

}  // namespace

std::string SlotNodes() {
  return R"(  zero = Constant <value_int: int = 0> ()
  written = GreaterOrEqual (slot_mapping, zero)
  written_index = NonZero (written)
  first_axis = Constant <value_ints: ints = [0]> ()
  keep = Squeeze (written_index, first_axis)
  kept_slots = Gather <axis = 0> (slot_mapping, keep)
  second_axis = Constant <value_ints: ints = [1]> ()
  slots = Unsqueeze (kept_slots, second_axis)
  minus_one = Constant <value_ints: ints = [-1]> ()
)";
}

std::string InsertNodes(const InsertBody& body, const InsertNames& names) {
  return SideWriter(body, names).Write();
}

absl::StatusOr<InsertBodies> ReadInsertBodies(const Node& node, const CacheInsertPorts& ports) {
  PF_ASSIGN_OR_RETURN(const CacheInsertMode mode, ReadCacheInsertMode(node));
  const auto read = [&](int source, int cache, int scale) -> absl::StatusOr<InsertBody> {
    InsertBody body{.mode = mode.mode, .rounding = mode.rounding};
    const Value* source_value = node.input(source);
    const Value* scale_value = node.input(scale);
    body.source_type = source_value->dtype();
    body.cache_type = node.input(cache)->dtype();
    if (scale_value != nullptr && scale_value->shape() && scale_value->shape()->rank() == 1) {
      body.scale_per_head = (*scale_value->shape())[0].constant().value_or(1) != 1;
    }
    if (mode.mode != KvQuantMode::kInt4PerTokenHead) return body;
    const auto& shape = source_value->shape();
    const auto size = shape && shape->rank() == 3 ? (*shape)[2].constant() : std::nullopt;
    if (!size) {
      return absl::FailedPreconditionError(absl::StrCat(
          node.Description(), ": the decomposition of int4 rows needs the head size as a number"));
    }
    body.head_size = *size;
    return body;
  };
  InsertBodies bodies;
  PF_ASSIGN_OR_RETURN(bodies.key, read(ports.key, ports.key_cache, ports.k_scale));
  PF_ASSIGN_OR_RETURN(bodies.value, read(ports.value, ports.value_cache, ports.v_scale));
  return bodies;
}

std::string JoinNames(const std::vector<std::string>& names) {
  std::string joined;
  for (const std::string& name : names) {
    if (!name.empty()) absl::StrAppend(&joined, joined.empty() ? "" : ", ", name);
  }
  return joined;
}

}  // namespace pagefuse::pagefuse_ops
