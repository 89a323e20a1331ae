// SPDX-License-Identifier: Apache-2.0
// The lightning indexer at the sizes of DeepSeek V3.2: scores, top-k, quantising ops, and those
// that turn indices into slots.
#include <algorithm>
#include <string>
#include <utility>

#include "op_cases.h"

#include "pagefuse/base/str_cat.h"

namespace pagefuse {
namespace {

using enum DataType;

constexpr int64_t kHeads = 64, kHeadSize = 128, kBlockSize = 64, kTopK = 2048;
constexpr int64_t kTokenBytes = kHeadSize + 4, kPackedTokenBytes = kHeadSize / 2 + kHeadSize / 32;
// Codes and scales alike are small positive numbers.
constexpr uint8_t kCacheByte = 0x38;

Part Same(int64_t count, int64_t value) {
  return Ints({count}, std::vector<int32_t>(count, static_cast<int32_t>(value)));
}

struct ScoredTokens {
  int64_t sequences, queries, length;
};

// Queries of `type` over one layer's keys of `token_bytes` bytes each.
std::unique_ptr<OpCall> PagedScores(const ScoredTokens& tokens, DataType type, int64_t token_bytes,
                                    const char* format) {
  const auto& [sequences, queries, length] = tokens;
  const int64_t columns = length / kBlockSize;
  return CallOf("PagedMqaLogits",
                {Normal(type, {sequences, queries, kHeads, kHeadSize}, 2),
                 Bytes({sequences * columns, kBlockSize, 1, token_bytes}, kCacheByte),
                 Normal(kFloat, {sequences * queries, kHeads}, 0.1f), Same(sequences, length),
                 BlockTable(sequences, columns), Scalar(length), Attr("format", format)});
}

Work ScoreWork(int64_t pairs, int64_t bytes) {
  return {.bytes = bytes, .flops = 2.0 * static_cast<double>(pairs * kHeads * kHeadSize)};
}

std::string Size(int64_t rows, int64_t columns) {
  return std::to_string(rows) + "x" + std::to_string(columns);
}

void AddScores(OpCases& cases) {
  constexpr int64_t kSequences = 8;
  for (const int64_t rows : {64, 512}) {
    for (const int64_t keys : {4096, 32768}) {
      cases.push_back({"MqaLogits", Size(rows, keys),
                       [=](int64_t) { return MqaLogitsCall(rows, keys); },
                       [=](int64_t) { return ScoreWork(rows * keys, 0); }});
      cases.back().kernels = {"tiles", "hwy"};
      cases.back().layers = 1;
    }
  }
  const auto add = [&](const std::string& variant, const ScoredTokens& tokens, bool packed) {
    const int64_t keys = tokens.sequences * tokens.length;
    const int64_t token_bytes = packed ? kPackedTokenBytes : kTokenBytes;
    cases.push_back(
        {"PagedMqaLogits",
         variant + "n" + std::to_string(tokens.queries) + "/" + std::to_string(tokens.length),
         [=](int64_t) {
           return PagedScores(tokens, packed ? kFloat : kFloat8E4M3FN, token_bytes,
                              packed ? "mxfp4" : "fp8");
         },
         [=](int64_t) { return ScoreWork(keys * tokens.queries, keys * token_bytes); }});
    if (!packed) cases.back().kernels = {"tiles", "hwy"};
  };
  for (const int64_t queries : {1, 2}) {
    for (const int64_t length : {4096, 32768}) add("", {kSequences, queries, length}, false);
    add("mxfp4/", {kSequences, queries, 4096}, true);
  }
}

void AddTopK(OpCases& cases) {
  for (const auto& [name, order] : {std::pair{"random", LogitOrder::kRandom},
                                    {"rising", LogitOrder::kRising},
                                    {"few_values", LogitOrder::kFewValues}}) {
    for (const int64_t columns : {4096, 32768, 131072}) {
      for (const int64_t rows : {1, 32}) {
        cases.push_back(
            {"IndexerTopK", StrCat(name, "/", Size(rows, columns)),
             [=, order = order](int64_t) { return IndexerTopKCall(order, rows, columns); },
             [=](int64_t) -> Work { return {.bytes = rows * columns * 4, .rows = rows}; }});
        cases.back().layers = 1;
      }
    }
  }
}

// Into a cache with twice as many slots.
std::unique_ptr<OpCall> KeyInsert(int64_t tokens) {
  const int64_t blocks = std::max<int64_t>(2 * tokens / kBlockSize, 1);
  return CallOf("IndexerKQuantInsert", {Normal(kBfloat16, {tokens, kHeadSize}, 2), Range(tokens),
                                        Bytes({blocks, kBlockSize, kTokenBytes}, kCacheByte)});
}

// All keys of one request.
std::unique_ptr<OpCall> KeyGather(int64_t tokens) {
  const int64_t blocks = (tokens + kBlockSize - 1) / kBlockSize;
  return CallOf("IndexerKGather",
                {Bytes({blocks, kBlockSize, kTokenBytes}, kCacheByte), BlockTable(1, blocks),
                 Ints({2}, {0, static_cast<int32_t>(tokens)})});
}

std::unique_ptr<OpCall> QueryQuantise(const std::string& format, int64_t tokens) {
  return CallOf("IndexerQRopeQuant",
                {Range(tokens), Normal(kBfloat16, {tokens, kHeads, kHeadSize}, 2),
                 Normal(kFloat, {4096, 64}, 0.5f), Normal(kBfloat16, {tokens, kHeads}),
                 Attr("format", format), Attr("softmax_scale", 0.088f), Attr("head_scale", 0.125f),
                 Outputs(format == "mxfp4" ? 3 : 2)});
}

// Indices of top rows of four requests, and the table of their blocks.
constexpr int64_t kRequests = 4, kColumns = 512;

Part Requests(int64_t tokens) {
  std::vector<int32_t> requests(tokens);
  for (int64_t t = 0; t < tokens; ++t) requests[t] = static_cast<int32_t>(t * kRequests / tokens);
  return Ints({tokens}, requests);
}

std::unique_ptr<OpCall> TopKSlots(int64_t tokens) {
  return CallOf("TopKSlots", {Uniform(kInt32, {tokens, kTopK}, 0, kColumns * kBlockSize),
                              Requests(tokens), BlockTable(kRequests, kColumns),
                              [=](OpCall& call) {
                                std::fill_n(call.Input<bool>(kBool, {tokens}), tokens, true);
                              },
                              Attr("block_size", kBlockSize)});
}

std::unique_ptr<OpCall> ReqIndexToSlot(int64_t tokens) {
  return CallOf("ReqIndexToSlot", {Requests(tokens), BlockTable(kRequests, kColumns),
                                   Uniform(kInt32, {tokens, kTopK}, 0, kColumns * kBlockSize),
                                   Attr("block_size", kBlockSize)});
}

// One request whose last `tokens` tokens are new, with a compressed row for four tokens.
std::unique_ptr<OpCall> CombineTopKWindow(int64_t tokens) {
  constexpr int64_t kLength = 8192, kChosen = 512, kWindow = 128, kRatio = 4;
  std::vector<int32_t> indices(tokens * kChosen);
  for (int64_t i = 0; i < tokens * kChosen; ++i) indices[i] = static_cast<int32_t>(i % kChosen);
  return CallOf(
      "CombineTopKWindow",
      {Ints({tokens, kChosen}, indices), Ints({2}, {0, static_cast<int32_t>(tokens)}),
       Same(1, kLength), Same(1, tokens + kWindow - 1), Scalar(kLength), Scalar(kLength / kRatio),
       Attr("window_size", kWindow), Attr("compress_ratio", kRatio), Attr("topk", kChosen)});
}

void AddCopies(OpCases& cases) {
  const auto add = [&](const char* op, const char* variant, auto make, auto bytes) {
    cases.push_back({op, variant, make,
                     [=](int64_t tokens) -> Work { return {.bytes = bytes(tokens)}; },
                     kCopiedTokens});
  };
  add("IndexerKQuantInsert", "", KeyInsert,
      [](int64_t tokens) { return tokens * (2 * kHeadSize + kTokenBytes); });
  add("IndexerKGather", "", KeyGather, [](int64_t tokens) { return tokens * 2 * kTokenBytes; });
  cases.back().peer_tokens = 4096;
  for (const char* format : {"fp8", "mxfp4"}) {
    const auto make = [=](int64_t tokens) { return QueryQuantise(format, tokens); };
    add("IndexerQRopeQuant", format, make, [=](int64_t tokens) {
      return tokens * kHeads * 2 * kHeadSize + make(tokens)->output_bytes(0);
    });
  }
  const auto all_tensors = [&](const char* op, auto make) {
    add(op, "", make, [=](int64_t tokens) { return make(tokens)->TensorBytes(); });
  };
  all_tensors("TopKSlots", TopKSlots);
  all_tensors("ReqIndexToSlot", ReqIndexToSlot);
  all_tensors("CombineTopKWindow", CombineTopKWindow);
}

}  // namespace

std::unique_ptr<OpCall> MqaLogitsCall(int64_t rows, int64_t keys) {
  return CallOf(
      "MqaLogits",
      {Normal(kFloat8E4M3FN, {rows, kHeads, kHeadSize}, 2),
       Normal(kFloat8E4M3FN, {keys, kHeadSize}, 2), Floats({keys}, std::vector<float>(keys, 0.01f)),
       Normal(kFloat, {rows, kHeads}, 0.1f), Same(rows, 0), Same(rows, keys)});
}

std::unique_ptr<OpCall> PagedMqaLogitsCall(int64_t sequences, int64_t queries, int64_t length) {
  return PagedScores({sequences, queries, length}, kFloat8E4M3FN, kTokenBytes, "fp8");
}

std::unique_ptr<OpCall> IndexerTopKCall(LogitOrder order, int64_t rows, int64_t columns) {
  const auto logits = [=](OpCall& call) {
    auto* data = call.Input<float>(kFloat, {rows, columns});
    std::normal_distribution<float> normal;
    for (int64_t i = 0; i < rows * columns; ++i) {
      const float number = normal(call.random());
      data[i] = order == LogitOrder::kRandom   ? number
                : order == LogitOrder::kRising ? static_cast<float>(i % columns)
                                               : static_cast<float>(static_cast<int>(number));
    }
  };
  return CallOf("IndexerTopK", {logits, Same(rows, 0), Same(rows, columns), Attr("topk", kTopK)});
}

void AddIndexerCases(OpCases& cases) {
  AddScores(cases);
  AddTopK(cases);
  AddCopies(cases);
}

}  // namespace pagefuse
