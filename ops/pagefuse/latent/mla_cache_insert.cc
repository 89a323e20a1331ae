// SPDX-License-Identifier: Apache-2.0
// MlaCacheInsert: puts the step's latent rows and rotated key parts side by side into the paged
// cache of multi-head latent attention. Equals vLLM's concat_and_cache_mla (auto, fp8_ds_mla).
#include <string>
#include <vector>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/ops/kernels/inserts/cache_insert.h"
#include "pagefuse/ops/pagefuse/body_writer.h"
#include "pagefuse/ops/pagefuse/cache/insert_op.h"

namespace pagefuse::pagefuse_ops {
namespace {

constexpr Ports kIn({
    {"kv_c", "TC if format = bf16, else bfloat16", "[T, L], L % group = 0"},
    PortSpec("k_pe", "TC if format = bf16, else bfloat16", "[T, P]")
        .RequiredIf("format = fp8_ds_mla"),
    PortSpec("slot_mapping", "I", "[T'], T' <= T").Metadata(),
    PortSpec(
        "kv_cache", "TC if format = bf16, else uint8",
        "[NB, BS, row_bytes] if format = fp8_ds_mla, [NB, BS, L + P] if k_pe, else [NB, BS, L]")
        .InBlocks(),
});
constexpr Ports kOut({{"kv_cache_out", "TC if format = bf16, else uint8", "as kv_cache"}});

constexpr InsertPorts kPorts = InsertPortsOf(kIn);
// Not looked up in templates: clang 14 takes no consteval call there.
constexpr int kLatent = kIn["kv_c"];
constexpr int kRotated = kIn["k_pe"];
constexpr char kQuantised[] = "fp8_ds_mla";
constexpr char kPlain[] = "bf16";
constexpr int64_t kGroupSize = 128;

// Rows of one input, which go `offset` bytes behind the start of a cache's row as they are.
CacheSide CopiedRows(const TensorArg& source, CacheRows rows, int64_t offset) {
  rows.data += offset;
  return {.format = {.element = source.dtype},
          .source_type = source.dtype,
          .source = source.as<const uint8_t>(),
          .heads = 1,
          .head_size = source.dim(1),
          .rows = rows};
}

// The rows of a token side by side; k_pe may be left out.
template <auto insert_rows>
absl::Status CopyRows(const KernelArgs& args) {
  PF_ASSIGN_OR_RETURN(const PagedBytes paged, ReadPaged(args, kPorts.cache));
  const std::vector<SlotWrite> writes = SlotWrites(args.input(kPorts.slot_mapping));
  const int64_t row_bytes = args.output(0).dim(2) * BitWidth(args.output(0).dtype) / 8;
  const CacheRows rows = PlainRows(row_bytes, paged, args.output(0).data);
  const CacheSide latent = CopiedRows(args.input(kLatent), rows, 0);
  const TensorArg& rotated = args.input(kRotated);
  if (!rotated.present() || rotated.dim(1) == 0) {
    insert_rows({&latent}, writes);
    return absl::OkStatus();
  }
  const CacheSide part = CopiedRows(rotated, rows, latent.SourceRowBytes());
  insert_rows({&latent, &part}, writes);
  return absl::OkStatus();
}

template <auto insert_codes, auto insert_rows>
absl::Status Run(KernelArgs& args) {
  if (args.output(0).dtype != DataType::kUint8) return CopyRows<insert_rows>(args);
  const TensorArg& rotated = args.input(kRotated);
  PF_ASSIGN_OR_RETURN(const int64_t group, args.node->IntAttribute("quant_group_size", kGroupSize));
  PF_ASSIGN_OR_RETURN(
      GroupedInsert insert,
      MakeGroupedInsert(args, kPorts,
                        Fp8DsMlaRow(args.input(kLatent).dim(1), rotated.dim(1), group)));
  insert.plain = rotated.as<const uint8_t>();
  insert.plain_stride = 2 * rotated.dim(1);
  insert_codes(insert);
  return absl::OkStatus();
}

absl::StatusOr<std::string> Decompose(const Node& node) {
  PF_ASSIGN_OR_RETURN(const std::string name, node.StringAttribute("format", kPlain));
  PF_ASSIGN_OR_RETURN(const int64_t block_size, NumberOf(node, kPorts.cache, 1));
  const bool both = node.input(kRotated) != nullptr;
  BodyWriter w;
  const KeptRows kept = WriteKeptRows(w, "slot_mapping", node.input(kPorts.slot_mapping)->dtype());
  const auto rows = [&](const char* source) {
    return w.Call("Gather <axis = 0>", {source, kept.keep});
  };
  const std::string latent = rows("kv_c");
  const std::string rotated = both ? rows("k_pe") : "";
  if (name == kQuantised) {
    PF_ASSIGN_OR_RETURN(const int64_t size, NumberOf(node, kLatent, 1));
    PF_ASSIGN_OR_RETURN(const int64_t plain, NumberOf(node, kRotated, 1));
    PF_ASSIGN_OR_RETURN(const int64_t group, node.IntAttribute("quant_group_size", kGroupSize));
    const GroupedRowFormat format = Fp8DsMlaRow(size, plain, group);
    const std::string x = w.Cast(latent, DataType::kFloat);
    WriteGroupedPut(
        w,
        {.format = format,
         .paged = {.block_size = block_size, .block_bytes = block_size * format.TokenBytes()},
         .floor_last = true,
         .clip = false,
         .cache_dims = {-1, block_size, format.TokenBytes()}},
        {x, WriteBytes(w, rotated, DataType::kBfloat16, plain)}, kept.slots);
  } else {
    PF_ASSIGN_OR_RETURN(const int64_t width, NumberOf(node, kPorts.cache, 2));
    WriteRowPut(w, {.block_size = block_size, .width = width},
                both ? w.Call("Concat <axis = 1>", {latent, rotated}) : latent, kept.slots);
  }
  return w.Function("MlaCacheInsert",
                    both ? "kv_c, k_pe, slot_mapping, kv_cache" : "kv_c, slot_mapping, kv_cache",
                    "kv_cache_out");
}

}  // namespace

OpDef MlaCacheInsertDef() {
  using enum DataType;
  OpDef op("pagefuse", "MlaCacheInsert", 1);
  op.Doc(
        "Writes the step's latent rows and rotated key parts, if there are any, side by side "
        "into their slots of a paged cache: as they are (bf16: bfloat16, float or float16), or "
        "the latent part quantised in groups under float scales (fp8_ds_mla, 656 bytes a token "
        "with 512 and 64 elements). A negative slot is skipped; of two tokens with one slot the "
        "later wins.")
      .Inputs(kIn)
      .Outputs(kOut)
      .Attr("format", std::string(kPlain))
      .OneOf({kPlain, kQuantised})
      .Attr("quant_group_size", kGroupSize, "latent elements with one scale, for fp8_ds_mla")
      .AtLeast(1)
      .Let("group", "quant_group_size if format = fp8_ds_mla, else 1")
      .Let("row_bytes", "L + 4 * (L / quant_group_size) + 2 * P if format = fp8_ds_mla, else 0")
      .Types("TC", {kFloat, kFloat16, kBfloat16})
      .Validate(ValidSlots(kPorts))
      .Decomposition(Decompose);
  return DeclareInsert(op, Run<InsertGroupedRows, InsertRows>,
                       Run<InsertGroupedRowsHwy, InsertRowsHwy>);
}

}  // namespace pagefuse::pagefuse_ops
