// EmbedLayerNormalization: rows of tables for token, position and segment, added and normed.
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "pagefuse/base/parallel.h"
#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/kernels/rows/elementwise_hwy.h"
#include "pagefuse/ops/kernels/rows/rows_hwy.h"
#include "pagefuse/ops/microsoft/tensor_values.h"
#include "pagefuse/ops/onnx/element.h"
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

// A table and the row of it that each token takes.
struct Lookup {
  FloatValues table;
  const int32_t* ids = nullptr;  // null: the place in the sequence
  int64_t count = 0;             // of ids, repeated
};

struct Call {
  std::vector<Lookup> lookups;
  FloatValues gamma, beta;
  float epsilon = 0;
  int64_t tokens = 0, length = 0, width = 0;

  const float* Row(const Lookup& lookup, int64_t token) const {
    const int64_t row = lookup.ids == nullptr ? token % length : lookup.ids[token % lookup.count];
    return lookup.table.data() + row * width;
  }
};

absl::Status AddLookup(const KernelArgs& args, int table, int ids, Call& call) {
  Lookup lookup;
  PF_ASSIGN_OR_RETURN(lookup.table, FloatValues::Of(args.input(table)));
  if (args.input(ids).present()) {
    lookup.ids = args.input(ids).as<int32_t>();
    lookup.count = args.input(ids).size();
  }
  call.lookups.push_back(std::move(lookup));
  return absl::OkStatus();
}

absl::StatusOr<Call> CallOf(const KernelArgs& args) {
  Call call;
  const TensorArg& ids = args.input(kIn["input_ids"]);
  call.tokens = ids.size();
  call.length = ids.dims[1];
  call.width = args.input(kIn["gamma"]).size();
  PF_ASSIGN_OR_RETURN(call.epsilon, args.node->FloatAttribute("epsilon", 1e-12f));
  PF_RETURN_IF_ERROR(AddLookup(args, kIn["word_embedding"], kIn["input_ids"], call));
  PF_RETURN_IF_ERROR(AddLookup(args, kIn["position_embedding"], kIn["position_ids"], call));
  if (args.input(kIn["segment_embedding"]).present()) {
    PF_RETURN_IF_ERROR(AddLookup(args, kIn["segment_embedding"], kIn["segment_ids"], call));
  }
  PF_ASSIGN_OR_RETURN(call.gamma, FloatValues::Of(args.input(kIn["gamma"])));
  PF_ASSIGN_OR_RETURN(call.beta, FloatValues::Of(args.input(kIn["beta"])));
  return call;
}

void CountMask(const KernelArgs& args) {
  const TensorArg& counts = args.output(kOut["mask_index"]);
  const TensorArg& mask = args.input(kIn["mask"]);
  if (!counts.present()) return;
  for (int64_t b = 0; b < counts.size(); ++b) {
    int32_t count = 0;
    for (int64_t s = 0; mask.present() && s < mask.dims[1]; ++s) {
      count += mask.as<int32_t>()[b * mask.dims[1] + s] == 1 ? 1 : 0;
    }
    counts.as<int32_t>()[b] = count;
  }
}

// The formula, in double.
absl::Status Reference(KernelArgs& args) {
  PF_ASSIGN_OR_RETURN(const Call call, CallOf(args));
  CountMask(args);
  const auto n = static_cast<size_t>(call.width);
  std::vector<double> sum(n), y(n);
  for (int64_t token = 0; token < call.tokens; ++token) {
    std::fill(sum.begin(), sum.end(), 0.0);
    for (const Lookup& lookup : call.lookups) {
      const float* row = call.Row(lookup, token);
      for (size_t i = 0; i < n; ++i) sum[i] += row[i];
    }
    double mean = 0, squares = 0;
    for (double value : sum) mean += value / static_cast<double>(n);
    for (double value : sum) squares += (value - mean) * (value - mean);
    const double inverse = 1.0 / std::sqrt(squares / static_cast<double>(n) + call.epsilon);
    for (size_t i = 0; i < n; ++i) {
      y[i] = (sum[i] - mean) * inverse * call.gamma.data()[i] + call.beta.data()[i];
    }
    PF_RETURN_IF_ERROR(onnx_ops::EncodeDoubles(y, args.output(0), token * call.width));
    const TensorArg& sums = args.output(kOut["embedding_sum"]);
    if (sums.present()) {
      PF_RETURN_IF_ERROR(onnx_ops::EncodeDoubles(sum, sums, token * call.width));
    }
  }
  return absl::OkStatus();
}

// One row; the sum of rows of tables goes to `sum`.
void EmbedRow(const Call& call, int64_t token, float* sum, float* y) {
  const int64_t n = call.width;
  onnx_ops::AddRow({call.Row(call.lookups[0], token), 1, call.Row(call.lookups[1], token), 1}, sum,
                   n);
  if (call.lookups.size() > 2) {
    onnx_ops::AddRow({sum, 1, call.Row(call.lookups[2], token), 1}, sum, n);
  }
  const float mean = onnx_ops::SumOfRow(sum, n) / static_cast<float>(n);
  onnx_ops::SubRow({sum, 1, &mean, 0}, y, n);
  const float square = onnx_ops::SumOfSquaresOfRow(y, n) / static_cast<float>(n);
  onnx_ops::ScaleRow(y, 1.0f / std::sqrt(square + call.epsilon), call.gamma.data(), y, n);
  onnx_ops::AddRow({y, 1, call.beta.data(), 1}, y, n);
}

absl::Status Vectors(KernelArgs& args) {
  PF_ASSIGN_OR_RETURN(const Call call, CallOf(args));
  CountMask(args);
  const TensorArg& sums = args.output(kOut["embedding_sum"]);
  ParallelFor(call.tokens, call.width * 16, [&](int64_t begin, int64_t end) {
    std::vector<float> spare(sums.present() ? 0 : static_cast<size_t>(call.width));
    for (int64_t token = begin; token < end; ++token) {
      float* sum = sums.present() ? sums.as<float>() + token * call.width : spare.data();
      EmbedRow(call, token, sum, args.output(0).as<float>() + token * call.width);
    }
  });
  return absl::OkStatus();
}

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

absl::StatusOr<DecompositionVariant> Decompose(const Node& node) {
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
  return DecompositionVariant{"written", StrCat(text, "}"), {}};
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
      .Decomposition(Decompose)
      .AddKernel({.name = "reference", .run = Reference})
      .AddKernel({.name = "hwy", .dtypes = {DataType::kFloat}, .priority = 10, .run = Vectors});
}

}  // namespace pagefuse::microsoft_ops
