#include "slot_calls.h"

#include <algorithm>
#include <vector>

namespace pagefuse {
namespace {

// Indices of the top rows, a table and what else the ops that turn indices into slots read.
constexpr int64_t kListed = 2048, kSlotBlock = 64, kRequests = 4, kColumns = 512;

std::vector<int32_t> Indices(OpCall& call, int64_t tokens) {
  std::vector<int32_t> indices(tokens * kListed);
  for (int32_t& i : indices) i = static_cast<int32_t>(call.random()() % (kColumns * kSlotBlock));
  return indices;
}

std::vector<int32_t> Requests(int64_t tokens) {
  std::vector<int32_t> requests(tokens);
  for (int64_t t = 0; t < tokens; ++t) requests[t] = static_cast<int32_t>(t * kRequests / tokens);
  return requests;
}

}  // namespace

std::unique_ptr<OpCall> TopKSlotsCall(int64_t tokens) {
  auto call = std::make_unique<OpCall>("TopKSlots");
  call->Ints({tokens, kListed}, Indices(*call, tokens));
  call->Ints({tokens}, Requests(tokens));
  call->BlockTable(kRequests, kColumns);
  std::fill_n(call->Input<bool>(DataType::kBool, {tokens}), tokens, true);
  call->Attribute("block_size", kSlotBlock);
  return call;
}

std::unique_ptr<OpCall> ReqIndexToSlotCall(int64_t tokens) {
  auto call = std::make_unique<OpCall>("ReqIndexToSlot");
  call->Ints({tokens}, Requests(tokens));
  call->BlockTable(kRequests, kColumns);
  call->Ints({tokens, kListed}, Indices(*call, tokens));
  call->Attribute("block_size", kSlotBlock);
  return call;
}

std::unique_ptr<OpCall> CombineTopKWindowCall(int64_t tokens) {
  constexpr int64_t kLength = 8192, kTopK = 512, kWindow = 128, kRatio = 4;
  auto call = std::make_unique<OpCall>("CombineTopKWindow");
  std::vector<int32_t> indices(tokens * kTopK);
  for (int64_t i = 0; i < tokens * kTopK; ++i) indices[i] = static_cast<int32_t>(i % kTopK);
  call->Ints({tokens, kTopK}, indices);
  call->Ints({2}, {0, static_cast<int32_t>(tokens)});
  call->Ints({1}, {static_cast<int32_t>(kLength)});
  call->Ints({1}, {static_cast<int32_t>(tokens + kWindow - 1)});
  *call->Input<int64_t>(DataType::kInt64, {}) = kLength;
  *call->Input<int64_t>(DataType::kInt64, {}) = kLength / kRatio;
  call->Attribute("window_size", kWindow);
  call->Attribute("compress_ratio", kRatio);
  call->Attribute("topk", kTopK);
  return call;
}

}  // namespace pagefuse
