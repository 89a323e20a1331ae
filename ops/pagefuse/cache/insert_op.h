// SPDX-License-Identifier: Apache-2.0
// The shell of an op that writes the rows of a step into their slots of a paged cache. An insert op
// says what its rows are and how they are encoded; the check of its slots, the cache in memory, the
// outputs that are that memory and the two kernels come from here.
//
//   OpDef op("pagefuse", "KCacheQuantInsert", 1);
//   op.Doc(...).Inputs(kIn).Outputs(kOut).Validate(ValidSlots(kPorts)) ...
//   return DeclareInsert(op, RunCall<MakeCall, InsertGroupedRows>,
//                        RunCall<MakeCall, InsertGroupedRowsHwy>);
#pragma once

#include <string_view>

#include "absl/status/statusor.h"

#include "pagefuse/ops/kernels/formats/grouped_row.h"
#include "pagefuse/ops/kernels/inserts/grouped_insert.h"
#include "pagefuse/ops/pagefuse/checks.h"
#include "pagefuse/ops/pagefuse/run_call.h"
#include "pagefuse/ops/schema/op_def.h"

namespace pagefuse::pagefuse_ops {

// Input numbers of an insert into one cache. Its rows are input 0.
struct InsertPorts {
  int slot_mapping;
  int cache;
};
template <size_t N>
constexpr InsertPorts InsertPortsOf(const Ports<N>& inputs, std::string_view cache = "kv_cache") {
  return {inputs.Find("slot_mapping"), inputs.Find(cache)};
}

// Tokens a block of a cache [NB, bytes], unless the attribute `block_size` says otherwise.
inline constexpr int64_t kTokensPerBlock = 64;
// The blocks of a cache [NB, BS, ...], or of one [NB, bytes].
absl::StatusOr<PagedBytes> ReadPaged(const KernelArgs& args, int cache);

// A check that slots are below those of the cache (OutOfRange).
OpDef::ValidateFn ValidSlots(const InsertPorts& ports);

// The call of an insert of rows of codes [T, D] in `format`, of checked arguments. Elements that
// are not coded stand behind the coded ones.
absl::StatusOr<GroupedInsert> MakeGroupedInsert(const KernelArgs& args, const InsertPorts& ports,
                                                const GroupedRowFormat& format);

using RunFn = absl::Status (*)(KernelArgs& args);
// Declares the type I of slots, that each output `x_cache_out` is the memory of the input
// `x_cache`, and the kernels.
OpDef& DeclareInsert(OpDef& op, RunFn plain, RunFn vectorised);

}  // namespace pagefuse::pagefuse_ops
