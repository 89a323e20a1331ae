// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/passes/analysis/indexing/packed_codes.h"

#include <map>
#include <numeric>
#include <random>

#include "pagefuse/passes/analysis/indexing/byte_rows.h"

namespace pagefuse {
namespace {

using Kind = IndexSymbol::Kind;
using Bytes = std::map<std::string, int64_t>;  // by the key of their load

// The number that a form of bytes is; nullopt if it is one of something else.
std::optional<int64_t> NumberFrom(const IndexExpr& form, const Bytes& bytes) {
  const auto constant = form.constant().constant();
  if (!constant) return std::nullopt;
  int64_t sum = *constant;
  for (const auto& [key, term] : form.terms()) {
    const IndexSymbolPtr& symbol = term.first;
    std::optional<int64_t> number;
    if (const auto it = bytes.find(key); it != bytes.end()) number = it->second;
    const auto divisor = symbol->divisor.constant();
    if (divisor && (symbol->kind == Kind::kDiv || symbol->kind == Kind::kMod)) {
      number = NumberFrom(symbol->args[0], bytes);
      if (number) number = symbol->kind == Kind::kDiv ? *number / *divisor : *number % *divisor;
    }
    const auto factor = term.second.constant();
    if (!number || !factor) return std::nullopt;
    sum += *number * *factor;
  }
  return sum;
}

// The loads of bytes that a form reads.
void CollectBytes(const IndexExpr& form, std::map<std::string, IndexSymbolPtr>& loads) {
  for (const auto& [key, term] : form.terms()) {
    const IndexSymbolPtr& symbol = term.first;
    const bool byte = symbol->kind == Kind::kLoad && symbol->tensor->dtype() == DataType::kUint8;
    if (byte) loads.emplace(key, symbol);
    if (symbol->kind != Kind::kDiv && symbol->kind != Kind::kMod) continue;
    for (const IndexExpr& arg : symbol->args) CollectBytes(arg, loads);
  }
}

// One group of codes that fills whole bytes.
class GroupReader {
 public:
  GroupReader(IndexingAnalysis& reader, const IndexExpr& code, const IndexSymbolPtr& along,
              int bits)
      : reader_(reader), bits_(bits) {
    codes_ = 8 / std::gcd(8, bits);
    group_bytes_ = codes_ * bits / 8;
    group_ = reader.NewAxis(along->extent.FloorDiv(Dim(codes_)));
    for (int64_t i = 0; i < codes_; ++i) {
      const IndexExpr place = IndexExpr::Of(group_).Times(Dim(codes_)) + IndexExpr(i);
      forms_.push_back(reader_.ReadAt(code, along, place));
      CollectBytes(forms_.back(), loads_);
    }
  }

  std::optional<PackedCodes> Read() {
    if (static_cast<int64_t>(loads_.size()) != group_bytes_ || !FindPlaces()) return std::nullopt;
    std::mt19937 random(1);
    constexpr int kPoints = 64;
    for (int point = 0; point < kPoints; ++point) {
      const auto word = static_cast<int64_t>(random() % (uint64_t{1} << (8 * group_bytes_)));
      if (!Unpacks(word)) return std::nullopt;
    }
    return codes_read_;
  }

 private:
  // Each load's place among the bytes of its group: first + group_bytes * group + place.
  bool FindPlaces() {
    std::optional<IndexExpr> lowest;
    std::map<std::string, IndexExpr> addresses;
    for (const auto& [key, load] : loads_) {
      const auto address = AddressOf({load->tensor, load->args});
      if (!address) return false;
      addresses.emplace(key, *address - IndexExpr::Of(group_).Times(Dim(group_bytes_)));
      const IndexExpr& here = addresses.at(key);
      const auto before = lowest ? (here - *lowest).number() : -1;
      if (!before) return false;
      if (*before < 0) {
        lowest = here;
        codes_read_ = {{load->tensor, load->args}, here, bits_};
      }
    }
    if (lowest->Mentions(group_->key)) return false;
    for (const auto& [key, address] : addresses) {
      const auto place = (address - *lowest).number();
      if (!place || *place >= group_bytes_) return false;
      places_[key] = *place;
    }
    return true;
  }

  bool Unpacks(int64_t word) const {
    Bytes bytes;
    for (const auto& [key, place] : places_) bytes[key] = word >> (8 * place) & 255;
    for (int64_t i = 0; i < codes_; ++i) {
      const int64_t expected = word >> (bits_ * i) & ((int64_t{1} << bits_) - 1);
      if (NumberFrom(forms_[i], bytes) != expected) return false;
    }
    return true;
  }

  IndexingAnalysis& reader_;
  int bits_;
  int64_t codes_ = 0, group_bytes_ = 0;
  IndexSymbolPtr group_;
  std::vector<IndexExpr> forms_;
  std::map<std::string, IndexSymbolPtr> loads_;
  std::map<std::string, int64_t> places_;
  PackedCodes codes_read_;
};

}  // namespace

std::optional<PackedCodes> PackedCodesOf(IndexingAnalysis& reader, const IndexExpr& code,
                                         const IndexSymbolPtr& along) {
  for (int bits : {4, 3}) {
    if (auto codes = GroupReader(reader, code, along, bits).Read()) return codes;
  }
  return std::nullopt;
}

}  // namespace pagefuse
