// SPDX-License-Identifier: Apache-2.0
#include "plugin/ort/seen_shapes.h"

#include <tuple>

#include "pagefuse/base/str_cat.h"

namespace pagefuse::ort {
namespace {

constexpr int64_t kNotMet = -1;

}  // namespace

SeenShapes::Size SeenShapes::StartSize(size_t shape, size_t axis, const std::vector<int64_t>& dims,
                                       std::map<std::string, int64_t>& symbols) const {
  const bool is_declared = shape < declared_.size() && declared_[shape] &&
                           static_cast<size_t>(declared_[shape]->rank()) == dims.size();
  if (!is_declared) return {false, dims[axis]};
  const Dim& declared = (*declared_[shape])[static_cast<int>(axis)];
  if (declared.is_constant()) return {false, dims[axis]};
  // One that has no name is like no other.
  const std::string name = declared.known() ? declared.ToString() : StrCat("?", shape, ",", axis);
  return {true, symbols.try_emplace(name, symbols.size()).first->second};
}

void SeenShapes::Start(const std::vector<const std::vector<int64_t>*>& dims) {
  sizes_.clear();
  std::map<std::string, int64_t> symbols;
  for (size_t i = 0; i < dims.size(); ++i) {
    std::vector<Size>& sizes = sizes_.emplace_back();
    for (size_t axis = 0; axis < dims[i]->size(); ++axis) {
      sizes.push_back(StartSize(i, axis, *dims[i], symbols));
    }
  }
  values_.resize(symbols.size());
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
  bool has_ranks = sizes_.size() == dims.size();
  for (size_t i = 0; i < dims.size() && has_ranks; ++i) {
    has_ranks = sizes_[i].size() == dims[i]->size();
  }
  if (!has_ranks) Start(dims);
  if (IsAsBefore(dims)) return !has_ranks;
  Generalise(dims);
  return true;
}

// What was one thing and is one thing now is one symbol.
void SeenShapes::Generalise(const std::vector<const std::vector<int64_t>*>& dims) {
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
