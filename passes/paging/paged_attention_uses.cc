// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/passes/paging/paged_attention_uses.h"

#include <algorithm>
#include <utility>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/passes/analysis/masks/mask_analysis.h"
#include "pagefuse/passes/edit/graph_ports.h"
#include "pagefuse/passes/edit/op_types.h"
#include "pagefuse/passes/edit/ports.h"
#include "pagefuse/passes/paging/alibi_attention.h"
#include "pagefuse/passes/paging/batched_tokens.h"
#include "pagefuse/passes/paging/grouped_attention.h"
#include "pagefuse/passes/paging/key_bias.h"
#include "pagefuse/passes/paging/mask_lengths.h"
#include "pagefuse/passes/paging/past_ledger.h"
#include "pagefuse/passes/paging/sink_attention.h"
#include "pagefuse/passes/paging/static_caches.h"
#include "pagefuse/passes/pass.h"
#include "pagefuse/passes/recognise/latent_attention.h"
#include "pagefuse/passes/recognise/recognise.h"

namespace pagefuse {
namespace {

using ports::Attention;
using AttentionUse = PagedAttentionSite;

absl::Status ReadHeads(AttentionUse& match) {
  const Node& node = *match.node;
  for (int i : {Attention::kQuery, Attention::kKey, Attention::kValue}) {
    const Value* value = node.input(i);
    if (!value || !value->shape() || value->shape()->rank() != 4 ||
        !(*value->shape())[1].is_constant() || !(*value->shape())[3].is_constant()) {
      return Unfit(node, "query, key and value must be [B, H, S, D] with known H and D");
    }
  }
  match.dtype = node.input(Attention::kKey)->dtype();
  match.query_heads = *(*node.input(Attention::kQuery)->shape())[1].constant();
  match.kv_heads = *(*node.input(Attention::kKey)->shape())[1].constant();
  match.head_size = *(*node.input(Attention::kKey)->shape())[3].constant();
  match.value_size = *(*node.input(Attention::kValue)->shape())[3].constant();
  const int64_t value_heads = *(*node.input(Attention::kValue)->shape())[1].constant();
  if (value_heads != match.kv_heads) {
    return Unfit(node, StrCat("keys and values differ in heads: expected ", match.kv_heads,
                              " as of keys, got ", value_heads));
  }
  const Dim& query_length = (*node.input(Attention::kQuery)->shape())[2];
  if (!ProvablyEqual(query_length, (*node.input(Attention::kKey)->shape())[2])) {
    return Unfit(node,
                 StrCat("new keys are not as many as queries: expected ", query_length.ToString(),
                        ", got ", (*node.input(Attention::kKey)->shape())[2].ToString()));
  }
  return absl::OkStatus();
}

absl::Status CheckPorts(const Node& node) {
  if (node.input(Attention::kKeyLengths)) return Unfit(node, "has its own key lengths");
  if (node.output(Attention::kScores)) return Unfit(node, "its scores are read");
  return absl::OkStatus();
}

// Those of latent rows and of GroupQueryAttention are noted where these are lowered.
absl::Status ReadPast(const CachePasts& caches, PastLedger& pasts, AttentionUse& match) {
  const Node& node = *match.node;
  const Value* past = node.input(Attention::kPastKey);
  if (past) match.past = past->shape() ? past->shape()->back(1) : Dim::Unknown();
  if (match.latent) return absl::OkStatus();
  if (!past && !node.input(Attention::kPastValue)) {
    pasts.NoteNone(node);
    return absl::OkStatus();
  }
  for (const bool keys : {true, false}) {
    PF_ASSIGN_OR_RETURN(CachePast cache, caches.Find(node, keys));
    PF_RETURN_IF_ERROR(
        pasts.Note(node, {.past = cache.input,
                          .place = cache.place,
                          .role = keys ? "keys" : "values",
                          .fresh = node.input(keys ? Attention::kKey : Attention::kValue),
                          .present = cache.present}));
    match.pasts.push_back(std::move(cache));
  }
  return absl::OkStatus();
}

// The old presents are outputs no longer; nothing else may read them.
absl::Status DropPresents(Graph& graph, const std::vector<AttentionUse>& matches) {
  for (const AttentionUse& match : matches) {
    // What nothing reads would go with its presents.
    const Value& rows = *match.node->output(0);
    if (rows.uses().empty() && !rows.is_output()) return Unfit(*match.node, "is not read");
  }
  std::vector<Node*> givers;
  for (const AttentionUse& match : matches) {
    for (const CachePast& past : match.pasts) {
      if (!past.present || !past.present->is_output()) continue;
      RemoveOutput(graph, past.present);
      Node* giver = past.present->producer();
      if (past.present->uses().empty() && std::ranges::count(givers, giver) == 0) {
        givers.push_back(giver);
      }
    }
  }
  for (Node* giver : givers) graph.EraseIfDead(giver);
  for (const AttentionUse& match : matches) {
    if (!match.latent) PF_RETURN_IF_ERROR(CheckPresentsUnread(*match.node));
  }
  return absl::OkStatus();
}

// What SparseMlaAttention has not, or what is not handed to it.
absl::Status CheckLatent(const AttentionUse& match) {
  if (!match.latent) return absl::OkStatus();
  if (match.sinks) return Unfit(*match.node, "has sinks over latent rows");
  if (match.window > 0) return Unfit(*match.node, "has a window over latent rows");
  PF_ASSIGN_OR_RETURN(const float softcap, match.node->FloatAttribute("softcap", 0.0f));
  if (softcap != 0) return Unfit(*match.node, "has a soft cap over latent rows");
  return absl::OkStatus();
}

// `latent`: null where the node attends to heads of keys and values.
absl::StatusOr<AttentionUse> ReadMatch(Node* node, const LatentMatch* latent,
                                       const SymbolicContents& contents) {
  AttentionUse match{.node = node, .dtype = node->input(Attention::kKey)->dtype()};
  if (latent) match.latent = *latent;
  if (!latent) PF_RETURN_IF_ERROR(ReadHeads(match));
  PF_ASSIGN_OR_RETURN(int64_t causal, node->IntAttribute("is_causal", 0));
  const Value* mask = node->input(Attention::kMask);
  if (causal != 1) {
    const absl::Status understood = mask ? AnalyseMask(mask, contents).status() : absl::OkStatus();
    return Unfit(*node, understood.ok() ? "is not causal" : StdView(understood.message()));
  }
  PF_ASSIGN_OR_RETURN(int64_t left, node->IntAttribute("left_window_size", -1));
  PF_ASSIGN_OR_RETURN(int64_t right, node->IntAttribute("right_window_size", -1));
  if (right > 0) return Unfit(*node, "looks ahead");
  const bool has_window = left >= 0 && left < kMaxElements;
  match.window = has_window ? left + 1 : 0;
  match.padding = mask ? PaddingInputOf(mask, contents) : nullptr;
  if (mask && !match.padding) {
    const absl::StatusOr<MaskForm> form = AnalyseMask(mask, contents);
    if (!form.ok()) return Unfit(*node, StdView(form.status().message()));
    if (form->upper || form->lower) return Unfit(*node, "has a mask beside its padding");
    match.padding = form->padding;
  }
  PF_RETURN_IF_ERROR(CheckPorts(*node));
  return match;
}

// Why the node attends to no latent rows is told beside why it is not paged by its heads: who expands
// latent rows has keys and values of two sizes.
absl::Status BesideLatent(const Node& node, const absl::Status& status) {
  if (status.ok()) return status;
  const auto& keys = node.input(Attention::kKey)->shape();
  const auto& values = node.input(Attention::kValue)->shape();
  if (!keys || !values || keys->back(0).constant() == values->back(0).constant()) return status;
  const absl::Status latent = FindLatentAttention(node).status();
  if (latent.ok() || absl::IsNotFound(latent)) return status;
  return absl::FailedPreconditionError(StrCat(
      StdView(status.message()), "; as attention over latent rows: ", StdView(latent.message())));
}

absl::Status ReadLinearBias(const AttentionExtras& extras, AttentionUse& match) {
  if (!extras.slopes) return absl::OkStatus();
  if (match.latent) return Unfit(*match.node, "has a linear bias over latent rows");
  // A sink sees what all keys have in common, which the bias was read without.
  if (match.sinks) return Unfit(*match.node, "has a sink beside a linear bias");
  if (!match.padding) match.padding = extras.counted;
  if (extras.counted && extras.counted != match.padding) {
    return Unfit(*match.node, StrCat("counts keys by \"", extras.counted->name(),
                                     "\", which is not its padding mask"));
  }
  match.slopes = extras.slopes;
  match.most_keys = extras.most_keys;
  return absl::OkStatus();
}

absl::Status ReadExtras(const AttentionExtras& extras, AttentionUse& match) {
  match.sinks = extras.sinks;
  match.key_bias = extras.key_bias;
  match.lengths = extras.lengths;
  if (extras.past) match.past = *extras.past;
  if (extras.compressed) {
    match.compressed = extras.compressed;
    match.padding = extras.compressed->padding;
    if (extras.sinks || extras.slopes) {
      return Unfit(*match.node, "has sinks or a linear bias beside those of compressed rows");
    }
  }
  return ReadLinearBias(extras, match);
}

constexpr int kMostSteps = 8;  // between probabilities and what reads them

// The output of the graph that is the value, or the same numbers in another order; null if there is
// none.
const Value* OutputOf(const Value& value, int steps = kMostSteps) {
  if (value.is_output()) return &value;
  if (steps == 0) return nullptr;
  for (const Use& use : value.uses()) {
    const bool moves = IsAnyOf(*use.node, {"Cast", "Identity", "Dropout", "Reshape", "Squeeze",
                                           "Transpose", "Unsqueeze", "Slice"});
    const Value* found =
        moves && use.index == 0 ? OutputOf(*use.node->output(0), steps - 1) : nullptr;
    if (found) return found;
  }
  return nullptr;
}

// Whether a product reads it, behind what moves numbers.
bool MultipliesValues(const Value& value, int steps = kMostSteps) {
  return steps > 0 && std::ranges::any_of(value.uses(), [steps](const Use& use) {
           if (use.node->Is("MatMul") || use.node->Is("Einsum")) return true;
           const bool passes = IsAnyOf(*use.node, {"Cast", "Identity", "Dropout", "Where", "Mul",
                                                   "Reshape", "Transpose", "Unsqueeze"});
           return passes && !use.node->outputs().empty() &&
                  MultipliesValues(*use.node->output(0), steps - 1);
         });
}

// Paged attention never has them as a tensor.
absl::Status CheckProbabilitiesStay(const Graph& graph) {
  for (const auto& node : graph.nodes()) {
    const Value* output = node->Is("Softmax") ? OutputOf(*node->output(0)) : nullptr;
    if (!output || !output->shape() || output->shape()->rank() < 3) continue;
    // Logits may become probabilities too.
    if (!MultipliesValues(*node->output(0))) continue;
    return Unfit(*node, StrCat("gives its probabilities as the output \"", output->name(), "\""));
  }
  return absl::OkStatus();
}

// OK for a graph that is paged, or that does not attend.
absl::Status CheckAttendsNot(const Graph& graph) {
  const Node* attends = nullptr;
  for (const auto& node : graph.nodes()) {
    if (node->Is("PagedAttention", "pagefuse")) return absl::OkStatus();
    if (!attends && (node->Is("Softmax") ||
                     IsAnyOf(*node, {"GroupQueryAttention", "MultiHeadAttention", "Attention"},
                             "com.microsoft"))) {
      attends = node.get();
    }
  }
  if (!attends) return absl::OkStatus();
  PF_RETURN_IF_ERROR(CheckProbabilitiesStay(graph));
  return Unfit(*attends, "belongs to no recognised Attention");
}

// Keys that are counted by a mask are those of all tokens, where it is the mask.
absl::Status CheckLengthsOf(const AttentionUse& match, const DecoderInputs& inputs) {
  const Value* mask = match.lengths;
  if (!mask || mask == inputs.padding) return absl::OkStatus();
  const bool unread = std::ranges::count(inputs.unread, mask) > 0;
  if (unread && MayBeMask(*mask)) return absl::OkStatus();
  return Unfit(*match.node,
               StrCat("counts its keys by \"", mask->name(), "\", which is no attention mask"));
}

void AddBeside(const CompressedRows& rows, std::vector<BesideMatch>& beside) {
  for (const Value* value : {rows.kv, rows.gate}) {
    beside.push_back({.value = value, .by_token = true, .what = "rows that are compressed"});
  }
  for (const Value* value : {rows.bias, rows.norm_weight, rows.angles.frequencies}) {
    beside.push_back({.value = value, .what = "constants of compressed rows"});
  }
}

// All that a site reads beside query, key and value, but for the mask, which was analysed.
std::vector<BesideMatch> BesideOf(const AttentionUse& match) {
  std::vector<BesideMatch> beside;
  if (match.sinks) beside.push_back({.value = match.sinks, .what = "sinks"});
  if (match.slopes) beside.push_back({.value = match.slopes, .what = "slopes of a linear bias"});
  if (match.compressed) {
    const CompressedMatch& compressed = *match.compressed;
    beside.push_back({.value = compressed.sinks, .what = "sinks"});
    if (compressed.rows) AddBeside(*compressed.rows, beside);
    if (compressed.choice) {
      for (const Value* value : {compressed.choice->query, compressed.choice->weights}) {
        beside.push_back({.value = value, .by_token = true, .what = "rows that choose keys"});
      }
      AddBeside(compressed.choice->keys, beside);
    }
  }
  if (match.latent && match.latent->selection) {
    const KeySelection& chosen = *match.latent->selection;
    for (const Value* value : {chosen.query, chosen.weights, chosen.key}) {
      beside.push_back({.value = value, .by_token = true, .what = "rows that choose keys"});
    }
  }
  std::erase_if(beside, [](const BesideMatch& of) { return of.value == nullptr; });
  return beside;
}

// Sites that are read by pasts of their own have as many tokens before the new ones: each gives back
// what it was given and the new ones. Lengths that come from outside say so only of themselves.
Dim PastOfAll(const std::vector<AttentionUse>& matches) {
  const Dim& past = matches[0].past;
  const bool same = std::ranges::all_of(matches, [&](const AttentionUse& match) {
    const bool given = match.node->input(Attention::kPastKey) != nullptr;
    return given || ProvablyEqual(match.past, past);
  });
  return same ? past : Dim::Unknown();
}

// Axes are followed through every value: what control flow gives may have any.
absl::Status CheckRanks(const Graph& graph) {
  for (const auto& node : graph.nodes()) {
    for (const Value* output : node->outputs()) {
      if (output == nullptr || output->shape() || output->uses().empty()) continue;
      return Unfit(*node, StrCat("expected a known rank of \"", output->name(), "\", got none"));
    }
  }
  return absl::OkStatus();
}

// Angles of a table that the graph computes of all places, where rows are gathered by positions, are
// those of the positions.
absl::Status ComputeRotationsByPosition(Model& model, SymbolicContents& contents) {
  PassContext context;
  context.contents = std::move(contents);
  const absl::Status status = RecogniseTableRows()->Run(model, context).status();
  contents = std::move(context.contents);
  return status;
}

}  // namespace

absl::StatusOr<std::vector<PagedAttentionSite>> FindPagedAttention(Model& model,
                                                                   SymbolicContents& contents) {
  const auto infer = [&] {
    contents.clear();
    return InferShapes(model, &contents);
  };
  PF_RETURN_IF_ERROR(infer());
  PF_RETURN_IF_ERROR(LowerStaticCaches(model, contents).status());
  ExtrasOfAttention extras(*model.graph);
  PastLedger pasts(*model.graph);
  PF_ASSIGN_OR_RETURN(const Value* packed_lengths, BatchPackedTokens(model, pasts));
  if (packed_lengths) PF_RETURN_IF_ERROR(infer());
  const GroupedAttentionNotes notes{pasts, extras, packed_lengths};
  PF_ASSIGN_OR_RETURN(const bool grouped, LowerGroupedAttention(model, contents, notes));
  if (grouped) {
    PF_RETURN_IF_ERROR(infer());
    PF_RETURN_IF_ERROR(ComputeRotationsByPosition(model, contents));
  }
  PF_RETURN_IF_ERROR(CheckRanks(*model.graph));
  PF_RETURN_IF_ERROR(LowerCompressedAttention(model, contents, extras));
  PF_RETURN_IF_ERROR(LowerSinkAttention(model, contents, extras));
  PF_RETURN_IF_ERROR(LowerAlibiAttention(model, contents, extras));
  PF_ASSIGN_OR_RETURN(const bool biased, LowerKeyBias(model, contents, extras));
  if (biased) PF_RETURN_IF_ERROR(infer());
  PF_ASSIGN_OR_RETURN(const bool named, NameMaskLengths(model, contents));
  if (named) PF_RETURN_IF_ERROR(infer());
  PF_ASSIGN_OR_RETURN(const LatentMatches latent_sites,
                      LowerLatentAttention(model, contents, pasts));
  if (!latent_sites.empty()) PF_RETURN_IF_ERROR(infer());
  PF_RETURN_IF_ERROR(extras.CheckKept(*model.graph));
  std::vector<PagedAttentionSite> matches;
  const CachePasts caches(*model.graph, contents);
  for (const auto& node : model.graph->nodes()) {
    if (!node->Is("Attention")) continue;
    const auto latent = latent_sites.find(node.get());
    const LatentMatch* rows = latent == latent_sites.end() ? nullptr : &latent->second;
    auto read = ReadMatch(node.get(), rows, contents);
    if (!read.ok()) return BesideLatent(*node, read.status());
    AttentionUse match = *std::move(read);
    const AttentionExtras* of_site = extras.Find(*node);
    // Of GroupQueryAttention they are noted.
    if (!of_site || !of_site->past) PF_RETURN_IF_ERROR(ReadPast(caches, pasts, match));
    if (of_site) PF_RETURN_IF_ERROR(ReadExtras(*of_site, match));
    PF_RETURN_IF_ERROR(CheckLatent(match));
    matches.push_back(std::move(match));
  }
  ExtrasOfAttention::Unmark(*model.graph);
  if (matches.empty()) {
    PF_RETURN_IF_ERROR(CheckAttendsNot(*model.graph));
  } else {
    PF_RETURN_IF_ERROR(pasts.Check());
    PF_RETURN_IF_ERROR(DropPresents(*model.graph, matches));
  }
  return matches;
}

absl::StatusOr<DecoderInputs> DecoderInputsOf(const Graph& graph,
                                              const std::vector<PagedAttentionSite>& matches) {
  std::vector<Value*> pasts;
  const Value* padding = nullptr;
  for (const AttentionUse& match : matches) {
    if (match.latent) {
      pasts.insert(pasts.end(), match.latent->pasts.begin(), match.latent->pasts.end());
    } else {
      for (const CachePast& past : match.pasts) {
        // Keys and values may be parts of one.
        if (std::ranges::count(pasts, past.input) == 0) pasts.push_back(past.input);
      }
    }
    if (padding && match.padding && match.padding != padding) {
      return Unfit(*match.node,
                   StrCat("hides keys by \"", match.padding->name(), "\": expected \"",
                          padding->name(), "\", by which another attention hides them"));
    }
    if (match.padding) padding = match.padding;
  }
  PF_ASSIGN_OR_RETURN(DecoderInputs inputs,
                      FindDecoderInputs(graph, pasts, const_cast<Value*>(padding)));
  for (const AttentionUse& match : matches) {
    PF_RETURN_IF_ERROR(CheckLengthsOf(match, inputs));
    const Value* positions = match.compressed ? match.compressed->positions : nullptr;
    if (!positions || positions == inputs.positions) continue;
    return Unfit(*match.node, StrCat("closes windows by \"", positions->name(),
                                     "\", which is no position of tokens"));
  }
  return inputs;
}

absl::StatusOr<TokenTrace> TraceTokensOf(const Graph& graph,
                                         const std::vector<PagedAttentionSite>& matches,
                                         const DecoderInputs& inputs,
                                         const SymbolicContents& contents) {
  TokenSources sources;
  sources.batch = inputs.batch;
  sources.sequence = inputs.sequence;
  sources.padding = inputs.padding;
  sources.rows.push_back(inputs.tokens);
  if (inputs.positions) sources.rows.push_back(inputs.positions);
  sources.rows.insert(sources.rows.end(), inputs.segments.begin(), inputs.segments.end());
  for (const AttentionUse& match : matches) {
    sources.matches.insert(match.node);
    sources.beside[match.node] = BesideOf(match);
  }
  sources.past = PastOfAll(matches);
  return TraceTokens(graph, sources, contents);
}

}  // namespace pagefuse
