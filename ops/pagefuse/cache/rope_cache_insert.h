// What the kernels of RopeCacheInsert share: the call in parsed form.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"

#include "pagefuse/ops/kernel.h"
#include "pagefuse/ops/pagefuse/cache/cache_insert.h"
#include "pagefuse/ops/pagefuse/rope_row.h"

namespace pagefuse::pagefuse_ops {

// One call with checked arguments.
struct RopeCall {
  RopeLayout layout;
  float epsilon = 0;
  TensorArg query;
  TensorArg query_out;
  TensorArg positions;  // absent: row t of the tables belongs to token t
  TensorArg cos;        // [P, R/2] or [T, R/2]
  TensorArg sin;
  std::vector<float> q_norm;  // [D], empty: no norm
  std::vector<float> k_norm;
  CacheSides sides;
  std::vector<int64_t> slots;  // of each token; -1: not written

  int64_t tokens() const { return query.dim(0); }
  int64_t table_row(int64_t token) const;
};
absl::StatusOr<RopeCall> MakeRopeCall(const KernelArgs& args);

// Computes the call: plain loops, and vectorised over tokens in parallel. The same bytes, as long
// as the sums of norms, in double but in another order, round alike.
void RopeCacheInsertPlain(const RopeCall& call);
void RopeCacheInsertHwy(const RopeCall& call);

}  // namespace pagefuse::pagefuse_ops
