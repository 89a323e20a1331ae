// SPDX-License-Identifier: Apache-2.0
// The grammar: every feature of a random decoder and its options.
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "mixing.h"
#include "plan.h"

#include "pagefuse/base/status_macros.h"

namespace pagefuse::fuzz {
namespace {

// A feature a line: its name, how often in a hundred it is not the first option, the options.
// * mixes tokens, ! is declared with sizes.
constexpr const char* kGrammar = R"(
cache 50: none past
layers 60: 1 2 3
heads 60: 1 2 4
kv_heads 40: same 1 2
head_size 30: 4 8
hidden 30: 8 16
tied 40: no yes
embedding 30: gather scaled flat one_hot
norm 60: none rms rms_op layer_norm
mlp 60: none relu gated
constants 30: initialisers nodes
sizes 50: shape_start gather_vector gather_scalar
opset 50: 18 21 23 24

positions 80: input range range_plus cumsum_ones cumsum_exclusive cumsum_mask cumsum_mask_where nonzero table of_mask range_float cumsum_batch* cumsum_ids* restart*
position_shape 50: row vector batch
position_change 20: none plus2 modulo clip twice half reverse*
position_use 85: none learned learned_small learned_slice sinusoid gate rotary rotary_matmul rotary_table rotary_slice rotary_op rotary_op_ids alibi
rotate 50: slices split even_odd partial

causal 60: compare not_greater trilu table positions attribute none* strict* ahead* prefix* input4*
window 35: none all alternate greater_or_equal distance chunks*
padding 50: none keys keys_gather rows both ids* types*
mask_form 20: where_zero where_scores arithmetic two_adds
mask_low 15: inf lowest 1e9 1e4
mask_shape 60: plain rank3 rank4 batch heads
row_bias 10: none rank2 rank4
total 30: sum mask

attention 70: after divided root_on_both on_query on_key op4 op4_float op3 einsum gqa gqa_rotary exp_log*
last_attention 10: same exp_log*
heads_view 40: zeros sizes infer
qkv 30: apart fused
repeat 50: expand tile gather tile_heads
softcap 20: no yes
guard 20: no yes
qk_norm 50: no yes
value_mean 4: no yes*

mix_first 20: none @rows
mix_between 20: none @rows
mix_last 20: none @rows
mix_heads 15: none @heads
mix_heads_at 75: query key value attended

logits 60: all slice_last gather_last gather_size slice_squeeze gather_nd mask_last first* second_last* all_but_first*
cut_at 60: end head norm
logits_tail 40: none softcap scaled bias log_softmax flat transposed last_ids by_length* softmax_tokens*
extra_output 20: none hidden argmax second_head mean* size*
output_name 30: logits other
output_dims 50: declared unknown

batch 40: symbol 1 2! as_length!
length 15: symbol 6! 1!
mask_length 50: own sum
loose 30: no positions mask both
past_names 30: same own
ids_type 30: int64 int32
position_type 30: int64 int32
mask_type 40: int64 int32 float bool
extra_input 30: none types types_gate types_where unread scale* token_float*
order 60: natural shuffled
names 60: helpful neutral misleading
kv 15: heads latent
sinks 15: none column
value_size 15: same 2 6
key_bias 10: none added exp chosen
)";

void AddOptions(const std::string& word, std::vector<Option>& options) {
  if (word == "@rows" || word == "@heads") {
    for (const MixOp& op : word == "@rows" ? MixOps() : HeadMixOps()) {
      options.push_back({op.name, op.meaning});
    }
  } else if (word.back() == '*') {
    options.push_back({word.substr(0, word.size() - 1), Meaning::kMixes});
  } else if (word.back() == '!') {
    options.push_back({word.substr(0, word.size() - 1), Meaning::kSizes});
  } else {
    options.push_back({word});
  }
}

Feature ReadFeature(absl::string_view line) {
  const std::vector<std::string> words =
      absl::StrSplit(line, absl::ByAnyChar(" :"), absl::SkipEmpty());
  Feature feature{.name = words[0], .percent = 0, .options = {}};
  PF_CHECK(absl::SimpleAtoi(words[1], &feature.percent));
  for (size_t i = 2; i < words.size(); ++i) AddOptions(words[i], feature.options);
  return feature;
}

}  // namespace

const std::vector<Feature>& Grammar() {
  static const std::vector<Feature>& grammar = *[] {
    auto* all = new std::vector<Feature>;
    for (const absl::string_view line : absl::StrSplit(kGrammar, '\n', absl::SkipEmpty())) {
      all->push_back(ReadFeature(line));
    }
    return all;
  }();
  return grammar;
}

}  // namespace pagefuse::fuzz
