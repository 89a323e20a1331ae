// SPDX-License-Identifier: Apache-2.0
// IndexerKQuantInsert: quantises the step's indexer keys and puts them into their paged cache.
// Equals vLLM's indexer_k_quant_and_cache (DeepSeek-V3.2).
#include <string>
#include <utility>
#include <vector>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/ops/pagefuse/body_writer.h"
#include "pagefuse/ops/pagefuse/cache/insert_op.h"
#include "pagefuse/ops/pagefuse/hadamard_attribute.h"

namespace pagefuse::pagefuse_ops {
namespace {

constexpr Ports kIn({
    {"k", "T", "[T, D], D >= 1, D = group, D % unit = 0"},
    PortSpec("slot_mapping", "I", "[T'], T' <= T").Metadata(),
    PortSpec("kv_cache", "uint8", "[NB, BS, row] or [NB, BS, 1, row]").InBlocks(),
});
constexpr Ports kOut({{"kv_cache_out", "uint8", "as kv_cache"}});
constexpr InsertPorts kPorts = InsertPortsOf(kIn);

// That of the public kernel; one group a key.
constexpr int64_t kGroup = 128;
constexpr char kPowerOfTwo[] = "ue8m0";
constexpr char kFloatScale[] = "float";
constexpr char kEightBits[] = "fp8";
constexpr char kFourBits[] = "mxfp4";

absl::StatusOr<GroupedRowFormat> ReadFormat(const Node& node, int64_t size) {
  PF_ASSIGN_OR_RETURN(const std::string codes, node.StringAttribute("format", kEightBits));
  if (codes == kFourBits) return IndexerMxfp4Row(size);
  PF_ASSIGN_OR_RETURN(const std::string scale, node.StringAttribute("scale_fmt", kPowerOfTwo));
  return IndexerFp8Row(size, size, scale == kPowerOfTwo);
}

absl::StatusOr<GroupedInsert> MakeCall(const KernelArgs& args) {
  PF_ASSIGN_OR_RETURN(const GroupedRowFormat format,
                      ReadFormat(*args.node, args.input(kIn["k"]).dim(1)));
  PF_ASSIGN_OR_RETURN(GroupedInsert insert, MakeGroupedInsert(args, kPorts, format));
  PF_ASSIGN_OR_RETURN(insert.hadamard, HasHadamard(*args.node));
  return insert;
}

absl::StatusOr<std::string> Decompose(const Node& node) {
  PF_ASSIGN_OR_RETURN(const int64_t size, NumberOf(node, kIn["k"], 1));
  PF_ASSIGN_OR_RETURN(const GroupedRowFormat format, ReadFormat(node, size));
  PF_ASSIGN_OR_RETURN(const int64_t block_size, NumberOf(node, kPorts.cache, 1));
  PF_ASSIGN_OR_RETURN(const bool hadamard, HasHadamard(node));
  const bool four_dims = node.input(kPorts.cache)->shape()->rank() == 4;
  BodyWriter w;
  const KeptRows kept = WriteKeptRows(w, "slot_mapping", node.input(kPorts.slot_mapping)->dtype());
  const std::string rows = w.Call("Gather <axis = 0>", {"k", kept.keep});
  std::string x = w.CastFrom(rows, node.input(kIn["k"])->dtype(), DataType::kFloat);
  if (hadamard) x = WriteHadamardRotation(w, x, {-1, format.coded}, /*round=*/true);
  std::vector<int64_t> cache_dims = {-1, block_size, format.TokenBytes()};
  if (four_dims) cache_dims.insert(cache_dims.begin() + 2, 1);
  const PagedBytes paged = {.block_size = block_size,
                            .block_bytes = block_size * format.TokenBytes()};
  WriteGroupedPut(
      w, {.format = format, .paged = paged, .clip = false, .cache_dims = std::move(cache_dims)},
      {x, ""}, kept.slots);
  return w.Function("IndexerKQuantInsert", "k, slot_mapping, kv_cache", "kv_cache_out");
}

}  // namespace

OpDef IndexerKQuantInsertDef() {
  using enum DataType;
  OpDef op("pagefuse", "IndexerKQuantInsert", 1);
  op.Doc(
        "Quantises the step's indexer keys and writes them into their slots of a paged cache. "
        "fp8: e4m3fn under one scale a key; a block is the codes of its BS keys, then their float "
        "scales. mxfp4: e2m1 under a power of two for 32 channels; the codes, two a byte, then a "
        "byte for each scale. A negative slot is skipped; of two tokens with one slot the later wins.")
      .Inputs(kIn)
      .Outputs(kOut)
      .Attr("format", std::string(kEightBits))
      .OneOf({kEightBits, kFourBits})
      .FlagAttr(kHadamard, int64_t{0}, kHadamardDoc)
      .Attr("quant_block_size", kGroup, "fp8: channels with one scale, all of a key")
      .AtLeast(1)
      .Attr("scale_fmt", std::string(kPowerOfTwo),
            "fp8: ue8m0: the scale is rounded up to a power of two; float: it is not")
      .OneOf({kPowerOfTwo, kFloatScale})
      .Let("group", "D if format = mxfp4, else quant_block_size")
      .Let("unit", "32 if format = mxfp4, else 1")
      .Let("row", "D/2 + D/32 if format = mxfp4, else D + 4")
      .Types("T", {kBfloat16, kFloat16, kFloat})
      .InferShapes([](ShapeContext& c) { return CheckHadamardSize(c, kIn["k"]); })
      .Validate(ValidSlots(kPorts))
      .Decomposition(Decompose);
  return DeclareInsert(op, RunCall<MakeCall, InsertGroupedRows>,
                       RunCall<MakeCall, InsertGroupedRowsHwy>);
}

}  // namespace pagefuse::pagefuse_ops
