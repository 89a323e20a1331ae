// Calls of the ops that turn indices of sparse attention into slots, for benchmarks.
#pragma once

#include <cstdint>
#include <memory>

#include "op_call.h"

namespace pagefuse {

// 2048 indices a token, of four requests.
std::unique_ptr<OpCall> TopKSlotsCall(int64_t tokens);
std::unique_ptr<OpCall> ReqIndexToSlotCall(int64_t tokens);

// One request whose last `tokens` tokens are new, with a compressed row for four tokens.
std::unique_ptr<OpCall> CombineTopKWindowCall(int64_t tokens);

}  // namespace pagefuse
