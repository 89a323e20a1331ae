#include "indexer_calls.h"

#include <vector>

namespace pagefuse {
namespace {

// Codes and scales alike are small positive numbers.
constexpr uint8_t kCacheByte = 0x38;

std::vector<int32_t> Same(int64_t count, int64_t value) {
  return std::vector<int32_t>(count, static_cast<int32_t>(value));
}

}  // namespace

std::unique_ptr<OpCall> MqaLogitsCall(int64_t rows, int64_t keys) {
  auto call = std::make_unique<OpCall>("MqaLogits");
  call->Normal(DataType::kFloat8E4M3FN, {rows, kIndexerHeads, kIndexerHeadSize}, 2);
  call->Normal(DataType::kFloat8E4M3FN, {keys, kIndexerHeadSize}, 2);
  call->Floats({keys}, std::vector<float>(keys, 0.01f));
  call->Normal(DataType::kFloat, {rows, kIndexerHeads}, 0.1f);
  call->Ints({rows}, Same(rows, 0));
  call->Ints({rows}, Same(rows, keys));
  return call;
}

namespace {

struct ScoredTokens {
  int64_t sequences, queries, length;
};

// Queries of `type` over keys of `token_bytes` bytes each.
std::unique_ptr<OpCall> PagedScores(const ScoredTokens& tokens, DataType type,
                                    int64_t token_bytes) {
  const auto& [sequences, queries, length] = tokens;
  auto call = std::make_unique<OpCall>("PagedMqaLogits");
  const int64_t columns = length / kIndexerBlockSize;
  call->Normal(type, {sequences, queries, kIndexerHeads, kIndexerHeadSize}, 2);
  call->Bytes({sequences * columns, kIndexerBlockSize, 1, token_bytes}, kCacheByte);
  call->Normal(DataType::kFloat, {sequences * queries, kIndexerHeads}, 0.1f);
  call->Ints({sequences}, Same(sequences, length));
  call->BlockTable(sequences, columns);
  *call->Input<int64_t>(DataType::kInt64, {}) = length;
  return call;
}

}  // namespace

std::unique_ptr<OpCall> PagedMqaLogitsCall(int64_t sequences, int64_t queries, int64_t length) {
  return PagedScores({sequences, queries, length}, DataType::kFloat8E4M3FN, kIndexerTokenBytes);
}

std::unique_ptr<OpCall> PackedMqaLogitsCall(int64_t sequences, int64_t queries, int64_t length) {
  auto call = PagedScores({sequences, queries, length}, DataType::kFloat, kPackedTokenBytes);
  call->Attribute("format", std::string("mxfp4"));
  return call;
}

std::unique_ptr<OpCall> IndexerTopKCall(LogitOrder order, int64_t rows, int64_t columns,
                                        int64_t topk) {
  auto call = std::make_unique<OpCall>("IndexerTopK");
  auto* logits = call->Input<float>(DataType::kFloat, {rows, columns});
  std::normal_distribution<float> normal;
  for (int64_t i = 0; i < rows * columns; ++i) {
    const auto column = static_cast<float>(i % columns);
    const float number = normal(call->random());
    logits[i] = order == LogitOrder::kRandom   ? number
                : order == LogitOrder::kRising ? column
                                               : static_cast<float>(static_cast<int>(number));
  }
  call->Ints({rows}, Same(rows, 0));
  call->Ints({rows}, Same(rows, columns));
  call->Attribute("topk", topk);
  return call;
}

std::unique_ptr<OpCall> IndexerKQuantInsertCall(int64_t tokens) {
  auto call = std::make_unique<OpCall>("IndexerKQuantInsert");
  const int64_t blocks = std::max<int64_t>(2 * tokens / kIndexerBlockSize, 1);
  call->Normal(DataType::kBfloat16, {tokens, kIndexerHeadSize}, 2);
  call->Range(tokens);
  call->Bytes({blocks, kIndexerBlockSize, kIndexerTokenBytes}, kCacheByte);
  return call;
}

std::unique_ptr<OpCall> IndexerKGatherCall(int64_t tokens) {
  auto call = std::make_unique<OpCall>("IndexerKGather");
  const int64_t blocks = (tokens + kIndexerBlockSize - 1) / kIndexerBlockSize;
  call->Bytes({blocks, kIndexerBlockSize, kIndexerTokenBytes}, kCacheByte);
  call->BlockTable(1, blocks);
  call->Ints({2}, {0, static_cast<int32_t>(tokens)});
  return call;
}

std::unique_ptr<OpCall> IndexerQRopeQuantCall(const std::string& format, int64_t tokens) {
  constexpr int64_t kRotated = 64;
  constexpr int64_t kPositions = 4096;
  auto call = std::make_unique<OpCall>("IndexerQRopeQuant");
  call->Range(tokens);
  call->Normal(DataType::kBfloat16, {tokens, kIndexerHeads, kIndexerHeadSize}, 2);
  call->Normal(DataType::kFloat, {kPositions, kRotated}, 0.5f);
  call->Normal(DataType::kBfloat16, {tokens, kIndexerHeads});
  call->Attribute("format", format);
  call->Attribute("softmax_scale", 0.088f);
  call->Attribute("head_scale", 0.125f);
  if (format == "mxfp4") call->set_num_outputs(3);
  return call;
}

}  // namespace pagefuse
