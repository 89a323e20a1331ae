// SPDX-License-Identifier: Apache-2.0
// KCacheQuantInsert: quantises the step's keys and puts them into the paged cache of DeepSeek-V4's
// latent attention. Equals vLLM's quantize_and_insert_k_cache.
#include <string>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/ops/pagefuse/body_writer.h"
#include "pagefuse/ops/pagefuse/cache/insert_op.h"

namespace pagefuse::pagefuse_ops {
namespace {

constexpr Ports kIn({
    {"k", "bfloat16", "[T, 512]"},
    PortSpec("slot_mapping", "I", "[T'], T' <= T").Metadata(),
    PortSpec("kv_cache", "uint8", "[NB, S], S >= block_size * 584").InBlocks(),
});
constexpr Ports kOut({{"kv_cache_out", "uint8", "as kv_cache"}});
constexpr InsertPorts kPorts = InsertPortsOf(kIn);

absl::StatusOr<GroupedInsert> MakeCall(const KernelArgs& args) {
  return MakeGroupedInsert(args, kPorts, Fp8Ue8m0Row());
}

absl::StatusOr<std::string> Decompose(const Node& node) {
  const GroupedRowFormat format = Fp8Ue8m0Row();
  PagedBytes paged;
  PF_ASSIGN_OR_RETURN(paged.block_size, node.IntAttribute("block_size", kTokensPerBlock));
  PF_ASSIGN_OR_RETURN(paged.block_bytes, NumberOf(node, kPorts.cache, 1));
  BodyWriter w;
  const KeptRows kept = WriteKeptRows(w, "slot_mapping", node.input(kPorts.slot_mapping)->dtype());
  const std::string rows = w.Call("Gather <axis = 0>", {"k", kept.keep});
  WriteGroupedPut(w, {.format = format, .paged = paged}, WriteGroupedRows(w, format, rows),
                  kept.slots);
  return w.Function("KCacheQuantInsert", "k, slot_mapping, kv_cache", "kv_cache_out");
}

}  // namespace

OpDef KCacheQuantInsertDef() {
  OpDef op("pagefuse", "KCacheQuantInsert", 1);
  op.Doc(
        "Quantises the step's keys in groups of 64 under power-of-two scales, but for the "
        "rotated tail, which stays bfloat16, and writes them into their slots of a paged cache "
        "(fp8_ue8m0). A negative slot is skipped; of two tokens with one slot the later wins.")
      .Inputs(kIn)
      .Outputs(kOut)
      .Attr("block_size", kTokensPerBlock, "tokens a block")
      .AtLeast(1)
      .Validate(ValidSlots(kPorts))
      .Decomposition(Decompose);
  return DeclareInsert(op, RunCall<MakeCall, InsertGroupedRows>,
                       RunCall<MakeCall, InsertGroupedRowsHwy>);
}

}  // namespace pagefuse::pagefuse_ops
