#include "plugin/seen_shapes.h"

#include <string>
#include <tuple>

#include "pagefuse/ir/str_cat.h"

namespace pagefuse::ort {
namespace {

constexpr int64_t kNotMet = -1;

}  // namespace

bool SeenShapes::Start(const std::vector<const std::vector<int64_t>*>& dims) {
  sizes_.clear();
  values_.clear();
  for (const std::vector<int64_t>* each : dims) {
    std::vector<Size>& sizes = sizes_.emplace_back();
    for (const int64_t dim : *each) sizes.push_back({false, dim});
  }
  return true;
}

bool SeenShapes::IsAsBefore(const std::vector<const std::vector<int64_t>*>& dims) {
  values_.assign(values_.size(), kNotMet);
  for (size_t i = 0; i < dims.size(); ++i) {
    for (size_t axis = 0; axis < sizes_[i].size(); ++axis) {
      const Size& size = sizes_[i][axis];
      const int64_t dim = (*dims[i])[axis];
      int64_t expected = size.number;
      if (size.is_symbol) {
        int64_t& value = values_[size.number];
        if (value == kNotMet) value = dim;
        expected = value;
      }
      if (dim != expected) return false;
    }
  }
  return true;
}

bool SeenShapes::Add(const std::vector<const std::vector<int64_t>*>& dims) {
  if (sizes_.size() != dims.size()) return Start(dims);
  for (size_t i = 0; i < dims.size(); ++i) {
    if (sizes_[i].size() != dims[i]->size()) return Start(dims);
  }
  if (IsAsBefore(dims)) return false;
  // What was one thing and is one thing now is one symbol.
  std::map<std::tuple<bool, int64_t, int64_t>, int64_t> symbols;
  for (size_t i = 0; i < dims.size(); ++i) {
    for (size_t axis = 0; axis < sizes_[i].size(); ++axis) {
      Size& size = sizes_[i][axis];
      const int64_t dim = (*dims[i])[axis];
      if (!size.is_symbol && size.number == dim) continue;
      const auto [symbol, is_new] =
          symbols.try_emplace({size.is_symbol, size.number, dim}, symbols.size());
      size = {true, symbol->second};
    }
  }
  values_.resize(symbols.size());
  return true;
}

std::vector<Shape> SeenShapes::shapes() const {
  std::vector<Shape> shapes;
  for (const std::vector<Size>& sizes : sizes_) {
    std::vector<Dim> dims;
    for (const Size& size : sizes) {
      dims.push_back(size.is_symbol ? Dim::Symbol(StrCat("n", size.number)) : Dim(size.number));
    }
    shapes.emplace_back(std::move(dims));
  }
  return shapes;
}

}  // namespace pagefuse::ort
