// SPDX-License-Identifier: Apache-2.0
// EmbedLayerNormalization: rows of tables for token, position and segment, added and normed.
#include <cstdint>
#include <string>
#include <string_view>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/microsoft/tensor_values.h"
#include "pagefuse/ops/schema/op_def.h"

namespace pagefuse::microsoft_ops {
namespace {

constexpr Ports kIn({
    {"input_ids", "int32", "[B, S]"},
    PortSpec("segment_ids", "int32", "[B, S]").Optional(),
    {"word_embedding", "T", "[V, N]"},
    {"position_embedding", "T", "[L, N]"},
    PortSpec("segment_embedding", "T", "[G, N]").Optional(),
    {"gamma", "T", "[N]"},
    {"beta", "T", "[N]"},
    PortSpec("mask", "int32", "[B, S]").Optional(),
    PortSpec("position_ids", "int32", "[B, S] or [1, S]").Optional(),
});
constexpr Ports kOut({
    {"output", "T", "[B, S, N]"},
    PortSpec("mask_index", "int32", "[B]: ones of the mask, 0 without one").Optional(),
    PortSpec("embedding_sum", "T", "[B, S, N]").Optional(),
});

absl::Status Infer(ShapeContext& c) {
  const bool segments = c.has_input(kIn["segment_ids"]);
  if (segments != c.has_input(kIn["segment_embedding"])) {
    return c.Error("segment_ids and segment_embedding come together");
  }
  return absl::OkStatus();
}

absl::Status CheckIds(const KernelArgs& args, int ids, int table, std::string_view name) {
  const TensorArg& given = args.input(ids);
  if (!given.present()) return absl::OkStatus();
  const int64_t rows = args.input(table).dims[0];
  for (int64_t i = 0; i < given.size(); ++i) {
    const int64_t id = given.as<int32_t>()[i];
    if (id >= 0 && id < rows) continue;
    return ValueError(args, StrCat("input ", ids, " \"", name, "\""),
                      StrCat("index ", id, " is out of range [0, ", rows, ")"));
  }
  return absl::OkStatus();
}

absl::Status Validate(const KernelArgs& args) {
  PF_RETURN_IF_ERROR(CheckIds(args, kIn["input_ids"], kIn["word_embedding"], "input_ids"));
  PF_RETURN_IF_ERROR(CheckIds(args, kIn["segment_ids"], kIn["segment_embedding"], "segment_ids"));
  PF_RETURN_IF_ERROR(
      CheckIds(args, kIn["position_ids"], kIn["position_embedding"], "position_ids"));
  const int64_t length = args.input(kIn["input_ids"]).dims[1];
  const int64_t places = args.input(kIn["position_embedding"]).dims[0];
  if (args.input(kIn["position_ids"]).present() || length <= places) return absl::OkStatus();
  return ValueError(args, "input 3 \"position_embedding\"",
                    StrCat("expected a row for each of ", length, " places, got ", places));
}

absl::StatusOr<std::string> Decompose(const Node& node) {
  const auto has = [&](std::string_view port, int i) {
    return node.input(i) != nullptr ? StrCat(", ", port) : std::string();
  };
  const std::string segments = has("segment_ids", kIn["segment_ids"]);
  const std::string mask = has("mask", kIn["mask"]);
  const std::string positions = has("position_ids", kIn["position_ids"]);
  const auto wants = [&](int i) { return i < node.num_outputs() && node.output(i) != nullptr; };
  std::string text =
      StrCat("EmbedLayerNormalization (input_ids", segments, ", word_embedding, position_embedding",
             has("segment_embedding", kIn["segment_embedding"]), ", gamma, beta", mask, positions,
             ") => (output", wants(kOut["mask_index"]) ? ", mask_index" : "",
             wants(kOut["embedding_sum"]) ? ", embedding_sum" : "", ") {\n",
             "  words = Gather (word_embedding, input_ids)\n");
  if (positions.empty()) {
    StrAppend(&text,
              "  size = Shape <start = 1, end = 2> (input_ids)\n"
              "  scalar = Constant <value_ints: ints = [0]> ()\n  length = Squeeze (size, scalar)\n"
              "  zero = Constant <value_int = 0> ()\n  one = Constant <value_int = 1> ()\n"
              "  position_ids = Range (zero, length, one)\n");
  }
  StrAppend(&text, "  places = Gather (position_embedding, position_ids)\n",
            segments.empty() ? "  embedding_sum = Add (words, places)\n"
                             : "  kinds = Gather (segment_embedding, segment_ids)\n"
                               "  placed = Add (words, places)\n"
                               "  embedding_sum = Add (placed, kinds)\n",
            "  output = LayerNormalization <axis = -1, epsilon = @epsilon> (embedding_sum, gamma, "
            "beta)\n");
  if (wants(kOut["mask_index"])) {
    StrAppend(&text, mask.empty()
                         ? "  batch = Shape <start = 0, end = 1> (input_ids)\n"
                           "  nothing = Constant <value = int32 {0}> ()\n"
                           "  mask_index = Expand (nothing, batch)\n"
                         : "  set = Constant <value = int32 {1}> ()\n"
                           "  is_set = Equal (mask, set)\n  ones = Cast <to = 6> (is_set)\n"
                           "  keys = Constant <value_ints: ints = [1]> ()\n"
                           "  mask_index = ReduceSum <keepdims = 0> (ones, keys)\n");
  }
  return StrCat(text, "}");
}

}  // namespace

OpDef EmbedLayerNormalizationDef() {
  return OpDef("com.microsoft", "EmbedLayerNormalization", /*since=*/1)
      .Doc(
          "s = word_embedding[input_ids] + position_embedding[position_ids] + "
          "segment_embedding[segment_ids]; (s - mean(s)) / sqrt(variance(s) + epsilon) * gamma + "
          "beta. Without position_ids, places in the sequence count from 0.")
      .Inputs(kIn)
      .Outputs(kOut)
      .Attr("epsilon", 1e-12f, "added to the variance")
      .Attr("mask_index_type", int64_t{0}, "not read: mask_index is given where it is an output")
      .Types("T", {DataType::kFloat, DataType::kFloat16, DataType::kBfloat16})
      .InferShapes(Infer)
      .Validate(Validate)
      .Decomposition(Decompose);
}

}  // namespace pagefuse::microsoft_ops
