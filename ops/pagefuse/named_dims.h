// Checks of input shapes that share named dims: "q" is [M, H, D], "k" is [N, D].
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"

#include "pagefuse/ir/shape.h"
#include "pagefuse/ops/shape_context.h"

namespace pagefuse::pagefuse_ops {

// The dims of one op's inputs by name. A name stands for the first dim that it met; dims that are
// not known agree with everything. Not thread-safe.
class NamedDims {
 public:
  // `context` must outlive this.
  explicit NamedDims(const ShapeContext& context) : context_(context) {}

  // Checks that input `input` has the shape `names`; a name that is a number stands for itself.
  // An omitted input, or one of unknown rank, passes. InvalidArgument
  // `input 1 "k": expected [N, D] with D = 128, got [40, 64]`.
  absl::Status Match(int input, std::initializer_list<std::string_view> names);
  // Sets a name from outside (an attribute), before the inputs that use it.
  void Set(std::string_view name, Dim dim);
  // Unknown for a name that met no dim.
  Dim Get(std::string_view name) const;

 private:
  Dim* Find(std::string_view name);

  const ShapeContext& context_;
  std::vector<std::pair<std::string, Dim>> dims_;
};

}  // namespace pagefuse::pagefuse_ops
