// SPDX-License-Identifier: Apache-2.0
// PagedCacheInsert: writes the step's keys and values into their slots of a paged cache, quantising
// on the way. Equals vLLM's reshape_and_cache and its per-token-head variant.
#include "pagefuse/ops/pagefuse/cache/paged_cache_insert.h"

#include <string>

#include "absl/strings/str_cat.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/ops/pagefuse/cache/cache_insert.h"
#include "pagefuse/ops/pagefuse/cache/cache_insert_body.h"
#include "pagefuse/ops/pagefuse/cache/insert_op.h"

namespace pagefuse::pagefuse_ops {
namespace {

constexpr auto& kIn = kPagedCacheInsertIn;
constexpr auto& kOut = kPagedCacheInsertOut;
constexpr CacheInsertPorts kPorts = CacheInsertPortsOf(kIn, kOut);

absl::Status CheckFormat(ShapeContext& c) { return CheckCacheInsert(c, kPorts); }

absl::Status Validate(const KernelArgs& args) { return ValidateCacheInsert(args, kPorts); }

template <auto insert>
absl::Status Run(KernelArgs& args) {
  PF_ASSIGN_OR_RETURN(const CacheSides sides, MakeCacheSides(args, kPorts));
  insert({&sides.key, &sides.value}, sides.writes);
  return absl::OkStatus();
}

std::string BodyText(const InsertBodies& bodies) {
  const CacheFormat& format = bodies.key.format;
  // Rows of float8 are stored as they are and read no scale.
  const bool tensor_scale =
      format.has_tensor_scale() && !IsFloat8(LogicalSourceType(bodies.key.source_type));
  return absl::StrCat("PagedCacheInsert (key, value, key_cache, value_cache, slot_mapping",
                      InsertSignature(format, tensor_scale), SlotNodes(),
                      KeyInsertNodes(bodies.key, "k", "key"),
                      ValueInsertNodes(bodies.value, "v", "value"), "}\n");
}

absl::StatusOr<std::string> Decompose(const Node& node) {
  PF_ASSIGN_OR_RETURN(const InsertBodies bodies, ReadInsertBodies(node, kPorts));
  return BodyText(bodies);
}

}  // namespace

OpDef PagedCacheInsertDef() {
  using enum DataType;
  OpDef op("pagefuse", "PagedCacheInsert", 1);
  op.Doc(
        "Writes the step's keys and values into their slots of a paged cache, quantising on the "
        "way. A negative slot is skipped; of two tokens with one slot the later wins.")
      .Inputs(kIn)
      .Outputs(kOut)
      .Attr("kv_quant_mode", std::string("none"), KvQuantModeNames())
      .Attr("int8_rounding", std::string("half_even"))
      .OneOf({"half_even", "toward_zero"})
      .Types("T", {kFloat, kFloat16, kBfloat16, kFloat8E4M3FN, kUint8})
      .Types("C", {kFloat, kFloat16, kBfloat16, kFloat8E4M3FN, kInt8, kUint8})
      .Let("key_row", "stored elements of a key: D, or D/2 bytes of int4",
           StoredSize("D", kIn["key"]))
      .Let("value_row", "stored elements of a value: Dv, or Dv/2 bytes of int4",
           StoredSize("Dv", kIn["value"]))
      .InferShapes(CheckFormat)
      .Validate(Validate)
      .Decomposition(Decompose);
  return DeclareInsert(op, Run<InsertRows>, Run<InsertRowsHwy>);
}

}  // namespace pagefuse::pagefuse_ops
