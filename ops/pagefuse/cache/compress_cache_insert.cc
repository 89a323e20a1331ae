// CompressCacheInsert: where a token ends a compression window, the softmax-weighted sum of the
// window's state, normed, rotated, quantised and put into the compressed cache. Equals vLLM's
// compress_norm_rope_store (DeepSeek-V4).
#include "pagefuse/ops/pagefuse/cache/compress_cache_insert.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "pagefuse/ir/status_macros.h"
#include "pagefuse/ir/str_cat.h"
#include "pagefuse/ops/numeric/convert.h"
#include "pagefuse/ops/pagefuse/cache/grouped_insert.h"

namespace pagefuse::pagefuse_ops {
namespace {

// Softmax-weighted sum of one column over the rows of a window.
float CompressColumn(const CompressCall& call, int64_t write, int64_t d) {
  const std::span<const float* const> window = call.Window(write);
  const auto column = [&](size_t j) {
    return call.Column(call.absent[write] + static_cast<int64_t>(j)) + d;
  };
  float largest = -std::numeric_limits<float>::infinity();
  for (size_t j = 0; j < window.size(); ++j) {
    largest = std::max(largest, window[j][call.half + column(j)]);
  }
  float weights = 0;
  float sum = 0;
  for (size_t j = 0; j < window.size(); ++j) {
    const float weight = std::exp(window[j][call.half + column(j)] - largest);
    weights += weight;
    sum += weight * window[j][column(j)];
  }
  return sum / weights;
}

PagedBytes PagedOf(const KernelArgs& args, const CompressAttributes& a) {
  const TensorArg& cache = args.input(kCcCache);
  return {cache.dim(0), a.kv_block_size, cache.dim(1)};
}

// Whether token t ends a window that is written; slot and position are looked at in that order.
bool IsWritten(const KernelArgs& args, int64_t ratio, int64_t t) {
  if (IndexAt(args.input(kCcSlots), t) < 0) return false;
  if (IndexAt(args.input(kCcPositions), t) % ratio != ratio - 1) return false;
  return IndexAt(args.input(kCcKvSlots), t) >= 0;
}

// Checks of one token that is written: its request, its window's blocks, its row of the table.
absl::Status CheckToken(const KernelArgs& args, const CompressAttributes& a, int64_t t) {
  const TensorArg& table = args.input(kCcTable);
  const TensorArg& state = args.input(kCcState);
  const PagedBytes paged = {state.dim(0), state.dim(1), 0};
  const int64_t request = IndexAt(args.input(kCcRequest), t);
  const int64_t position = IndexAt(args.input(kCcPositions), t);
  if (request < 0 || request >= table.dim(0)) {
    return InputValueError(
        args, kCcRequest,
        StrCat("expected requests in [0, ", table.dim(0), "), got ", request, " at ", t));
  }
  if (paged.block_size == 0 || position / paged.block_size >= table.dim(1)) {
    return InputValueError(args, kCcPositions,
                           StrCat("expected positions within ", table.dim(1), " blocks of ",
                                  paged.block_size, ", got ", position, " at ", t));
  }
  const int64_t rope_row = position / a.ratio * a.ratio;
  const int64_t rope_rows = args.input(kCcCosSin).dim(0);
  if (rope_row >= rope_rows) {
    return InputValueError(
        args, kCcPositions,
        StrCat("expected windows that start in [0, ", rope_rows, "), got ", rope_row, " at ", t));
  }
  const int64_t first = std::max<int64_t>(position - a.WindowRows() + 1, 0);
  PF_RETURN_IF_ERROR(
      CheckUsedBlocks(args, kCcTable, {request, first, position - first + 1}, paged));
  const PagedBytes cache = PagedOf(args, a);
  const int64_t slots =
      CheckedMul(cache.num_blocks, cache.block_size).value_or(std::numeric_limits<int64_t>::max());
  const int64_t slot = IndexAt(args.input(kCcKvSlots), t);
  if (slot < slots) return absl::OkStatus();
  return InputRangeError(args, kCcKvSlots,
                         StrCat("expected slots below ", slots, " (", cache.num_blocks,
                                " blocks of ", cache.block_size, "), got ", slot, " at ", t));
}

absl::Status Validate(const KernelArgs& args) {
  PF_ASSIGN_OR_RETURN(const CompressAttributes a, ParseCompress(*args.node));
  for (int64_t t = 0; t < args.input(kCcSlots).size(); ++t) {
    if (IndexAt(args.input(kCcSlots), t) < 0) continue;
    const int64_t position = IndexAt(args.input(kCcPositions), t);
    if (position < 0) {
      return InputValueError(args, kCcPositions,
                             StrCat("expected positions of at least 0, got ", position, " at ", t));
    }
    if (IsWritten(args, a.ratio, t)) PF_RETURN_IF_ERROR(CheckToken(args, a, t));
  }
  return absl::OkStatus();
}

// Finds the windows of the tokens that are written.
void CollectWindows(const KernelArgs& args, CompressCall& call) {
  const TensorArg& state = args.input(kCcState);
  const TensorArg& table = args.input(kCcTable);
  const TensorArg& requests = args.input(kCcRequest);
  const TensorArg& positions = args.input(kCcPositions);
  const int64_t block_size = state.dim(1);
  for (int64_t t = 0; t < args.input(kCcSlots).size(); ++t) {
    if (!IsWritten(args, call.attributes.ratio, t)) continue;
    call.writes.push_back({t, IndexAt(args.input(kCcKvSlots), t)});
  }
  KeepLastOfSlot(call.writes);
  const int64_t window = call.attributes.WindowRows();
  call.state_rows.reserve(call.writes.size() * static_cast<size_t>(window));
  for (const SlotWrite& write : call.writes) {
    const int64_t request = IndexAt(requests, write.token);
    const int64_t last = IndexAt(positions, write.token);
    const int64_t first = std::max<int64_t>(last - window + 1, 0);
    const int64_t present = last - first + 1;
    call.absent.push_back(window - present);
    call.first_row.push_back(call.state_rows.size());
    ForSlots(table, {request, first, present}, block_size, [&](int64_t slot) {
      call.state_rows.push_back(state.as<const float>() + slot * 2 * call.half);
    });
    call.table_rows.push_back(last / call.attributes.ratio * call.attributes.ratio);
  }
}

template <auto compute>
absl::Status Run(KernelArgs& args) {
  CompressCall call;
  PF_ASSIGN_OR_RETURN(call.attributes, ParseCompress(*args.node));
  const TensorArg& weight = args.input(kCcWeight);
  const TensorArg& table = args.input(kCcCosSin);
  call.size = weight.size();
  call.half = args.input(kCcState).dim(2) / 2;
  PF_ASSIGN_OR_RETURN(call.format, call.attributes.RowFormat(call.size));
  call.weight.resize(call.size);
  PF_RETURN_IF_ERROR(DecodeToFloat(weight.dtype, weight.data, call.size, call.weight.data()));
  call.table = {table.dtype, table.as<const uint8_t>(), table.dim(1)};
  call.layout = {call.table.pairs(), call.size - table.dim(1), /*interleaved=*/true};
  call.rows = GroupedRows(call.format, PagedOf(args, call.attributes), args.output(0).data);
  CollectWindows(args, call);
  compute(call);
  return absl::OkStatus();
}

absl::Status CheckState(const ShapeContext& c, const CompressAttributes& a) {
  PF_RETURN_IF_ERROR(CheckRank(c, kCcState, 3));
  PF_RETURN_IF_ERROR(CheckRank(c, kCcWeight, 1));
  const auto size = KnownDim(c, kCcWeight, 0);
  if (!size) return absl::OkStatus();
  const int64_t row = 2 * (1 + a.overlap) * *size;
  return CheckDims(c, kCcState, {std::nullopt, std::nullopt, Dim(row)},
                   StrCat("[blocks, BS, ", row, "] for rows of ", *size,
                          a.overlap == 1 ? " with overlap" : " without overlap"));
}

absl::Status InferShapes(ShapeContext& c) {
  const absl::StatusOr<CompressAttributes> a = ParseCompress(c.node());
  if (!a.ok()) return c.Error(StdView(a.status().message()));
  PF_RETURN_IF_ERROR(CheckState(c, *a));
  const auto tokens = DimOf(c, kCcPositions, 0);
  for (const int input : {kCcRequest, kCcPositions, kCcSlots, kCcKvSlots}) {
    PF_RETURN_IF_ERROR(CheckDims(c, input, {tokens}, "one for each token of \"positions\", [T]"));
  }
  PF_RETURN_IF_ERROR(CheckRank(c, kCcTable, 2));
  PF_RETURN_IF_ERROR(CheckCosSin(c, kCcCosSin, DimOf(c, kCcWeight, 0)));
  PF_RETURN_IF_ERROR(CheckRank(c, kCcCache, 2));
  if (const auto size = KnownDim(c, kCcWeight, 0)) {
    const absl::StatusOr<GroupedRowFormat> format = a->RowFormat(*size);
    if (!format.ok()) return c.InputError(kCcWeight, StdView(format.status().message()));
    PF_RETURN_IF_ERROR(CheckBlockBytes(c, kCcCache, a->kv_block_size, format->TokenBytes()));
  }
  SetSameOutput(c, 0, kCcCache);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<GroupedRowFormat> CompressAttributes::RowFormat(int64_t size) const {
  constexpr int64_t kFp4Group = 32;
  const auto expect = [&](bool fits, std::string_view sizes,
                          const GroupedRowFormat& row) -> absl::StatusOr<GroupedRowFormat> {
    if (fits) return row;
    return absl::InvalidArgumentError(
        StrCat("expected ", sizes, " for format \"", format, "\", got [", size, "]"));
  };
  if (format == "fp8_ue8m0") {
    const GroupedRowFormat row = Fp8Ue8m0Row();
    return expect(size == row.elements(), StrCat("[", row.elements(), "]"), row);
  }
  if (format == "indexer_fp8") {
    return expect(size > 0, "at least one element",
                  IndexerFp8Row(size, std::max<int64_t>(size, 1)));
  }
  return expect(size > 0 && size % kFp4Group == 0, "a multiple of 32 elements",
                IndexerMxfp4Row(size, kFp4Group));
}

absl::StatusOr<CompressAttributes> ParseCompress(const Node& node) {
  constexpr int64_t kMaxRatio = int64_t{1} << 30;
  CompressAttributes a;
  const auto error = [](std::string_view name, const std::string& what) {
    return absl::InvalidArgumentError(StrCat("attribute \"", name, "\": ", what));
  };
  PF_ASSIGN_OR_RETURN(a.format, node.StringAttribute("format", "fp8_ue8m0"));
  if (a.format != "fp8_ue8m0" && a.format != "indexer_fp8" && a.format != "indexer_mxfp4") {
    return error("format", StrCat("expected one of fp8_ue8m0, indexer_fp8, indexer_mxfp4, got \"",
                                  a.format, "\""));
  }
  PF_ASSIGN_OR_RETURN(a.ratio, node.IntAttribute("compress_ratio", 0));
  if (a.ratio < 1 || a.ratio > kMaxRatio) {
    return error("compress_ratio", StrCat("expected from 1 to ", kMaxRatio, ", got ", a.ratio));
  }
  PF_ASSIGN_OR_RETURN(a.overlap, node.IntAttribute("overlap", a.ratio == 4 ? 1 : 0));
  if (a.overlap != 0 && a.overlap != 1) {
    return error("overlap", StrCat("expected 0 or 1, got ", a.overlap));
  }
  PF_ASSIGN_OR_RETURN(a.kv_block_size, node.IntAttribute("kv_block_size", kCcBlockSize));
  if (a.kv_block_size < 1) {
    return error("kv_block_size", StrCat("expected at least 1, got ", a.kv_block_size));
  }
  PF_ASSIGN_OR_RETURN(a.eps, node.FloatAttribute("eps", kCcEpsilon));
  return a;
}

void CompressCacheInsertPlain(const CompressCall& call) {
  std::vector<float> y(call.size);
  std::vector<uint8_t> rounded(2 * call.size);
  for (size_t i = 0; i < call.writes.size(); ++i) {
    for (int64_t d = 0; d < call.size; ++d) {
      y[d] = CompressColumn(call, static_cast<int64_t>(i), d);
    }
    NormRow(call.weight.data(), call.attributes.eps, call.size, y.data());
    RotateByTable(call.layout, call.table, call.table_rows[i], y.data());
    // The types here are float types: never an error.
    EncodeFromFloat(DataType::kBfloat16, y.data(), call.size, rounded.data()).IgnoreError();
    DecodeToFloat(DataType::kBfloat16, rounded.data(), call.size, y.data()).IgnoreError();
    EncodeGroupedRow(call.format, y.data(), rounded.data() + 2 * call.format.coded,
                     call.rows.AtSlot(call.writes[i].slot, 0));
  }
}

OpDef CompressCacheInsertDef() {
  using enum DataType;
  const auto required = PortKind::kRequired;
  const auto metadata = PortRole::kMetadata;
  return OpDef("pagefuse", "CompressCacheInsert", 1)
      .Doc(
          "For each token whose position ends a window of compress_ratio tokens: the sum of the "
          "window's kv rows, each column weighted by the softmax of its scores; RMS norm; rotation "
          "to the window's first position; bfloat16; then the row in the cache's format at its "
          "slot. Tokens with a negative slot (of state or of cache) are skipped.")
      .Input("state_cache", "float", "[blocks, BS, 2 * W], W = (1 + overlap) * D")
      .Input("token_to_req", "int32", "[T]", required, metadata)
      .Input("positions", "P", "[T]", required, metadata)
      .Input("slot_mapping", "I", "[T], of the state; only the sign matters", required, metadata)
      .Input("block_table", "int32", "[Q, MB], of the state", required, metadata)
      .Input("rms_weight", "N", "[D]")
      .Input("cos_sin", "R", "[P, R]: R/2 cosines, then R/2 sines", required, metadata)
      .Input("kv_slot_mapping", "K", "[T], slots of compressed rows", required, metadata)
      .Input("kv_cache", "uint8", "[NB, S]")
      .Output("kv_cache_out", "uint8", "[NB, S]")
      .Attr("format", std::string("fp8_ue8m0"), "fp8_ue8m0, indexer_fp8 or indexer_mxfp4")
      .RequiredAttr("compress_ratio", "tokens a window")
      .Attr("overlap", std::monostate(),
            "1: a window reaches back over the one before it; default 1 for ratio 4, else 0")
      .Attr("kv_block_size", kCcBlockSize, "compressed rows a block of kv_cache")
      .Attr("eps", kCcEpsilon, "of the norm")
      .Types("P", {kInt64, kInt32})
      .Types("I", {kInt64, kInt32})
      .Types("K", {kInt64, kInt32})
      .Types("N", {kBfloat16, kFloat})
      .Types("R", {kFloat, kBfloat16})
      .InferShapes(InferShapes)
      .Validate(Validate)
      .Decomposition(DecomposeCompressCacheInsert)
      .Variants(CompressCacheInsertVariants)
      .Alias(0, kCcCache)
      .AddKernel({.name = "reference", .run = Run<CompressCacheInsertPlain>})
      .AddKernel({.name = "hwy", .priority = 10, .run = Run<CompressCacheInsertHwy>});
}

}  // namespace pagefuse::pagefuse_ops
