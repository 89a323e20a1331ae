// SPDX-License-Identifier: Apache-2.0
// Tracks what all shapes with which a node was called have in common.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "pagefuse/ir/tensor/shape.h"

namespace pagefuse::ort {

// A host tells the sizes of a call when it makes it, and pagefuse chooses kernels by the sizes of a
// model, where those that change are symbols. A dim is a symbol here if the graph declares it as
// one; else it is a number until a call has another one, and from then on a symbol, the same one for
// all dims that changed in the same way.
class SeenShapes {
 public:
  // `declared`: what the graph says of the shapes, nullopt for nothing.
  explicit SeenShapes(std::vector<std::optional<Shape>> declared = {})
      : declared_(std::move(declared)) {}

  // Takes in the dims of a call. True if the shapes are others than before it.
  bool Add(const std::vector<const std::vector<int64_t>*>& dims);

  std::vector<Shape> shapes() const;

 private:
  // A number, or a symbol by its index.
  struct Size {
    bool is_symbol = false;
    int64_t number = 0;
  };
  // A dim of a shape that is `dims` now. `symbols`: numbers of those that were met.
  Size StartSize(size_t shape, size_t axis, const std::vector<int64_t>& dims,
                 std::map<std::string, int64_t>& symbols) const;
  bool IsAsBefore(const std::vector<const std::vector<int64_t>*>& dims);
  void Start(const std::vector<const std::vector<int64_t>*>& dims);
  void Generalise(const std::vector<const std::vector<int64_t>*>& dims);

  const std::vector<std::optional<Shape>> declared_;
  std::vector<std::vector<Size>> sizes_;
  std::vector<int64_t> values_;  // of the symbols, in the call that is looked at
};

}  // namespace pagefuse::ort
