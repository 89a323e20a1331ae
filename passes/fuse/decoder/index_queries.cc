// SPDX-License-Identifier: Apache-2.0
// fuse-index-queries: the rotation of an indexer's queries, and the factors of its weights, become
// one op beside the scores over its paged keys (DeepSeek-V3.2 and V4).
//
//   q [T, H, D], R of its channels rotated, -- PagedMqaLogits
//   w [T, H] -- times constants -- PagedMqaLogits
//     =>  q', w' = IndexerQRopeQuant <format = none> (Range (T), q, Concat (cos, sin), w)
//
// Queries are read by element: it does not matter whether heads stand before tokens or behind them,
// nor how the rotated channels, the first ones or the last ones, come to the others again.
#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/passes/analysis/indexing/indexing_analysis.h"
#include "pagefuse/passes/analysis/indexing/layout.h"
#include "pagefuse/passes/edit/graph_builder.h"
#include "pagefuse/passes/edit/graph_edit.h"
#include "pagefuse/passes/edit/ports.h"
#include "pagefuse/passes/edit/readers_text.h"
#include "pagefuse/passes/function_pass.h"
#include "pagefuse/passes/fuse/decoder/rotary_rows.h"
#include "pagefuse/passes/fuse/fuse.h"

namespace pagefuse {
namespace {

constexpr std::string_view kName = "fuse-index-queries";
constexpr int kQueries = 0, kWeights = 2;  // of PagedMqaLogits

absl::Status Unlike(std::string_view value, std::string_view expected, std::string_view got) {
  return absl::FailedPreconditionError(
      StrCat("\"", value, "\": expected ", expected, ", got ", got));
}

std::string Text(const Element& element) {
  return element.producer() ? element.producer()->Description()
                            : StrCat("\"", element.value->name(), "\"");
}

// What the op takes, built before the scores.
struct IndexQuery {
  Value* rows = nullptr;  // [T, H, D]
  Value* cos_sin = nullptr;
  Value* weights = nullptr;
  bool interleaved = false;
  int64_t offset = 0;  // first rotated channel
  float softmax_scale = 1, head_scale = 1;
};

class IndexQueryReader {
 public:
  IndexQueryReader(GraphBuilder& builder, const SymbolicContents& contents, const Node& logits)
      : builder_(builder),
        reader_(contents),
        q_(logits.input(kQueries)),
        weights_(logits.input(kWeights)) {}

  // NotFound if no part of the heads is rotated.
  absl::StatusOr<IndexQuery> Read() {
    PF_RETURN_IF_ERROR(ReadSizes());
    PF_RETURN_IF_ERROR(FindRotation());
    PF_ASSIGN_OR_RETURN(const Element whole, ReadWhole());
    IndexQuery query{.interleaved = IntOr(*rope_, "interleaved", 0) != 0, .offset = offset_};
    Layout layout(builder_, {whole.value});
    PF_ASSIGN_OR_RETURN(query.rows,
                        layout.GatheredPart(whole, {SymbolOf(t_), SymbolOf(h_), AxisSymbols{d_}}));
    PF_ASSIGN_OR_RETURN(Value * cos, TableRows(ports::RotaryEmbedding::kCos));
    PF_ASSIGN_OR_RETURN(Value * sin, TableRows(ports::RotaryEmbedding::kSin));
    query.cos_sin = CosSinRows(builder_, cos, sin);
    PF_RETURN_IF_ERROR(ReadWeights(query));
    return query;
  }

 private:
  // An axis of length 1 is read at 0.
  IndexExpr Along(const Dim& length) {
    return length == Dim(1) ? IndexExpr() : IndexExpr::Of(reader_.NewAxis(length));
  }

  absl::Status ReadSizes() {
    const auto& shape = q_->shape();
    const auto heads = shape && shape->rank() == 3 ? (*shape)[1].constant() : std::nullopt;
    const auto size = heads ? shape->back(0).constant() : std::nullopt;
    if (!size || *size < 2) {
      return Unlike(q_->name(), "[T, H, D] of known heads",
                    shape ? shape->ToString() : std::string("no shape"));
    }
    heads_ = *heads;
    size_ = *size;
    t_ = Along((*shape)[0]);
    h_ = Along((*shape)[1]);
    d_ = reader_.NewAxis(Dim(size_));
    return absl::OkStatus();
  }

  Element QueryAt(const IndexExpr& channel) { return reader_.Source({q_, {t_, h_, channel}}); }

  // The rotation that the first channels or the last ones come from.
  absl::Status FindRotation() {
    const auto rotation_of = [&](int64_t channel) -> const Node* {
      const Element element = QueryAt(IndexExpr(channel));
      return element.From("RotaryEmbedding") ? element.producer() : nullptr;
    };
    const Node *first = rotation_of(0), *last = rotation_of(size_ - 1);
    rope_ = first ? first : last;
    if (!rope_) return absl::NotFoundError("no channels are rotated");
    const auto& cos = rope_->input(ports::RotaryEmbedding::kCos)->shape();
    if (rope_->input(ports::RotaryEmbedding::kPositions) || !cos || cos->rank() != 3 ||
        !cos->back(0).constant() || IntOr(*rope_, "rotary_embedding_dim", 0) != 0) {
      return Unlike(rope_->output(0)->name(), "all channels rotated by rows of known width",
                    rope_->Description());
    }
    rotated_ = 2 * *cos->back(0).constant();
    offset_ = first ? 0 : size_ - rotated_;
    if (rotated_ <= size_ && (!last || !first || rotated_ == size_)) return absl::OkStatus();
    return Unlike(rope_->output(0)->name(),
                  StrCat("the first or the last of ", size_, " channels rotated together"),
                  StrCat(rotated_));
  }

  // What the rotation takes, at channel `r` of its own.
  absl::StatusOr<Element> ReadRotated(const IndexSymbolPtr& r) {
    const Element turned = QueryAt(IndexExpr(offset_) + IndexExpr::Of(r));
    const int rank = static_cast<int>(turned.at.size());
    const IndexExpr channel =
        rank == 4 ? IndexExpr::Of(r) : h_.Times(Dim(rotated_)) + IndexExpr::Of(r);
    const int tokens = rank == 4 ? 2 : 1;
    const bool fits = turned.producer() == rope_ && (rank == 4 || rank == 3) &&
                      turned.at.back().Key() == channel.Key() &&
                      turned.at[tokens].Key() == t_.Key() && turned.at[0].number() == 0 &&
                      (rank == 4 || IntOr(*rope_, "num_heads", 0) == heads_);
    if (!fits) {
      return Unlike(
          q_->name(),
          StrCat("its channels from ", offset_, " on in the order of ", rope_->Description()),
          Text(turned));
    }
    return reader_.Source({rope_->input(0), turned.at});
  }

  // The heads before the rotation, at (t, h, d).
  absl::StatusOr<Element> ReadWhole() {
    const IndexSymbolPtr r = reader_.NewAxis(Dim(rotated_));
    PF_ASSIGN_OR_RETURN(Element whole, ReadRotated(r));
    std::vector<IndexExpr> before = whole.at;  // the channel taken away
    bool found = false;
    for (size_t axis = 0; axis < before.size(); ++axis) {
      if (!before[axis].Mentions(r->key)) continue;
      found = true;
      before[axis] = before[axis] - IndexExpr::Of(r) - IndexExpr(offset_);
      whole.at[axis] = before[axis] + IndexExpr::Of(d_);
    }
    if (!found ||
        std::ranges::any_of(before, [&](const IndexExpr& at) { return at.Mentions(r->key); })) {
      return Unlike(whole.value->name(), "channels in a row", whole.Key());
    }
    if (rotated_ == size_) return whole;
    const IndexSymbolPtr e = reader_.NewAxis(Dim(size_ - rotated_));
    const IndexExpr channel = IndexExpr(offset_ == 0 ? rotated_ : 0) + IndexExpr::Of(e);
    const Element rest = QueryAt(channel);
    bool same = rest.value == whole.value && rest.at.size() == whole.at.size();
    for (size_t axis = 0; same && axis < before.size(); ++axis) {
      const bool runs = whole.at[axis].Mentions(d_->key);
      same = (runs ? before[axis] + channel : before[axis]).Key() == rest.at[axis].Key();
    }
    if (same) return whole;
    return Unlike(q_->name(),
                  StrCat("channels that are not rotated to stand beside the others in \"",
                         whole.value->name(), "\""),
                  Text(rest));
  }

  // Rows [T, R/2] of a table [1, T, R/2].
  absl::StatusOr<Value*> TableRows(int port) {
    Value* table = rope_->input(port);
    const IndexExpr pair = Along(Dim(rotated_ / 2));
    Layout layout(builder_, {table});
    return layout.Gathered({table, {IndexExpr(), t_, pair}}, {SymbolOf(t_), SymbolOf(pair)});
  }

  // Up to two constants are factors of the op, the inner one first.
  absl::Status ReadWeights(IndexQuery& query) {
    Element weights = reader_.Source({weights_, {t_, h_}});
    std::vector<float> factors;
    while (factors.size() < 2 && weights.From("Mul")) {
      const Element sides[] = {reader_.Operand(weights, 0), reader_.Operand(weights, 1)};
      const auto left = reader_.Number(sides[0]), right = reader_.Number(sides[1]);
      if (!left && !right) break;
      factors.insert(factors.begin(), static_cast<float>(left ? *left : *right));
      weights = left ? sides[1] : sides[0];
    }
    if (!factors.empty()) query.softmax_scale = factors[0];
    if (factors.size() > 1) query.head_scale = factors[1];
    Layout layout(builder_, {weights.value});
    PF_ASSIGN_OR_RETURN(query.weights, layout.GatheredPart(weights, {SymbolOf(t_), SymbolOf(h_)}));
    return absl::OkStatus();
  }

  GraphBuilder& builder_;
  IndexingAnalysis reader_;
  Value* q_;
  Value* weights_;
  int64_t heads_ = 0, size_ = 0, rotated_ = 0, offset_ = 0;
  IndexExpr t_, h_;
  IndexSymbolPtr d_;
  const Node* rope_ = nullptr;
};

absl::Status Rewrite(Graph& graph, Node& logits, const SymbolicContents& contents) {
  Value* q = logits.input(kQueries);
  if (!HasOneReader(*q))
    return Unlike(q->name(), "no reader but the scores", ReadersAndCallerText(*q));
  GraphBuilder builder(graph, &logits, logits.output(0)->name());
  PF_ASSIGN_OR_RETURN(const IndexQuery query, IndexQueryReader(builder, contents, logits).Read());
  Node* fused = builder.AddNode(
      "pagefuse", "IndexerQRopeQuant",
      {RowNumbers(builder, query.rows), query.rows, query.cos_sin, query.weights}, 2,
      {{"format", "none"},
       {"interleaved", query.interleaved},
       {"rotary_offset", query.offset},
       {"softmax_scale", query.softmax_scale},
       {"head_scale", query.head_scale}});
  logits.SetInput(kQueries, fused->output(0));
  logits.SetInput(kWeights, fused->output(1));
  return absl::OkStatus();
}

absl::StatusOr<bool> RewriteAll(Model& model, PassContext& context) {
  const SymbolicContents& contents = context.contents;
  bool changed = false;
  for (Node* logits : NodesOf(*model.graph)) {
    if (!logits->Is("PagedMqaLogits", "pagefuse")) continue;
    const auto rewritten = Rewrite(*model.graph, *logits, contents);
    if (rewritten.ok()) {
      PF_RETURN_IF_ERROR(context.Rewrote(model, kName));
      changed = true;
    } else if (!absl::IsNotFound(rewritten)) {
      context.AddMissedMatch(kName, NodeLabel(*logits), StdView(rewritten.message()));
    }
  }
  return changed;
}

}  // namespace

std::unique_ptr<Pass> FuseIndexQueries() {
  return MakePass(
      kName,
      "Fuses the rotation of an indexer's queries and the constant factors of its head weights "
      "into IndexerQRopeQuant.",
      RewriteAll);
}

}  // namespace pagefuse
