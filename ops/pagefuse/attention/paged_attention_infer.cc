// SPDX-License-Identifier: Apache-2.0
// What attributes of PagedAttention say of types and of ports that must be given.
#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/pagefuse/attention/paged_attention.h"
#include "pagefuse/ops/pagefuse/cache/cache_ports.h"

namespace pagefuse {
namespace {

absl::Status CheckQueryType(const ShapeContext& c, const PagedAttentionAttributes& a) {
  const DataType type = c.input_type(kPagedAttentionIn["query"]);
  if (type == DataType::kUndefined) return absl::OkStatus();
  if (type == DataType::kUint8 && !a.query_is_f8_twin) {
    return c.InputError(kPagedAttentionIn["query"],
                        "a uint8 query needs attribute \"query_type\" = \"float8e4m3fn\"");
  }
  const bool is_f8 = a.ComputeType(type) == DataType::kFloat8E4M3FN;
  if (a.query_is_f8_twin && !is_f8) {
    return c.InputError(kPagedAttentionIn["query"],
                        StrCat("expected the type of attribute \"query_type\", "
                               "float8e4m3fn or uint8, got ",
                               DataTypeName(type)));
  }
  if (!is_f8) return absl::OkStatus();
  if (!a.format.has_tensor_scale()) {
    return c.InputError(kPagedAttentionIn["query"],
                        StrCat("a float8e4m3fn query needs kv_quant_mode \"fp8_per_tensor\", "
                               "got \"",
                               a.format.name(), "\""));
  }
  if (a.output_dtype == DataType::kUndefined) {
    return c.AttributeError("output_dtype", "is missing: a float8e4m3fn query needs it");
  }
  return absl::OkStatus();
}

absl::Status CheckOutputType(const ShapeContext& c, const PagedAttentionAttributes& a) {
  const bool is_f8 =
      a.output_dtype == DataType::kFloat8E4M3FN || a.output_dtype == DataType::kUint8;
  const bool scaled = c.has_input(kPagedAttentionIn["output_scale"]);
  if (is_f8 && !scaled) {
    return c.InputError(
        kPagedAttentionIn["output_scale"],
        StrCat("is missing: output_dtype ", DataTypeName(a.output_dtype), " needs it"));
  }
  if (scaled && !is_f8 && a.output_dtype != DataType::kUndefined) {
    return c.AttributeError("output_dtype",
                            StrCat("expected float8e4m3fn or uint8 with \"output_scale\", got ",
                                   DataTypeName(a.output_dtype)));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status InferPagedAttention(ShapeContext& c) {
  PF_ASSIGN_OR_RETURN(const PagedAttentionAttributes a, ParsePagedAttention(c.node()));
  PF_RETURN_IF_ERROR(CheckQueryType(c, a));
  PF_RETURN_IF_ERROR(CheckOutputType(c, a));
  PF_RETURN_IF_ERROR(CheckCachePorts(c, CachePortsOf(kPagedAttentionIn)));
  const DataType type = c.input_type(kPagedAttentionIn["query"]);
  if (a.ComputeType(type) == DataType::kFloat8E4M3FN &&
      !c.has_input(kPagedAttentionIn["q_scale"])) {
    return c.InputError(kPagedAttentionIn["q_scale"], "is missing: a float8e4m3fn query needs it");
  }
  if (type != DataType::kUndefined || a.output_dtype != DataType::kUndefined) {
    c.SetOutput(0, a.OutputType(type, c.has_input(kPagedAttentionIn["output_scale"])),
                c.outputs()[0].shape);
  }
  return absl::OkStatus();
}

}  // namespace pagefuse
