// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/passes/paging/compressed_rows.h"

#include <string>
#include <utility>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/passes/analysis/indexing/factors.h"
#include "pagefuse/passes/edit/graph_edit.h"
#include "pagefuse/passes/edit/ports.h"

namespace pagefuse {
namespace {

using ports::RotaryEmbedding;

std::string Text(const Element& element) {
  return StrCat("\"", element.value->name(), "\"[", element.Key(), "]");
}

class RowsReader {
 public:
  RowsReader(IndexingAnalysis& reader, const CompressedKey& key) : reader_(reader), key_(key) {}

  absl::StatusOr<CompressedRows> Read() {
    rows_.size = key_.channel->extent.constant().value_or(0);
    const Element key = reader_.Source(key_.key);
    if (key.From("RotaryEmbedding")) {
      TakeAllRotated(key);
    } else if (key.From("Concat")) {
      PF_RETURN_IF_ERROR(ReadParts(key));
    } else {
      return MatchFailure(key, "channels that pass beside rotated ones");
    }
    PF_RETURN_IF_ERROR(ReadNorm());
    PF_RETURN_IF_ERROR(ReadRotation());
    rows_.states = {key.value, rows_.kv, rows_.gate};
    return std::move(rows_);
  }

 private:
  absl::Status MatchFailure(const Element& got, std::string_view expected) const {
    return absl::FailedPreconditionError(StrCat("compressed rows \"", key_.key.value->name(),
                                                "\": expected ", expected, ", got ", Text(got)));
  }

  void TakeAllRotated(const Element& key) {
    passed_ = turned_ = IndexExpr::Of(key_.channel);
    rotated_ = key;
    normed_ = reader_.Source({key.producer()->input(0), key.at});
  }

  // The channels that pass, then those that are rotated.
  absl::Status ReadParts(const Element& key) {
    const Node& concat = *key.producer();
    const int rank = static_cast<int>(key.at.size());
    const int axis = static_cast<int>(NormalAxis(IntOr(concat, "axis", 0), rank));
    const IndexSymbolPtr along = key.at[axis].symbol();
    if (concat.num_inputs() != 2 || !along || along->key != key_.channel->key) {
      return MatchFailure(key, "two parts of the channels");
    }
    const auto part = [&](int i) {
      const auto& shape = concat.input(i)->shape();
      return Element{concat.input(i), ChannelsOf(key, axis, shape ? (*shape)[axis] : Dim())};
    };
    const Element passed = part(0), rotated = part(1);
    passed_ = passed.at[axis];
    turned_ = rotated.at[axis];
    normed_ = reader_.Source(passed);
    rotated_ = reader_.Source(rotated);
    return absl::OkStatus();
  }

  std::vector<IndexExpr> ChannelsOf(const Element& key, int axis, const Dim& count) {
    std::vector<IndexExpr> at = key.at;
    at[axis] = IndexExpr::Of(reader_.NewAxis(count));
    return at;
  }

  absl::Status ReadRotation() {
    const Element& rotated = rotated_;
    const IndexExpr& channel = turned_;
    const Node* rope = rotated.producer();
    const auto size = channel.symbol()->extent.constant();
    const bool fits = rope && rope->Is("RotaryEmbedding") && IntOr(*rope, "interleaved", 0) == 1 &&
                      !rope->input(RotaryEmbedding::kPositions) && rotated.at.size() == 4 &&
                      rotated.at[3].Key() == channel.Key() && size && *size % 2 == 0 &&
                      (IntOr(*rope, "rotary_embedding_dim", 0) == 0 ||
                       IntOr(*rope, "rotary_embedding_dim", 0) == *size);
    if (!fits) return MatchFailure(rotated, "a rotation of pairs of the last channels");
    reader_.Visit(*rope);
    rows_.angles.pairs = *size / 2;
    const int64_t first = rows_.size - *size;
    // The same row of the norm on both sides, channel by channel.
    const Element turned_row = reader_.Source({rope->input(0), rotated.at});
    Element expected = normed_;
    for (IndexExpr& index : expected.at) {
      if (index.Key() == passed_.Key()) index = channel + IndexExpr(first);
    }
    if (turned_row.Key() != expected.Key()) {
      return MatchFailure(turned_row,
                          StrCat("the channels behind those that pass, ", Text(expected)));
    }
    const IndexSymbolPtr pair = reader_.NewAxis(Dim(rows_.angles.pairs));
    const std::vector<IndexExpr> at = {rotated.at[0], rotated.at[2], IndexExpr::Of(pair)};
    PF_RETURN_IF_ERROR(ReadTable({rope->input(RotaryEmbedding::kCos), at}, "Cos", pair));
    return ReadTable({rope->input(RotaryEmbedding::kSin), at}, "Sin", pair);
  }

  // cos or sin of place * frequency [pair], times a factor.
  absl::Status ReadTable(const Element& table, std::string_view function,
                         const IndexSymbolPtr& pair) {
    const Factors factors = FactorsOf(reader_, table);
    if (factors.others.size() != 1 || !factors.others[0].From(function)) {
      return MatchFailure(reader_.Source(table), StrCat(function, " of angles"));
    }
    const float factor = static_cast<float>(factors.number);
    const Element angle = reader_.Operand(factors.others[0], 0);
    std::vector<Element> sides;
    if (const auto product = ProductOf(reader_, angle)) {
      if (product->summed->extent != Dim(1)) return MatchFailure(angle, "places times frequencies");
      sides = {product->left, product->right};
    } else if (angle.From("Mul")) {
      sides = {reader_.Operand(angle, 0), reader_.Operand(angle, 1)};
    }
    if (sides.size() != 2) return MatchFailure(angle, "places times frequencies");
    if (sides[1].value->IsConstant()) std::swap(sides[0], sides[1]);
    return TakeAngles(sides[0], sides[1], {.pair = pair, .factor = factor});
  }

  struct TableOf {
    IndexSymbolPtr pair;
    float factor;
  };
  absl::Status TakeAngles(const Element& frequency, const Element& place, const TableOf& table) {
    const Tensor* numbers = ConstantOf(frequency.value);
    if (!numbers || numbers->size() != rows_.angles.pairs || numbers->dtype() != DataType::kFloat ||
        !RunsAlong(frequency, table.pair)) {
      return MatchFailure(frequency, StrCat("a constant of ", rows_.angles.pairs, " frequencies"));
    }
    const IndexExpr begin = IndexExpr::Of(key_.window).Times(Dim(rows_.ratio));
    const IndexExpr read = reader_.ReadIndex(place);
    if (read.Key() != begin.Key()) {
      return MatchFailure(place, StrCat("the place where a window begins, ", begin.Key(), ", in \"",
                                        read.Key(), "\""));
    }
    RotaryAngles& angles = rows_.angles;
    const bool same = !angles.frequencies ||
                      (angles.frequencies == frequency.value && angles.factor == table.factor);
    if (!same) return MatchFailure(frequency, "cos and sin of the same angles");
    angles.frequencies = frequency.value;
    angles.factor = table.factor;
    return absl::OkStatus();
  }

  static bool RunsAlong(const Element& element, const IndexSymbolPtr& symbol) {
    int along = 0;
    for (const IndexExpr& index : element.at) {
      if (index.Key() == IndexExpr::Of(symbol).Key()) {
        ++along;
      } else if (index.number() != 0) {
        return false;
      }
    }
    return along == (symbol->extent == Dim(1) ? 0 : 1);
  }

  absl::Status ReadNorm() {
    const Node* norm = normed_.producer();
    const int rank = static_cast<int>(normed_.at.size());
    const bool fits = norm && norm->Is("RMSNormalization") && rank > 0 &&
                      NormalAxis(IntOr(*norm, "axis", -1), rank) == rank - 1 &&
                      normed_.at.back().Key() == passed_.Key();
    if (!fits) return MatchFailure(normed_, "rows behind an RMSNormalization");
    reader_.Visit(*norm);
    rows_.norm_weight = norm->input(1);
    const auto& weight = rows_.norm_weight->shape();
    if (!weight || *weight != Shape{Dim(rows_.size)} || !rows_.norm_weight->IsConstant()) {
      return MatchFailure(normed_, StrCat("a norm by ", rows_.size, " constant weights"));
    }
    PF_ASSIGN_OR_RETURN(rows_.epsilon, norm->FloatAttribute("epsilon", 1e-5f));
    Element row{norm->input(0), normed_.at};
    row.at.back() = IndexExpr::Of(key_.channel);
    return ReadWindows(reader_.Source(row));
  }

  absl::Status ReadWindows(const Element& row) {
    const Node* node = row.producer();
    const bool fits = node && node->Is("WindowCompress", "pagefuse") && row.at.size() == 3 &&
                      row.at[0].Key() == key_.batch.Key() &&
                      row.at[1].Key() == IndexExpr::Of(key_.window).Key() &&
                      row.at[2].Key() == IndexExpr::Of(key_.channel).Key();
    if (!fits) return MatchFailure(row, "rows that windows of tokens were compressed to");
    reader_.Visit(*node);
    rows_.kv = node->input(0);
    rows_.gate = node->input(1);
    rows_.bias = node->input(2);
    rows_.ratio = IntOr(*node, "ratio", 0);
    rows_.overlap = IntOr(*node, "overlap", 0) != 0;
    return absl::OkStatus();
  }

  IndexingAnalysis& reader_;
  const CompressedKey& key_;
  CompressedRows rows_;
  // The parts of the channels, and the index that runs over each.
  Element normed_, rotated_;
  IndexExpr passed_, turned_;
};

}  // namespace

absl::StatusOr<CompressedRows> ReadCompressedRows(IndexingAnalysis& reader,
                                                  const CompressedKey& key) {
  return RowsReader(reader, key).Read();
}

Value* CosSinRows(GraphBuilder& builder, const RotaryAngles& angles, Value* places) {
  Value* numbers = builder.Cast(places, angles.frequencies->dtype());
  Value* column = builder.Add("Unsqueeze", {numbers, builder.Ints({1})});
  Value* frequencies = builder.Reshape(angles.frequencies, {1, angles.pairs});
  Value* angle = builder.Add("Mul", {column, frequencies});
  Value* row = builder.Add("Concat", {builder.Add("Cos", {angle}), builder.Add("Sin", {angle})},
                           {{"axis", 1}});
  if (angles.factor == 1) return row;
  return builder.Add("Mul", {row, builder.Float(angles.factor, angles.frequencies->dtype())});
}

}  // namespace pagefuse
