// IndexerKQuantInsert: quantises the step's indexer keys and puts them into their paged cache.
// Equals vLLM's indexer_k_quant_and_cache (DeepSeek-V3.2).
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/ops/kernels/inserts/grouped_insert.h"
#include "pagefuse/ops/pagefuse/body_writer.h"
#include "pagefuse/ops/pagefuse/checks.h"
#include "pagefuse/ops/pagefuse/hadamard_attribute.h"
#include "pagefuse/ops/pagefuse/run_call.h"
#include "pagefuse/ops/schema/op_def.h"

namespace pagefuse::pagefuse_ops {
namespace {

constexpr Ports kIn({
    {"k", "T", "[T, D], D >= 1, D = group, D % unit = 0"},
    PortSpec("slot_mapping", "I", "[T'], T' <= T").Metadata(),
    {"kv_cache", "uint8", "[NB, BS, row] or [NB, BS, 1, row]"},
});
constexpr Ports kOut({{"kv_cache_out", "uint8", "as kv_cache"}});

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

absl::Status Validate(const KernelArgs& args) {
  const TensorArg& cache = args.input(kIn["kv_cache"]);
  return CheckSlots(args, kIn["slot_mapping"], cache.dim(0), cache.dim(1));
}

absl::StatusOr<std::pair<GroupedInsert, std::vector<SlotWrite>>> MakeCall(const KernelArgs& args) {
  const TensorArg& k = args.input(kIn["k"]);
  PF_ASSIGN_OR_RETURN(const GroupedRowFormat format, ReadFormat(*args.node, k.dim(1)));
  PF_ASSIGN_OR_RETURN(const bool hadamard, HasHadamard(*args.node));
  const TensorArg& cache = args.output(0);
  const PagedBytes paged = {.num_blocks = cache.dim(0),
                            .block_size = std::max<int64_t>(cache.dim(1), 1),
                            .block_bytes = cache.dim(1) * format.TokenBytes()};
  const GroupedInsert insert = {.format = format,
                                .rows = GroupedRows(format, paged, cache.data),
                                .source_type = k.dtype,
                                .coded = k.as<const uint8_t>(),
                                .coded_stride = format.elements() * BitWidth(k.dtype) / 8,
                                .hadamard = hadamard};
  return std::pair(insert, SlotWrites(args.input(kIn["slot_mapping"])));
}

struct BodyOptions {
  DataType type = DataType::kBfloat16;
  DataType slot_type = DataType::kInt64;
  int64_t block_size = 0;
  bool four_dims = false;
  bool hadamard = false;
};

std::string Body(const GroupedRowFormat& format, const BodyOptions& o) {
  BodyWriter w;
  const KeptRows kept = WriteKeptRows(w, "slot_mapping", o.slot_type);
  const std::string rows = w.Call("Gather <axis = 0>", {"k", kept.keep});
  std::string x = w.CastFrom(rows, o.type, DataType::kFloat);
  if (o.hadamard) x = WriteHadamardRotation(w, x, {-1, format.coded}, /*round=*/true);
  std::vector<int64_t> cache_dims = {-1, o.block_size, format.TokenBytes()};
  if (o.four_dims) cache_dims.insert(cache_dims.begin() + 2, 1);
  const PagedBytes paged = {.block_size = o.block_size,
                            .block_bytes = o.block_size * format.TokenBytes()};
  WriteGroupedPut(
      w, {.format = format, .paged = paged, .clip = false, .cache_dims = std::move(cache_dims)},
      {.x = x, .tail = "", .slots = kept.slots, .cache = "kv_cache"}, "kv_cache_out");
  return w.Function("IndexerKQuantInsert", "k, slot_mapping, kv_cache", "kv_cache_out");
}

absl::StatusOr<std::string> Decompose(const Node& node) {
  PF_ASSIGN_OR_RETURN(const int64_t size, NumberOf(node, kIn["k"], 1));
  PF_ASSIGN_OR_RETURN(const GroupedRowFormat format, ReadFormat(node, size));
  BodyOptions o;
  o.type = node.input(kIn["k"])->dtype();
  o.slot_type = node.input(kIn["slot_mapping"])->dtype();
  PF_ASSIGN_OR_RETURN(o.block_size, NumberOf(node, kIn["kv_cache"], 1));
  o.four_dims = node.input(kIn["kv_cache"])->shape()->rank() == 4;
  PF_ASSIGN_OR_RETURN(o.hadamard, HasHadamard(node));
  return Body(format, o);
}

}  // namespace

OpDef IndexerKQuantInsertDef() {
  using enum DataType;
  return OpDef("pagefuse", "IndexerKQuantInsert", 1)
      .Doc(
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
      .Types("I", {kInt64, kInt32})
      .InferShapes([](ShapeContext& c) { return CheckHadamardSize(c, kIn["k"]); })
      .Validate(Validate)
      .Decomposition(Decompose)
      .Alias(kOut["kv_cache_out"], kIn["kv_cache"])
      .AddKernel({.name = "reference", .run = RunCall<MakeCall, InsertGroupedRows>})
      .AddKernel({.name = "hwy", .priority = 10, .run = RunCall<MakeCall, InsertGroupedRowsHwy>});
}

}  // namespace pagefuse::pagefuse_ops
