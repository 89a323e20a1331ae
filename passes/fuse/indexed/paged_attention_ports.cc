// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/passes/fuse/indexed/paged_attention_ports.h"

#include <algorithm>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/passes/edit/match_failure.h"

namespace pagefuse {
namespace {

using Kind = IndexSymbol::Kind;

// Ports of PagedAttention.
constexpr int kKScale = 6, kVScale = 7, kQScale = 8, kKScaleCache = 9, kVScaleCache = 10,
              kSink = 11;
constexpr int kSlopes = 12, kBiasAmongQueries = 13, kRanges = 14, kCausalFlags = 15, kNumPorts = 18;

AxisSymbols Joined(AxisSymbols a, const AxisSymbols& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

Dim LengthOf(const AxisSymbols& symbols) {
  Dim product(1);
  for (const IndexSymbolPtr& symbol : symbols) product = product * symbol->extent;
  return product;
}

std::vector<Value*> SizeSources(const AttentionMatch& match, const PagedAxes& axes) {
  std::vector<Value*> sources = {match.query.value};
  for (const Factors* factors : {&match.key, &match.value}) {
    for (const Element& factor : factors->others) sources.push_back(factor.value);
  }
  if (axes.block) sources.push_back(axes.block->tensor);
  return sources;
}

// FailedPrecondition if they are elements of a list in an order that is written down: the op's are
// 0 and ascend.
absl::Status CheckFirstTokens(const Value& first_tokens) {
  const Node* node = first_tokens.producer();
  while (node && (node->Is("Cast") || node->Is("Identity"))) node = node->input(0)->producer();
  if (!node || !node->Is("Gather") || !ConstantOf(node->input(1))) return absl::OkStatus();
  return MatchFailure(first_tokens, ": first tokens in another order");
}

}  // namespace

absl::Status CheckLowSums(const std::optional<LogSums>& sums) {
  if (!sums || !sums->empty || HidesScore(*sums->empty)) return absl::OkStatus();
  return MatchFailure(*sums->element.value, " is ", *sums->empty,
                      " in rows that see no key, expected -inf");
}

namespace {

// The axis of the cache that a symbol runs along; -1 if none or several do.
int AxisOf(const Element& codes, const AxisSymbols& symbols) {
  int found = -1;
  for (size_t axis = 0; axis < codes.at.size(); ++axis) {
    const bool here = std::ranges::any_of(symbols, [&](const IndexSymbolPtr& symbol) {
      return codes.at[axis].Mentions(symbol->key);
    });
    if (here && found >= 0) return -1;
    if (here) found = static_cast<int>(axis);
  }
  return found;
}

bool HasHeadsFirst(const ReadRows& rows, const PagedAxes& axes) {
  const int heads = AxisOf(rows.codes, axes.heads), row = AxisOf(rows.codes, axes.row);
  return heads >= 0 && heads < row;
}

}  // namespace

PagedAxes AxesByHead(const PagedAxes& axes, const ReadRows& key, const ReadRows& value,
                     const AttentionMaskPorts& visible, std::string& why) {
  if (!axes.block || !HasHeadsFirst(key, axes) || !HasHeadsFirst(value, axes)) return axes;
  if (axes.ragged || visible.first_tokens) why = "sequences have tokens of their own number";
  if (visible.ranges || visible.causal_flags) why = "ranges or flags are of whole sequences";
  if (!why.empty()) return axes;
  PagedAxes by_head = axes;
  by_head.sequence = Joined(axes.sequence, axes.heads);
  by_head.sequence_heads = axes.heads;
  by_head.heads.clear();
  return by_head;
}

PagedAttentionPorts::PagedAttentionPorts(GraphBuilder& builder, const AttentionMatch& match,
                                         const PagedAxes& axes, const AttentionMaskPorts& visible)
    : builder_(builder),
      match_(match),
      axes_(axes),
      visible_(visible),
      layout_(builder, SizeSources(match, axes)) {}

AxisSymbols PagedAttentionPorts::Tokens() const {
  return axes_.query ? Joined(axes_.sequence, {axes_.query}) : axes_.sequence;
}
AxisSymbols PagedAttentionPorts::Heads() const { return Joined(axes_.heads, axes_.groups); }

AxisSymbols PagedAttentionPorts::Blocks() const {
  return axes_.block ? Joined({axes_.block}, axes_.sequence_heads) : axes_.sequence;
}

Dim PagedAttentionPorts::NumSequences() const { return LengthOf(axes_.sequence); }

absl::StatusOr<std::vector<Value*>> PagedAttentionPorts::Inputs(const ReadRows& key,
                                                                const ReadRows& value,
                                                                const CacheFormat& format,
                                                                const ScoreBiases& biases) {
  std::vector<Value*> inputs(kNumPorts, nullptr);
  PF_ASSIGN_OR_RETURN(inputs[0], layout_.Gathered(match_.query, {Tokens(), Heads(), {match_.e}}));
  PF_ASSIGN_OR_RETURN(inputs[1], Cache(key.codes, key.along ? key.along : match_.e));
  PF_ASSIGN_OR_RETURN(inputs[2], ValueCache(key, value));
  PF_ASSIGN_OR_RETURN(inputs[3], FirstTokens());
  PF_ASSIGN_OR_RETURN(inputs[4], Lengths());
  PF_ASSIGN_OR_RETURN(inputs[5], BlockTable());
  if (format.has_tensor_scale()) {
    PF_ASSIGN_OR_RETURN(inputs[kKScale], TensorScale(key, /*with_number=*/false));
    PF_ASSIGN_OR_RETURN(inputs[kVScale], TensorScale(value, /*with_number=*/true));
    if (match_.query.value->dtype() == DataType::kFloat8E4M3FN) {
      inputs[kQScale] = key.query_scale ? AsSingle(key.query_scale->value) : builder_.Float(1);
    }
  } else if (format.has_row_scales()) {
    PF_ASSIGN_OR_RETURN(inputs[kKScaleCache], ScaleCache(*key.scale));
    PF_ASSIGN_OR_RETURN(inputs[kVScaleCache], ScaleCache(*value.scale));
  }
  if (match_.sink) {
    PF_ASSIGN_OR_RETURN(inputs[kSink], layout_.Gathered(*match_.sink, {Heads()}));
  }
  if (biases.slopes) {
    PF_ASSIGN_OR_RETURN(Value * slopes, layout_.Gathered(*biases.slopes, {Heads()}));
    inputs[kSlopes] = AsFloat(slopes, *biases.slopes->value);
  }
  inputs[kBiasAmongQueries] = biases.among_queries;
  if (visible_.ranges) inputs[kRanges] = layout_.AsInt32(visible_.ranges);
  inputs[kCausalFlags] = visible_.causal_flags;
  while (!inputs.back()) inputs.pop_back();
  return inputs;
}

// [NB, BS, Hk, D]; a contiguous cache is a block of all rows for each sequence and KV head.
absl::StatusOr<Value*> PagedAttentionPorts::Cache(const Element& codes,
                                                  const IndexSymbolPtr& along) {
  return layout_.GatheredPart(codes, {Blocks(), axes_.row, axes_.heads, {along}});
}

// Latent rows are keys as a whole and values in their first elements.
bool PagedAttentionPorts::IsPrefix(const ReadRows& key, const ReadRows& value,
                                   const AttentionMatch& match) {
  if (key.codes.value != value.codes.value || key.codes.at.size() != value.codes.at.size()) {
    return false;
  }
  for (size_t axis = 0; axis < key.codes.at.size(); ++axis) {
    const bool along =
        value.codes.at[axis].Key() == match.d->key && key.codes.at[axis].Key() == match.e->key;
    if (!along && key.codes.at[axis].Key() != value.codes.at[axis].Key()) return false;
  }
  return true;
}

absl::StatusOr<Value*> PagedAttentionPorts::ValueCache(const ReadRows& key, const ReadRows& value) {
  if (IsPrefix(key, value, match_)) return Cache(key.codes, match_.e);
  if (!ProvablyEqual(match_.d->extent, match_.e->extent)) {
    return MatchFailure("values of ", match_.d->extent.ToString(), " elements for keys of ",
                        match_.e->extent.ToString(), " that are no first part of the keys");
  }
  return Cache(value.codes, value.along ? value.along : match_.d);
}

absl::StatusOr<Value*> PagedAttentionPorts::ScaleCache(const Element& scale) {
  PF_ASSIGN_OR_RETURN(Value * scales,
                      layout_.GatheredPart(scale, {Blocks(), axes_.row, axes_.heads}));
  return AsFloat(scales, *scale.value);
}

absl::StatusOr<Value*> PagedAttentionPorts::TensorScale(const ReadRows& rows, bool with_number) {
  const auto number = static_cast<float>(with_number ? rows.number : 1);
  if (!rows.scale) return builder_.Float(number);
  Value* scale = AsFloat(rows.scale->value, *rows.scale->value);
  if (number != 1) scale = builder_.Add("Mul", {scale, builder_.Float(number)});
  return AsSingle(scale);
}

// Scales may have been rounded to a narrower type. `like`: a value of the type of `scales`.
Value* PagedAttentionPorts::AsFloat(Value* scales, const Value& like) {
  if (like.dtype() == DataType::kFloat) return scales;
  return builder_.Cast(scales, DataType::kFloat);
}

// A scale of one element, as [] or [1].
Value* PagedAttentionPorts::AsSingle(Value* scale) {
  if (scale->shape() && scale->shape()->rank() < 2) return scale;
  return builder_.Add("Reshape", {scale, builder_.Ints({1})});
}

// [0, S, 2 S, ..] of sequences with S queries each.
absl::StatusOr<Value*> PagedAttentionPorts::FirstTokens() {
  if (visible_.first_tokens) {
    PF_RETURN_IF_ERROR(CheckFirstTokens(*visible_.first_tokens));
    return layout_.AsInt32(visible_.first_tokens);
  }
  const Dim count = NumSequences();
  const Dim step = axes_.query ? axes_.query->extent : Dim(1);
  if (count.constant() && step.constant()) {
    std::vector<int64_t> first;
    for (int64_t i = 0; i <= *count.constant(); ++i) first.push_back(i * *step.constant());
    return layout_.AsInt32(builder_.Ints(first));
  }
  PF_ASSIGN_OR_RETURN(Value * sequences, layout_.Size(count));
  PF_ASSIGN_OR_RETURN(Value * size, layout_.Size(step));
  Value* end = builder_.Add("Add", {sequences, builder_.Int(1)});
  Value* numbers = builder_.Add("Range", {builder_.Int(0), end, builder_.Int(1)});
  return layout_.AsInt32(builder_.Add("Mul", {numbers, size}));
}

// What depends on the sequence alone, or on a part of its digits, for each sequence.
absl::StatusOr<Value*> PagedAttentionPorts::BySequence(const Element& element) {
  AxisSymbols known;
  for (const IndexSymbolPtr& symbol : axes_.sequence) {
    if (element.Mentions(symbol)) known.push_back(symbol);
  }
  PF_ASSIGN_OR_RETURN(Value * value, layout_.Gathered(element, {known}));
  if (known.size() == axes_.sequence.size()) return value;
  std::vector<Dim> narrow, wide;
  for (const IndexSymbolPtr& symbol : axes_.sequence) {
    const bool here = std::ranges::any_of(
        known, [&](const IndexSymbolPtr& other) { return other->key == symbol->key; });
    narrow.push_back(here ? symbol->extent : Dim(1));
    wide.push_back(symbol->extent);
  }
  PF_ASSIGN_OR_RETURN(value, layout_.Reshaped(value, narrow));
  PF_ASSIGN_OR_RETURN(Value * sizes, layout_.Sizes(wide));
  value = builder_.Add("Expand", {value, sizes});
  return layout_.Reshaped(value, {NumSequences()});
}

absl::StatusOr<Value*> PagedAttentionPorts::Lengths() {
  const IndexExpr& length = visible_.length;
  const auto refuse = [&] {
    return MatchFailure("a sequence's length ", length.Key(), " is no element of a tensor");
  };
  if (length.is_constant()) {
    PF_ASSIGN_OR_RETURN(Value * size, layout_.Size(length.constant()));
    PF_ASSIGN_OR_RETURN(Value * sizes, layout_.Sizes({NumSequences()}));
    return layout_.AsInt32(builder_.Add("Expand", {size, sizes}));
  }
  if (length.terms().size() != 1) return refuse();
  const auto& [symbol, factor] = length.terms().begin()->second;
  if (symbol->kind != Kind::kLoad || factor.constant() != 1) return refuse();
  if (visible_.first_tokens) {
    const bool owned = symbol->args.size() == 1 && symbol->args[0].Key() == axes_.owner.Key() &&
                       length.constant().constant() == 0;
    return owned ? absl::StatusOr<Value*>(layout_.AsInt32(symbol->tensor)) : refuse();
  }
  PF_ASSIGN_OR_RETURN(Value * value, BySequence({symbol->tensor, symbol->args}));
  if (length.constant().constant() != 0) {
    // No row sees past the table, however long a sequence is said to be.
    PF_ASSIGN_OR_RETURN(Value * offset, layout_.Size(length.constant()));
    PF_ASSIGN_OR_RETURN(Value * most, layout_.Size(match_.n->extent));
    Value* wide = builder_.Cast(value, DataType::kInt64);
    value = builder_.Add("Add", {wide, offset});
    if (!axes_.query) value = builder_.Add("Min", {value, most});
  }
  return layout_.AsInt32(value);
}

absl::StatusOr<Value*> PagedAttentionPorts::BlockTable() {
  if (!axes_.block) {
    // One block a sequence.
    PF_ASSIGN_OR_RETURN(Value * count, layout_.Size(NumSequences()));
    Value* numbers = builder_.Add("Range", {builder_.Int(0), count, builder_.Int(1)});
    return layout_.AsInt32(builder_.Add("Unsqueeze", {numbers, builder_.Ints({1})}));
  }
  const Element table{axes_.block->tensor, axes_.block->args};
  IndexSymbolPtr column = match_.n;
  AxisSymbols owner;
  for (const IndexExpr& arg : table.at) {
    for (const auto& [key, term] : arg.terms()) {
      const IndexSymbolPtr& symbol = term.first;
      if (IndexExpr::Of(symbol).Mentions(match_.n->key)) {
        column = symbol;
      } else {
        owner.push_back(symbol);
      }
    }
  }
  if (visible_.first_tokens) return RaggedTable(table);
  const bool one_column = table.at.size() == 2 && table.at[1].number() == 0;
  const AxisSymbols columns = one_column ? AxisSymbols() : AxisSymbols{column};
  PF_ASSIGN_OR_RETURN(Value * value, layout_.Gathered(table, {owner, columns}));
  if (!axes_.sequence_heads.empty()) return TableByHead(value, LengthOf(columns));
  return layout_.AsInt32(value);
}

// table[b, m] * Hk + h for each sequence and head; what is no block stays negative.
absl::StatusOr<Value*> PagedAttentionPorts::TableByHead(Value* table, const Dim& columns) {
  PF_ASSIGN_OR_RETURN(Value * heads, layout_.Size(LengthOf(axes_.sequence_heads)));
  Value* numbers = builder_.Add("Range", {builder_.Int(0), heads, builder_.Int(1)});
  Value* wide = builder_.Cast(table, DataType::kInt64);
  Value* first =
      builder_.Add("Unsqueeze", {builder_.Add("Mul", {wide, heads}), builder_.Ints({1})});
  Value* by_head = builder_.Add("Unsqueeze", {numbers, builder_.Ints({1})});
  Value* blocks = builder_.Add("Add", {first, by_head});
  PF_ASSIGN_OR_RETURN(blocks, layout_.Reshaped(blocks, {NumSequences(), columns}));
  return layout_.AsInt32(blocks);
}

// table[owner, column] as it is: the op finds the owner itself.
absl::StatusOr<Value*> PagedAttentionPorts::RaggedTable(const Element& table) {
  const bool whole = table.at.size() == 2 && table.at[0].Key() == axes_.owner.Key();
  if (whole) return layout_.AsInt32(table.value);
  return MatchFailure(*table.value, ": is no table [sequence, block]");
}

absl::StatusOr<Value*> PagedAttentionPorts::Result(Value* output, const ReadRows& key,
                                                   const ReadRows& value) {
  if (IsPrefix(key, value, match_) && !ProvablyEqual(match_.d->extent, match_.e->extent)) {
    const auto size = match_.d->extent.constant();
    if (!size) return MatchFailure("the size of values is not known");
    output = builder_.Add("Slice",
                          {output, builder_.Ints({0}), builder_.Ints({*size}), builder_.Ints({2})});
  }
  PF_ASSIGN_OR_RETURN(Value * result,
                      layout_.Spread(output, {Tokens(), Heads(), {match_.d}}, match_.output));
  const DataType wanted = match_.output.value->dtype();
  const DataType query = match_.query.value->dtype();
  const DataType given = query == DataType::kFloat8E4M3FN ? DataType::kFloat : query;
  if (given == wanted) return result;
  return builder_.Cast(result, wanted);
}

absl::StatusOr<Value*> PagedAttentionPorts::Sums(Value* sums, const LogSums& site_sums) {
  return layout_.Spread(sums, {Heads(), Tokens()}, site_sums.element);
}

}  // namespace pagefuse
