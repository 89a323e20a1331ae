// SPDX-License-Identifier: Apache-2.0
// CompressCacheInsert: where a token ends a compression window, the softmax-weighted sum of the
// window's state, normed, rotated, quantised and put into the compressed cache. Equals vLLM's
// compress_norm_rope_store (DeepSeek-V4).
#include "pagefuse/ops/pagefuse/cache/compress_cache_insert.h"

#include <algorithm>
#include <limits>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/onnx/element.h"
#include "pagefuse/ops/pagefuse/cache/block_tables.h"
#include "pagefuse/ops/pagefuse/hadamard_attribute.h"
#include "pagefuse/ops/pagefuse/rotated_rows.h"

namespace pagefuse::pagefuse_ops {
namespace {

// The compressed cache: its tokens a block are those of its shape for rows of numbers.
absl::StatusOr<PagedBytes> ReadCache(const KernelArgs& args, const CompressAttributes& a) {
  PF_ASSIGN_OR_RETURN(PagedBytes paged, ReadPaged(args, kCcIn["kv_cache"]));
  if (!a.is_plain()) paged.block_size = a.kv_block_size;
  return paged;
}

// Whether token t ends a window that is written; slot and position are looked at in that order.
bool IsWritten(const KernelArgs& args, int64_t ratio, int64_t t) {
  if (IndexAt(args.input(kCcIn["slot_mapping"]), t) < 0) return false;
  if (IndexAt(args.input(kCcIn["positions"]), t) % ratio != ratio - 1) return false;
  return IndexAt(args.input(kCcIn["kv_slot_mapping"]), t) >= 0;
}

// Checks of one token that is written: its request, its window's blocks, its row of the table.
absl::Status CheckToken(const KernelArgs& args, const CompressAttributes& a, int64_t t) {
  const TensorArg& table = args.input(kCcIn["block_table"]);
  const TensorArg& state = args.input(kCcIn["state_cache"]);
  const PagedBytes paged = {state.dim(0), state.dim(1), 0};
  const int64_t request = IndexAt(args.input(kCcIn["token_to_req"]), t);
  const int64_t position = IndexAt(args.input(kCcIn["positions"]), t);
  if (request < 0 || request >= table.dim(0)) {
    return InputValueError(
        args, kCcIn["token_to_req"],
        StrCat("expected requests in [0, ", table.dim(0), "), got ", request, " at ", t));
  }
  if (paged.block_size == 0 || position / paged.block_size >= table.dim(1)) {
    return InputValueError(args, kCcIn["positions"],
                           StrCat("expected positions within ", table.dim(1), " blocks of ",
                                  paged.block_size, ", got ", position, " at ", t));
  }
  const int64_t rope_row = a.TableRow(t, position);
  const int64_t rope_rows = args.input(kCcIn["cos_sin"]).dim(0);
  if (rope_row >= rope_rows) {
    return InputValueError(
        args, kCcIn["positions"],
        StrCat("expected windows that start in [0, ", rope_rows, "), got ", rope_row, " at ", t));
  }
  const int64_t first = std::max<int64_t>(position - a.window.rows() + 1, 0);
  PF_RETURN_IF_ERROR(
      CheckUsedBlocks(args, kCcIn["block_table"], {request, first, position - first + 1}, paged));
  PF_ASSIGN_OR_RETURN(const PagedBytes cache, ReadCache(args, a));
  return CheckSlot(args, kCcIn["kv_slot_mapping"], t, cache);
}

absl::Status Validate(const KernelArgs& args) {
  PF_ASSIGN_OR_RETURN(const CompressAttributes a, ReadCompress(*args.node));
  for (int64_t t = 0; t < args.input(kCcIn["slot_mapping"]).size(); ++t) {
    if (IndexAt(args.input(kCcIn["slot_mapping"]), t) < 0) continue;
    const int64_t position = IndexAt(args.input(kCcIn["positions"]), t);
    if (position < 0) {
      return InputValueError(args, kCcIn["positions"],
                             StrCat("expected positions of at least 0, got ", position, " at ", t));
    }
    if (IsWritten(args, a.window.ratio, t)) PF_RETURN_IF_ERROR(CheckToken(args, a, t));
  }
  return absl::OkStatus();
}

// Finds the windows of the tokens that are written.
void CollectWindows(const KernelArgs& args, const CompressAttributes& a, CompressCall& call) {
  const TensorArg& state = args.input(kCcIn["state_cache"]);
  const TensorArg& table = args.input(kCcIn["block_table"]);
  const TensorArg& requests = args.input(kCcIn["token_to_req"]);
  const TensorArg& positions = args.input(kCcIn["positions"]);
  const CacheRows rows =
      PlainRows(4 * state.dim(2), {state.dim(0), state.dim(1), state.block_bytes()}, state.data);
  for (int64_t t = 0; t < args.input(kCcIn["slot_mapping"]).size(); ++t) {
    if (!IsWritten(args, call.window.ratio, t)) continue;
    call.writes.push_back({t, IndexAt(args.input(kCcIn["kv_slot_mapping"]), t)});
  }
  KeepLastOfSlot(call.writes);
  const int64_t window = call.window.rows();
  call.state_rows.reserve(call.writes.size() * static_cast<size_t>(window));
  for (const SlotWrite& write : call.writes) {
    const int64_t request = IndexAt(requests, write.token);
    const int64_t last = IndexAt(positions, write.token);
    const int64_t first = std::max<int64_t>(last - window + 1, 0);
    const int64_t present = last - first + 1;
    call.absent.push_back(window - present);
    call.first_row.push_back(call.state_rows.size());
    ForSlots(table, {request, first, present}, rows.block_size, [&](int64_t slot) {
      call.state_rows.push_back(reinterpret_cast<const float*>(rows.AtSlot(slot, 0).data));
    });
    call.table_rows.push_back(a.TableRow(write.token, last));
  }
}

absl::StatusOr<CompressCall> MakeCall(const KernelArgs& args) {
  CompressCall call;
  PF_ASSIGN_OR_RETURN(const CompressAttributes a, ReadCompress(*args.node));
  call.window = a.window;
  call.epsilon = a.eps;
  call.hadamard = a.hadamard;
  const TensorArg& weight = args.input(kCcIn["rms_weight"]);
  call.size = weight.size();
  call.half = args.input(kCcIn["state_cache"]).dim(2) / 2;
  PF_ASSIGN_OR_RETURN(call.weight, onnx_ops::DecodedFloats(weight));
  call.table = TableOf(args.input(kCcIn["cos_sin"]));
  call.layout = {call.table.pairs(), call.size - call.table.rotated, /*interleaved=*/true};
  PF_ASSIGN_OR_RETURN(const PagedBytes paged, ReadCache(args, a));
  const TensorArg& cache = args.output(0);
  if (a.is_plain()) {
    call.plain_type = cache.dtype;
    call.rows = PlainRows(call.size * BitWidth(cache.dtype) / 8, paged, cache.data);
  } else {
    PF_ASSIGN_OR_RETURN(call.format, a.RowFormat(call.size, call.table.rotated));
    call.rows = GroupedRows(call.format, paged, cache.data);
  }
  CollectWindows(args, a, call);
  return call;
}

// The default of overlap depends on the ratio.
absl::StatusOr<Dim> StateWidth(const ShapeContext& c) {
  PF_ASSIGN_OR_RETURN(const CompressAttributes a, ReadCompress(c.node()));
  return c.size("D") * Dim(1 + a.window.overlap);
}

absl::StatusOr<Dim> RowBytes(const ShapeContext& c) {
  PF_ASSIGN_OR_RETURN(const CompressAttributes a, ReadCompress(c.node()));
  if (a.is_plain()) return Dim(0);
  const std::optional<int64_t> size = c.size("D").constant();
  const std::optional<int64_t> rotated = c.size("R").constant();
  if (!size || !rotated) return Dim::Unknown();
  const absl::StatusOr<GroupedRowFormat> format = a.RowFormat(*size, *rotated);
  if (!format.ok()) return c.InputError(kCcIn["rms_weight"], StdView(format.status().message()));
  return Dim(format->TokenBytes());
}

// A block of codes has room for its rows.
absl::Status CheckBlockBytes(ShapeContext& c) {
  PF_ASSIGN_OR_RETURN(const CompressAttributes a, ReadCompress(c.node()));
  if (a.hadamard && !a.holds_index_keys()) {
    return c.AttributeError(
        kHadamard, StrCat("expected 0 with format = ", a.format, ", whose rows are no index keys"));
  }
  PF_RETURN_IF_ERROR(CheckHadamardSize(c, kCcIn["rms_weight"]));
  const Shape* cache = c.input_shape(kCcIn["kv_cache"]);
  PF_ASSIGN_OR_RETURN(const Dim row_bytes, RowBytes(c));
  const std::optional<int64_t> row = row_bytes.constant();
  if (a.is_plain() || !cache || cache->rank() < 1 || !row) return absl::OkStatus();
  int64_t bytes = 1;
  for (int axis = 1; axis < cache->rank(); ++axis) {
    const std::optional<int64_t> dim = (*cache)[axis].constant();
    if (!dim) return absl::OkStatus();
    bytes = CheckedMul(bytes, *dim).value_or(std::numeric_limits<int64_t>::max());
  }
  const std::optional<int64_t> needed = CheckedMul(a.kv_block_size, *row);
  if (needed && bytes >= *needed) return absl::OkStatus();
  return c.InputError(kCcIn["kv_cache"],
                      StrCat("expected blocks of at least kv_block_size * row_bytes = ",
                             a.kv_block_size, " * ", *row, " bytes, got ", cache->ToString()));
}

}  // namespace

bool CompressAttributes::is_plain() const { return format == "none" || format == "bf16"; }

absl::StatusOr<GroupedRowFormat> CompressAttributes::RowFormat(int64_t size,
                                                               int64_t rotated) const {
  constexpr int64_t kFp4Group = 32;
  const auto expect = [&](bool fits, std::string_view sizes,
                          const GroupedRowFormat& row) -> absl::StatusOr<GroupedRowFormat> {
    if (fits) return row;
    return absl::InvalidArgumentError(
        StrCat("expected ", sizes, " for format \"", format, "\", got [", size, "]"));
  };
  if (format == "fp8_ue8m0") {
    const int64_t coded = size - rotated;
    return expect(coded >= 0 && coded % quant_group_size == 0,
                  StrCat("a multiple of ", quant_group_size, " elements before ", rotated),
                  Fp8Ue8m0Row(coded, rotated, quant_group_size));
  }
  if (format == "indexer_fp8") {
    return expect(size > 0, "at least one element",
                  IndexerFp8Row(size, std::max<int64_t>(size, 1)));
  }
  return expect(size > 0 && size % kFp4Group == 0, "a multiple of 32 elements",
                IndexerMxfp4Row(size, kFp4Group));
}

absl::StatusOr<CompressAttributes> ReadCompress(const Node& node) {
  CompressAttributes a;
  PF_ASSIGN_OR_RETURN(a.format, node.StringAttribute("format", "fp8_ue8m0"));
  PF_ASSIGN_OR_RETURN(a.window.ratio, node.IntAttribute("compress_ratio", 0));
  PF_ASSIGN_OR_RETURN(a.window.overlap, node.IntAttribute("overlap", a.window.ratio == 4 ? 1 : 0));
  PF_ASSIGN_OR_RETURN(a.kv_block_size, node.IntAttribute("kv_block_size", kTokensPerBlock));
  PF_ASSIGN_OR_RETURN(a.quant_group_size, node.IntAttribute("quant_group_size", kCcGroupSize));
  PF_ASSIGN_OR_RETURN(const int64_t cos_sin_rows, node.IntAttribute("cos_sin_rows", 0));
  a.cos_sin_rows = cos_sin_rows != 0;
  PF_ASSIGN_OR_RETURN(a.hadamard, HasHadamard(node));
  PF_ASSIGN_OR_RETURN(a.eps, node.FloatAttribute("eps", kCcEpsilon));
  return a;
}

OpDef CompressCacheInsertDef() {
  using enum DataType;
  OpDef op("pagefuse", "CompressCacheInsert", 1);
  op.Doc(
        "For each token whose position ends a window of compress_ratio tokens: the sum of the "
        "window's kv rows, each column weighted by the softmax of its scores; RMS norm; rotation "
        "to the window's first position; then the row at its slot: in the type of the cache "
        "(none, bf16), or rounded to bfloat16 and as codes. Tokens with a negative slot (of "
        "state or of cache) are skipped.")
      .Inputs(kCcIn)
      .Outputs(kCcOut)
      .Attr("format", std::string("fp8_ue8m0"))
      .OneOf({"none", "bf16", "fp8_ue8m0", "indexer_fp8", "indexer_mxfp4"})
      .RequiredAttr("compress_ratio", "tokens a window")
      .Within(1, int64_t{1} << 30)
      .Attr("overlap", std::monostate(),
            "1: a window reaches back over the one before it; default 1 for ratio 4, else 0")
      .Within(0, 1)
      .Attr("kv_block_size", kTokensPerBlock,
            "compressed rows a block of kv_cache, for formats of codes")
      .AtLeast(1)
      .Attr("quant_group_size", kCcGroupSize, "channels with one scale, for fp8_ue8m0")
      .AtLeast(1)
      .FlagAttr("cos_sin_rows", int64_t{0},
                "1: row t of cos_sin is that of token t; 0: a window has that of its first "
                "position")
      .FlagAttr(kHadamard, int64_t{0}, kHadamardDoc)
      .Attr("eps", kCcEpsilon, "of the norm")
      .Types("P", {kInt64, kInt32})
      .Types("K", {kInt64, kInt32})
      .Types("N", {kBfloat16, kFloat})
      .Types("R", {kFloat, kBfloat16})
      .Types("TC", {kFloat, kFloat16, kBfloat16})
      .Let("W", "(1 + overlap) * D", StateWidth)
      .Let("table_rows", "T if cos_sin_rows, else 0")
      .Let("row_bytes", "bytes of a compressed row of D elements in the format", RowBytes)
      .InferShapes(CheckBlockBytes)
      .Validate(Validate)
      .Decomposition(DecomposeCompressCacheInsert);
  return DeclareInsert(op, RunCall<MakeCall, CompressCacheInsertPlain>,
                       RunCall<MakeCall, CompressCacheInsertHwy>);
}

}  // namespace pagefuse::pagefuse_ops
