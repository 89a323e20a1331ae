// RopeCacheInsert: per-head RMS norm of query and key (optional), RoPE, and the insert of key and
// value into the paged cache, in one pass over the step's tokens. By definition the composition of
// RMSNormalization, RotaryEmbedding and PagedCacheInsert, computed in float and rounded once.
#include "pagefuse/ops/kernels/inserts/rope_cache_insert.h"

#include <string>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/ops/kernels/numeric/convert.h"
#include "pagefuse/ops/onnx/element.h"
#include "pagefuse/ops/pagefuse/cache/rope_cache_insert_body.h"
#include "pagefuse/ops/pagefuse/run_call.h"
#include "pagefuse/ops/schema/op_def.h"

namespace pagefuse::pagefuse_ops {
namespace {

absl::Status CheckFormat(ShapeContext& c) { return CheckCacheInsert(c, kRopePorts); }

absl::Status Validate(const KernelArgs& args) {
  PF_RETURN_IF_ERROR(ValidateCacheInsert(args, kRopePorts));
  if (!args.input(kRopeIn["positions"]).present()) return absl::OkStatus();
  return CheckIndices(args, kRopeIn["positions"], args.input(kRopeIn["cos"]).dim(0), "positions");
}

absl::StatusOr<RopeCall> MakeRopeCall(const KernelArgs& args) {
  RopeCall call;
  const TensorArg& query = args.input(kRopeIn["query"]);
  const TensorArg& cos = args.input(kRopeIn["cos"]);
  call.type = query.dtype;
  call.tokens = query.dim(0);
  call.heads = query.dim(1);
  call.size = query.dim(2);
  call.query = query.as<const uint8_t>();
  call.query_out = args.output(0).as<uint8_t>();
  call.positions = IndicesOf(args.input(kRopeIn["positions"]));
  call.table_type = cos.dtype;
  call.cos = cos.as<const uint8_t>();
  call.sin = args.input(kRopeIn["sin"]).as<const uint8_t>();
  call.layout.pairs = cos.dim(1);
  PF_ASSIGN_OR_RETURN(call.layout.offset, args.node->IntAttribute("rotary_offset", 0));
  PF_ASSIGN_OR_RETURN(const int64_t interleaved, args.node->IntAttribute("interleaved", 0));
  call.layout.interleaved = interleaved == 1;
  PF_ASSIGN_OR_RETURN(call.epsilon, args.node->FloatAttribute("epsilon", kRopeEpsilon));
  PF_ASSIGN_OR_RETURN(call.q_norm, onnx_ops::DecodedFloats(args.input(kRopeIn["q_norm_weight"])));
  PF_ASSIGN_OR_RETURN(call.k_norm, onnx_ops::DecodedFloats(args.input(kRopeIn["k_norm_weight"])));
  PF_ASSIGN_OR_RETURN(call.sides, MakeCacheSides(args, kRopePorts));
  call.slots.assign(call.tokens, -1);
  for (const SlotWrite& write : SlotWrites(args.input(kRopeIn["slot_mapping"]))) {
    call.slots[write.token] = write.slot;
  }
  return call;
}

}  // namespace

OpDef RopeCacheInsertDef() {
  using enum DataType;
  return OpDef("pagefuse", "RopeCacheInsert", 1)
      .Doc(
          "Norms (optional) and rotates query and key, and writes key and value into their slots "
          "of a paged cache. Everything between inputs and results is float, rounded once.")
      .Inputs(kRopeIn)
      .Outputs(kRopeOut)
      .FlagAttr("interleaved", int64_t{0}, "0: channel i pairs with i + R/2; 1: 2i with 2i + 1")
      .Attr("rotary_embedding_dim", int64_t{0}, "the rotated channels; 0: all of D")
      .AtLeast(0)
      .Attr("rotary_offset", int64_t{0}, "first rotated channel")
      .AtLeast(0)
      .Attr("epsilon", kRopeEpsilon, "of the norms")
      .Attr("kv_quant_mode", std::string("none"), KvQuantModeNames(/*with_signs=*/false))
      .Attr("int8_rounding", std::string("half_even"))
      .OneOf({"half_even", "toward_zero"})
      .Types("T", {kFloat, kFloat16, kBfloat16})
      .Types("C", {kFloat, kFloat16, kBfloat16, kFloat8E4M3FN, kInt8, kUint8})
      .Types("I", {kInt64, kInt32})
      .Types("P", {kInt64, kInt32})
      .Types("R", {kFloat, kFloat16, kBfloat16})
      .Types("W", {kFloat, kFloat16, kBfloat16})
      .Let("R", "rotary_embedding_dim if rotary_embedding_dim, else D")
      .InferShapes(CheckFormat)
      .Validate(Validate)
      .Decomposition(RopeCacheInsertBody)
      .InPlace(kRopeOut["query_out"], kRopeIn["query"])
      .Alias(kRopeOut["key_cache_out"], kRopeIn["key_cache"])
      .Alias(kRopeOut["value_cache_out"], kRopeIn["value_cache"])
      .Alias(kRopeOut["k_scale_cache_out"], kRopeIn["k_scale_cache"])
      .Alias(kRopeOut["v_scale_cache_out"], kRopeIn["v_scale_cache"])
      .AddKernel({.name = "reference", .run = RunCall<MakeRopeCall, RopeCacheInsertPlain>})
      .AddKernel({.name = "hwy", .priority = 10, .run = RunCall<MakeRopeCall, RopeCacheInsertHwy>});
}

}  // namespace pagefuse::pagefuse_ops
