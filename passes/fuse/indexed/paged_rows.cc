// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/passes/fuse/indexed/paged_rows.h"

#include <algorithm>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/passes/edit/match_failure.h"

namespace pagefuse {
namespace {

using Kind = IndexSymbol::Kind;

bool MentionsAny(const std::vector<IndexExpr>& forms, const IndexSymbolPtr& symbol) {
  return std::ranges::any_of(forms,
                             [&](const IndexExpr& form) { return form.Mentions(symbol->key); });
}

// Adds the symbols of a form and those in its arguments that `wanted` wants.
template <typename Wanted>
void Collect(const IndexExpr& form, const Wanted& wanted, std::vector<IndexSymbolPtr>& found) {
  for (const auto& [key, term] : form.terms()) {
    const IndexSymbolPtr& symbol = term.first;
    const bool known = std::ranges::any_of(
        found, [&](const IndexSymbolPtr& other) { return other->key == symbol->key; });
    if (wanted(*symbol) && !known) found.push_back(symbol);
    for (const IndexExpr& arg : symbol->args) Collect(arg, wanted, found);
  }
}

// Whether caches of the type hold codes in some format.
bool IsQuantised(DataType type) {
  return std::ranges::any_of(RowFormats(), [&](const RowFormat& format) {
    return format.scales != ScaleKind::kNone &&
           std::ranges::find(format.types, type) != format.types.end();
  });
}

// The axes that the output's rows run over, in order.
AxisSymbols RowAxes(const AttentionMatch& match) {
  AxisSymbols axes;
  for (const IndexExpr& index : match.output.at) {
    std::vector<std::pair<Dim, IndexSymbolPtr>> digits;
    for (const auto& [key, term] : index.terms()) digits.emplace_back(term.second, term.first);
    // The slow digit first.
    std::ranges::sort(digits, [](const auto& a, const auto& b) {
      return ProvablyNotNegative(a.first - b.first - Dim(1));
    });
    for (const auto& [step, symbol] : digits) {
      if (symbol->key != match.d->key) axes.push_back(symbol);
    }
  }
  return axes;
}

class AxesReader {
 public:
  AxesReader(const AttentionMatch& match, const ReadRows& key) : match_(match), key_(key) {}

  absl::StatusOr<PagedAxes> Read() {
    PF_RETURN_IF_ERROR(FindBlock());
    for (const IndexSymbolPtr& axis : RowAxes(match_)) {
      PF_RETURN_IF_ERROR(Place(axis));
    }
    return axes_;
  }

 private:
  absl::Status FindBlock() {
    std::vector<IndexSymbolPtr> tables;
    const std::string& n = match_.n->key;
    const auto is_table = [&](const IndexSymbol& symbol) {
      return symbol.kind == Kind::kLoad &&
             std::ranges::any_of(symbol.args,
                                 [&](const IndexExpr& arg) { return arg.Mentions(n); });
    };
    for (const IndexExpr& index : key_.codes.at) Collect(index, is_table, tables);
    if (const IndexSymbolPtr only = OnlyColumn(); tables.empty() && only) {
      axes_.block = only;
      axes_.owner = only->args[0];
      axes_.row = {match_.n};
      return FindOwner();
    }
    if (tables.empty()) {
      axes_.row = {match_.n};
      return absl::OkStatus();
    }
    if (tables.size() > 1) {
      return MatchFailure("keys are read through more than one table");
    }
    axes_.block = tables[0];
    return ReadTable();
  }

  // table[owner, 0] of a table of one column: a sequence's rows are one block.
  IndexSymbolPtr OnlyColumn() const {
    const IndexSymbolPtr entry = key_.codes.at.empty() ? nullptr : key_.codes.at[0].symbol();
    if (!entry || entry->kind != Kind::kLoad || entry->args.size() != 2) return nullptr;
    const auto& shape = entry->tensor->shape();
    const bool one = shape && shape->rank() == 2 && (*shape)[1].constant() == 1;
    return one && entry->args[1].number() == 0 ? entry : nullptr;
  }

  // table[owner, n / block_size], and the row n mod block_size.
  absl::Status ReadTable() {
    IndexExpr column;
    for (const IndexExpr& arg : axes_.block->args) {
      if (arg.Mentions(match_.n->key)) {
        column = arg;
      } else {
        axes_.owner = axes_.owner + arg;
      }
    }
    std::vector<IndexSymbolPtr> symbols;
    for (const auto& [key, term] : column.terms()) symbols.push_back(term.first);
    // One table [B * M] holds the owner in the same index.
    std::vector<IndexSymbolPtr> others = symbols;
    std::erase_if(others, [&](const IndexSymbolPtr& symbol) {
      return IndexExpr::Of(symbol).Mentions(match_.n->key);
    });
    for (const IndexSymbolPtr& symbol : others) axes_.owner = axes_.owner + IndexExpr::Of(symbol);
    std::erase_if(symbols, [&](const IndexSymbolPtr& symbol) {
      return !IndexExpr::Of(symbol).Mentions(match_.n->key);
    });
    if (symbols.size() != 1) return NoColumn(column);
    const IndexSymbolPtr& place = symbols[0];
    if (place->key == match_.n->key) return FindOwner();  // one row a block
    if (place->kind != Kind::kDiv || place->args[0].Key() != match_.n->key) return NoColumn(column);
    axes_.row = {DivMod(IndexExpr::Of(match_.n), place->divisor).second.symbol()};
    return FindOwner();
  }

  static absl::Status NoColumn(const IndexExpr& column) {
    return MatchFailure("the table's column ", column.Key(),
                        " is no position divided by a block size");
  }

  absl::Status FindOwner() {
    for (const auto& [key, term] : axes_.owner.terms()) {
      const IndexSymbolPtr& symbol = term.first;
      if (symbol->kind == Kind::kAxis) continue;
      if (symbol->kind != Kind::kCount || axes_.owner.terms().size() != 1) {
        return MatchFailure("a token's sequence ", axes_.owner.Key(),
                            " is not computed from first tokens");
      }
      axes_.ragged = true;
    }
    const auto is_axis = [](const IndexSymbol& symbol) { return symbol.kind == Kind::kAxis; };
    Collect(axes_.owner, is_axis, owners_);
    return absl::OkStatus();
  }

  absl::Status Place(const IndexSymbolPtr& axis) {
    const bool owner = std::ranges::any_of(
        owners_, [&](const IndexSymbolPtr& symbol) { return symbol->key == axis->key; });
    std::vector<IndexExpr> direct;
    for (const IndexExpr& index : key_.codes.at) {
      for (const auto& [key, term] : index.terms()) {
        if (!axes_.block || key != axes_.block->key) direct.push_back(IndexExpr::Of(term.first));
      }
    }
    const bool in_cache = MentionsAny(direct, axis);
    if (owner || (in_cache && !axes_.block)) {
      axes_.sequence.push_back(axis);
    } else if (in_cache) {
      axes_.heads.push_back(axis);
    } else if (!MentionsAny(match_.visible, axis)) {
      axes_.groups.push_back(axis);
    } else if (!axes_.query) {
      axes_.query = axis;
    } else {
      return MatchFailure("the mask depends on two axes, ", axes_.query->key, " and ", axis->key);
    }
    return absl::OkStatus();
  }

  const AttentionMatch& match_;
  const ReadRows& key_;
  PagedAxes axes_;
  std::vector<IndexSymbolPtr> owners_;
};

}  // namespace

bool ReadRows::quantised() const { return e4m3 || IsQuantised(codes.value->dtype()); }

bool ReadRows::IsSingle(const Element& element) {
  const auto& shape = element.value->shape();
  return shape &&
         std::ranges::all_of(shape->dims(), [](const Dim& dim) { return dim.constant() == 1; });
}

absl::StatusOr<ReadRows> RowsOf(IndexingAnalysis& reader, const Factors& read,
                                const IndexSymbolPtr& along, DataType type) {
  ReadRows rows;
  Factors factors = read;
  if (read.others.size() == 1 && read.others[0].From("Cast") &&
      read.others[0].value->dtype() == type) {
    factors = FactorsOf(reader, reader.Operand(read.others[0], 0));
    factors.number *= read.number;
  }
  rows.number = factors.number;
  bool found = false;
  for (const Element& factor : factors.others) {
    const bool is_codes = factor.Mentions(along);
    if (is_codes && !found) {
      rows.codes = factor;
      found = true;
    } else if (!is_codes && !rows.scale) {
      rows.scale = factor;
    } else if (type == DataType::kFloat8E4M3FN && !rows.query_scale && !is_codes &&
               ReadRows::IsSingle(factor)) {
      // Both scales are factors of every score, in whichever order.
      rows.query_scale = factor;
    } else {
      return MatchFailure(*factor.value, " is one factor too many of keys or values");
    }
  }
  if (!found) return MatchFailure("no factor runs along keys or values");
  if (rows.codes.From("BitCast") && rows.codes.value->dtype() == DataType::kFloat8E4M3FN) {
    rows.codes = reader.Operand(rows.codes, 0);
    rows.e4m3 = true;
  }
  return rows;
}

absl::StatusOr<PagedAxes> PagedAxesOf(const AttentionMatch& match, const ReadRows& key) {
  return AxesReader(match, key).Read();
}

absl::StatusOr<CacheFormat> FormatOf(const ReadRows& key, const ReadRows& value) {
  const bool tokens = key.per_token() && value.per_token();
  if (key.per_token() != value.per_token() || key.quantised() != value.quantised()) {
    return MatchFailure("keys ", *key.codes.value, " and values ", *value.codes.value,
                        " are of different formats");
  }
  if (!key.quantised()) {
    if (key.scale || value.scale || value.number != 1) {
      return MatchFailure("keys or values of floats have a scale");
    }
    return CacheFormat();
  }
  // The tensor's scale takes a number in, those of rows do not.
  if (tokens && value.number != 1) {
    return MatchFailure("values with a scale for each row have a factor of ", value.number, " too");
  }
  const RowFormat* format =
      FindRowFormat(key.element(), tokens ? ScaleKind::kRow : ScaleKind::kTensor);
  if (format != nullptr && key.element() == value.element()) {
    return CacheFormat{.mode = format->mode};
  }
  return MatchFailure("caches of ", DataTypeName(key.codes.value->dtype()),
                      tokens ? " with a scale for each row" : " with one scale",
                      " are of no known format");
}

AxisSplits SplitsOf(const AttentionMatch& match) {
  std::vector<IndexSymbolPtr> quotients;
  const auto is_split = [](const IndexSymbol& symbol) {
    return symbol.kind == Kind::kDiv || symbol.kind == Kind::kMod;
  };
  const auto read = [&](const Factors& factors) {
    for (const Element& factor : factors.others) {
      for (const IndexExpr& index : factor.at) Collect(index, is_split, quotients);
    }
  };
  read(match.key);
  read(match.value);
  AxisSplits splits;
  for (const IndexSymbolPtr& quotient : quotients) {
    for (size_t axis = 0; axis < match.output.at.size(); ++axis) {
      const IndexSymbolPtr whole = match.output.at[axis].symbol();
      const bool known = std::ranges::any_of(
          splits, [&](const auto& split) { return split.first == static_cast<int>(axis); });
      if (!whole || known || quotient->args[0].Key() != whole->key) continue;
      const Dim slow = whole->extent.FloorDiv(quotient->divisor);
      if (ProvablyEqual(slow * quotient->divisor, whole->extent)) {
        splits.emplace_back(static_cast<int>(axis), quotient->divisor);
      }
    }
  }
  return splits;
}

}  // namespace pagefuse
