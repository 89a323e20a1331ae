#include "pagefuse/passes/paging/paged_attention_uses.h"

#include <algorithm>
#include <utility>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/passes/analysis/attention/stacked_caches.h"
#include "pagefuse/passes/analysis/masks/mask_analysis.h"
#include "pagefuse/passes/edit/op_types.h"
#include "pagefuse/passes/edit/ports.h"
#include "pagefuse/passes/paging/alibi_attention.h"
#include "pagefuse/passes/paging/batched_tokens.h"
#include "pagefuse/passes/paging/grouped_attention.h"
#include "pagefuse/passes/paging/sink_attention.h"

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
  const int64_t value_size = *(*node.input(Attention::kValue)->shape())[3].constant();
  if (value_size != match.head_size) {
    return Unfit(node, StrCat("keys and values differ in head size: expected ", match.head_size,
                              " as of keys, got ", value_size));
  }
  const Dim& query_length = (*node.input(Attention::kQuery)->shape())[2];
  if (!ProvablyEqual(query_length, (*node.input(Attention::kKey)->shape())[2])) {
    return Unfit(node,
                 StrCat("new keys are not as many as queries: expected ", query_length.ToString(),
                        ", got ", (*node.input(Attention::kKey)->shape())[2].ToString()));
  }
  return absl::OkStatus();
}

absl::Status ReadPast(const AttentionUse& match) {
  const Node& node = *match.node;
  for (int past : {Attention::kPastKey, Attention::kPastValue}) {
    Value* value = node.input(past);
    if (value && !match.latent && PastInputOf(value) == nullptr) {
      return Unfit(node, "its past is no input of the graph, nor a part of one");
    }
  }
  if (node.input(Attention::kKeyLengths)) return Unfit(node, "has its own key lengths");
  for (int present : {Attention::kPresentKey, Attention::kPresentValue}) {
    Value* value = node.output(present);
    if (value && !PresentOutputOf(value).all) {
      return Unfit(node, "its present is read inside the graph");
    }
  }
  if (node.output(Attention::kScores)) return Unfit(node, "its scores are read");
  return absl::OkStatus();
}

// What SparseMlaAttention has not.
absl::Status CheckLatent(const AttentionUse& match) {
  if (!match.latent) return absl::OkStatus();
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
  match.padding = mask ? PaddingInputOf(mask) : nullptr;
  if (mask && !match.padding) {
    const absl::StatusOr<MaskForm> form = AnalyseMask(mask, contents);
    if (!form.ok()) return Unfit(*node, StdView(form.status().message()));
    if (form->upper || form->lower) return Unfit(*node, "has a mask beside its padding");
    match.padding = form->padding;
  }
  PF_RETURN_IF_ERROR(ReadPast(match));
  PF_RETURN_IF_ERROR(CheckLatent(match));
  return match;
}

absl::Status ReadLinearBias(const GroupedAttentionExtras& extras, AttentionUse& match) {
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
  if (attends) return Unfit(*attends, "belongs to no recognised Attention");
  return absl::OkStatus();
}

std::vector<const Value*> RowsBeside(const CompressedMatch& match) {
  std::vector<const Value*> rows;
  if (match.rows) rows = {match.rows->kv, match.rows->gate};
  if (match.choice) {
    rows.insert(rows.end(), {match.choice->query, match.choice->weights, match.choice->keys.kv,
                             match.choice->keys.gate});
  }
  return rows;
}

}  // namespace

absl::StatusOr<std::vector<PagedAttentionSite>> FindPagedAttention(Model& model,
                                                                   SymbolicContents& contents) {
  const auto infer = [&] {
    contents.clear();
    return InferShapes(model, &contents);
  };
  PF_RETURN_IF_ERROR(infer());
  PF_ASSIGN_OR_RETURN(const bool batched, BatchPackedTokens(model));
  if (batched) PF_RETURN_IF_ERROR(infer());
  PF_ASSIGN_OR_RETURN(GroupedAttentionMatches grouped, LowerGroupedAttention(model, contents));
  if (!grouped.empty()) PF_RETURN_IF_ERROR(infer());
  PF_ASSIGN_OR_RETURN(const CompressedMatches compressed_sites,
                      LowerCompressedAttention(model, contents));
  PF_RETURN_IF_ERROR(LowerSinkAttention(model, contents, grouped));
  PF_RETURN_IF_ERROR(LowerAlibiAttention(model, contents, grouped));
  PF_ASSIGN_OR_RETURN(const LatentMatches latent_sites, LowerLatentAttention(model, contents));
  if (!latent_sites.empty()) PF_RETURN_IF_ERROR(infer());
  std::vector<PagedAttentionSite> matches;
  for (const auto& node : model.graph->nodes()) {
    if (!node->Is("Attention")) continue;
    const auto latent = latent_sites.find(node.get());
    const LatentMatch* rows = latent == latent_sites.end() ? nullptr : &latent->second;
    PF_ASSIGN_OR_RETURN(AttentionUse match, ReadMatch(node.get(), rows, contents));
    if (const auto extras = grouped.find(node.get()); extras != grouped.end()) {
      match.sinks = extras->second.sinks;
      PF_RETURN_IF_ERROR(ReadLinearBias(extras->second, match));
    }
    if (const auto compressed = compressed_sites.find(node.get());
        compressed != compressed_sites.end()) {
      match.compressed = compressed->second;
      match.padding = compressed->second.padding;
    }
    matches.push_back(std::move(match));
  }
  if (matches.empty()) PF_RETURN_IF_ERROR(CheckAttendsNot(*model.graph));
  return matches;
}

absl::StatusOr<DecoderInputs> DecoderInputsOf(const Graph& graph,
                                              const std::vector<PagedAttentionSite>& matches) {
  std::vector<Value*> pasts;
  Value* padding = nullptr;
  for (const AttentionUse& match : matches) {
    if (match.latent) {
      pasts.insert(pasts.end(), match.latent->pasts.begin(), match.latent->pasts.end());
    } else {
      for (int past : {Attention::kPastKey, Attention::kPastValue}) {
        Value* value = match.node->input(past);
        Value* input = value ? PastInputOf(value) : nullptr;
        // Keys and values may be parts of one.
        if (input && std::ranges::count(pasts, input) == 0) pasts.push_back(input);
      }
    }
    if (match.padding) padding = const_cast<Value*>(match.padding);
  }
  PF_ASSIGN_OR_RETURN(DecoderInputs inputs, FindDecoderInputs(graph, pasts, padding));
  for (const AttentionUse& match : matches) {
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
    if (match.compressed) sources.beside[match.node] = RowsBeside(*match.compressed);
    if (!match.latent || !match.latent->selection) continue;
    const KeySelection& chosen = *match.latent->selection;
    sources.beside[match.node] = {chosen.query, chosen.weights, chosen.key};
  }
  if (const Value* past = matches[0].node->input(Attention::kPastKey))
    sources.past = (*past->shape())[2];
  return TraceTokens(graph, sources, contents);
}

}  // namespace pagefuse
