// The shapes that a node has been called with, as what they have in common.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "pagefuse/ir/shape.h"

namespace pagefuse::ort {

// A host tells the sizes of a call when it makes it, and pagefuse chooses kernels by the sizes of a
// model, where those that change are symbols. A dim is a number here until a call has another one;
// from then on it is a symbol, the same one for all dims that changed in the same way.
class SeenShapes {
 public:
  // Takes in the dims of a call. True if the shapes are others than before it.
  bool Add(const std::vector<const std::vector<int64_t>*>& dims);

  std::vector<Shape> shapes() const;

 private:
  // A number, or a symbol by its index.
  struct Size {
    bool is_symbol = false;
    int64_t number = 0;
  };
  bool IsAsBefore(const std::vector<const std::vector<int64_t>*>& dims);
  bool Start(const std::vector<const std::vector<int64_t>*>& dims);

  std::vector<std::vector<Size>> sizes_;
  std::vector<int64_t> values_;  // of the symbols, in the call that is looked at
};

}  // namespace pagefuse::ort
