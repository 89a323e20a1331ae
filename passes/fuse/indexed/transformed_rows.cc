// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/passes/fuse/indexed/transformed_rows.h"

#include <bit>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/passes/analysis/functions/computed_region.h"
#include "pagefuse/passes/analysis/indexing/byte_rows.h"
#include "pagefuse/passes/analysis/indexing/packed_codes.h"
#include "pagefuse/passes/edit/constants.h"
#include "pagefuse/passes/edit/match_failure.h"
#include "pagefuse/passes/edit/readers_text.h"
#include "pagefuse/passes/rewrite/pattern.h"

namespace pagefuse {
namespace {

using Kind = IndexSymbol::Kind;

// A scale keeps the zero point of its row in so many of its low bits.
constexpr int64_t kZeroPoints = 16;

// (-1)^(number of bits that row and column share)
bool IsHadamard(const Tensor& tensor) {
  if (tensor.rank() != 2 || tensor.dims()[0] != tensor.dims()[1]) return false;
  const auto numbers = Numbers(tensor, 1 << 20);
  const int64_t size = tensor.dims()[0];
  if (!numbers || static_cast<int64_t>(numbers->size()) != size * size) return false;
  for (int64_t i = 0; i < size * size; ++i) {
    const auto shared = static_cast<uint64_t>(i / size & i % size);
    if ((*numbers)[i] != (std::popcount(shared) % 2 == 0 ? 1 : -1)) return false;
  }
  return true;
}

// The value's numbers, where it is computed from constants alone: folding leaves large ones.
std::optional<Tensor> FixedTensor(Value* value, const RegionScope& scope) {
  if (const Tensor* tensor = ConstantOf(value)) return *tensor;
  const auto region = RegionBetween({}, {value}, scope);
  if (!region.ok()) return std::nullopt;
  const auto computed = EvaluateRegion(*region, scope, {});
  return computed.ok() ? std::optional(computed->front()) : std::nullopt;
}

// Rows of one side: (code - zero point) * scale.
class StoredRows {
 public:
  StoredRows(IndexingAnalysis& reader, const Factors& factors, const IndexSymbolPtr& along)
      : reader_(reader), factors_(factors), along_(along) {}

  absl::StatusOr<ReadRows> Read() {
    if (factors_.others.size() != 2) return absl::NotFoundError("rows have not one scale each");
    const bool first = factors_.others[0].Mentions(along_);
    const Element& centred = factors_.others[first ? 0 : 1];
    if (!centred.From("Sub")) return absl::NotFoundError("rows have no zero points");
    const auto codes =
        PackedCodesOf(reader_, reader_.ReadIndex(reader_.Operand(centred, 0)), along_);
    if (!codes || codes->bits != 4) return absl::NotFoundError("rows are no codes of 4 bits");
    rows_.number = factors_.number;
    PF_RETURN_IF_ERROR(SetCodes(*codes));
    PF_RETURN_IF_ERROR(SetScale(factors_.others[first ? 1 : 0], reader_.Operand(centred, 1)));
    return rows_;
  }

 private:
  // Bytes that run along the cache's last axis.
  absl::Status SetCodes(const PackedCodes& codes) {
    const auto& shape = codes.byte.value->shape();
    if (!shape || shape->rank() == 0) return MatchFailure("codes lie in a cache of unknown shape");
    rows_.codes = codes.byte;
    IndexExpr& last = rows_.codes.at.back();
    last = IndexExpr();
    const auto address = AddressOf(rows_.codes);
    const bool whole = address && address->Key() == codes.first.Key() &&
                       ProvablyEqual(shape->back(0) * Dim(2), along_->extent);
    if (!whole) return MatchFailure("codes of a row are no row of the cache");
    rows_.along = reader_.NewAxis(shape->back(0));
    last = IndexExpr::Of(rows_.along);
    return absl::OkStatus();
  }

  // The scale without its low bits, and the zero point that these are.
  absl::Status SetScale(const Element& scale, const Element& zero_point) {
    const auto bits = LowBitsOf(reader_.ReadIndex(zero_point));
    if (!scale.From("BitCast") || !bits) {
      return MatchFailure("zero points are not the low bits of scales");
    }
    const IndexExpr all = IndexExpr::Of(*bits);
    const auto [high, low] = DivMod(all, Dim(kZeroPoints));
    const std::string rest = reader_.ReadIndex(reader_.Operand(scale, 0)).Key();
    if (rest != (all - low).Key() && rest != high.Times(Dim(kZeroPoints)).Key()) {
      return MatchFailure("scales are not what is left without their zero points");
    }
    const Element stored{(*bits)->tensor, (*bits)->args};
    if (!stored.From("BitCast")) return MatchFailure("zero points are no bits of a scale");
    rows_.scale = reader_.Operand(stored, 0);
    return absl::OkStatus();
  }

  // x of x mod 16.
  static std::optional<IndexSymbolPtr> LowBitsOf(const IndexExpr& form) {
    const IndexSymbolPtr low = form.symbol();
    if (!low || low->kind != Kind::kMod || low->divisor != Dim(kZeroPoints)) return std::nullopt;
    const IndexSymbolPtr all = low->args[0].symbol();
    return all && all->kind == Kind::kLoad ? std::optional(all) : std::nullopt;
  }

  IndexingAnalysis& reader_;
  const Factors& factors_;
  const IndexSymbolPtr along_;
  ReadRows rows_;
};

class TransformReader {
 public:
  TransformReader(IndexingAnalysis& reader, const OpsetImports& opsets, AttentionMatch& match)
      : reader_(reader), scope_{&opsets, &reader.contents(), {}}, match_(match) {}

  absl::Status Read() {
    const auto size = match_.e->extent.constant();
    if (!size || match_.d->extent != match_.e->extent)
      return MatchFailure("the size of rows is not known");
    size_ = *size;
    PF_RETURN_IF_ERROR(ReadQuery());
    PF_RETURN_IF_ERROR(ReadResult());
    match_.scale *= static_cast<double>(size_);
    return absl::OkStatus();
  }

  const Element& signs() const { return signs_; }

 private:
  // Cast (Cast (MatMul (query * signs, H))), rounded to the query's type.
  absl::Status ReadQuery() {
    Element transformed = match_.query;
    DataType rounded = DataType::kFloat;
    while (transformed.From("Cast")) {
      if (transformed.value->dtype() != DataType::kFloat) rounded = transformed.value->dtype();
      transformed = reader_.Operand(transformed, 0);
    }
    const auto product = ProductOf(reader_, transformed);
    if (!product) return MatchFailure("queries are not transformed");
    const bool right = Transforms(product->right.value);
    if (!right && !Transforms(product->left.value))
      return MatchFailure("queries are not transformed");
    const Element signed_rows = right ? product->left : product->right;
    if (!signed_rows.From("Mul")) return MatchFailure("queries have no signs");
    for (int side : {0, 1}) {
      const Element signs = reader_.Operand(signed_rows, side);
      if (signs.at.size() != 1 || signs.value->dtype() != DataType::kFloat) continue;
      signs_ = signs;
      Element query = reader_.Operand(signed_rows, 1 - side);
      if (query.From("Cast") && query.producer()->input(0)->dtype() == rounded) {
        query = reader_.Operand(query, 0);
      }
      if (query.value->dtype() != rounded)
        return MatchFailure("queries are rounded to another type");
      match_.query = query;
      match_.e = product->summed;
      return absl::OkStatus();
    }
    return MatchFailure("queries have no signs");
  }

  // Behind the result, with no other reader: H, signs, 1 / size, each once.
  absl::Status ReadResult() {
    Value* value = match_.output.value;
    bool back = false, has_signs = false, divided = false;
    DataType rounded = DataType::kFloat, type = value->dtype();
    while (Node* next = OnlyReader(*value)) {
      const int side = value->uses()[0].index;
      const Value* other = next->num_inputs() == 2 ? next->input(1 - side) : nullptr;
      if (next->Is("Cast")) {
        if (back && !(has_signs && divided)) break;
        type = next->output(0)->dtype();
        if (!back && type != DataType::kFloat) rounded = type;
        if (back && type != match_.query.value->dtype()) break;
      } else if (next->Is("MatMul") && side == 0 && !back && Transforms(next->input(1))) {
        back = true;
      } else if (next->Is("Mul") && back && other == signs_.value && !has_signs) {
        has_signs = true;
      } else if (back && !divided && Divides(*next, side, other)) {
        divided = true;
      } else if (!IsViewNode(*next) || side != 0) {
        break;
      }
      reader_.Visit(*next);
      value = next->output(0);
    }
    if (!back || !has_signs || !divided || rounded != match_.query.value->dtype()) {
      return MatchFailure("the result is not transformed back");
    }
    return SetOutput(value);
  }

  bool Transforms(Value* value) const {
    const auto& shape = value->shape();
    const Shape square{Dim(size_), Dim(size_)};
    if (!shape || !ProvablyEqual(*shape, square)) return false;
    const std::optional<Tensor> tensor = FixedTensor(value, scope_);
    return tensor && IsHadamard(*tensor);
  }

  // By the size, or times its inverse.
  bool Divides(const Node& node, int side, const Value* other) const {
    const Tensor* tensor = other ? ConstantOf(other) : nullptr;
    if (!tensor) return false;
    const auto size = static_cast<double>(size_);
    if (node.Is("Mul")) return IsFilledWith(*tensor, 1 / size);
    return node.Is("Div") && side == 0 && IsFilledWith(*tensor, size);
  }

  // The match's rows as `value` shows them, which views alone lie between.
  absl::Status SetOutput(Value* value) {
    const auto& from = match_.output.value->shape();
    const auto& to = value->shape();
    if (!from || !to) return MatchFailure("the shape of the result is not known");
    Element output{value, {}};
    int axis = 0;
    for (const Dim& dim : to->dims()) {
      IndexExpr index;
      Dim length(1);
      while (axis < from->rank() && !ProvablyEqual(length, dim)) {
        index = index.Times((*from)[axis]) + match_.output.at[axis];
        length = length * (*from)[axis++];
      }
      if (!ProvablyEqual(length, dim)) return MatchFailure("the result is seen in other rows");
      output.at.push_back(index);
    }
    match_.output = std::move(output);
    return absl::OkStatus();
  }

  IndexingAnalysis& reader_;
  const RegionScope scope_;
  AttentionMatch& match_;
  int64_t size_ = 0;
  Element signs_;
};

}  // namespace

absl::StatusOr<TransformedRows> ReadTransformedRows(IndexingAnalysis& reader,
                                                    const OpsetImports& opsets,
                                                    AttentionMatch& match) {
  constexpr int kCodeBits = 4;
  TransformedRows rows;
  for (const RowFormat& row : RowFormats()) {
    const CacheFormat format{.mode = row.mode};
    const bool fits = format.needs_signs() && format.has_row_scales() && row.code_bits == kCodeBits;
    if (fits) rows.format = format;
  }
  if (!rows.format.needs_signs()) return absl::NotFoundError("no format transforms rows");
  PF_ASSIGN_OR_RETURN(rows.key, StoredRows(reader, match.key, match.e).Read());
  PF_ASSIGN_OR_RETURN(rows.value, StoredRows(reader, match.value, match.d).Read());
  if (rows.value.number != 1) return MatchFailure("values have a factor beside their scales");
  TransformReader transform(reader, opsets, match);
  PF_RETURN_IF_ERROR(transform.Read());
  rows.signs = transform.signs();
  return rows;
}

}  // namespace pagefuse
