// SPDX-License-Identifier: Apache-2.0
// Decoders of one layer with the attention ops of com.microsoft, in the combinations of inputs and
// attributes in which ONNX Runtime GenAI's builder and ONNX Runtime's tools write them: each is
// paged and gives the tokens that it gives as it is.
#include <random>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/models/model_data.h"

#include "pagefuse/base/str_cat.h"
#include "pagefuse/ir/text/text.h"
#include "pagefuse/runtime/engine.h"
#include "pagefuse/runtime/plain_decoder.h"

namespace pagefuse {
namespace {

// Four heads of eight channels over two heads of keys and values.
constexpr int64_t kWidth = 32, kKvWidth = 16, kPositions = 48;

// One way in which the op is called.
struct Call {
  const char* name;
  const char* attributes = "";
  bool packed = false;     // keys and values beside queries in one tensor
  bool positions = false;  // an input `position_ids`
  bool norm = false;
  bool sink = false;
  const char* cache = "float";  // the caches' type
  int64_t stored = 8;           // their last dim
  int64_t scales = 0;           // of keys, and of values: 1, or one a channel
  int64_t capacity = 0;         // rows of caches that do not grow
  int64_t rotated = 0;          // channels
  const char* bias = "";        // lines that make `bias`, which is added to the scores
};
void PrintTo(const Call& call, std::ostream* out) { *out << call.name; }

// Random weights as text of initialisers.
class WeightText {
 public:
  std::string Of(const std::string& name, const std::vector<int64_t>& dims, float scale = 0.3f) {
    int64_t count = 1;
    for (const int64_t dim : dims) count *= dim;
    std::normal_distribution<float> normal(0, scale);
    return List(name, dims, count, [&](int64_t) { return normal(random_); });
  }
  std::string Positive(const std::string& name, const std::vector<int64_t>& dims, float least) {
    int64_t count = 1;
    for (const int64_t dim : dims) count *= dim;
    std::uniform_real_distribution<float> uniform(least, 2 * least);
    return List(name, dims, count, [&](int64_t) { return uniform(random_); });
  }
  // Cosines or sines of positions times falling frequencies.
  static std::string Angles(const std::string& name, int64_t half, bool cosine) {
    return List(name, {kPositions, half}, kPositions * half, [&](int64_t i) {
      const float angle =
          static_cast<float>(i / half) / std::pow(10.0f, static_cast<float>(i % half));
      return cosine ? std::cos(angle) : std::sin(angle);
    });
  }

 private:
  template <typename Fn>
  static std::string List(const std::string& name, const std::vector<int64_t>& dims, int64_t count,
                          Fn fn) {
    std::string text = StrCat("float[", absl::StrJoin(dims, ", "), "] ", name, " = {");
    for (int64_t i = 0; i < count; ++i) {
      absl::StrAppendFormat(&text, "%s%.4f", i == 0 ? "" : ", ", fn(i));
    }
    return text + "}";
  }

  std::mt19937 random_{7};
};

std::string Weights(const Call& call) {
  WeightText write;
  std::vector<std::string> all = {write.Of("table", {24, kWidth}, 1.0f),
                                  write.Of("wq", {kWidth, kWidth}),
                                  write.Of("wk", {kWidth, kKvWidth}),
                                  write.Of("wv", {kWidth, kKvWidth}),
                                  write.Of("head", {kWidth, 24}),
                                  "int64 one = {1}",
                                  "int64[1] last = {1}"};
  if (call.norm) {
    all.push_back(write.Positive("q_norm", {8}, 0.5f));
    all.push_back(write.Positive("k_norm", {8}, 0.5f));
  }
  if (call.sink) all.push_back(write.Of("sink", {4}, 1.0f));
  if (call.scales > 0) {
    const bool channels = call.scales > 1;
    const std::vector<int64_t> dims =
        channels ? std::vector<int64_t>{2, 1, 8} : std::vector<int64_t>{1};
    const float least = call.stored < 8 ? 0.2f : 0.02f;
    all.push_back(write.Positive("k_scale", dims, least));
    all.push_back(write.Positive("v_scale", dims, least));
  }
  if (call.rotated > 0) {
    all.push_back(write.Angles("cos", call.rotated / 2, true));
    all.push_back(write.Angles("sin", call.rotated / 2, false));
  }
  return absl::StrJoin(all, ", ");
}

std::string Projections(const Call& call) {
  std::string text = "  q = MatMul (x, wq)\n  k = MatMul (x, wk)\n  v = MatMul (x, wv)\n";
  if (call.packed) text += "  qkv = Concat <axis = -1> (q, k, v)\n";
  return text;
}

// What the op is given behind its lengths.
std::string OtherInputs(const Call& call) {
  const auto or_none = [](bool there, const char* name) { return there ? name : "\"\""; };
  return absl::StrJoin({or_none(call.rotated > 0, "cos"), or_none(call.rotated > 0, "sin"),
                        or_none(call.positions, "position_ids"), or_none(*call.bias, "bias"),
                        or_none(call.sink, "sink"), or_none(call.scales > 0, "k_scale"),
                        or_none(call.scales > 0, "v_scale"), or_none(call.norm, "q_norm"),
                        or_none(call.norm, "k_norm")},
                       ", ");
}

// Places of keys, places of queries as a column, what is seen of the mask by every query.
constexpr char kPlaceLines[] = R"(
  zero = Constant <value_int = 0> ()
  ids_shape = Shape (input_ids)
  fresh = Gather <axis = 0> (ids_shape, one)
  old = Sub (columns, fresh)
  key_places = Range (zero, columns, one)
  own_places = Range (old, columns, one)
  place_column = Unsqueeze (own_places, last)
  axes = Constant <value_ints = [0, 1]> ()
  inner = Constant <value_ints = [1, 2]> ()
  seen_4d = Unsqueeze (attention_mask, inner)
  seen_bool = Cast <to = 9> (seen_4d)
  nothing = Constant <value_float = 0.0> ()
  lowest = Constant <value_float = -3.4028235e38> ()
)";
constexpr char kCausalBias[] = R"(
  visible = LessOrEqual (key_places, place_column)
  visible_4d = Unsqueeze (visible, axes)
  bias = Where (visible_4d, nothing, lowest)
)";
constexpr char kPaddingBias[] = R"(
  row_shape = Shape (place_column)
  bias_row = Where (seen_bool, nothing, lowest)
  front = Constant <value_ints = [1, 1]> ()
  wide = Concat <axis = 0> (front, row_shape)
  bias = Expand (bias_row, wide)
)";
constexpr char kWindowBias[] = R"(
  visible = LessOrEqual (key_places, place_column)
  reach = Constant <value_int = 4> ()
  least = Sub (place_column, reach)
  near = Greater (key_places, least)
  in_window = And (visible, near)
  window_4d = Unsqueeze (in_window, axes)
  both = And (window_4d, seen_bool)
  bias = Where (both, nothing, lowest)
)";

// GroupQueryAttention over a past and a mask, as the builder writes it.
std::string GroupedText(const Call& call) {
  const std::string rows = call.capacity > 0 ? StrCat(call.capacity) : "past";
  const std::string kept = call.capacity > 0 ? StrCat(call.capacity) : "total";
  const auto cache = [&](const std::string& length, const char* name) {
    return StrCat(call.cache, "[batch, 2, ", length, ", ", call.stored, "] ", name);
  };
  return StrCat(
      "<ir_version: 10, opset_import: [\"\" : 21, \"com.microsoft\" : 1]>\n",
      "g (int64[batch, seq] input_ids, int64[batch, total] attention_mask, ",
      call.positions ? "int64[batch, seq] position_ids, " : "", cache(rows, "past_key"), ", ",
      cache(rows, "past_value"), ") => (float[batch, seq, 24] logits, ", cache(kept, "present_key"),
      ", ", cache(kept, "present_value"), ")\n<", Weights(call), "> {\n",
      "  x = Gather (table, input_ids)\n", Projections(call),
      "  seen = ReduceSum <keepdims = 0> (attention_mask, last)\n  less = Sub (seen, one)\n"
      "  lengths = Cast <to = 6> (less)\n  sizes = Shape (attention_mask)\n"
      "  columns = Gather <axis = 0> (sizes, one)\n  longest = Cast <to = 6> (columns)\n",
      *call.bias ? kPlaceLines : "", call.bias,
      "  y, present_key, present_value = com.microsoft.GroupQueryAttention <num_heads = "
      "4, kv_num_heads = 2",
      call.attributes, "> (", call.packed ? "qkv, \"\", \"\"" : "q, k, v",
      ", past_key, past_value, lengths, longest, ", OtherInputs(call),
      ")\n  logits = MatMul (y, head)\n}");
}

std::vector<Request> Prompts() {
  return {{.prompt = {1, 2, 3, 4, 5, 6, 7, 8, 9}, .max_new_tokens = 12},
          {.prompt = {17}, .max_new_tokens = 12},
          {.prompt = {15, 0, 3}, .max_new_tokens = 12}};
}

using Tokens = std::vector<std::vector<int64_t>>;

Tokens TokensOf(const std::vector<Completion>& completions) {
  Tokens tokens;
  for (const Completion& completion : completions) tokens.push_back(completion.tokens);
  return tokens;
}

Tokens PlainTokens(const std::string& text) {
  auto model = ParseModel(text);
  EXPECT_TRUE(model.ok()) << model.status();
  if (!model.ok()) return {};
  EngineOptions options;
  options.session.optimise = false;
  const auto decoder = PlainDecoder::Create(*std::move(model), options);
  EXPECT_TRUE(decoder.ok()) << decoder.status();
  if (!decoder.ok()) return {};
  const auto completions = (*decoder)->Generate(Prompts());
  EXPECT_TRUE(completions.ok()) << completions.status();
  return completions.ok() ? TokensOf(*completions) : Tokens();
}

Tokens PagedTokens(const std::string& text) {
  auto model = ParseModel(text);
  EXPECT_TRUE(model.ok()) << model.status();
  if (!model.ok()) return {};
  EngineOptions options;
  options.block_size = 4;
  const auto engine = Engine::Create(*std::move(model), options);
  EXPECT_TRUE(engine.ok()) << engine.status();
  if (!engine.ok()) return {};
  EXPECT_EQ(CountFused((*engine)->session().model(), "PagedAttention"), 1);
  const auto completions = (*engine)->Generate(Prompts());
  EXPECT_TRUE(completions.ok()) << completions.status();
  return completions.ok() ? TokensOf(*completions) : Tokens();
}

constexpr Call kCalls[] = {
    {"Plain"},
    {"OneTensor", "", /*packed=*/true},
    {"OtherScale", ", scale = 0.25"},
    {.name = "Rotated", .attributes = ", do_rotary = 1", .rotated = 8},
    {.name = "RotatedByPositions",
     .attributes = ", do_rotary = 1",
     .positions = true,
     .rotated = 8},
    {.name = "RotatedPairs",
     .attributes = ", do_rotary = 1, rotary_interleaved = 1",
     .packed = true,
     .rotated = 8},
    {.name = "RotatedInPart", .attributes = ", do_rotary = 1", .rotated = 4},
    {.name = "Window", .attributes = ", local_window_size = 4"},
    {.name = "SoftCap", .attributes = ", softcap = 3.0"},
    {.name = "Sink", .sink = true},
    {.name = "SmoothSoftmax", .attributes = ", smooth_softmax = 1"},
    {.name = "Norms", .norm = true},
    {.name = "NormsRotationWindowAndCap",
     .attributes = ", do_rotary = 1, local_window_size = 5, softcap = 4.0, scale = 0.3",
     .norm = true,
     .rotated = 8},
    {.name = "RotationWindowAndSink",
     .attributes = ", do_rotary = 1, local_window_size = 5",
     .packed = true,
     .sink = true,
     .rotated = 8},
    {.name = "Int8",
     .attributes = ", k_quant_type = \"PER_TENSOR\", v_quant_type = \"PER_TENSOR\", "
                   "kv_cache_bit_width = 8",
     .cache = "int8",
     .scales = 1},
    {.name = "Int8ByChannel",
     .attributes = ", k_quant_type = \"PER_CHANNEL\", v_quant_type = \"PER_CHANNEL\", "
                   "kv_cache_bit_width = 8, do_rotary = 1",
     .cache = "int8",
     .scales = 16,
     .rotated = 8},
    {.name = "Int4",
     .attributes = ", k_quant_type = \"PER_TENSOR\", v_quant_type = \"PER_TENSOR\", "
                   "kv_cache_bit_width = 4",
     .cache = "uint8",
     .stored = 4,
     .scales = 1},
    {.name = "Int4ByChannel",
     .attributes = ", k_quant_type = \"PER_CHANNEL\", v_quant_type = \"PER_CHANNEL\", "
                   "kv_cache_bit_width = 4, do_rotary = 1, local_window_size = 6",
     .cache = "uint8",
     .stored = 4,
     .scales = 16,
     .rotated = 8},
    {.name = "Fp8",
     .attributes = ", k_quant_type = \"PER_TENSOR\", v_quant_type = \"PER_TENSOR\", "
                   "kv_cache_bit_width = 8",
     .cache = "float8e4m3fn",
     .scales = 1},
    {.name = "RingOfTheWindow",
     .attributes = ", local_window_size = 4, sliding_window_cache = 1, do_rotary = 1",
     .capacity = 4,
     .rotated = 8},
    {.name = "RingBeyondTheWindow",
     .attributes = ", local_window_size = 4, sliding_window_cache = 1, do_rotary = 1",
     .sink = true,
     .capacity = 7,
     .rotated = 8},
    {.name = "CacheThatDoesNotGrow",
     .attributes = ", do_rotary = 1",
     .positions = true,
     .capacity = 40,
     .rotated = 8},
    {.name = "CausalBias", .bias = kCausalBias},
    {.name = "PaddingBias", .attributes = ", do_rotary = 1", .rotated = 8, .bias = kPaddingBias},
    {.name = "WindowAndPaddingBias",
     .attributes = ", do_rotary = 1",
     .sink = true,
     .rotated = 8,
     .bias = kWindowBias},
    {.name = "WindowBiasUnderAWindow",
     .attributes = ", local_window_size = 6",
     .packed = true,
     .bias = kWindowBias},
};

class GroupedDecoder : public testing::TestWithParam<Call> {};

TEST_P(GroupedDecoder, GivesItsTokensWithPages) {
  EXPECT_EQ(PagedTokens(GroupedText(GetParam())), PlainTokens(GroupedText(GetParam())));
}

INSTANTIATE_TEST_SUITE_P(Calls, GroupedDecoder, testing::ValuesIn(kCalls),
                         [](const auto& info) { return info.param.name; });

std::string RefusalToPage(const std::string& text) {
  auto model = ParseModel(text);
  EXPECT_TRUE(model.ok()) << model.status();
  return std::string(Engine::Create(*std::move(model), {}).status().message());
}

TEST(GroupedDecoderTest, RunsAsItIsUnderABiasThatIsNoMask) {
  const std::string text = GroupedText({.name = "Slopes", .bias = R"(
  distance = Sub (key_places, place_column)
  distance_4d = Unsqueeze (distance, axes)
  distance_float = Cast <to = 1> (distance_4d)
  slope = Constant <value_float = 0.25> ()
  bias = Mul (distance_float, slope)
)"});
  EXPECT_THAT(
      RefusalToPage(text),
      testing::HasSubstr("attention_bias \"bias\": expected a mask of padding and distance, "
                         "got a bias on scores"));
  EXPECT_EQ(PlainTokens(text).size(), Prompts().size());
}

TEST(GroupedDecoderTest, NamesTheKeysThatABiasHidesOtherwise) {
  const std::string text = GroupedText({.name = "Strict", .bias = R"(
  visible = Less (key_places, place_column)
  visible_4d = Unsqueeze (visible, axes)
  bias = Where (visible_4d, nothing, lowest)
)"});
  EXPECT_THAT(RefusalToPage(text),
              testing::HasSubstr("attention_bias \"bias\": expected keys up to i + "));
}

// PagedAttention of com.microsoft over packed tokens, in the same calls.
std::string PackedText(const Call& call) {
  const auto cache = [&](const char* name) {
    return StrCat(call.cache, "[blocks, 4, 2, ", call.stored, "] ", name);
  };
  const auto or_none = [](bool there, const char* name) { return there ? name : "\"\""; };
  const std::string others = absl::StrJoin(
      {or_none(call.rotated > 0, "cos"), or_none(call.rotated > 0, "sin"), "\"\"",
       or_none(call.sink, "sink"), or_none(call.norm, "q_norm"), or_none(call.norm, "k_norm"),
       or_none(call.scales > 0, "k_scale"), or_none(call.scales > 0, "v_scale")},
      ", ");
  return StrCat("<ir_version: 10, opset_import: [\"\" : 21, \"com.microsoft\" : 1]>\n",
                "g (int64[tokens] input_ids, int32[batch_1] cumulative_sequence_lengths, "
                "int32[batch] past_sequence_lengths, int32[batch, columns] block_table, ",
                cache("past_key"), ", ", cache("past_value"), ") => (float[tokens, 24] logits, ",
                cache("present_key"), ", ", cache("present_value"), ")\n<", Weights(call), "> {\n",
                "  x = Gather (table, input_ids)\n", Projections(call),
                "  y, present_key, present_value = com.microsoft.PagedAttention "
                "<num_heads = 4, kv_num_heads = 2",
                call.attributes, "> (", call.packed ? "qkv, \"\", \"\"" : "q, k, v",
                ", past_key, past_value, "
                "cumulative_sequence_lengths, past_sequence_lengths, block_table, ",
                others, ")\n  logits = MatMul (y, head)\n}");
}

// The op has neither position ids nor a bias nor caches that do not grow.
std::vector<Call> PackedCalls() {
  std::vector<Call> calls;
  for (const Call& call : kCalls) {
    if (call.capacity == 0 && !call.positions && !*call.bias) calls.push_back(call);
  }
  return calls;
}

class PackedDecoder : public testing::TestWithParam<Call> {};

TEST_P(PackedDecoder, GivesTheTokensOfTheGroupedOne) {
  EXPECT_EQ(PagedTokens(PackedText(GetParam())), PlainTokens(GroupedText(GetParam())));
}

INSTANTIATE_TEST_SUITE_P(Calls, PackedDecoder, testing::ValuesIn(PackedCalls()),
                         [](const auto& info) { return info.param.name; });

// --- MultiHeadAttention ---

// One way in which it is called: lines that make its first inputs of q, k and v, and the call.
struct HeadsCall {
  const char* name;
  const char* lines;
  const char* inputs;  // query, key, value
  const char* bias = "\"\"";
  const char* mask = "\"\"";  // attention_bias
  bool padding = false;
  const char* attributes = ", unidirectional = 1";
};
void PrintTo(const HeadsCall& call, std::ostream* out) { *out << call.name; }

// Lowest where a key is behind its query or padding, as torch exports write it.
constexpr char kMaskLines[] = R"(
  zero = Constant <value_int = 0> ()
  ids_shape = Shape (input_ids)
  fresh = Gather <axis = 0> (ids_shape, one)
  past_shape = Shape (past_key)
  two = Constant <value_int = 2> ()
  old = Gather <axis = 0> (past_shape, two)
  all = Add (old, fresh)
  columns = Range (zero, all, one)
  places = Range (old, all, one)
  place_column = Unsqueeze (places, last)
  visible = LessOrEqual (columns, place_column)
  axes = Constant <value_ints = [0, 1]> ()
  visible_4d = Unsqueeze (visible, axes)
  inner = Constant <value_ints = [1, 2]> ()
  seen_4d = Unsqueeze (attention_mask, inner)
  seen_bool = Cast <to = 9> (seen_4d)
  both = And (visible_4d, seen_bool)
  nothing = Constant <value_float = 0.0> ()
  lowest = Constant <value_float = -3.4028235e38> ()
  mask = Where (both, nothing, lowest)
)";

std::string HeadsText(const HeadsCall& call) {
  WeightText write;
  const std::string weights =
      absl::StrJoin({write.Of("table", {24, kWidth}, 1.0f), write.Of("wq", {kWidth, kWidth}),
                     write.Of("wk", {kWidth, kWidth}), write.Of("wv", {kWidth, kWidth}),
                     write.Of("head", {kWidth, 24}), write.Of("bias", {3 * kWidth}),
                     std::string("int64 one = {1}, int64[1] last = {1}")},
                    ", ");
  return StrCat(
      "<ir_version: 10, opset_import: [\"\" : 21, \"com.microsoft\" : 1]>\n",
      "g (int64[batch, seq] input_ids, int64[batch, total] attention_mask, float[batch, 4, past, 8] "
      "past_key, float[batch, 4, past, 8] past_value) => (float[batch, seq, 24] logits, "
      "float[batch, 4, total, 8] present_key, float[batch, 4, total, 8] present_value)\n<",
      weights, "> {\n  x = Gather (table, input_ids)\n  q = MatMul (x, wq)\n  k = MatMul (x, wk)\n",
      "  v = MatMul (x, wv)\n  padding = Cast <to = 6> (attention_mask)\n", kMaskLines, call.lines,
      "  y, present_key, present_value = com.microsoft.MultiHeadAttention <num_heads = 4",
      call.attributes, "> (", call.inputs, ", ", call.bias, ", ", call.padding ? "padding" : "\"\"",
      ", ", call.mask, ", past_key, past_value)\n  logits = MatMul (y, head)\n}");
}

constexpr char kSplitHeads[] = R"(
  by_head = Constant <value_ints = [0, 0, 4, 8]> ()
  k_parts = Reshape (k, by_head)
  k_heads = Transpose <perm = [0, 2, 1, 3]> (k_parts)
  v_parts = Reshape (v, by_head)
  v_heads = Transpose <perm = [0, 2, 1, 3]> (v_parts)
)";
constexpr char kStackedKv[] = R"(
  by_head = Constant <value_ints = [0, 0, 4, 1, 8]> ()
  k_parts = Reshape (k, by_head)
  v_parts = Reshape (v, by_head)
  kv = Concat <axis = 3> (k_parts, v_parts)
)";
constexpr char kStackedQkv[] = R"(
  by_head = Constant <value_ints = [0, 0, 4, 1, 8]> ()
  q_parts = Reshape (q, by_head)
  k_parts = Reshape (k, by_head)
  v_parts = Reshape (v, by_head)
  qkv = Concat <axis = 3> (q_parts, k_parts, v_parts)
)";

constexpr HeadsCall kHeadsCalls[] = {
    {"Rows", "", "q, k, v"},
    {.name = "RowsUnderAMask", .lines = "", .inputs = "q, k, v", .mask = "mask", .attributes = ""},
    {.name = "RowsUnderAMaskAndCausal", .lines = "", .inputs = "q, k, v", .mask = "mask"},
    {.name = "RowsWithPadding", .lines = "", .inputs = "q, k, v", .padding = true},
    {.name = "RowsWithABias", .lines = "", .inputs = "q, k, v", .bias = "bias"},
    {.name = "RowsWithAScale",
     .lines = "",
     .inputs = "q, k, v",
     .bias = "bias",
     .padding = true,
     .attributes = ", unidirectional = 1, scale = 0.2"},
    {"KeysByHead", kSplitHeads, "q, k_heads, v_heads"},
    {.name = "KeysByHeadUnderAMask",
     .lines = kSplitHeads,
     .inputs = "q, k_heads, v_heads",
     .bias = "bias",
     .mask = "mask",
     .attributes = ""},
    {"KeysAndValuesInOne", kStackedKv, "q, kv, \"\""},
    {"AllInOne", kStackedQkv, "qkv, \"\", \"\""},
    {.name = "AllInOneUnderAMask",
     .lines = kStackedQkv,
     .inputs = "qkv, \"\", \"\"",
     .bias = "bias",
     .mask = "mask",
     .attributes = ""},
};

class HeadsDecoder : public testing::TestWithParam<HeadsCall> {};

TEST_P(HeadsDecoder, GivesItsTokensWithPages) {
  const std::string text = HeadsText(GetParam());
  EXPECT_EQ(PagedTokens(text), PlainTokens(text));
}

INSTANTIATE_TEST_SUITE_P(Calls, HeadsDecoder, testing::ValuesIn(kHeadsCalls),
                         [](const auto& info) { return info.param.name; });

// --- Attention ---

struct ProjectedCall {
  const char* name;
  const char* attributes = ", unidirectional = 1";
  const char* mask = "\"\"";
};
void PrintTo(const ProjectedCall& call, std::ostream* out) { *out << call.name; }

// Zeros and ones, 1 where key j is not behind place i.
std::string Triangle(const std::string& name) {
  std::vector<std::string> numbers;
  for (int64_t i = 0; i < kPositions * kPositions; ++i) {
    numbers.push_back(i % kPositions <= i / kPositions ? "1" : "0");
  }
  return StrCat("int32[1, 1, ", kPositions, ", ", kPositions, "] ", name, " = {",
                absl::StrJoin(numbers, ", "), "}");
}

std::string ProjectedText(const ProjectedCall& call) {
  WeightText write;
  const std::string weights = absl::StrJoin(
      {write.Of("table", {24, kWidth}, 1.0f), write.Of("w", {kWidth, 3 * kWidth}),
       write.Of("head", {kWidth, 24}), write.Of("bias", {3 * kWidth}), Triangle("triangle"),
       std::string("int64 one = {1}, int64[1] last = {1}, int64[3] sides = {1, 48, 48}")},
      ", ");
  // The past's length is one behind that of keys and values.
  const std::string lines = absl::StrReplaceAll(
      kMaskLines, {{"(past_key)", "(past_0)"}, {"value_int = 2", "value_int = 3"}});
  return StrCat(
      "<ir_version: 10, opset_import: [\"\" : 21, \"com.microsoft\" : 1]>\n",
      "g (int64[batch, seq] input_ids, int64[batch, total] attention_mask, "
      "float[2, batch, 4, past, 8] past_0) => (float[batch, seq, 24] logits, "
      "float[2, batch, 4, total, 8] present_0)\n<",
      weights, "> {\n  x = Gather (table, input_ids)\n  padding = Cast <to = 6> (attention_mask)\n",
      lines,
      "  seen_by_query = Cast <to = 6> (both)\n  batch_only = Shape <end = 1> (input_ids)\n"
      "  target = Concat <axis = 0> (batch_only, sides)\n  triangles = Expand (triangle, target)\n"
      "  y, present_0 = com.microsoft.Attention <num_heads = 4",
      call.attributes, "> (x, w, bias, ", call.mask, ", past_0)\n  logits = MatMul (y, head)\n}");
}

constexpr ProjectedCall kProjectedCalls[] = {
    {"Causal"},
    {.name = "Padding", .mask = "padding"},
    {.name = "Rotated", .attributes = ", unidirectional = 1, do_rotary = 1"},
    {.name = "RotatedInPart",
     .attributes = ", unidirectional = 1, do_rotary = 1, rotary_embedding_dim = 4"},
    {.name = "RotatedWithPadding",
     .attributes = ", unidirectional = 1, do_rotary = 1, scale = 0.3",
     .mask = "padding"},
    {.name = "SeenByQuery", .attributes = "", .mask = "seen_by_query"},
    {.name = "SeenByQueryAndCausal", .mask = "seen_by_query"},
    {.name = "SeenOfAllPlaces", .attributes = "", .mask = "triangles"},
    {.name = "SeenOfAllPlacesOfOne", .mask = "triangle"},
    {.name = "RotatedAndSeenOfAllPlaces", .attributes = ", do_rotary = 1", .mask = "triangles"},
};

class ProjectedDecoder : public testing::TestWithParam<ProjectedCall> {};

TEST_P(ProjectedDecoder, GivesItsTokensWithPages) {
  const std::string text = ProjectedText(GetParam());
  EXPECT_EQ(PagedTokens(text), PlainTokens(text));
}

INSTANTIATE_TEST_SUITE_P(Calls, ProjectedDecoder, testing::ValuesIn(kProjectedCalls),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace pagefuse
