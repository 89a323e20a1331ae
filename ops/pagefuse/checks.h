// SPDX-License-Identifier: Apache-2.0
// Checks of input values that the cache ops share, and what they read from their arguments.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "pagefuse/ops/kernels/formats/grouped_row.h"
#include "pagefuse/ops/kernels/inserts/slot_writes.h"
#include "pagefuse/ops/kernels/numeric/index_array.h"
#include "pagefuse/ops/schema/kernel.h"
#include "pagefuse/ops/schema/shape_context.h"

namespace pagefuse::pagefuse_ops {

// InvalidArgument `node "x" (Op): input 5 "k_scale": <what>`, with the op's name for the input.
absl::Status InputValueError(const KernelArgs& args, int input, std::string_view what);
// The same message as OutOfRange.
absl::Status InputRangeError(const KernelArgs& args, int input, std::string_view what);

// The one integer that an input holds, as a size of shapes; unknown where its contents are not
// known. InvalidArgument unless it is from 0 to `most`.
absl::StatusOr<Dim> HeldSize(const ShapeContext& c, int input, int64_t most);

// The contents of an index tensor (int32 or int64); none where it is omitted.
IndexArray IndicesOf(const TensorArg& tensor);
inline int64_t IndexAt(const TensorArg& tensor, int64_t i) { return IndicesOf(tensor)[i]; }

// Whether there are contents to look at: those that a device has are not known to the host.
inline bool IsKnown(const TensorArg& tensor) { return tensor.data != nullptr; }

// Every entry of a float input must be finite and positive; an omitted one passes, and what a device has.
absl::Status CheckScale(const KernelArgs& args, int input);

// The slot of token t must be below num_blocks * block_size (OutOfRange); a negative one is padding.
absl::Status CheckSlot(const KernelArgs& args, int slot_mapping, int64_t t,
                       const PagedBytes& paged);
// So must those of all tokens.
absl::Status CheckSlots(const KernelArgs& args, int slot_mapping, const PagedBytes& paged);

// Every entry must be in [0, limit); `what` names them in the message ("positions").
absl::Status CheckIndices(const KernelArgs& args, int input, int64_t limit, std::string_view what);

// The tokens whose slot is not negative. Of several with the same slot the last stays alone, so
// that they can be written in any order.
std::vector<SlotWrite> SlotWrites(const TensorArg& slot_mapping);

}  // namespace pagefuse::pagefuse_ops
