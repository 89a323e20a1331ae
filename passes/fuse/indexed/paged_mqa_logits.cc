// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/passes/fuse/indexed/paged_mqa_logits.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/passes/analysis/indexing/byte_rows.h"
#include "pagefuse/passes/analysis/indexing/index_tensor.h"
#include "pagefuse/passes/edit/match_failure.h"
#include "pagefuse/passes/edit/ports.h"
#include "pagefuse/passes/fuse/indexed/attention_mask_ports.h"

namespace pagefuse {
namespace {

using Kind = IndexSymbol::Kind;

constexpr int64_t kScaleBytes = 4;

// An index into an axis of that length, without the limits that keep it inside.
IndexExpr WithoutLimits(const IndexExpr& index, const Dim& length) {
  const IndexSymbolPtr symbol = index.symbol();
  if (!symbol || (symbol->kind != Kind::kMax && symbol->kind != Kind::kMin)) return index;
  const Dim limit = symbol->kind == Kind::kMax ? Dim(0) : length - Dim(1);
  for (int side : {0, 1}) {
    const IndexExpr& other = symbol->args[side];
    if (other.is_constant() && limit.known() && ProvablyEqual(other.constant(), limit)) {
      return WithoutLimits(symbol->args[1 - side], length);
    }
  }
  return index;
}

// A table's entry whose indices are read without limits.
IndexSymbolPtr WithoutLimits(const IndexSymbol& entry) {
  const auto& shape = entry.tensor->shape();
  std::vector<IndexExpr> at = entry.args;
  for (size_t axis = 0; shape && axis < at.size(); ++axis) {
    at[axis] = WithoutLimits(at[axis], (*shape)[static_cast<int>(axis)]);
  }
  return MakeLoad(entry.tensor, std::move(at));
}

// The entry of the block table in the address of a key, and how far blocks lie apart.
struct Blocks {
  IndexSymbolPtr entry;  // without limits
  int64_t size = 0;
  IndexExpr limited;  // as it stands in addresses
};
std::optional<Blocks> BlocksOf(const LogitsMatch& match) {
  const auto address = AddressOf(match.key);
  if (!address) return std::nullopt;
  Dim all(1);
  for (const Dim& dim : match.key.value->shape()->dims()) all = all * dim;
  for (const auto& [key, term] : address->terms()) {
    const auto size = term.second.constant();
    if (!size || *size <= 0) continue;
    const IndexExpr block = IndexExpr::Of(term.first);
    const IndexSymbolPtr entry = WithoutLimits(block, all.FloorDiv(Dim(*size))).symbol();
    if (entry && entry->kind == Kind::kLoad && entry->args.size() == 2) {
      return Blocks{WithoutLimits(*entry), *size, block};
    }
  }
  return std::nullopt;
}

// What the op needs besides the table: how rows lie in a block and belong to sequences.
struct PagedMatch {
  std::string format;
  int64_t block_size = 0;
  PagedAxes axes;
  AttentionMaskPorts visible;
  int64_t ratio = 1;
};

class PagedReader {
 public:
  PagedReader(IndexingAnalysis& reader, const LogitsMatch& match, const Blocks& blocks)
      : reader_(reader), match_(match), blocks_(blocks) {}

  absl::StatusOr<PagedMatch> Read() {
    const DataType type = match_.key.value->dtype();
    const bool codes = IsCodeType(type);
    PF_RETURN_IF_ERROR(codes ? ReadCodes() : ReadNumbers());
    paged_.format = codes ? "fp8" : "bf16";
    PF_RETURN_IF_ERROR(ReadAxes());
    return std::move(paged_);
  }

 private:
  // An address with the block's number as the table has it.
  IndexExpr InBlocks(const IndexExpr& address) const {
    const Dim size(blocks_.size);
    return address - blocks_.limited.Times(size) + IndexExpr::Of(blocks_.entry).Times(size);
  }

  // How many keys a block holds, if they take that many units each; 0 if they do not.
  int64_t KeysOfBlock(int64_t units) const {
    return blocks_.size % units == 0 ? blocks_.size / units : 0;
  }

  absl::Status CheckAddress(std::string_view what, const IndexExpr& found,
                            const IndexExpr& in_block) const {
    const IndexExpr expected = IndexExpr::Of(blocks_.entry).Times(Dim(blocks_.size)) + in_block;
    const IndexExpr here = InBlocks(found);
    if (here.Key() == expected.Key()) return absl::OkStatus();
    return MatchFailure(what, " lie at ", here.Key(), ", expected ", expected.Key());
  }

  // A block holds the codes of all its keys, then their scales.
  absl::Status ReadCodes() {
    const auto head_size = match_.d->extent.constant();
    if (match_.key_factors.size() != 1) return MatchFailure("keys have no scale, or more than one");
    const auto scale = BytesOf(reader_, match_.key_factors[0]);
    if (!head_size || !scale || scale->bytes != match_.key.value || scale->count != kScaleBytes) {
      return MatchFailure("keys and scales do not lie as bytes in one cache");
    }
    paged_.block_size = KeysOfBlock(*head_size + kScaleBytes);
    if (paged_.block_size == 0)
      return MatchFailure("a block of the cache holds no whole number of keys");
    const IndexExpr row = Row();
    PF_RETURN_IF_ERROR(CheckAddress("codes", *AddressOf(match_.key),
                                    row.Times(Dim(*head_size)) + IndexExpr::Of(match_.d)));
    return CheckAddress("scales", scale->first,
                        IndexExpr(paged_.block_size * *head_size) + row.Times(Dim(kScaleBytes)));
  }

  // A block holds its keys one behind the other.
  absl::Status ReadNumbers() {
    const auto head_size = match_.d->extent.constant();
    if (!match_.key_factors.empty()) return MatchFailure("keys that are no codes have a scale");
    if (!head_size) return MatchFailure("the size of keys is not known");
    paged_.block_size = KeysOfBlock(*head_size);
    if (paged_.block_size == 0)
      return MatchFailure("a block of the cache holds no whole number of keys");
    return CheckAddress("keys", *AddressOf(match_.key),
                        Row().Times(Dim(*head_size)) + IndexExpr::Of(match_.d));
  }

  // The place of a key in its block.
  IndexExpr Row() const { return DivMod(IndexExpr::Of(match_.n), Dim(paged_.block_size)).second; }

  // Scores see keys as rows of an attention do that has no values.
  absl::Status ReadAxes() {
    AttentionMatch rows;
    rows.output = match_.output;
    rows.n = rows.d = match_.n;
    for (const IndexExpr& condition : match_.visible) {
      PF_ASSIGN_OR_RETURN(const IndexExpr in_tokens, InTokens(condition));
      rows.visible.push_back(in_tokens);
    }
    ReadRows keys;
    keys.codes = {match_.key.value, {InBlocks(*AddressOf(match_.key))}};
    PF_ASSIGN_OR_RETURN(paged_.axes, PagedAxesOf(rows, keys));
    if (paged_.axes.sequence.size() != 1 || !paged_.axes.heads.empty() ||
        !paged_.axes.groups.empty()) {
      return MatchFailure("the table is not read by sequence");
    }
    PF_ASSIGN_OR_RETURN(paged_.visible, AttentionMaskPortsOf(rows, paged_.axes));
    const AttentionMaskPorts& visible = paged_.visible;
    if (visible.causal && visible.window == 0 && visible.chunk == 0 && !visible.causal_flags) {
      return absl::OkStatus();
    }
    return MatchFailure("rows do not see all keys up to their own");
  }

  // n < tokens / ratio, asked of n as if a key were a token.
  absl::StatusOr<IndexExpr> InTokens(const IndexExpr& condition) {
    if (ProvablyNotNegative(condition.Lower())) return condition;
    IndexExpr in_tokens = condition;
    int64_t ratio = 1;
    for (const auto& [key, term] : condition.terms()) {
      const IndexSymbol& symbol = *term.first;
      const bool seen = symbol.kind == Kind::kDiv && term.second.constant() == 1 &&
                        !symbol.args[0].Mentions(match_.n->key) && symbol.divisor.constant();
      if (!seen || ratio != 1) continue;
      // tokens / ratio + more - 1 - n
      ratio = *symbol.divisor.constant();
      const IndexExpr n = IndexExpr::Of(match_.n);
      const auto more = (condition - IndexExpr::Of(term.first) + n + IndexExpr(1)).number();
      if (!more) return MatchFailure("the condition ", condition.Key(), " >= 0 is no count");
      in_tokens = symbol.args[0] + IndexExpr(*more * ratio - 1) - n;
    }
    if (ratio_ && *ratio_ != ratio) {
      return MatchFailure("rows see keys of ", *ratio_, " and of ", ratio, " tokens");
    }
    ratio_ = paged_.ratio = ratio;
    return in_tokens;
  }

  IndexingAnalysis& reader_;
  const LogitsMatch& match_;
  const Blocks& blocks_;
  PagedMatch paged_;
  std::optional<int64_t> ratio_;
};

class PagedLogitsPorts {
 public:
  PagedLogitsPorts(GraphBuilder& builder, IndexingAnalysis& reader, const LogitsMatch& match,
                   const PagedMatch& paged)
      : builder_(builder),
        reader_(reader),
        match_(match),
        axes_(paged.axes),
        paged_(paged),
        layout_(builder, {match.query.value, match.key.value, paged.axes.block->tensor}) {}

  absl::StatusOr<Value*> Build() {
    PF_ASSIGN_OR_RETURN(const AxisSymbols rows, RowsOfLogits(match_));
    std::vector<Value*> inputs(7, nullptr);
    PF_ASSIGN_OR_RETURN(inputs[0], Query(rows));
    PF_ASSIGN_OR_RETURN(inputs[1], Cache());
    PF_ASSIGN_OR_RETURN(inputs[2], WeightsOfLogits(builder_, layout_, match_));
    PF_ASSIGN_OR_RETURN(inputs[3], Lengths());
    PF_ASSIGN_OR_RETURN(inputs[4], Table());
    PF_ASSIGN_OR_RETURN(inputs[5], Width());
    if (axes_.ragged) inputs[6] = layout_.AsInt32(paged_.visible.first_tokens);
    while (!inputs.back()) inputs.pop_back();
    Node* node = builder_.AddNode("pagefuse", "PagedMqaLogits", inputs, 1);
    node->SetAttribute("clean_logits", MakeAttribute(int64_t{1}));
    node->SetAttribute("format", MakeAttribute(paged_.format));
    node->SetAttribute("ratio", MakeAttribute(paged_.ratio));
    return layout_.Spread(node->output(0), {rows, {match_.n}}, match_.output);
  }

 private:
  absl::StatusOr<Value*> Query(const AxisSymbols& rows) {
    if (axes_.ragged) return layout_.Gathered(match_.query, {rows, {match_.h}, {match_.d}});
    if (rows.front()->key != axes_.sequence[0]->key)
      return MatchFailure("rows are not by sequence");
    AxisSymbols queries;
    if (axes_.query) queries.push_back(axes_.query);
    return layout_.Gathered(match_.query, {axes_.sequence, queries, {match_.h}, {match_.d}});
  }

  absl::StatusOr<Value*> Cache() {
    const int64_t row = *match_.d->extent.constant() + (paged_.format == "fp8" ? kScaleBytes : 0);
    const std::vector<int64_t> dims = {-1, paged_.block_size, 1, row};
    return builder_.Add("Reshape", {match_.key.value, builder_.Ints(dims)});
  }

  absl::StatusOr<Value*> Lengths() {
    const IndexExpr& length = paged_.visible.length;
    const IndexSymbolPtr load = length.symbol();
    if (!load || load->kind != Kind::kLoad) {
      if (axes_.ragged) return MatchFailure("a length ", length.Key(), " is no element");
      PF_ASSIGN_OR_RETURN(Value * value, IndexVector(builder_, layout_, length, axes_.sequence[0]));
      return layout_.AsInt32(value);
    }
    if (!axes_.ragged) {
      PF_ASSIGN_OR_RETURN(Value * value,
                          layout_.Gathered({load->tensor, load->args}, {axes_.sequence}));
      return layout_.AsInt32(value);
    }
    const bool owned = load->args.size() == 1 && load->args[0].Key() == axes_.owner.Key();
    if (!owned) return MatchFailure("the length ", length.Key(), " is not the sequence's");
    return layout_.AsInt32(load->tensor);
  }

  // table[sequence, n / block_size]
  absl::StatusOr<Value*> Table() {
    const IndexSymbol& block = *axes_.block;
    if (axes_.ragged && block.args[0].Key() == axes_.owner.Key()) {
      return layout_.AsInt32(block.tensor);
    }
    Element table{block.tensor, block.args};
    IndexSymbolPtr column;
    for (size_t axis = 0; axis < table.at.size(); ++axis) {
      if (!table.at[axis].Mentions(match_.n->key)) continue;
      column = reader_.NewAxis((*table.value->shape())[static_cast<int>(axis)]);
      table.at[axis] = IndexExpr::Of(column);
    }
    PF_ASSIGN_OR_RETURN(Value * value, layout_.Gathered(table, {axes_.sequence, {column}}));
    return layout_.AsInt32(value);
  }

  // How many keys rows have scores of, where that is not what the table has room for.
  absl::StatusOr<Value*> Width() {
    const Dim room = axes_.block->tensor->shape()->back(0) * Dim(paged_.block_size);
    const Dim width = match_.output.value->shape()->back(0);
    if (ProvablyEqual(room, width)) return nullptr;
    for (const Dim& length : LengthsOfKeys(width)) {
      if (ProvablyEqual(room, length)) return nullptr;
      if (Value* limit = LimitOfRange(length)) return limit;
    }
    return layout_.Size(width);
  }

  // The axis of keys, wherever it was met.
  std::vector<Dim> LengthsOfKeys(const Dim& width) const {
    std::vector<Dim> lengths = {width};
    for (const IndexExpr& condition : match_.visible) {
      const auto n = condition.terms().find(match_.n->key);
      if (n == condition.terms().end()) continue;
      const IndexSymbol& axis = *n->second.first;
      lengths.push_back(axis.extent);
      lengths.insert(lengths.end(), axis.also_extent.begin(), axis.also_extent.end());
    }
    return lengths;
  }

  // The end of the counted positions, if there are that many of them.
  Value* LimitOfRange(const Dim& length) const {
    for (const Node* node : reader_.visited()) {
      const auto& shape = node->Is("Range") ? node->output(0)->shape() : std::nullopt;
      if (!shape || !ProvablyEqual((*shape)[0], length)) continue;
      const auto start = reader_.Number({node->input(ports::Range::kStart), {}});
      const auto step = reader_.Number({node->input(ports::Range::kDelta), {}});
      if (start == 0.0 && step == 1.0) return node->input(ports::Range::kLimit);
    }
    return nullptr;
  }

  GraphBuilder& builder_;
  IndexingAnalysis& reader_;
  const LogitsMatch& match_;
  const PagedAxes& axes_;
  const PagedMatch& paged_;
  Layout layout_;
};

}  // namespace

absl::StatusOr<AxisSymbols> RowsOfLogits(const LogitsMatch& match) {
  AxisSymbols rows;
  const Shape& shape = *match.output.value->shape();
  for (int axis = 0; axis + 1 < shape.rank(); ++axis) {
    PF_ASSIGN_OR_RETURN(const Digits digits, DigitsOf(match.output.at[axis], shape[axis]));
    rows.insert(rows.end(), digits.symbols.begin(), digits.symbols.end());
  }
  return rows;
}

absl::StatusOr<Value*> WeightsOfLogits(GraphBuilder& builder, Layout& layout,
                                       const LogitsMatch& match) {
  PF_ASSIGN_OR_RETURN(const AxisSymbols rows, RowsOfLogits(match));
  Value* weights = nullptr;
  for (const Element& factor : match.row_factors) {
    PF_ASSIGN_OR_RETURN(Value * here, layout.Gathered(factor, {rows, {match.h}}));
    weights = weights ? builder.Add("Mul", {weights, here}) : here;
  }
  if (!weights) return MatchFailure("there are no weights of heads");
  const auto number = static_cast<float>(match.number);
  if (number == 1) return weights;
  return builder.Add("Mul", {weights, builder.Float(number, match.weight_type())});
}

bool IsPaged(const LogitsMatch& match) { return BlocksOf(match).has_value(); }

absl::StatusOr<Value*> BuildPagedLogits(GraphBuilder& builder, IndexingAnalysis& reader,
                                        const LogitsMatch& match) {
  const std::optional<Blocks> blocks = BlocksOf(match);
  if (!blocks) return MatchFailure("keys are not read through a table of blocks");
  PF_ASSIGN_OR_RETURN(const PagedMatch paged, PagedReader(reader, match, *blocks).Read());
  return PagedLogitsPorts(builder, reader, match, paged).Build();
}

}  // namespace pagefuse
