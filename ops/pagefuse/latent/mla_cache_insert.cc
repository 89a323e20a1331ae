// MlaCacheInsert: puts the step's latent rows and rotated key parts side by side into the paged
// cache of multi-head latent attention. Equals vLLM's concat_and_cache_mla (auto, fp8_ds_mla).
#include <cstring>
#include <string>
#include <vector>

#include "pagefuse/base/parallel.h"
#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/kernels/inserts/grouped_insert.h"
#include "pagefuse/ops/pagefuse/body_writer.h"
#include "pagefuse/ops/pagefuse/checks.h"
#include "pagefuse/ops/schema/op_def.h"

namespace pagefuse::pagefuse_ops {
namespace {

constexpr Ports kIn({
    {"kv_c", "TC if format = bf16, else bfloat16", "[T, L], L % group = 0"},
    PortSpec("k_pe", "TC if format = bf16, else bfloat16", "[T, P]")
        .RequiredIf("format = fp8_ds_mla"),
    PortSpec("slot_mapping", "I", "[T'], T' <= T").Metadata(),
    {"kv_cache", "TC if format = bf16, else uint8",
     "[NB, BS, row_bytes] if format = fp8_ds_mla, [NB, BS, L + P] if k_pe, else [NB, BS, L]"},
});
constexpr Ports kOut({{"kv_cache_out", "TC if format = bf16, else uint8", "as kv_cache"}});

// Not looked up in lambdas and templates: clang 14 takes no consteval call there.
constexpr int kSlots = kIn["slot_mapping"];
constexpr int kLatent = kIn["kv_c"];
constexpr int kRotated = kIn["k_pe"];
constexpr char kQuantised[] = "fp8_ds_mla";
constexpr char kPlain[] = "bf16";
constexpr int64_t kGroupSize = 128;

absl::Status Validate(const KernelArgs& args) {
  const TensorArg& cache = args.input(kIn["kv_cache"]);
  return CheckSlots(args, kIn["slot_mapping"], cache.dim(0), cache.dim(1));
}

// Rows of an input; none if it is left out or has no columns.
struct SourceRows {
  const uint8_t* rows = nullptr;
  int64_t bytes = 0;

  explicit SourceRows(const TensorArg& source) {
    if (!source.present()) return;
    rows = source.as<const uint8_t>();
    bytes = source.dim(1) * BitWidth(source.dtype) / 8;
  }
  void Copy(int64_t row, uint8_t* to) const {
    if (bytes != 0) std::memcpy(to, rows + row * bytes, bytes);
  }
};

// The two rows of a token side by side.
void CopyRows(const KernelArgs& args, const CacheRows& rows, const std::vector<SlotWrite>& writes) {
  const SourceRows latent(args.input(kLatent));
  const SourceRows rotated(args.input(kRotated));
  ParallelFor(static_cast<int64_t>(writes.size()), 2 * rows.data_strides.row,
              [&](int64_t begin, int64_t end) {
                for (int64_t i = begin; i < end; ++i) {
                  uint8_t* to = rows.AtSlot(writes[i].slot, 0).data;
                  latent.Copy(writes[i].token, to);
                  rotated.Copy(writes[i].token, to + latent.bytes);
                }
              });
}

template <auto insert_rows>
absl::Status Run(KernelArgs& args) {
  const TensorArg& cache = args.output(0);
  const std::vector<SlotWrite> writes = SlotWrites(args.input(kSlots));
  const int64_t row_bytes = cache.dim(2) * BitWidth(cache.dtype) / 8;
  const PagedBytes paged = {cache.dim(0), cache.dim(1), cache.dim(1) * row_bytes};
  if (cache.dtype != DataType::kUint8) {
    CopyRows(args, PlainRows(row_bytes, paged, cache.data), writes);
    return absl::OkStatus();
  }
  PF_ASSIGN_OR_RETURN(const int64_t group, args.node->IntAttribute("quant_group_size", kGroupSize));
  const GroupedRowFormat format =
      Fp8DsMlaRow(args.input(kLatent).dim(1), args.input(kRotated).dim(1), group);
  insert_rows({.format = format,
               .rows = GroupedRows(format, paged, cache.data),
               .coded = args.input(kLatent).as<const uint8_t>(),
               .coded_stride = 2 * format.coded,
               .plain = args.input(kRotated).as<const uint8_t>(),
               .plain_stride = 2 * format.plain},
              writes);
  return absl::OkStatus();
}

enum class Parts { kLatentOnly, kBoth };

std::string PlainBody(DataType slot_type, int64_t block_size, int64_t width, Parts parts) {
  BodyWriter w;
  const KeptRows kept = WriteKeptRows(w, "slot_mapping", slot_type);
  std::string rows = w.Call("Gather <axis = 0>", {"kv_c", kept.keep});
  if (parts == Parts::kBoth) {
    rows = w.Call("Concat <axis = 1>", {rows, w.Call("Gather <axis = 0>", {"k_pe", kept.keep})});
  }
  const std::string new_rows = WriteRowPut(w, "kv_cache", rows, kept.slots, width);
  w.Set("kv_cache_out", StrCat("Reshape (", new_rows, ", ", w.Ints({-1, block_size, width}), ")"));
  return w.Function(
      "MlaCacheInsert",
      parts == Parts::kBoth ? "kv_c, k_pe, slot_mapping, kv_cache" : "kv_c, slot_mapping, kv_cache",
      "kv_cache_out");
}

std::string QuantisedBody(DataType slot_type, int64_t block_size, const GroupedRowFormat& format) {
  BodyWriter w;
  const KeptRows kept = WriteKeptRows(w, "slot_mapping", slot_type);
  const std::string latent = w.Call("Gather <axis = 0>", {"kv_c", kept.keep});
  const std::string rotated = w.Call("Gather <axis = 0>", {"k_pe", kept.keep});
  const std::string x = w.Cast(latent, DataType::kFloat);
  const std::string tail = WriteBytes(w, rotated, DataType::kBfloat16, format.plain);
  WriteGroupedPut(
      w,
      {.format = format,
       .paged = {.block_size = block_size, .block_bytes = block_size * format.TokenBytes()},
       .floor_last = true,
       .clip = false,
       .cache_dims = {-1, block_size, format.TokenBytes()}},
      {.x = x, .tail = tail, .slots = kept.slots, .cache = "kv_cache"}, "kv_cache_out");
  return w.Function("MlaCacheInsert", "kv_c, k_pe, slot_mapping, kv_cache", "kv_cache_out");
}

absl::StatusOr<std::string> Decompose(const Node& node) {
  PF_ASSIGN_OR_RETURN(const std::string format, node.StringAttribute("format", kPlain));
  PF_ASSIGN_OR_RETURN(const int64_t block_size, NumberOf(node, kIn["kv_cache"], 1));
  const DataType slot_type = node.input(kIn["slot_mapping"])->dtype();
  if (format == kQuantised) {
    PF_ASSIGN_OR_RETURN(const int64_t latent, NumberOf(node, kIn["kv_c"], 1));
    PF_ASSIGN_OR_RETURN(const int64_t rotated, NumberOf(node, kIn["k_pe"], 1));
    PF_ASSIGN_OR_RETURN(const int64_t group, node.IntAttribute("quant_group_size", kGroupSize));
    return QuantisedBody(slot_type, block_size, Fp8DsMlaRow(latent, rotated, group));
  }
  PF_ASSIGN_OR_RETURN(const int64_t width, NumberOf(node, kIn["kv_cache"], 2));
  const bool both = node.input(kIn["k_pe"]) != nullptr;
  return PlainBody(slot_type, block_size, width, both ? Parts::kBoth : Parts::kLatentOnly);
}

}  // namespace

OpDef MlaCacheInsertDef() {
  using enum DataType;
  return OpDef("pagefuse", "MlaCacheInsert", 1)
      .Doc(
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
      .Types("I", {kInt64, kInt32})
      .Validate(Validate)
      .Decomposition(Decompose)
      .Alias(kOut["kv_cache_out"], kIn["kv_cache"])
      .AddKernel({.name = "reference", .run = Run<InsertGroupedRows>})
      .AddKernel({.name = "hwy", .priority = 10, .run = Run<InsertGroupedRowsHwy>});
}

}  // namespace pagefuse::pagefuse_ops
