// KCacheQuantInsert: quantises the step's keys and puts them into the paged cache of DeepSeek-V4's
// latent attention. Equals vLLM's quantize_and_insert_k_cache.
#include <string>
#include <utility>
#include <vector>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/ops/kernels/inserts/grouped_insert.h"
#include "pagefuse/ops/pagefuse/body_writer.h"
#include "pagefuse/ops/pagefuse/checks.h"
#include "pagefuse/ops/pagefuse/run_call.h"
#include "pagefuse/ops/schema/op_def.h"

namespace pagefuse::pagefuse_ops {
namespace {

constexpr Ports kIn({
    {"k", "bfloat16", "[T, 512]"},
    PortSpec("slot_mapping", "I", "[T'], T' <= T").Metadata(),
    {"kv_cache", "uint8", "[NB, S], S >= block_size * 584"},
});
constexpr Ports kOut({{"kv_cache_out", "uint8", "as kv_cache"}});

constexpr int64_t kBlockSize = 64;

absl::StatusOr<PagedBytes> ReadPaged(const KernelArgs& args) {
  PF_ASSIGN_OR_RETURN(const int64_t block_size, args.node->IntAttribute("block_size", kBlockSize));
  const TensorArg& cache = args.input(kIn["kv_cache"]);
  return PagedBytes{cache.dim(0), block_size, cache.dim(1)};
}

absl::Status Validate(const KernelArgs& args) {
  PF_ASSIGN_OR_RETURN(const PagedBytes paged, ReadPaged(args));
  return CheckSlots(args, kIn["slot_mapping"], paged.num_blocks, paged.block_size);
}

absl::StatusOr<std::pair<GroupedInsert, std::vector<SlotWrite>>> MakeCall(const KernelArgs& args) {
  PF_ASSIGN_OR_RETURN(const PagedBytes paged, ReadPaged(args));
  const GroupedRowFormat format = Fp8Ue8m0Row();
  GroupedInsert insert = {.format = format,
                          .rows = GroupedRows(format, paged, args.output(0).data),
                          .coded = args.input(kIn["k"]).as<const uint8_t>(),
                          .coded_stride = 2 * format.elements(),
                          .plain_stride = 2 * format.elements()};
  if (insert.coded != nullptr) insert.plain = insert.coded + 2 * format.coded;
  return std::pair(insert, SlotWrites(args.input(kIn["slot_mapping"])));
}

std::string Body(const PagedBytes& paged, DataType slot_type) {
  const GroupedRowFormat format = Fp8Ue8m0Row();
  BodyWriter w;
  const KeptRows kept = WriteKeptRows(w, "slot_mapping", slot_type);
  const std::string rows = w.Call("Gather <axis = 0>", {"k", kept.keep});
  const std::string coded = w.Cast(w.Slice(rows, 0, format.coded, 1), DataType::kFloat);
  const std::string plain = w.Slice(rows, format.coded, format.elements(), 1);
  const std::string tail = WriteBytes(w, plain, DataType::kBfloat16, format.plain);
  WriteGroupedPut(w, {.format = format, .paged = paged},
                  {.x = coded, .tail = tail, .slots = kept.slots, .cache = "kv_cache"},
                  "kv_cache_out");
  return w.Function("KCacheQuantInsert", "k, slot_mapping, kv_cache", "kv_cache_out");
}

absl::StatusOr<std::string> Decompose(const Node& node) {
  PagedBytes paged;
  PF_ASSIGN_OR_RETURN(paged.block_size, node.IntAttribute("block_size", kBlockSize));
  PF_ASSIGN_OR_RETURN(paged.block_bytes, NumberOf(node, kIn["kv_cache"], 1));
  return Body(paged, node.input(kIn["slot_mapping"])->dtype());
}

}  // namespace

OpDef KCacheQuantInsertDef() {
  using enum DataType;
  return OpDef("pagefuse", "KCacheQuantInsert", 1)
      .Doc(
          "Quantises the step's keys in groups of 64 under power-of-two scales, but for the "
          "rotated tail, which stays bfloat16, and writes them into their slots of a paged cache "
          "(fp8_ue8m0). A negative slot is skipped; of two tokens with one slot the later wins.")
      .Inputs(kIn)
      .Outputs(kOut)
      .Attr("block_size", kBlockSize, "tokens a block")
      .AtLeast(1)
      .Types("I", {kInt64, kInt32})
      .Validate(Validate)
      .Decomposition(Decompose)
      .Alias(kOut["kv_cache_out"], kIn["kv_cache"])
      .AddKernel({.name = "reference", .run = RunCall<MakeCall, InsertGroupedRows>})
      .AddKernel({.name = "hwy", .priority = 10, .run = RunCall<MakeCall, InsertGroupedRowsHwy>});
}

}  // namespace pagefuse::pagefuse_ops
