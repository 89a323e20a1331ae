// SPDX-License-Identifier: Apache-2.0
// fuse-paged-attention: attention over the rows of a cache, with their dequantisation, becomes
// PagedAttention. The match is read by element (analysis/attention/attention_match.h), so that neither the way in
// which rows are gathered, repeated and scaled nor that in which the mask is computed matters.
//
//   softmax(q . dequantise(pool[table])^T, j < len) . dequantise(pool[table])
//     =>  PagedAttention (q, pool, pool, query_start_loc, seq_lens, table, ..)
#include "pagefuse/ops/pagefuse/attention/paged_attention.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/passes/analysis/indexing/replacement.h"
#include "pagefuse/passes/fuse/fuse.h"
#include "pagefuse/passes/fuse/indexed/match_pass.h"
#include "pagefuse/passes/fuse/indexed/paged_attention_ports.h"
#include "pagefuse/passes/fuse/indexed/transformed_rows.h"

namespace pagefuse {
namespace {

constexpr const char* kName = "fuse-paged-attention";

struct Reading {
  AttentionMatch match;
  ReadRows key, value;
  std::optional<Element> signs;  // of rows behind a transform
  PagedAxes axes;
  AttentionMaskPorts visible;
  CacheFormat format;
  ScoreBiases biases;
  std::optional<LogSums> sums;
};

// A contiguous cache of floats is what Attention reads itself, unless it is written by position.
absl::Status IsWorthPaging(const Reading& reading) {
  if (reading.axes.block || reading.key.quantised() || reading.key.codes.From("TensorScatter")) {
    return absl::OkStatus();
  }
  return absl::NotFoundError("keys are contiguous floats");
}

// Queries that are codes of e4m3fn, whose numbers are multiplied as they are.
std::optional<Element> QueryCodes(IndexingAnalysis& reader, const Element& query) {
  if (!query.From("Cast")) return std::nullopt;
  const Element codes = reader.Operand(query, 0);
  const bool is_code = codes.value->dtype() == DataType::kFloat8E4M3FN;
  return is_code ? std::optional(codes) : std::nullopt;
}

absl::StatusOr<Reading> ReadTransformed(TransformedRows rows, Reading reading) {
  reading.key = std::move(rows.key);
  reading.value = std::move(rows.value);
  reading.signs = std::move(rows.signs);
  reading.format = rows.format;
  PF_ASSIGN_OR_RETURN(reading.axes, PagedAxesOf(reading.match, reading.key));
  PF_ASSIGN_OR_RETURN(reading.visible, AttentionMaskPortsOf(reading.match, reading.axes));
  return reading;
}

absl::StatusOr<Reading> ReadMatch(IndexingAnalysis& reader, const OpsetImports& opsets,
                                  Value* output, const AxisSplits& splits) {
  Reading reading;
  PF_ASSIGN_OR_RETURN(reading.match, ReadAttention(reader, output, splits));
  auto transformed = ReadTransformedRows(reader, opsets, reading.match);
  if (transformed.ok()) return ReadTransformed(*std::move(transformed), std::move(reading));
  if (!absl::IsNotFound(transformed.status())) return transformed.status();
  const std::optional<Element> codes = QueryCodes(reader, reading.match.query);
  reading.match.query = codes ? *codes : NarrowQuery(reader, reading.match);
  const DataType type = reading.match.query.value->dtype();
  PF_ASSIGN_OR_RETURN(reading.key, RowsOf(reader, reading.match.key, reading.match.e, type));
  PF_ASSIGN_OR_RETURN(reading.value, RowsOf(reader, reading.match.value, reading.match.d, type));
  PF_ASSIGN_OR_RETURN(reading.axes, PagedAxesOf(reading.match, reading.key));
  PF_RETURN_IF_ERROR(IsWorthPaging(reading));
  PF_ASSIGN_OR_RETURN(reading.visible, AttentionMaskPortsOf(reading.match, reading.axes));
  PF_ASSIGN_OR_RETURN(reading.format, FormatOf(reading.key, reading.value));
  return reading;
}

// The result, and the log-sum-exps if there are any.
absl::StatusOr<std::vector<Value*>> Build(const Reading& r, Replacement& replacement) {
  PagedAttentionPorts ports(replacement.builder(), r.match, r.axes, r.visible);
  PF_ASSIGN_OR_RETURN(std::vector<Value*> inputs, ports.Inputs(r.key, r.value, r.format, r.biases));
  if (r.signs) {
    constexpr int kSigns = kPagedAttentionIn["rht_signs"];
    inputs.resize(kSigns + 1, nullptr);
    PF_ASSIGN_OR_RETURN(inputs[kSigns], ports.layout().Gathered(*r.signs, {{r.match.e}}));
  }
  Node* node = replacement.builder().AddNode("pagefuse", "PagedAttention", inputs, r.sums ? 2 : 1);
  TakePlace(*node, *r.match.output.producer());
  node->SetAttribute("scale", MakeAttribute(static_cast<float>(r.match.scale)));
  node->SetAttribute("is_causal", MakeAttribute(int64_t{r.visible.causal ? 1 : 0}));
  // Chunks are said as the window that they and those before them make up.
  const int64_t chunks = r.visible.chunk * (r.visible.chunks_before + 1);
  node->SetAttribute("sliding_window", MakeAttribute(chunks > 0 ? chunks : r.visible.window));
  if (chunks > 0) node->SetAttribute("chunk_lookback", MakeAttribute(r.visible.chunks_before));
  if (r.visible.ranges_clamped) {
    node->SetAttribute("mm_prefix_clamp_window", MakeAttribute(int64_t{1}));
  }
  if (r.biases.root) node->SetAttribute("use_alibi_sqrt", MakeAttribute(int64_t{1}));
  node->SetAttribute("softcap", MakeAttribute(static_cast<float>(r.match.softcap)));
  if (r.match.query.value->dtype() == DataType::kFloat8E4M3FN) {
    node->SetAttribute("output_dtype", MakeAttribute(static_cast<int64_t>(DataType::kFloat)));
  }
  node->SetAttribute("kv_quant_mode", MakeAttribute(std::string(r.format.name())));
  PF_ASSIGN_OR_RETURN(Value * result, ports.Result(node->output(0), r.key, r.value));
  if (!r.sums) return std::vector<Value*>{result};
  PF_ASSIGN_OR_RETURN(Value * sums, ports.Sums(node->output(1), *r.sums));
  return std::vector<Value*>{result, sums};
}

// Fused it is all the same; a pool that is transposed in each step is worth a word.
void SayTransposed(const Reading& reading, const std::string& why, PassContext& context) {
  context.AddMissedMatch(kName, reading.key.codes.value->name(),
                         StrCat("the cache lies heads first and is transposed in each step: ", why),
                         2);
}

absl::Status Fuse(Node& node, const GraphScope& scope, PassContext& context) {
  Value* output = node.output(0);
  IndexingAnalysis whole(context.contents);
  PF_ASSIGN_OR_RETURN(const AttentionMatch match, ReadAnyAttention(whole, output));
  IndexingAnalysis reader(context.contents);
  PF_ASSIGN_OR_RETURN(Reading reading, ReadMatch(reader, *scope.opsets, output, SplitsOf(match)));
  reading.sums = LogSumsOf(reader, *scope.graph, reading.match);
  PF_RETURN_IF_ERROR(CheckLowSums(reading.sums));
  const bool shifts = reading.sums || reading.match.sink;
  PF_ASSIGN_OR_RETURN(reading.biases, ReadScoreBiases(reader, reading.match, reading.axes,
                                                      reading.visible, shifts));
  std::string why;
  if (reading.biases.slopes || reading.match.sink) why = "slopes or sinks are of all heads";
  reading.axes = AxesByHead(reading.axes, reading.key, reading.value, reading.visible, why);
  if (!why.empty()) SayTransposed(reading, why, context);
  return ReplaceMatch({reader, reading.match, reading.sums}, {kName, scope, context},
                      [&](Replacement& replacement) { return Build(reading, replacement); });
}

}  // namespace

std::unique_ptr<Pass> FusePagedAttention() {
  return MakeMatchPass(
      kName,
      "Fuses attention over a paged or quantised cache into PagedAttention, however its rows "
      "and mask are computed.",
      AttentionNodes, Fuse);
}

}  // namespace pagefuse
