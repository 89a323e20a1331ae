// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/cuda/paged_scores_call.h"

#include <algorithm>
#include <string>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/ops/kernels/formats/grouped_row.h"
#include "pagefuse/ops/pagefuse/indexer/paged_scores.h"

namespace pagefuse::cuda {
namespace {

using namespace pagefuse_ops;  // ports of paged scores

MqaKeyFormat FormatOfNumbers(DataType type) {
  if (type == DataType::kFloat16) return MqaKeyFormat::kFloat16;
  return type == DataType::kBfloat16 ? MqaKeyFormat::kBfloat16 : MqaKeyFormat::kFloat;
}

absl::Status SetKeys(const KernelArgs& args, MqaLogits& call) {
  PF_ASSIGN_OR_RETURN(const std::string format, args.node->StringAttribute("format", kKeysOfCodes));
  const TensorArg& cache = args.input(kPagedKeys);
  const int64_t block_size = cache.dim(1);
  const PagedBytes paged = {.num_blocks = block_size == 0 ? 0 : cache.dim(0),
                            .block_size = std::max<int64_t>(block_size, 1),
                            .block_bytes = cache.block_bytes()};
  if (format == kKeysOfNumbers) {
    call.key_format = FormatOfNumbers(cache.dtype);
    call.keys = PlainRows(cache.dim(-1) * BitWidth(cache.dtype) / 8, paged, cache.data);
  } else if (format == kKeysOfFourBits) {
    call.key_format = MqaKeyFormat::kFourBits;
    call.keys = GroupedRows(IndexerMxfp4Row(call.head_size), paged, cache.data);
  } else {
    call.keys = GroupedRows(IndexerFp8Row(call.head_size, call.head_size), paged, cache.data);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<MqaLogits> PagedScoresCall(const KernelArgs& args) {
  const TensorArg& q = args.input(kPagedQ);
  const TensorArg& tables = args.input(kPagedTables);
  const TensorArg& starts = args.input(kPagedStarts);
  MqaLogits call;
  PF_ASSIGN_OR_RETURN(call.ratio, args.node->IntAttribute("ratio", 1));
  call.query_type = q.dtype == DataType::kUint8 ? DataType::kFloat8E4M3FN : q.dtype;
  call.q = q.as<const uint8_t>();
  call.weights = args.input(kPagedWeights).as<const float>();
  call.rows = args.input(kPagedWeights).dim(0);
  call.heads = static_cast<int>(q.dim(-2));
  call.head_size = static_cast<int>(q.dim(-1));
  PF_RETURN_IF_ERROR(SetKeys(args, call));
  call.block_table = tables.as<const int32_t>();
  call.table_columns = tables.dim(1);
  call.sequences = tables.dim(0);
  call.lengths = args.input(kPagedLengths).as<const int32_t>();
  call.starts = starts.as<const int32_t>();
  if (!starts.present()) call.queries = std::max<int64_t>(q.dim(1), 1);
  return call;
}

}  // namespace pagefuse::cuda
