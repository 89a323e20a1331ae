// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/passes/fuse/indexed/latent_rows.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/ops/kernels/formats/grouped_row.h"
#include "pagefuse/passes/analysis/indexing/byte_rows.h"
#include "pagefuse/passes/analysis/indexing/element_function.h"
#include "pagefuse/passes/edit/match_failure.h"

namespace pagefuse {
namespace {

using Kind = IndexSymbol::Kind;

// The axis of a Concat, if it joins along that index.
std::optional<int> JoinedAxis(const Element& joined, const IndexSymbolPtr& along) {
  if (!joined.From("Concat")) return std::nullopt;
  const int rank = static_cast<int>(joined.at.size());
  const auto axis = static_cast<int>(NormalAxis(IntOr(*joined.producer(), "axis", 0), rank));
  return joined.at[axis].Key() == along->key ? std::optional<int>(axis) : std::nullopt;
}

// The length of input `index` of a Concat.
std::optional<Dim> PartLength(const Element& joined, int axis, int index) {
  const Value* part = joined.producer()->input(index);
  return part->shape() ? std::optional<Dim>((*part->shape())[axis]) : std::nullopt;
}

// Input `index` of a Concat, read along its own axis.
Element PartOf(IndexingAnalysis& reader, const Element& joined, int axis, int index,
               const IndexSymbolPtr& part_axis) {
  Element part{joined.producer()->input(index), joined.at};
  part.at[axis] = IndexExpr::Of(part_axis);
  reader.Visit(*joined.producer());
  return reader.Source(part);
}

// The form divided by the number, where that divides all of it.
std::optional<IndexExpr> DividedBy(const IndexExpr& form, int64_t number) {
  if (number < 1 || form.constant().constant() != 0) return std::nullopt;
  IndexExpr quotient;
  for (const auto& [key, term] : form.terms()) {
    const auto factor = term.second.constant();
    if (!factor || *factor % number != 0) return std::nullopt;
    quotient = quotient + IndexExpr::Of(term.first).Times(Dim(*factor / number));
  }
  return quotient;
}

// --- rows of bytes ---

// Rows of codes with a scale a group, and bfloat16 behind them.
class GroupedRowReader {
 public:
  GroupedRowReader(IndexingAnalysis& reader, const OpsetImports& opsets)
      : reader_(reader), opsets_(opsets) {}

  // The first elements of rows, along an axis: codes alone, or codes and bfloat16.
  absl::Status ReadSide(const Element& side, const IndexSymbolPtr& along) {
    const std::optional<int> axis = JoinedAxis(side, along);
    if (!axis) return ReadCoded(side, along);
    const auto coded = PartLength(side, *axis, 0);
    const auto plain = PartLength(side, *axis, 1);
    if (side.producer()->num_inputs() != 2 || !coded || !plain) {
      return MatchFailure("rows are not joined of two parts");
    }
    const IndexSymbolPtr first = reader_.NewAxis(*coded), second = reader_.NewAxis(*plain);
    PF_RETURN_IF_ERROR(ReadCoded(PartOf(reader_, side, *axis, 0, first), first));
    return ReadPlain(PartOf(reader_, side, *axis, 1, second), second);
  }

  const LatentRows& rows() const { return rows_; }
  int64_t elements() const { return format_.elements(); }

 private:
  // The bfloat16 that a float was.
  Element Narrow(const Element& element) {
    if (!element.From("Cast") || element.value->dtype() != DataType::kFloat) return element;
    const Element inner = reader_.Operand(element, 0);
    return inner.value->dtype() == DataType::kBfloat16 ? inner : element;
  }

  // Codes times scales, rounded as the formats are read.
  absl::Status ReadCoded(const Element& element, const IndexSymbolPtr& along) {
    const Element rounded = Narrow(element);
    if (!rounded.From("Cast") || rounded.value->dtype() != DataType::kBfloat16) {
      return MatchFailure("codes times scales are not rounded to bfloat16");
    }
    const Factors factors = FactorsOf(reader_, reader_.Operand(rounded, 0));
    if (factors.others.size() != 2 || factors.number != 1) {
      return MatchFailure("codes have not one scale");
    }
    const auto is_codes = [](const Element& factor) {
      return factor.From("BitCast") && factor.value->dtype() == DataType::kFloat8E4M3FN;
    };
    const int codes = is_codes(factors.others[0]) ? 0 : 1;
    if (!is_codes(factors.others[codes])) return MatchFailure("no factor is a code");
    const Element bytes = reader_.Operand(factors.others[codes], 0);
    PF_ASSIGN_OR_RETURN(const ByteNumber scale, ReadScale(factors.others[1 - codes]));
    PF_RETURN_IF_ERROR(SetRow(bytes, along));
    if (along->extent != Dim(format_.coded)) {
      return MatchFailure("rows have ", along->extent.ToString(), " codes, expected ",
                          format_.coded, " of ", rows_.format);
    }
    if (scale.bytes != rows_.cache) return MatchFailure("scales lie in another cache than codes");
    const IndexExpr group = DivMod(IndexExpr::Of(along), Dim(format_.group)).first;
    const IndexExpr expected = scales_ + group.Times(Dim(format_.groups.ScaleBytes()));
    if (scale.first.Key() == expected.Key()) return absl::OkStatus();
    return MatchFailure("scales lie at ", scale.first.Key(), ", expected ", expected.Key());
  }

  // A float of four bytes, or the exponent that a byte is; the format follows from that.
  absl::StatusOr<ByteNumber> ReadScale(const Element& scale) {
    if (const auto number = BytesOf(reader_, scale); number && number->count == 4) {
      PF_RETURN_IF_ERROR(SetFormat("fp8_ds_mla", Fp8DsMlaRow()));
      return *number;
    }
    Element byte;
    const auto address = IsE8m0(reader_, scale, opsets_, byte) ? AddressOf(byte) : std::nullopt;
    if (!address) return MatchFailure("scales are no floats of four bytes and no exponents");
    PF_RETURN_IF_ERROR(SetFormat("fp8_ue8m0", Fp8Ue8m0Row()));
    return ByteNumber{byte.value, *address, 1};
  }

  absl::Status SetFormat(std::string_view name, const GroupedRowFormat& format) {
    if (!rows_.format.empty() && rows_.format != name)
      return MatchFailure("rows are of two formats");
    rows_.format = name;
    format_ = format;
    return absl::OkStatus();
  }

  // The row whose first code is at `along` 0, and where its bytes and its scales begin.
  absl::Status SetRow(const Element& bytes, const IndexSymbolPtr& along) {
    const auto address = AddressOf(bytes);
    if (!address) return MatchFailure("codes lie in a cache of unknown shape");
    const IndexExpr first = *address - IndexExpr::Of(along);
    const bool is_inline = format_.layout == GroupedLayout::kInline;
    LatentRows rows = rows_;
    rows.cache = bytes.value;
    rows.codes = bytes;
    const int64_t stride = bytes.value->shape()->back(0).constant().value_or(0);
    const bool taken = is_inline ? stride == format_.TokenBytes() && ReadInlineRow(first, rows)
                                 : bytes.value->shape()->rank() == 2 && ReadPlanarRow(first, rows);
    if (!taken) return absl::NotFoundError("rows are not taken by number");
    const bool other = !rows_.row.is_constant() &&
                       (rows_.row.Key() != rows.row.Key() || rows_.cache != rows.cache ||
                        rows_.block_size != rows.block_size);
    if (other) return MatchFailure("values are of other rows than keys");
    rows.codes = rows_.row.is_constant() ? bytes : rows_.codes;
    rows_ = rows;
    SetPlaces(stride);
    if (first.Key() == data_.Key()) return absl::OkStatus();
    return MatchFailure("codes lie at ", first.Key(), ", expected ", data_.Key());
  }

  // first = bytes of a row * row
  bool ReadInlineRow(const IndexExpr& first, LatentRows& rows) const {
    const auto row = DividedBy(first, format_.TokenBytes());
    if (row) rows.row = *row;
    return row && !row->is_constant();
  }

  // first = bytes of a block * (row / tokens) + bytes of codes * (row mod tokens)
  bool ReadPlanarRow(const IndexExpr& first, LatentRows& rows) const {
    IndexExpr block;
    IndexSymbolPtr place;
    for (const auto& [key, term] : first.terms()) {
      const IndexSymbolPtr& symbol = term.first;
      if (symbol->kind == Kind::kMod && term.second == Dim(format_.DataBytes())) {
        place = symbol;
      } else {
        block = block + IndexExpr::Of(symbol).Times(term.second);
      }
    }
    const int64_t stride = (*rows.cache->shape())[1].constant().value_or(0);
    const auto number = DividedBy(block, stride);
    rows.block_size = place ? place->divisor.constant().value_or(0) : 0;
    if (!number || number->is_constant() || rows.block_size < 1) return false;
    rows.row = number->Times(Dim(rows.block_size)) + IndexExpr::Of(place);
    return true;
  }

  void SetPlaces(int64_t stride) {
    const IndexExpr& row = rows_.row;
    if (rows_.block_size == 0) {
      data_ = row.Times(Dim(stride));
      scales_ = data_ + IndexExpr(format_.CodeBytes());
      return;
    }
    const auto [block, offset] = DivMod(row, Dim(rows_.block_size));
    const IndexExpr start = block.Times(Dim(stride));
    data_ = start + offset.Times(Dim(format_.DataBytes()));
    scales_ = start + IndexExpr(format_.ScaleBase(rows_.block_size)) +
              offset.Times(Dim(format_.ScaleBytes()));
  }

  absl::Status ReadPlain(const Element& element, const IndexSymbolPtr& along) {
    const Element plain = Narrow(element);
    const auto bytes = BytesOf(reader_, plain);
    const IndexExpr expected =
        data_ + IndexExpr(format_.PlainOffset()) + IndexExpr::Of(along).Times(Dim(2));
    if (bytes && bytes->count == 2 && bytes->bytes == rows_.cache &&
        plain.value->dtype() == DataType::kBfloat16 && bytes->first.Key() == expected.Key()) {
      return absl::OkStatus();
    }
    return MatchFailure("the second part is not the bfloat16 tail of a row");
  }

  IndexingAnalysis& reader_;
  const OpsetImports& opsets_;
  GroupedRowFormat format_;
  LatentRows rows_;
  IndexExpr data_, scales_;  // of the row
};

// --- rows of numbers ---

// address = width * row + e
absl::StatusOr<LatentRows> ReadPlainRows(const RowList& list) {
  const Element& key = list.key.others[0];
  const auto address = AddressOf(key);
  if (!address) return absl::NotFoundError("rows of unknown shape");
  const IndexExpr rest = *address - IndexExpr::Of(list.e);
  const Dim& width = key.value->shape()->back(0);
  const auto row = DividedBy(rest, width.constant().value_or(0));
  if (!row || row->is_constant()) return absl::NotFoundError("rows are not taken by number");
  if (list.e->extent != width) return absl::NotFoundError("keys are parts of rows");
  if (list.value.others.size() != 1) return MatchFailure("values have a factor of their own");
  const Element& value = list.value.others[0];
  if (value.value != key.value)
    return absl::NotFoundError("keys and values have rows of their own");
  const auto place = AddressOf(value);
  if (!place || place->Key() != (rest + IndexExpr::Of(list.d)).Key()) {
    return MatchFailure("values are not the first elements of the rows that are keys");
  }
  return LatentRows{.cache = key.value, .format = "bf16", .row = *row, .codes = key};
}

}  // namespace

absl::StatusOr<LatentRows> ReadLatentRows(IndexingAnalysis& reader, const OpsetImports& opsets,
                                          const RowList& list) {
  if (list.key.others.size() != 1) return absl::NotFoundError("keys have scales of their own");
  const Element& key = list.key.others[0];
  if (!JoinedAxis(key, list.e)) return ReadPlainRows(list);
  GroupedRowReader grouped(reader, opsets);
  PF_RETURN_IF_ERROR(grouped.ReadSide(key, list.e));
  if (list.e->extent != Dim(grouped.elements())) return MatchFailure("keys are parts of rows");
  if (list.value.others.size() != 1 || list.value.number != 1) {
    return MatchFailure("values have scales of their own");
  }
  PF_RETURN_IF_ERROR(grouped.ReadSide(list.value.others[0], list.d));
  return grouped.rows();
}

absl::StatusOr<std::vector<RowList>> RowListsOf(IndexingAnalysis& reader,
                                                const AttentionMatch& match) {
  const auto joined_side = [&](const Factors& side) {
    return side.others.size() == 1 ? JoinedAxis(side.others[0], match.n) : std::nullopt;
  };
  const std::optional<int> key_axis = joined_side(match.key), value_axis = joined_side(match.value);
  if (!key_axis || !value_axis) {
    return std::vector<RowList>{{match.n, match.e, match.d, match.key, match.value, match.visible}};
  }
  const Element& key = match.key.others[0];
  const Element& value = match.value.others[0];
  std::vector<RowList> lists;
  for (int i = 0; i < key.producer()->num_inputs(); ++i) {
    const auto length = PartLength(key, *key_axis, i);
    if (!length || i >= value.producer()->num_inputs())
      return MatchFailure("values are joined otherwise");
    RowList list;
    list.n = reader.NewAxis(*length);
    list.e = match.e;
    list.d = match.d;
    for (const IndexExpr& condition : match.visible) {
      const IndexSymbolPtr joined = (condition + IndexExpr(1)).symbol();
      const bool load = joined && joined->kind == Kind::kLoad;
      const Element all = load ? Element{joined->tensor, joined->args} : Element{};
      const std::optional<int> axis = load ? JoinedAxis(all, match.n) : std::nullopt;
      // Limits are of keys that follow one another.
      if (!load) return absl::NotFoundError("rows are not listed");
      if (!axis || i >= all.producer()->num_inputs()) {
        return MatchFailure("the condition ", condition.Key(), " >= 0 is not joined as keys are");
      }
      PF_ASSIGN_OR_RETURN(const Conditions here,
                          reader.ReadConditions(PartOf(reader, all, *axis, i, list.n)));
      list.visible.insert(list.visible.end(), here.begin(), here.end());
    }
    lists.push_back(std::move(list));
  }
  // The conditions first: what is read then may follow from them.
  for (const RowList& list : lists) reader.Assume(list.visible);
  for (size_t i = 0; i < lists.size(); ++i) {
    const int part = static_cast<int>(i);
    RowList& list = lists[i];
    list.key = FactorsOf(reader, PartOf(reader, key, *key_axis, part, list.n));
    list.value = FactorsOf(reader, PartOf(reader, value, *value_axis, part, list.n));
    list.key.number *= match.key.number;
    list.value.number *= match.value.number;
  }
  return lists;
}

}  // namespace pagefuse
