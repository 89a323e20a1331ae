// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/passes/paging/compressed_matches.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/passes/analysis/attention/sink_match.h"
#include "pagefuse/passes/analysis/indexing/factors.h"
#include "pagefuse/passes/analysis/indexing/layout.h"
#include "pagefuse/passes/edit/graph_edit.h"
#include "pagefuse/passes/edit/op_types.h"
#include "pagefuse/passes/paging/attention_extras.h"
#include "pagefuse/passes/paging/grouped_attention.h"

namespace pagefuse {
namespace {

// What the softmax with a sink is over, taken apart.
struct Scores {
  Element query, key;
  float scale = 1;
  std::vector<Element> masks;  // added one by one
};

// A stretch of keys: rows of one tensor.
struct Segment {
  IndexSymbolPtr axis;
  Dim begin;
  Element part;  // at (b, axis, d), as it was joined
  Element key;   // and where it comes from
};

class MatchReader {
 public:
  MatchReader(Graph& graph, const SinkMatch& sink, const SymbolicContents& contents)
      : graph_(graph),
        sink_(sink),
        contents_(contents),
        reader_(contents),
        builder_(graph, sink.softmax, sink.softmax->output(0)->name()) {}

  // NotFound if this is another attention; FailedPrecondition if it is nearly one.
  absl::Status Read() {
    PF_ASSIGN_OR_RETURN(const Element whole, reader_.Whole(sink_.scores));
    b_ = whole.at[0];
    s_ = whole.at[2];
    t_ = whole.at[3].symbol();
    if (!t_) return absl::NotFoundError("one key");
    PF_ASSIGN_OR_RETURN(const Scores scores, ReadScores(whole));
    PF_ASSIGN_OR_RETURN(const std::vector<Segment> segments, ReadSegments(whole, scores));
    PF_RETURN_IF_ERROR(ReadWindow(scores, segments[0]));
    match_.heads = (*sink_.scores->shape())[1].constant().value_or(0);
    match_.size = d_->extent.constant().value_or(0);
    if (match_.heads < 1 || match_.size < 1) return MatchFailure("heads of known number and size");
    if (segments.size() > 1) PF_RETURN_IF_ERROR(ReadCompressed(scores, segments[1]));
    PF_ASSIGN_OR_RETURN(match_.sinks, SinksByHead(graph_, sink_, contents_));
    if (sink_.sinks->dtype() != DataType::kFloat) {
      match_.sinks = builder_.Cast(match_.sinks, DataType::kFloat);
    }
    return BuildNode(scores, segments[0]);
  }

  Node* node() const { return node_; }
  CompressedMatch match() { return std::move(match_); }
  // What the keys were read from: outputs that give back parts of them are those of a cache.
  const std::vector<const Value*>& states() const { return states_; }

 private:
  absl::Status MatchFailure(std::string_view why) const { return Unfit(*sink_.softmax, why); }

  // The summands of the scores: one product of queries and keys, and masks.
  absl::StatusOr<Scores> ReadScores(const Element& whole) {
    std::vector<Element> open = {whole};
    Scores scores;
    while (!open.empty()) {
      const Element term = reader_.Source(open.back());
      open.pop_back();
      if (term.From("Add")) {
        open.push_back(reader_.Operand(term, 0));
        open.push_back(reader_.Operand(term, 1));
        continue;
      }
      const Factors factors = FactorsOf(reader_, term);
      const auto product =
          factors.others.size() == 1 ? ProductOf(reader_, factors.others[0]) : std::nullopt;
      if (!product) {
        scores.masks.push_back(term);
        continue;
      }
      if (d_) return absl::NotFoundError("two products");
      d_ = product->summed;
      query_ = factors.others[0].producer()->input(0);
      scores.scale = static_cast<float>(factors.number);
      scores.key = product->right;
    }
    if (!d_) return absl::NotFoundError("no product");
    return scores;
  }

  // Keys that are values, of one head.
  absl::StatusOr<std::vector<Segment>> ReadSegments(const Element& whole, const Scores& scores) {
    Value* values = sink_.sum->input(1);
    if (!values->shape() || values->shape()->rank() != 4) return absl::NotFoundError("values");
    const Element value =
        reader_.Source({values, {b_, whole.at[1], IndexExpr::Of(t_), IndexExpr::Of(d_)}});
    const bool by_head =
        whole.at[1].symbol() && std::ranges::any_of(value.at, [&](const IndexExpr& index) {
          return index.Mentions(whole.at[1].symbol()->key);
        });
    if (value.Key() != scores.key.Key() || by_head) {
      return absl::NotFoundError("keys and values are not the same rows for all heads");
    }
    // What a step of one token does depends on which windows it closes.
    if (!s_.symbol()) {
      return MatchFailure(
          "reads the rows of one token and of earlier ones: it closes no window, or a fixed one; "
          "page the export of the prefill, or that without a cache");
    }
    std::vector<Segment> segments = SegmentsOf(scores.key);
    if (segments.size() > 2)
      return MatchFailure(StrCat("expected keys of at most two kinds, got ", segments.size()));
    const Dim queries = (*sink_.scores->shape())[2];
    if (ProvablyEqual(segments[0].axis->extent, queries)) return segments;
    return MatchFailure(StrCat("expected a row for each of ", queries.ToString(),
                               " tokens first among the keys, got ",
                               segments[0].axis->extent.ToString()));
  }

  std::vector<Segment> SegmentsOf(const Element& key) {
    const int rank = static_cast<int>(key.at.size());
    const Node* join = key.producer();
    const int axis = join ? static_cast<int>(NormalAxis(IntOr(*join, "axis", 0), rank)) : 0;
    if (!key.From("Concat") || key.at[axis].Key() != IndexExpr::Of(t_).Key()) {
      return {{t_, Dim(0), key, key}};
    }
    std::vector<Segment> segments;
    Dim begin(0);
    for (Value* part : join->inputs()) {
      const Dim length = part->shape() ? (*part->shape())[axis] : Dim();
      Segment segment{reader_.NewAxis(length), begin, {part, key.at}, {}};
      segment.part.at[axis] = IndexExpr::Of(segment.axis);
      segment.key = reader_.Source(segment.part);
      segments.push_back(std::move(segment));
      begin = begin + length;
    }
    return segments;
  }

  // The mask where its keys are those of a segment.
  Element MaskOver(const Element& mask, const Segment& segment) {
    Element part = mask;
    const IndexExpr place = IndexExpr::Of(segment.axis) + IndexExpr(segment.begin);
    for (IndexExpr& index : part.at) index = reader_.ReadAt(index, t_, place);
    return reader_.Source(part);
  }

  // t <= s, t > s - W, and tokens that are no padding.
  absl::Status ReadWindow(const Scores& scores, const Segment& rows) {
    const IndexExpr t = IndexExpr::Of(rows.axis);
    bool causal = false;
    for (const Element& mask : scores.masks) {
      PF_ASSIGN_OR_RETURN(const Conditions seen, Hiding(MaskOver(mask, rows)));
      for (const IndexExpr& condition : seen) {
        const auto reach = (condition + s_ - t).number();
        if (condition.Key() == (s_ - t).Key()) {
          causal = true;
        } else if (reach && *reach >= 0) {
          window_ = window_ == 0 ? *reach + 1 : std::min(window_, *reach + 1);
        } else if (!TakePadding(condition, t)) {
          return MatchFailure(StrCat("its mask over the tokens' own rows shows a row t where ",
                                     condition.Key(), " >= 0: expected limits of a window"));
        }
      }
    }
    if (!causal) return MatchFailure("is not causal");
    return absl::OkStatus();
  }

  absl::StatusOr<Conditions> Hiding(const Element& mask) {
    auto seen = reader_.ReadHiding(mask);
    if (seen.ok()) return seen;
    return MatchFailure(StrCat("its mask: ", StdView(seen.status().message())));
  }

  // padding[b, t] is not 0.
  bool TakePadding(const IndexExpr& condition, const IndexExpr& t) {
    const IndexSymbolPtr load = (condition + IndexExpr(1)).symbol();
    const bool is_padding =
        load && load->kind == IndexSymbol::Kind::kLoad && load->tensor->is_input() &&
        !load->tensor->initializer() && load->args.size() == 2 && load->args[0].Key() == b_.Key() &&
        load->args[1].Key() == t.Key() && (!match_.padding || match_.padding == load->tensor);
    if (is_padding) match_.padding = load->tensor;
    return is_padding;
  }

  absl::Status ReadCompressed(const Scores& scores, const Segment& windows) {
    auto rows = ReadCompressedRows(reader_, {windows.key, b_, windows.axis, d_});
    if (!rows.ok()) return MatchFailure(StdView(rows.status().message()));
    const WindowMask of{b_, s_, windows.axis, rows->ratio};
    if (scores.masks.size() != 1) {
      return MatchFailure(
          StrCat("expected one mask over compressed rows, got ", scores.masks.size()));
    }
    auto closed = ReadCompletedWindows(builder_, reader_, MaskOver(scores.masks[0], windows), of);
    if (!closed.ok()) return MatchFailure(StdView(closed.status().message()));
    match_.rows = *std::move(rows);
    match_.choice = std::move(closed->choice);
    match_.positions = closed->positions;
    TakeStates(*match_.rows);
    if (match_.choice) TakeStates(match_.choice->keys);
    return absl::OkStatus();
  }

  void TakeStates(const CompressedRows& rows) {
    states_.insert(states_.end(), rows.states.begin(), rows.states.end());
  }

  absl::Status BuildNode(const Scores& scores, const Segment& rows) {
    if (window_ == 0) return absl::NotFoundError("no window");
    const Element& part = rows.part;
    Layout layout(builder_, {part.value});
    const AxisSymbols batch = SymbolOf(b_);
    const bool as_it_is = part.at.size() == 4 && part.at[0].Key() == b_.Key() &&
                          part.at[2].Key() == IndexExpr::Of(rows.axis).Key() &&
                          part.at[3].Key() == IndexExpr::Of(d_).Key();
    auto row = as_it_is ? absl::StatusOr<Value*>(part.value)
                        : layout.GatheredPart(part, {batch, {}, {rows.axis}, {d_}});
    if (!row.ok()) return MatchFailure(StdView(row.status().message()));
    states_.insert(states_.end(), {part.value, rows.key.value});
    Node* attention = builder_.AddNode(
        "", "Attention", {query_, *row, *row}, 1,
        {{"is_causal", 1}, {"left_window_size", window_ - 1}, {"scale", scores.scale}});
    TakePlace(*attention, *sink_.sum);
    node_ = attention;
    return absl::OkStatus();
  }

  Graph& graph_;
  const SinkMatch& sink_;
  const SymbolicContents& contents_;
  IndexingAnalysis reader_;
  GraphBuilder builder_;
  IndexExpr b_, s_;
  IndexSymbolPtr t_, d_;
  Value* query_ = nullptr;
  int64_t window_ = 0;
  Node* node_ = nullptr;
  CompressedMatch match_;
  std::vector<const Value*> states_;
};

using States = absl::flat_hash_set<const Value*>;

// Parts of states, moved; scores with their bias are such a part.
bool IsPartOf(const Value* value, States& states) {
  if (states.contains(value)) return true;
  const Node* node = value->producer();
  if (!node) return false;
  if (node->Is("Concat")) {
    const bool parts = std::ranges::all_of(
        node->inputs(), [&](const Value* input) { return IsPartOf(input, states); });
    // It is not looked through again.
    if (parts) states.insert(value);
    return parts;
  }
  if (node->Is("Add")) {
    return (node->input(1)->IsConstant() && IsPartOf(node->input(0), states)) ||
           (node->input(0)->IsConstant() && IsPartOf(node->input(1), states));
  }
  return IsAnyOf(*node, {"Slice", "Gather", "Split", "Identity", "Reshape", "Squeeze", "Unsqueeze",
                         "Transpose", "Expand"}) &&
         IsPartOf(node->input(0), states);
}

// Nothing sums by the softmax any longer. What it was computed from stays: matches have a use for it.
void EraseSum(Graph& graph, const SinkMatch& sink) {
  Node* node = sink.sum;
  while (node != sink.softmax) {
    Node* before = node->input(0)->producer();
    graph.EraseNode(node);
    node = before;
  }
  graph.EraseNode(node);
}

void DropStates(Graph& graph, States& states) {
  for (int i = static_cast<int>(graph.outputs().size()) - 1; i >= 0; --i) {
    if (IsPartOf(graph.outputs()[i], states)) graph.RemoveOutput(i);
  }
}

}  // namespace

absl::Status LowerCompressedAttention(Model& model, SymbolicContents& contents,
                                      ExtrasOfAttention& extras) {
  Graph& graph = *model.graph;
  States states;
  std::vector<SinkMatch> replaced;  // erased behind the walk, which comes to them
  for (Node* node : NodesOf(graph)) {
    const auto sink = SinkMatchAt(node, contents);
    if (!sink) continue;
    MatchReader reader(graph, *sink, contents);
    const absl::Status read = reader.Read();
    if (absl::IsNotFound(read)) continue;
    PF_RETURN_IF_ERROR(read);
    graph.ReplaceAllUses(sink->sum->output(0), reader.node()->output(0));
    states.insert(reader.states().begin(), reader.states().end());
    extras.At(reader.node()).compressed = reader.match();
    replaced.push_back(*sink);
  }
  if (replaced.empty()) return absl::OkStatus();
  for (const SinkMatch& sink : replaced) EraseSum(graph, sink);
  DropStates(graph, states);
  contents.clear();
  return InferShapes(model, &contents);
}

}  // namespace pagefuse
