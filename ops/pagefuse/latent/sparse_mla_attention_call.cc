// SPDX-License-Identifier: Apache-2.0
// A call of SparseMlaAttention, from its arguments to what kernels take, and the checks of values.
#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/kernels/latent/sparse_mla_attention_hwy.h"
#include "pagefuse/ops/pagefuse/checks.h"
#include "pagefuse/ops/pagefuse/latent/sparse_mla_attention.h"
#include "pagefuse/ops/pagefuse/packed_batch.h"

namespace pagefuse {
namespace {

using pagefuse_ops::InputRangeError;
using pagefuse_ops::InputValueError;

constexpr PackedBatchPorts kBatch = PackedBatchOf(kSparseMlaIn);

SparseMlaProblem::List MakeList(const KernelArgs& args, const SparseMlaAttributes& a,
                                const LatentListPorts& ports) {
  const TensorArg& indices = args.input(ports.indices);
  SparseMlaProblem::List list;
  list.cache = LatentRowsOf(args, a, ports);
  list.num_rows = list.cache.num_blocks * list.cache.block_size;
  if (indices.present()) list.columns = indices.dim(1);
  list.indices = indices.as<const int32_t>();
  list.lens = args.input(ports.lens).as<const int32_t>();
  return list;
}

absl::Status CheckList(const KernelArgs& args, const SparseMlaProblem& p, int number) {
  const SparseMlaProblem::List& list = p.lists[number];
  const LatentListPorts& ports = kLatentLists[number];
  for (int64_t t = 0; t < p.num_tokens; ++t) {
    const int64_t length = list.length(t);
    if (length < 0 || length > list.columns) {
      return InputValueError(args, ports.lens,
                             StrCat("expected 0 to ", list.columns, ", got ", length, " at ", t));
    }
    for (int64_t k = 0; k < length; ++k) {
      const int32_t index = list.indices[t * list.columns + k];
      if (index < list.num_rows) continue;
      return InputRangeError(
          args, ports.indices,
          StrCat("row ", index, " at [", t, ", ", k, "] is outside [0, ", list.num_rows, ")"));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckDense(const KernelArgs& args, const SparseMlaProblem& p) {
  PF_RETURN_IF_ERROR(CheckQueryStarts(args, kBatch));
  for (int64_t b = 0; b < p.num_sequences; ++b) {
    const int64_t block_size = p.cache().block_size;
    PF_RETURN_IF_ERROR(CheckLength(args, kBatch, b, block_size));
    const int64_t queries = p.num_queries(b);
    const int64_t rows = queries == 0 ? 0 : p.VisibleRows(b, queries - 1);
    const TableColumns used = {0, (rows + block_size - 1) / block_size};
    PF_RETURN_IF_ERROR(CheckBlocks(args, kBatch, b, used, p.cache().num_blocks));
  }
  return absl::OkStatus();
}

absl::StatusOr<SparseMlaProblem> MakeSparseMlaProblem(const KernelArgs& args) {
  SparseMlaProblem p;
  PF_ASSIGN_OR_RETURN(const SparseMlaAttributes a, ReadSparseMla(*args.node));
  const TensorArg& q = args.input(kSparseMlaIn["q"]);
  p.scale = a.scale;
  p.is_causal = a.is_causal;
  p.plain = a.format == LatentFormat::kPlain;
  p.grouped = a.grouped(q.dim(2));
  p.query_type = q.dtype;
  p.cache_type = args.input(kSparseMlaIn["kv_cache"]).dtype;
  p.num_tokens = q.dim(0);
  p.num_heads = q.dim(1);
  p.head_size = q.dim(2);
  p.value_size = a.head_dim_v;
  p.q = q.data;
  p.sink = args.input(kSparseMlaIn["attn_sink"]).as<const float>();
  p.out = args.output(0).data;
  p.lse = args.output(1).as<float>();
  for (const LatentListPorts& ports : kLatentLists) {
    if (args.input(ports.cache).present()) p.lists.push_back(MakeList(args, a, ports));
  }
  const TensorArg& table = args.input(kSparseMlaIn["block_table"]);
  p.dense = table.present();
  if (!p.dense) return p;
  p.block_table = table.as<const int32_t>();
  p.table_columns = table.dim(1);
  p.seq_lens = args.input(kSparseMlaIn["seq_lens"]).as<const int32_t>();
  p.num_sequences = args.input(kSparseMlaIn["seq_lens"]).dim(0);
  p.query_start_loc = args.input(kSparseMlaIn["query_start_loc"]).as<const int32_t>();
  return p;
}

}  // namespace

CacheRows LatentRowsOf(const KernelArgs& args, const SparseMlaAttributes& a,
                       const LatentListPorts& ports) {
  const TensorArg& cache = args.input(ports.cache);
  const int64_t row_size = args.input(kSparseMlaIn["q"]).dim(2);
  const bool is_extra = ports.cache == kLatentLists[1].cache;
  PagedBytes paged{.num_blocks = cache.dim(0),
                   .block_size = is_extra ? a.extra_block_size : a.block_size,
                   .block_bytes = cache.block_bytes()};
  if (a.format == LatentFormat::kFp8Ue8m0)
    return GroupedRows(a.grouped(row_size), paged, cache.data);
  // Rows one behind the other.
  paged.block_size = 1;
  for (size_t axis = 1; axis + 1 < cache.dims.size(); ++axis) paged.block_size *= cache.dims[axis];
  if (a.format == LatentFormat::kFp8DsMla)
    return GroupedRows(a.grouped(row_size), paged, cache.data);
  return PlainRows(cache.dim(-1) * BitWidth(cache.dtype) / 8, paged, cache.data);
}

absl::Status ValidateSparseMla(const KernelArgs& args) {
  PF_ASSIGN_OR_RETURN(const SparseMlaProblem problem, MakeSparseMlaProblem(args));
  if (problem.dense) return CheckDense(args, problem);
  for (size_t i = 0; i < problem.lists.size(); ++i) {
    PF_RETURN_IF_ERROR(CheckList(args, problem, static_cast<int>(i)));
  }
  return absl::OkStatus();
}

absl::Status SparseMlaReference(KernelArgs& args) {
  PF_ASSIGN_OR_RETURN(const SparseMlaProblem problem, MakeSparseMlaProblem(args));
  return RunSparseMlaReference(problem);
}

absl::Status SparseMlaHwy(KernelArgs& args) {
  PF_ASSIGN_OR_RETURN(const SparseMlaProblem problem, MakeSparseMlaProblem(args));
  RunSparseMla(problem, *args.scratch);
  return absl::OkStatus();
}

}  // namespace pagefuse
