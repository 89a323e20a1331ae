// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/passes/paging/static_caches.h"

#include <optional>
#include <vector>

#include "absl/container/flat_hash_set.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/passes/analysis/indexing/layout.h"
#include "pagefuse/passes/analysis/masks/mask_analysis.h"
#include "pagefuse/passes/edit/graph_builder.h"
#include "pagefuse/passes/edit/graph_edit.h"
#include "pagefuse/passes/edit/graph_ports.h"
#include "pagefuse/passes/edit/ports.h"
#include "pagefuse/passes/paging/grouped_attention.h"
#include "pagefuse/passes/recognise/recognise.h"

namespace pagefuse {
namespace {

using ports::Attention;
using ports::ScatterND;

constexpr int kTokens = 2;

// Keys or values: the rows of an input [B, H, N, D], some of which are overwritten.
struct Written {
  Value* past = nullptr;  // the input
  Element fresh;          // what is written, at the axes of [B, H, S, D]
  std::vector<AxisSymbols> axes;
  Value* positions = nullptr;  // the input [S] that says where
};

class WriteReader {
 public:
  explicit WriteReader(const SymbolicContents& contents) : reader_(contents, Trust::kNothing) {}

  std::optional<Written> Read(Value* all) {
    const auto places = reader_.Places(all);
    if (!places.ok() || places->at.size() != 4) return std::nullopt;
    token_ = places->at[kTokens].symbol();
    const Element rows = reader_.Source(*places);
    const bool writes = rows.From("ScatterND") || rows.From("ScatterElements");
    if (!token_ || !writes || StringOr(*rows.producer(), "reduction", "none") != "none") {
      return std::nullopt;
    }
    const std::optional<Element> update = UpdateOf(rows);
    if (!update) return std::nullopt;
    const Element past = reader_.Source({rows.producer()->input(0), rows.at});
    const bool whole = past.value->is_input() && !past.value->initializer() &&
                       past.Key() == Element{past.value, places->at}.Key() &&
                       ProvablyEqual(*past.value->shape(), *all->shape());
    if (!whole) return std::nullopt;
    Written written{.past = past.value, .fresh = *update, .axes = {}, .positions = positions_};
    for (const IndexExpr& index : places->at) {
      written.axes.push_back(index.symbol() ? AxisSymbols{index.symbol()} : AxisSymbols());
    }
    written.axes[kTokens] = {fresh_};
    return written;
  }

 private:
  // What is written at row `first + s`, at the axes of the rows and s.
  std::optional<Element> UpdateOf(const Element& rows) {
    const Node& node = *rows.producer();
    Value* indices = node.input(ScatterND::kIndices);
    Value* updates = node.input(ScatterND::kUpdates);
    const auto &data = rows.value->shape(), &shape = updates->shape();
    if (!data || !shape || !indices->shape() || shape->rank() != data->rank()) return std::nullopt;
    const bool by_row = node.Is("ScatterND");
    const int rank = data->rank();
    const int axis = by_row ? 0 : static_cast<int>(NormalAxis(IntOr(node, "axis", 0), rank));
    if (rows.at[axis].Key() != IndexExpr::Of(token_).Key()) return std::nullopt;
    // Nothing but rows is left out.
    for (int i = 0; i < rank; ++i) {
      if (i != axis && !ProvablyEqual((*shape)[i], (*data)[i])) return std::nullopt;
    }
    fresh_ = reader_.NewAxis((*shape)[axis]);
    Element update{updates, rows.at};
    update.at[axis] = IndexExpr::Of(fresh_);
    Element index{indices, update.at};
    if (by_row) {
      if (indices->shape()->rank() != 2 || indices->shape()->back(0).constant() != 1) {
        return std::nullopt;
      }
      index.at = {IndexExpr::Of(fresh_), IndexExpr()};
    } else if (!ProvablyEqual(*indices->shape(), *shape)) {
      return std::nullopt;
    }
    return ReadsPositions(reader_.ReadIndex(index)) ? std::optional(update) : std::nullopt;
  }

  // positions[s], or positions[0] + s.
  bool ReadsPositions(const IndexExpr& row) {
    for (const IndexExpr& rest : {row, row - IndexExpr::Of(fresh_)}) {
      const IndexSymbolPtr load = rest.symbol();
      if (!load || load->kind != IndexSymbol::Kind::kLoad || load->args.size() != 1) continue;
      const bool own = rest.Key() == row.Key();
      const IndexExpr expected = own ? IndexExpr::Of(fresh_) : IndexExpr();
      const auto& shape = load->tensor->shape();
      if (load->args[0].Key() != expected.Key() || !load->tensor->is_input() || !shape) continue;
      if (shape->rank() != 1 || !ProvablyEqual((*shape)[0], fresh_->extent)) continue;
      positions_ = load->tensor;
      return true;
    }
    return false;
  }

  IndexingAnalysis reader_;
  IndexSymbolPtr token_, fresh_;
  Value* positions_ = nullptr;
};

struct Site {
  Node* attention = nullptr;
  Written keys, values;
};

class Lowering {
 public:
  Lowering(Model& model, SymbolicContents& contents)
      : model_(model), graph_(*model.graph), contents_(contents) {}

  absl::StatusOr<bool> Run() {
    if (!FindSites()) return false;
    PF_RETURN_IF_ERROR(LetPastsGrow());
    for (const Site& site : sites_) PF_RETURN_IF_ERROR(CheckMask(*site.attention));
    for (const Site& site : sites_) PF_RETURN_IF_ERROR(Lower(site));
    ForgetShapes(graph_);
    contents_.clear();
    PF_RETURN_IF_ERROR(InferShapes(model_, &contents_));
    PassContext context;
    PF_RETURN_IF_ERROR(InferShapes(model_, &context.contents));
    PF_RETURN_IF_ERROR(RecogniseAttentionMask()->Run(model_, context).status());
    contents_.clear();
    PF_RETURN_IF_ERROR(InferShapes(model_, &contents_));
    return true;
  }

 private:
  // All attentions have such caches, of one length, written where one input says.
  bool FindSites() {
    for (const auto& node : graph_.nodes()) {
      if (!node->Is("Attention")) continue;
      WriteReader reader(contents_);
      const bool plain = !node->input(Attention::kPastKey) && node->num_outputs() == 1 &&
                         IntOr(*node, "is_causal", 0) == 0 && node->input(Attention::kMask);
      const auto keys = plain ? reader.Read(node->input(Attention::kKey)) : std::nullopt;
      const auto values = keys ? reader.Read(node->input(Attention::kValue)) : std::nullopt;
      if (!values) return false;
      sites_.push_back({node.get(), *keys, *values});
    }
    if (sites_.empty()) return false;
    const Written& first = sites_[0].keys;
    absl::flat_hash_set<const Value*> pasts;
    for (const Site& site : sites_) {
      for (const Written* written : {&site.keys, &site.values}) {
        if (written->positions != first.positions ||
            !ProvablyEqual((*written->past->shape())[kTokens], (*first.past->shape())[kTokens])) {
          return false;
        }
        if (!pasts.insert(written->past).second) return false;
      }
    }
    return TokensOf(*first.positions).has_value();
  }

  // An input that is as long as the positions are many, along an axis.
  std::optional<std::pair<Value*, int>> TokensOf(const Value& positions) const {
    for (Value* input : graph_.inputs()) {
      if (input == &positions || input->initializer() || !input->shape()) continue;
      for (int axis = 0; axis < input->shape()->rank(); ++axis) {
        if (ProvablyEqual((*input->shape())[axis], (*positions.shape())[0]))
          return std::pair(input, axis);
      }
    }
    return std::nullopt;
  }

  // The pasts have as many rows as there are tokens, and positions are counted from there.
  absl::Status LetPastsGrow() {
    const Dim length = Dim::Symbol("past_tokens");
    for (const Site& site : sites_) {
      for (const Written* written : {&site.keys, &site.values}) {
        Shape shape = *written->past->shape();
        shape.dims()[kTokens] = length;
        written->past->set_shape(std::move(shape));
      }
    }
    Value* positions = sites_[0].keys.positions;
    const auto [tokens, axis] = *TokensOf(*positions);
    GraphBuilder builder(graph_, graph_.nodes().front().get(), positions->name());
    const auto scalar = [&](Value* value, int64_t of) {
      return builder.Add("Squeeze", {builder.Size(value, of), builder.Ints({0})});
    };
    Value* first = scalar(sites_[0].keys.past, kTokens);
    Value* end = builder.Add("Add", {first, scalar(tokens, axis)});
    Value* counted = builder.Add("Range", {first, end, builder.Int(1)});
    if (positions->dtype() != DataType::kInt64) counted = builder.Cast(counted, positions->dtype());
    for (const Use& use : std::vector<Use>(positions->uses()))
      use.node->SetInput(use.index, counted);
    RemoveInput(graph_, positions);
    if (!positions->is_output()) graph_.EraseValue(positions);
    ForgetShapes(graph_);
    contents_.clear();
    return InferShapes(model_, &contents_);
  }

  // Rows behind the last one that was written are zeros, or another text's: no query sees them.
  absl::Status CheckMask(const Node& attention) const {
    const absl::StatusOr<MaskForm> form = AnalyseMask(attention.input(Attention::kMask), contents_);
    if (!form.ok()) return Unfit(attention, StdView(form.status().message()));
    const bool hides = form->upper && ProvablyEqual(*form->upper, Dim::Symbol("past_tokens"));
    if (hides) return absl::OkStatus();
    return Unfit(attention,
                 StrCat("expected keys up to those that are written, i + past_tokens, got ",
                        form->upper ? StrCat("i + ", form->upper->ToString()) : "all"));
  }

  absl::Status Lower(const Site& site) {
    Node* node = site.attention;
    GraphBuilder builder(graph_, node, node->output(0)->name());
    PF_ASSIGN_OR_RETURN(Value * key, Fresh(builder, site.keys));
    PF_ASSIGN_OR_RETURN(Value * value, Fresh(builder, site.values));
    Value* keys =
        builder.Add("Add", {builder.Size(site.keys.past, kTokens), builder.Size(key, kTokens)});
    Value* mask = builder.Add(
        "Slice", {node->input(Attention::kMask), builder.Ints({0}), keys, builder.Ints({-1})});
    Node* grown = builder.AddNode(
        "", "Attention",
        {node->input(Attention::kQuery), key, value, mask, site.keys.past, site.values.past}, 3,
        *node);
    TakePlace(*grown, *node);
    graph_.ReplaceAllUses(node->output(0), grown->output(0));
    Value* all[] = {node->input(Attention::kKey), node->input(Attention::kValue)};
    graph_.EraseNode(node);
    graph_.ReplaceAllUses(all[0], grown->output(Attention::kPresentKey));
    graph_.ReplaceAllUses(all[1], grown->output(Attention::kPresentValue));
    for (const std::string& name : {all[0]->name(), all[1]->name()}) {
      const Value* left = graph_.FindValue(name);
      if (left && left->producer()) graph_.EraseIfDead(left->producer());
    }
    return absl::OkStatus();
  }

  static absl::StatusOr<Value*> Fresh(GraphBuilder& builder, const Written& written) {
    return Layout(builder, {written.fresh.value}).Gathered(written.fresh, written.axes);
  }

  Model& model_;
  Graph& graph_;
  SymbolicContents& contents_;
  std::vector<Site> sites_;
};

}  // namespace

absl::StatusOr<bool> LowerStaticCaches(Model& model, SymbolicContents& contents) {
  return Lowering(model, contents).Run();
}

}  // namespace pagefuse
