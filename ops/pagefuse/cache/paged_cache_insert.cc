// PagedCacheInsert: writes the step's keys and values into their slots of a paged cache, quantising
// on the way. Equals vLLM's reshape_and_cache and its per-token-head variant.
#include "pagefuse/ops/pagefuse/cache/paged_cache_insert.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/ops/pagefuse/cache/cache_insert.h"
#include "pagefuse/ops/pagefuse/cache/cache_insert_body.h"
#include "pagefuse/ops/schema/op_def.h"

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
  const std::vector<SlotWrite> writes = SlotWrites(args.input(kPorts.slot_mapping));
  insert({&sides.key, &sides.value}, writes);
  return absl::OkStatus();
}

std::string BodyText(const InsertBodies& bodies) {
  const CacheFormat& format = bodies.key.format;
  // Rows of float8 are stored as they are and read no scale.
  const bool tensor_scale =
      format.has_tensor_scale() && !IsFloat8(LogicalSourceType(bodies.key.source_type));
  const std::string inputs =
      JoinNames({"key", "value", "key_cache", "value_cache", "slot_mapping",
                 tensor_scale ? "k_scale, v_scale" : "",
                 format.has_row_scales() ? "k_scale_cache, v_scale_cache" : "",
                 format.needs_signs() ? "rht_signs" : ""});
  const std::string outputs =
      JoinNames({"key_cache_out", "value_cache_out",
                 format.has_row_scales() ? "k_scale_cache_out, v_scale_cache_out" : ""});
  return absl::StrCat(
      "PagedCacheInsert (", inputs, ") => (", outputs, ") {\n", SlotNodes(),
      InsertNodes(bodies.key, {"k", "key", "key_cache", "k_scale", "k_scale_cache"}),
      InsertNodes(bodies.value, {"v", "value", "value_cache", "v_scale", "v_scale_cache"}), "}\n");
}

absl::StatusOr<std::string> Decompose(const Node& node) {
  PF_ASSIGN_OR_RETURN(const InsertBodies bodies, ReadInsertBodies(node, kPorts));
  return BodyText(bodies);
}

}  // namespace

OpDef PagedCacheInsertDef() {
  using enum DataType;
  return OpDef("pagefuse", "PagedCacheInsert", 1)
      .Doc(
          "Writes the step's keys and values into their slots of a paged cache, quantising on the "
          "way. A negative slot is skipped; of two tokens with one slot the later wins.")
      .Inputs(kIn)
      .Outputs(kOut)
      .Attr("kv_quant_mode", std::string("none"), KvQuantModeNames())
      .Attr("int8_rounding", std::string("half_even"))
      .OneOf({"half_even", "toward_zero"})
      .Types("T", {kFloat, kFloat16, kBfloat16, kFloat8E4M3FN, kUint8})
      .Types("C", {kFloat, kFloat16, kBfloat16, kFloat8E4M3FN, kInt8, kUint8})
      .Types("I", {kInt64, kInt32})
      .Let("key_row", "stored elements of a key: D, or D/2 bytes of int4",
           StoredSize("D", kIn["key"]))
      .Let("value_row", "stored elements of a value: Dv, or Dv/2 bytes of int4",
           StoredSize("Dv", kIn["value"]))
      .InferShapes(CheckFormat)
      .Validate(Validate)
      .Decomposition(Decompose)
      .Alias(kOut["key_cache_out"], kIn["key_cache"])
      .Alias(kOut["value_cache_out"], kIn["value_cache"])
      .Alias(kOut["k_scale_cache_out"], kIn["k_scale_cache"])
      .Alias(kOut["v_scale_cache_out"], kIn["v_scale_cache"])
      .AddKernel({.name = "reference", .run = Run<InsertRows>})
      .AddKernel({.name = "hwy", .priority = 10, .run = Run<InsertRowsHwy>});
}

}  // namespace pagefuse::pagefuse_ops
