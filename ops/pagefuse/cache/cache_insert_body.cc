// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/pagefuse/cache/cache_insert_body.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/substitute.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"

namespace pagefuse::pagefuse_ops {
namespace {

struct InsertNames {
  std::string prefix;       // "k"
  std::string source;       // "key"
  std::string cache;        // "key_cache"
  std::string scale;        // "k_scale"
  std::string scale_cache;  // "k_scale_cache"
};

// Writes the nodes of one side. Names start with the side's prefix: `$p` in the texts below.
class SideWriter {
 public:
  SideWriter(const InsertBody& body, InsertNames names) : body_(body), names_(std::move(names)) {}

  std::string Write() {
    GatherRows();
    const RowFormat& row = body_.format.row();
    if (Copies()) {
      stored_ = "$p_rows";
    } else if (row.encode_text == nullptr) {
      PlainRows();
    } else {
      x_ = FloatRows();
      Add(row.encode_text({.source_type = body_.source_type,
                           .int8_rounding = body_.format.int8_rounding,
                           .scale_per_head = body_.scale_per_head,
                           .head_size = body_.head_size}));
      if (IsFloat8(body_.format.element)) StoreFloat8("$p_codes");
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
                                                        {"$scale", names_.scale},
                                                        {"$x", x_}}));
  }

  bool from_float8() const { return IsFloat8(LogicalSourceType(body_.source_type)); }
  // Bytes go to the cache as they are.
  bool Copies() const {
    return !body_.format.has_row_scales() &&
           LogicalSourceType(body_.source_type) == body_.format.element;
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
    if (body_.source_type == DataType::kFloat) return names_.prefix + "_rows";
    if (from_float8()) {
      Add("  $p_codes8 = BitCast <to = 17> ($p_rows)\n"
          "  $p_float = Cast <to = 1> ($p_codes8)\n");
    } else {
      Add("  $p_float = Cast <to = 1> ($p_rows)\n");
    }
    return names_.prefix + "_float";
  }

  // float8 values as bytes, $p_stored: ScatterND does not take float8.
  void StoreFloat8(const std::string& values) {
    Add(absl::StrCat("  $p_stored = BitCast <to = 2> (", values, ")\n"));
  }

  void PlainRows() {
    const std::string rows = from_float8() ? FloatRows() : "$p_rows";
    if (from_float8() && body_.cache_type == DataType::kFloat) {
      stored_ = rows;
      return;
    }
    Add(absl::StrCat("  $p_cast = Cast <to = ", static_cast<int>(body_.cache_type), "> (", rows,
                     ")\n"));
    if (IsFloat8(body_.format.element)) {
      StoreFloat8("$p_cast");
    } else {
      stored_ = "$p_cast";
    }
  }

  // Puts $p_row_scale and the stored rows into the caches, seen as [slots, ...].
  void Scatter() {
    if (body_.format.has_row_scales()) {
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
  const InsertNames names_;
  std::string text_;
  std::string x_;  // float rows
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

std::string InsertSignature(const CacheFormat& format, bool tensor_scale,
                            std::string_view first_outputs) {
  const bool row_scales = format.has_row_scales();
  return StrCat(tensor_scale ? ", k_scale, v_scale" : "",
                row_scales ? ", k_scale_cache, v_scale_cache" : "",
                format.needs_signs() ? ", rht_signs" : "", ") => (", first_outputs,
                "key_cache_out, value_cache_out",
                row_scales ? ", k_scale_cache_out, v_scale_cache_out" : "", ") {\n");
}

std::string KeyInsertNodes(const InsertBody& body, std::string prefix, std::string source) {
  return SideWriter(body,
                    {std::move(prefix), std::move(source), "key_cache", "k_scale", "k_scale_cache"})
      .Write();
}

std::string ValueInsertNodes(const InsertBody& body, std::string prefix, std::string source) {
  return SideWriter(body, {std::move(prefix), std::move(source), "value_cache", "v_scale",
                           "v_scale_cache"})
      .Write();
}

absl::StatusOr<InsertBodies> ReadInsertBodies(const Node& node, const CacheInsertPorts& ports) {
  PF_ASSIGN_OR_RETURN(const CacheFormat format, ReadCacheFormat(node));
  const auto read = [&](int source, int cache, int scale) -> absl::StatusOr<InsertBody> {
    InsertBody body;
    const Value* source_value = node.input(source);
    const Value* scale_value = node.input(scale);
    body.source_type = source_value->dtype();
    body.cache_type = node.input(cache)->dtype();
    PF_ASSIGN_OR_RETURN(body.format, format.StoredAs(body.cache_type));
    if (scale_value != nullptr && scale_value->shape() && scale_value->shape()->rank() == 1) {
      body.scale_per_head = (*scale_value->shape())[0].constant().value_or(1) != 1;
    }
    if (!format.needs_signs()) return body;
    const auto& shape = source_value->shape();
    const auto size = shape && shape->rank() == 3 ? (*shape)[2].constant() : std::nullopt;
    if (!size) {
      return absl::FailedPreconditionError(
          absl::StrCat(node.Description(), ": the decomposition of ", std::string(format.name()),
                       " needs the head size as a number"));
    }
    body.head_size = *size;
    return body;
  };
  InsertBodies bodies;
  PF_ASSIGN_OR_RETURN(bodies.key, read(ports.key, ports.key_cache, ports.k_scale));
  PF_ASSIGN_OR_RETURN(bodies.value, read(ports.value, ports.value_cache, ports.v_scale));
  return bodies;
}

}  // namespace pagefuse::pagefuse_ops
