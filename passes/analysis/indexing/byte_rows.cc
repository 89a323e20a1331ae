// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/passes/analysis/indexing/byte_rows.h"

#include <algorithm>
#include <vector>

namespace pagefuse {

std::optional<IndexExpr> AddressOf(const Element& element) {
  const auto& shape = element.value->shape();
  if (!shape || shape->rank() != static_cast<int>(element.at.size())) return std::nullopt;
  IndexExpr address;
  Dim stride(1);
  for (int axis = shape->rank() - 1; axis >= 0; --axis) {
    if (!stride.known()) return std::nullopt;
    address = address + element.at[axis].Times(stride);
    stride = stride * (*shape)[axis];
  }
  return address;
}

std::optional<ByteNumber> BytesOf(IndexingAnalysis& reader, const Element& unresolved) {
  const Element element = reader.Source(unresolved);
  if (!element.From("BitCast")) return std::nullopt;
  const IndexExpr joined = reader.ReadIndex(reader.Operand(element, 0));
  if (joined.constant().constant() != 0) return std::nullopt;
  std::vector<std::pair<int64_t, IndexSymbolPtr>> bytes;
  for (const auto& [key, term] : joined.terms()) {
    bytes.emplace_back(term.second.constant().value_or(0), term.first);
  }
  std::ranges::sort(bytes, [](const auto& a, const auto& b) { return a.first < b.first; });
  ByteNumber number;
  int64_t factor = 1;
  for (const auto& [weight, byte] : bytes) {
    const bool load = byte->kind == IndexSymbol::Kind::kLoad &&
                      byte->tensor->dtype() == DataType::kUint8 && weight == factor;
    const auto address = load ? AddressOf({byte->tensor, byte->args}) : std::nullopt;
    if (!address) return std::nullopt;
    if (number.count == 0) {
      number.bytes = byte->tensor;
      number.first = *address;
    }
    if (number.bytes != byte->tensor || (*address - number.first).number() != number.count) {
      return std::nullopt;
    }
    ++number.count;
    factor *= 256;
  }
  return number;
}

}  // namespace pagefuse
