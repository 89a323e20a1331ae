// SPDX-License-Identifier: Apache-2.0
// IndexerTopK, PagedIndexerTopK, TopK, ArgMax, ArgMin, CumSum and CumProd on the device.
#include <algorithm>
#include <utility>
#include <vector>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/ops/cuda/cuda_kernels.h"
#include "pagefuse/ops/cuda/paged_scores_call.h"
#include "pagefuse/ops/cuda/port_numbers.h"
#include "pagefuse/ops/kernels/cuda/paged_mqa_logits_works.h"
#include "pagefuse/ops/kernels/cuda/paged_scores_check.h"
#include "pagefuse/ops/kernels/cuda/running_sum.h"
#include "pagefuse/ops/kernels/cuda/topk.h"
#include "pagefuse/ops/onnx/lines.h"
#include "pagefuse/ops/pagefuse/indexer/paged_scores.h"

namespace pagefuse::cuda {
namespace {

using namespace pagefuse_ops;  // ports of paged scores

// Of the scratch.
enum Slot { kScoresWorkspace, kScores, kSelectWorkspace };

void* Workspace(const KernelArgs& args, size_t bytes, Slot slot) {
  return bytes == 0 ? nullptr : args.scratch->Get(bytes, slot);
}

// --- IndexerTopK, PagedIndexerTopK ---

struct RangePorts {
  int begins, ends;

  explicit RangePorts(const OpDef& op)
      : begins(PortNumber(op.inputs(), "ks")), ends(PortNumber(op.inputs(), "ke")) {}
};

// All rows, but for their logits.
IndexerTopKCall ChoiceOf(const KernelArgs& args, const RangePorts& ports) {
  const TensorArg& indices = args.output(0);
  IndexerTopKCall call;
  call.rows = indices.dim(0);
  call.topk = indices.dim(1);
  call.begins = args.input(ports.begins).as<const int32_t>();
  call.ends = args.input(ports.ends).as<const int32_t>();
  call.indices = indices.as<int32_t>();
  call.errors = IndexErrorsOf(args);
  call.begins_input = ports.begins;
  call.ends_input = ports.ends;
  return call;
}

absl::Status Choose(const KernelArgs& args, IndexerTopKCall call) {
  call.workspace = Workspace(args, IndexerTopKWorkspace(call), kSelectWorkspace);
  return LaunchStatus(LaunchIndexerTopK(call, StreamOf(args)));
}

absl::Status RunIndexerTopK(KernelArgs& args, const RangePorts& ports) {
  IndexerTopKCall call = ChoiceOf(args, ports);
  call.width = args.input(0).dim(1);
  call.logits = args.input(0).as<const float>();
  return Choose(args, call);
}

// Columns of the scores; the host knows them.
int64_t WidthOf(const KernelArgs& args) {
  const TensorArg& width = args.host_input(kPagedWidth);
  if (args.input(kPagedWidth).present()) return *width.as<const int64_t>();
  return args.input(kPagedTables).dim(1) * args.input(kPagedKeys).dim(1);
}

// How many rows have their scores in memory at a time: of whole sequences where each has as many rows, and no more
// than the fast kernel of scores takes.
int64_t RowsAtATime(const MqaLogits& scores) {
  constexpr int64_t kScoreBytes = int64_t{128} << 20;
  const int64_t row_bytes = scores.width * static_cast<int64_t>(sizeof(float));
  const int64_t rows =
      std::clamp<int64_t>(kScoreBytes / std::max<int64_t>(row_bytes, 1), 1, kMostPagedGroups);
  return std::max<int64_t>(rows / scores.queries, 1) * scores.queries;
}

// Rows [begin, begin + rows) of all.
MqaLogits PartOf(const MqaLogits& all, int64_t begin, int64_t rows) {
  MqaLogits part = all;
  part.first_row = begin;
  part.rows = rows;
  const int bits = BitWidth(all.query_type);
  part.q += begin * all.heads * (int64_t{all.head_size} * bits / 8);
  part.weights += begin * all.heads;
  return part;
}

IndexerTopKCall PartOf(const IndexerTopKCall& all, int64_t begin, int64_t rows) {
  IndexerTopKCall part = all;
  part.first_row = begin;
  part.rows = rows;
  part.begins += begin;
  part.ends += begin;
  part.indices += begin * all.topk;
  return part;
}

// What the host knows was checked.
absl::Status CheckScores(const KernelArgs& args, const MqaLogits& scores) {
  const auto known = [&](int input) {
    return !args.input(input).present() || args.host_input(input).data != nullptr;
  };
  if (known(kPagedLengths) && known(kPagedTables) && known(kPagedStarts)) return absl::OkStatus();
  const PagedScoresCheck check = {.scores = scores,
                                  .errors = IndexErrorsOf(args),
                                  .lengths = kPagedLengths,
                                  .tables = kPagedTables,
                                  .starts = kPagedStarts};
  return LaunchStatus(LaunchPagedScoresCheck(check, StreamOf(args)));
}

absl::Status RunPagedIndexerTopK(KernelArgs& args, const RangePorts& ports) {
  PF_ASSIGN_OR_RETURN(MqaLogits all, PagedScoresCall(args));
  all.width = WidthOf(args);
  PF_RETURN_IF_ERROR(CheckScores(args, all));
  const IndexerTopKCall choice = ChoiceOf(args, ports);
  if (all.rows == 0 || choice.topk == 0) return absl::OkStatus();
  if (all.sequences == 0) return absl::InvalidArgumentError("queries of no sequence");
  const int64_t rows = std::min(RowsAtATime(all), all.rows);
  const auto bytes = static_cast<size_t>(rows * all.width) * sizeof(float);
  auto* logits = static_cast<float*>(Workspace(args, bytes, kScores));
  for (int64_t begin = 0; begin < all.rows; begin += rows) {
    const int64_t count = std::min(rows, all.rows - begin);
    MqaLogits scores = PartOf(all, begin, count);
    scores.logits = logits;
    void* workspace = Workspace(args, MqaLogitsWorkspace(scores), kScoresWorkspace);
    PF_RETURN_IF_ERROR(LaunchStatus(LaunchMqaLogits(scores, workspace, StreamOf(args))));
    IndexerTopKCall call = PartOf(choice, begin, count);
    call.width = all.width;
    call.logits = logits;
    PF_RETURN_IF_ERROR(Choose(args, call));
  }
  return absl::OkStatus();
}

// --- TopK ---

// The shape of the outputs says k.
absl::Status RunTopK(KernelArgs& args) {
  const TensorArg &x = args.input(0), &values = args.output(0), &indices = args.output(1);
  PF_ASSIGN_OR_RETURN(const int64_t largest, args.node->IntAttribute("largest", 1));
  PF_ASSIGN_OR_RETURN(const int axis, onnx_ops::AxisOf(*args.node, x.dims, -1));
  const onnx_ops::Lines lines(x.dims, axis);
  TopKCall call{.type = x.dtype, .outer = lines.count / std::max<int64_t>(lines.stride, 1)};
  call.n = lines.size;
  call.inner = lines.stride;
  call.k = (values.present() ? values : indices).dim(axis);
  call.largest = largest != 0;
  call.x = x.data;
  call.values = values.data;
  call.indices = indices.as<int64_t>();
  call.workspace = Workspace(args, TopKWorkspace(call), kSelectWorkspace);
  return LaunchStatus(LaunchTopK(call, StreamOf(args)));
}

// --- ArgMax, ArgMin ---

template <bool largest>
absl::Status RunArgBest(KernelArgs& args) {
  const TensorArg& x = args.input(0);
  PF_ASSIGN_OR_RETURN(const int axis, onnx_ops::AxisOf(*args.node, x.dims, 0));
  PF_ASSIGN_OR_RETURN(const int64_t last, args.node->IntAttribute("select_last_index", 0));
  const onnx_ops::Lines lines(x.dims, axis);
  ArgBestCall call{.type = x.dtype, .outer = lines.count / std::max<int64_t>(lines.stride, 1)};
  call.n = lines.size;
  call.inner = lines.stride;
  call.largest = largest;
  call.last = last != 0;
  call.x = x.data;
  call.indices = args.output(0).as<int64_t>();
  return LaunchStatus(LaunchArgBest(call, StreamOf(args)));
}

// --- CumSum, CumProd ---

template <bool product>
absl::Status RunCumulative(KernelArgs& args) {
  const TensorArg& x = args.input(0);
  PF_ASSIGN_OR_RETURN(const int64_t exclusive, args.node->IntAttribute("exclusive", 0));
  PF_ASSIGN_OR_RETURN(const int64_t reverse, args.node->IntAttribute("reverse", 0));
  if (x.size() == 0) return absl::OkStatus();
  const int64_t axis = onnx_ops::IndexValues(args.host_input(1))[0];
  const onnx_ops::Lines lines(x.dims, onnx_ops::KernelAxis(axis, x.dims.size()));
  RunningSum call{.type = x.dtype, .outer = lines.count / lines.stride};
  call.n = lines.size;
  call.inner = lines.stride;
  call.product = product;
  call.exclusive = exclusive != 0;
  call.reverse = reverse != 0;
  call.x = x.data;
  call.y = args.output(0).data;
  return LaunchStatus(LaunchRunningSum(call, StreamOf(args)));
}

}  // namespace

void AddTopKKernels(OpRegistry& ops) {
  const auto add_choice = [&](const char* op, auto run, std::vector<int> host_inputs) {
    const RangePorts ports(*ops.Find("pagefuse", op, 1));
    AddKernelTo(ops, "pagefuse", op,
                {.name = "cuda",
                 .device = Device::kCuda,
                 .priority = 10,
                 .host_inputs = std::move(host_inputs),
                 .checks_indices = true,
                 .run = [ports, run](KernelArgs& args) { return run(args, ports); }});
  };
  add_choice("IndexerTopK", RunIndexerTopK, {});
  add_choice("PagedIndexerTopK", RunPagedIndexerTopK, {kPagedWidth});
  const auto add = [&](const char* op, absl::Status (*run)(KernelArgs&),
                       std::vector<int> host_inputs = {}) {
    AddKernelTo(
        ops, "", op,
        {.name = "cuda", .priority = 10, .host_inputs = std::move(host_inputs), .run = run});
  };
  add("TopK", RunTopK, {1});
  add("ArgMax", RunArgBest<true>);
  add("ArgMin", RunArgBest<false>);
  add("CumSum", RunCumulative<false>, {1});
  add("CumProd", RunCumulative<true>, {1});
}

}  // namespace pagefuse::cuda
