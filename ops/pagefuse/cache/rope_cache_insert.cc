// RopeCacheInsert: per-head RMS norm of query and key (optional), RoPE, and the insert of key and
// value into the paged cache, in one pass over the step's tokens. By definition the composition of
// RMSNormalization, RotaryEmbedding and PagedCacheInsert, computed in float and rounded once.
#include "pagefuse/ops/pagefuse/cache/rope_cache_insert.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

#include "pagefuse/ir/status_macros.h"
#include "pagefuse/ops/numeric/convert.h"
#include "pagefuse/ops/numeric/dispatch.h"
#include "pagefuse/ops/op_def.h"
#include "pagefuse/ops/pagefuse/cache/rope_cache_insert_body.h"

namespace pagefuse::pagefuse_ops {
namespace {

absl::Status CheckFormat(ShapeContext& c) { return CheckCacheInsert(c, kRopePorts); }

absl::Status Validate(const KernelArgs& args) {
  PF_RETURN_IF_ERROR(ValidateCacheInsert(args, kRopePorts));
  if (!args.input(kRopeIn["positions"]).present()) return absl::OkStatus();
  return CheckIndices(args, kRopeIn["positions"], args.input(kRopeIn["cos"]).dim(0), "positions");
}

absl::StatusOr<std::vector<float>> FloatsOf(const TensorArg& tensor) {
  std::vector<float> values(tensor.present() ? tensor.size() : 0);
  if (tensor.present()) {
    PF_RETURN_IF_ERROR(DecodeToFloat(tensor.dtype, tensor.data, tensor.size(), values.data()));
  }
  return values;
}

template <auto compute>
absl::Status Run(KernelArgs& args) {
  PF_ASSIGN_OR_RETURN(const RopeCall call, MakeRopeCall(args));
  compute(call);
  return absl::OkStatus();
}

// x[0, n) of one head: norm (unless the weight is empty), then rotation, in place.
void NormAndRotate(const RopeCall& call, int64_t token, const std::vector<float>& weight,
                   std::vector<float>& x) {
  if (!weight.empty()) {
    NormRow(weight.data(), call.epsilon, static_cast<int64_t>(x.size()), x.data());
  }
  const int64_t pairs = call.layout.pairs;
  std::vector<float> cos(pairs);
  std::vector<float> sin(pairs);
  const int64_t row = call.table_row(token) * pairs * BitWidth(call.cos.dtype) / 8;
  // The tables are of a float type: never an error.
  DecodeToFloat(call.cos.dtype, call.cos.as<const uint8_t>() + row, pairs, cos.data())
      .IgnoreError();
  DecodeToFloat(call.sin.dtype, call.sin.as<const uint8_t>() + row, pairs, sin.data())
      .IgnoreError();
  RotateRow(call.layout, cos.data(), sin.data(), x.data());
}

}  // namespace

int64_t RopeCall::table_row(int64_t token) const {
  return positions.present() ? IndexAt(positions, token) : token;
}

absl::StatusOr<RopeCall> MakeRopeCall(const KernelArgs& args) {
  RopeCall call;
  call.query = args.input(kRopeIn["query"]);
  call.query_out = args.output(0);
  call.positions = args.input(kRopeIn["positions"]);
  call.cos = args.input(kRopeIn["cos"]);
  call.sin = args.input(kRopeIn["sin"]);
  call.layout.pairs = call.cos.dim(1);
  PF_ASSIGN_OR_RETURN(call.layout.offset, args.node->IntAttribute("rotary_offset", 0));
  PF_ASSIGN_OR_RETURN(const int64_t interleaved, args.node->IntAttribute("interleaved", 0));
  call.layout.interleaved = interleaved == 1;
  PF_ASSIGN_OR_RETURN(call.epsilon, args.node->FloatAttribute("epsilon", kRopeEpsilon));
  PF_ASSIGN_OR_RETURN(call.q_norm, FloatsOf(args.input(kRopeIn["q_norm_weight"])));
  PF_ASSIGN_OR_RETURN(call.k_norm, FloatsOf(args.input(kRopeIn["k_norm_weight"])));
  PF_ASSIGN_OR_RETURN(call.sides, MakeCacheSides(args, kRopePorts));
  call.slots.assign(call.tokens(), -1);
  for (const SlotWrite& write : SlotWrites(args.input(kRopeIn["slot_mapping"]))) {
    call.slots[write.token] = write.slot;
  }
  return call;
}

void RopeCacheInsertPlain(const RopeCall& call) {
  const int64_t heads = call.query.dim(1);
  const int64_t size = call.query.dim(2);
  const int64_t row_bytes = size * BitWidth(call.query.dtype) / 8;
  std::vector<float> x(size);
  std::vector<SlotWrite> writes;
  for (int64_t t = 0; t < call.tokens(); ++t) {
    for (int64_t head = 0; head < heads; ++head) {
      const int64_t at = (t * heads + head) * row_bytes;
      DecodeToFloat(call.query.dtype, call.query.as<const uint8_t>() + at, size, x.data())
          .IgnoreError();
      NormAndRotate(call, t, call.q_norm, x);
      EncodeFromFloat(call.query.dtype, x.data(), size, call.query_out.as<uint8_t>() + at)
          .IgnoreError();
    }
    if (call.slots[t] < 0) continue;
    writes.push_back({t, call.slots[t]});
    const CacheSide& key = call.sides.key;
    for (int64_t head = 0; head < key.heads; ++head) {
      DecodeToFloat(key.source_type, key.SourceRow(t, head), size, x.data()).IgnoreError();
      NormAndRotate(call, t, call.k_norm, x);
      EncodeRow(key.format, key.Params(head), x.data(), size, key.rows.AtSlot(call.slots[t], head));
    }
  }
  InsertRows({&call.sides.value}, writes);
}

OpDef RopeCacheInsertDef() {
  using enum DataType;
  return OpDef("pagefuse", "RopeCacheInsert", 1)
      .Doc(
          "Norms (optional) and rotates query and key, and writes key and value into their slots "
          "of a "
          "paged cache. Everything between inputs and results is float, rounded once.")
      .Inputs(kRopeIn)
      .Outputs(kRopeOut)
      .FlagAttr("interleaved", int64_t{0}, "0: channel i pairs with i + R/2; 1: 2i with 2i + 1")
      .Attr("rotary_embedding_dim", int64_t{0}, "the rotated channels; 0: all of D")
      .AtLeast(0)
      .Attr("rotary_offset", int64_t{0}, "first rotated channel")
      .AtLeast(0)
      .Attr("epsilon", kRopeEpsilon, "of the norms")
      .Attr("kv_quant_mode", std::string("none"),
            "none, fp8_per_tensor, int8_per_token_head, fp8_per_token_head")
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
      .Variants(RopeCacheInsertVariants)
      .InPlace(kRopeOut["query_out"], kRopeIn["query"])
      .Alias(kRopeOut["key_cache_out"], kRopeIn["key_cache"])
      .Alias(kRopeOut["value_cache_out"], kRopeIn["value_cache"])
      .Alias(kRopeOut["k_scale_cache_out"], kRopeIn["k_scale_cache"])
      .Alias(kRopeOut["v_scale_cache_out"], kRopeIn["v_scale_cache"])
      .AddKernel({.name = "reference", .run = Run<RopeCacheInsertPlain>})
      .AddKernel({.name = "hwy", .priority = 10, .run = Run<RopeCacheInsertHwy>});
}

}  // namespace pagefuse::pagefuse_ops
