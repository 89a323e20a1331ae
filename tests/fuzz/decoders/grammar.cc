// The grammar: every feature of a random decoder and its options.
#include "mixing.h"
#include "plan.h"

namespace pagefuse::fuzz {
namespace {

constexpr Meaning kMixes = Meaning::kMixes;
constexpr Meaning kSizes = Meaning::kSizes;

std::vector<Option> Names(const std::vector<MixOp>& ops) {
  std::vector<Option> options = {{"none"}};
  for (const MixOp& op : ops) options.push_back({op.name, op.meaning});
  return options;
}

void AddBody(std::vector<Feature>& grammar) {
  const std::vector<Feature> body = {
      {"cache", 50, {{"none"}, {"past"}}},
      {"layers", 60, {{"1"}, {"2"}, {"3"}}},
      {"heads", 60, {{"1"}, {"2"}, {"4"}}},
      {"kv_heads", 40, {{"same"}, {"1"}, {"2"}}},
      {"head_size", 30, {{"4"}, {"8"}}},
      {"hidden", 30, {{"8"}, {"16"}}},
      {"tied", 40, {{"no"}, {"yes"}}},
      {"embedding", 30, {{"gather"}, {"scaled"}, {"flat"}, {"one_hot"}}},
      {"norm", 60, {{"none"}, {"rms"}, {"rms_op"}, {"layer_norm"}}},
      {"mlp", 60, {{"none"}, {"relu"}, {"gated"}}},
      {"constants", 30, {{"initialisers"}, {"nodes"}}},
      {"sizes", 50, {{"shape_start"}, {"gather_vector"}, {"gather_scalar"}}},
      {"opset", 50, {{"18"}, {"21"}, {"23"}, {"24"}}}};
  grammar.insert(grammar.end(), body.begin(), body.end());
}

void AddPositions(std::vector<Feature>& grammar) {
  grammar.push_back({"positions",
                     80,
                     {{"input"},
                      {"range"},
                      {"range_plus"},
                      {"cumsum_ones"},
                      {"cumsum_exclusive"},
                      {"cumsum_mask"},
                      {"cumsum_mask_where"},
                      {"nonzero"},
                      {"table"},
                      {"of_mask"},
                      {"cumsum_ids", kMixes},
                      {"restart", kMixes}}});
  grammar.push_back({"position_shape", 50, {{"row"}, {"vector"}, {"batch"}}});
  grammar.push_back({"position_offset", 15, {{"0"}, {"2"}}});
  grammar.push_back({"position_use",
                     85,
                     {{"none"},
                      {"learned"},
                      {"learned_small"},
                      {"learned_slice"},
                      {"sinusoid"},
                      {"gate"},
                      {"rotary"},
                      {"rotary_matmul"},
                      {"rotary_table"},
                      {"rotary_slice"},
                      {"rotary_op"},
                      {"rotary_op_ids"},
                      {"alibi"}}});
  grammar.push_back({"rotate", 50, {{"slices"}, {"split"}, {"even_odd"}, {"partial"}}});
}

void AddMasks(std::vector<Feature>& grammar) {
  const std::vector<Feature> masks = {
      {"causal",
       60,
       {{"compare"},
        {"not_greater"},
        {"trilu"},
        {"table"},
        {"positions"},
        {"attribute"},
        {"none", kMixes}}},
      {"window", 35, {{"none"}, {"all"}, {"alternate"}}},
      {"padding", 50, {{"none"}, {"keys"}, {"keys_gather"}, {"rows"}, {"both"}}},
      {"mask_form", 20, {{"where_zero"}, {"where_scores"}, {"arithmetic"}, {"two_adds"}}},
      {"mask_low", 15, {{"inf"}, {"lowest"}, {"1e9"}, {"1e4"}}},
      {"mask_shape", 60, {{"plain"}, {"rank3"}, {"rank4"}, {"batch"}, {"heads"}}},
      {"row_bias", 10, {{"none"}, {"rank2"}, {"rank4"}}},
      {"total", 30, {{"sum"}, {"mask"}}}};
  grammar.insert(grammar.end(), masks.begin(), masks.end());
}

void AddAttention(std::vector<Feature>& grammar) {
  const std::vector<Feature> attention = {{"attention",
                                           70,
                                           {{"after"},
                                            {"divided"},
                                            {"root_on_both"},
                                            {"on_query"},
                                            {"on_key"},
                                            {"op4"},
                                            {"op4_float"},
                                            {"op3"},
                                            {"einsum"},
                                            {"exp_log", kMixes}}},
                                          {"last_attention", 10, {{"same"}, {"exp_log", kMixes}}},
                                          {"heads_view", 40, {{"zeros"}, {"sizes"}, {"infer"}}},
                                          {"repeat", 50, {{"expand"}, {"tile"}, {"gather"}}},
                                          {"softcap", 20, {{"no"}, {"yes"}}},
                                          {"guard", 20, {{"no"}, {"yes"}}},
                                          {"qk_norm", 50, {{"yes"}, {"no"}}}};
  grammar.insert(grammar.end(), attention.begin(), attention.end());
}

void AddMixing(std::vector<Feature>& grammar) {
  grammar.push_back({"mix_first", 20, Names(MixOps())});
  grammar.push_back({"mix_between", 20, Names(MixOps())});
  grammar.push_back({"mix_last", 20, Names(MixOps())});
  grammar.push_back({"mix_heads", 15, Names(HeadMixOps())});
  grammar.push_back({"mix_heads_at", 75, {{"query"}, {"key"}, {"value"}, {"attended"}}});
}

void AddLogits(std::vector<Feature>& grammar) {
  const std::vector<Feature> logits = {
      {"logits",
       60,
       {{"all"},
        {"slice_last"},
        {"gather_last"},
        {"gather_size"},
        {"slice_squeeze"},
        {"gather_nd"},
        {"mask_last"},
        {"first", kMixes},
        {"all_but_first", kMixes}}},
      {"cut_at", 60, {{"end"}, {"head"}, {"norm"}}},
      {"logits_tail",
       40,
       {{"none"},
        {"softcap"},
        {"scaled"},
        {"bias"},
        {"log_softmax"},
        {"flat"},
        {"transposed"},
        {"softmax_tokens", kMixes}}},
      {"extra_output",
       20,
       {{"none"}, {"hidden"}, {"argmax"}, {"second_head"}, {"mean", kMixes}, {"size", kMixes}}},
      {"output_name", 30, {{"logits"}, {"other"}}},
      {"output_dims", 50, {{"declared"}, {"unknown"}}}};
  grammar.insert(grammar.end(), logits.begin(), logits.end());
}

void AddInputs(std::vector<Feature>& grammar) {
  const std::vector<Feature> inputs = {
      {"batch", 40, {{"symbol"}, {"1"}, {"2", kSizes}, {"as_length", kSizes}}},
      {"length", 15, {{"symbol"}, {"6", kSizes}, {"1", kSizes}}},
      {"mask_length", 50, {{"own"}, {"sum"}}},
      {"loose", 30, {{"no"}, {"positions"}, {"mask"}, {"both"}}},
      {"past_names", 30, {{"same"}, {"own"}}},
      {"ids_type", 30, {{"int64"}, {"int32"}}},
      {"position_type", 30, {{"int64"}, {"int32"}}},
      {"mask_type", 40, {{"int64"}, {"int32"}, {"float"}, {"bool"}}},
      {"extra_input",
       30,
       {{"none"},
        {"types"},
        {"types_gate"},
        {"types_where"},
        {"unread"},
        {"scale", kMixes},
        {"token_float", kMixes}}},
      {"order", 60, {{"natural"}, {"shuffled"}}},
      {"names", 60, {{"helpful"}, {"neutral"}, {"misleading"}}}};
  grammar.insert(grammar.end(), inputs.begin(), inputs.end());
}

}  // namespace

const std::vector<Feature>& Grammar() {
  static const std::vector<Feature>& grammar = *[] {
    auto* all = new std::vector<Feature>;
    AddBody(*all);
    AddPositions(*all);
    AddMasks(*all);
    AddAttention(*all);
    AddMixing(*all);
    AddLogits(*all);
    AddInputs(*all);
    return all;
  }();
  return grammar;
}

}  // namespace pagefuse::fuzz
