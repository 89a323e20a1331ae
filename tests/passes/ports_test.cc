// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/passes/edit/ports.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"

#include "pagefuse/ops/registry/registry.h"

namespace pagefuse {
namespace {

using Names = std::vector<std::string>;

struct Declared {
  std::string domain, op;
  Names inputs;        // in the order of the enumeration
  int last_input = 0;  // its last enumerator
  Names outputs = {};
  int last_output = -1;
};

const std::vector<Declared>& AllPorts() {
  using namespace ports;  // NOLINT(google-build-using-namespace)
  static const auto& all = *new std::vector<Declared>{
      {"",
       "Attention",
       {"Q", "K", "V", "attn_mask", "past_key", "past_value", "nonpad_kv_seqlen"},
       Attention::kKeyLengths,
       {"Y", "present_key", "present_value", "qk_matmul_output"},
       Attention::kScores},
      {"", "Clip", {"input", "min", "max"}, Clip::kHigh},
      {"",
       "Dropout",
       {"data", "ratio", "training_mode"},
       Dropout::kTraining,
       {"output", "mask"},
       Dropout::kMask},
      {"com.microsoft",
       "GroupQueryAttention",
       {"query", "key", "value", "past_key", "past_value", "seqlens_k", "total_sequence_length",
        "cos_cache", "sin_cache", "position_ids", "attention_bias", "head_sink", "k_scale",
        "v_scale", "q_norm_weight", "k_norm_weight"},
       GroupQueryAttention::kKeyNorm,
       {"output", "present_key", "present_value"},
       GroupQueryAttention::kPresentValue},
      {"pagefuse", "MqaLogits", {"q", "k", "k_scale", "weights", "ks", "ke"}, MqaLogits::kEnd},
      {"pagefuse",
       "PagedMqaLogits",
       {"q", "kv_cache", "weights", "context_lens", "block_tables", "max_model_len",
        "query_start_loc"},
       PagedMqaLogits::kStarts},
      {"", "QuantizeLinear", {"x", "y_scale", "y_zero_point"}, QuantizeLinear::kZeroPoint},
      {"", "DequantizeLinear", {"x", "x_scale", "x_zero_point"}, QuantizeLinear::kZeroPoint},
      {"", "Range", {"start", "limit", "delta"}, Range::kDelta},
      {"",
       "RotaryEmbedding",
       {"X", "cos_cache", "sin_cache", "position_ids"},
       RotaryEmbedding::kPositions},
      {"", "ScatterND", {"data", "indices", "updates"}, ScatterND::kUpdates},
      {"", "Slice", {"data", "starts", "ends", "axes", "steps"}, Slice::kSteps},
      {"", "TensorScatter", {"past_cache", "update", "write_indices"}, TensorScatter::kPlaces},
      {"", "Where", {"condition", "X", "Y"}, Where::kFalse},
  };
  return all;
}

Names NamesOf(const std::vector<Port>& ports) {
  Names names;
  for (const Port& port : ports) names.push_back(port.name);
  return names;
}

TEST(Ports, StandWhereTheDeclarationsHaveThem) {
  for (const Declared& ports : AllPorts()) {
    const OpDef* op = OpRegistry::Global().Find(ports.domain, ports.op, 1000);
    ASSERT_NE(op, nullptr) << ports.op;
    EXPECT_EQ(NamesOf(op->inputs()), ports.inputs) << ports.op;
    EXPECT_EQ(ports.last_input + 1, static_cast<int>(ports.inputs.size())) << ports.op;
    if (ports.outputs.empty()) continue;
    EXPECT_EQ(NamesOf(op->outputs()), ports.outputs) << ports.op;
    EXPECT_EQ(ports.last_output + 1, static_cast<int>(ports.outputs.size())) << ports.op;
  }
}

}  // namespace
}  // namespace pagefuse
