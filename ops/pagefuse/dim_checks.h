// Checks of input dims for shape inference: unknown dims agree with everything.
#pragma once

#include <optional>
#include <string_view>

#include "absl/status/status.h"

#include "pagefuse/ir/str_cat.h"
#include "pagefuse/ops/shape_context.h"

namespace pagefuse {

// Each check gives an InvalidArgument that names the input, or OK.
class Dims {
 public:
  explicit Dims(const ShapeContext& c) : c_(c) {}

  Dim Of(int input, int axis) const {
    const Shape* shape = c_.input_shape(input);
    return shape != nullptr && axis < shape->rank() ? (*shape)[axis] : Dim::Unknown();
  }

  absl::Status Rank(int input, int rank) const {
    const Shape* shape = c_.input_shape(input);
    if (shape == nullptr || shape->rank() == rank) return absl::OkStatus();
    return c_.InputError(input, StrCat("expected ", rank, " dims, got ", shape->ToString()));
  }

  // `input` has dim `axis` equal to `expected`, which comes from `source`.
  absl::Status Equal(int input, int axis, const Dim& expected, std::string_view source) const {
    const Dim got = Of(input, axis);
    if (!got.is_constant() || !expected.is_constant() || got == expected) return absl::OkStatus();
    return c_.InputError(
        input, StrCat("expected dim ", axis, " to be ", expected.ToString(), " as in ", source,
                      ", got ", c_.input_shape(input)->ToString()));
  }

  absl::Status AtLeastOne(int input, int axis) const {
    const std::optional<int64_t> got = Of(input, axis).constant();
    if (!got || *got >= 1) return absl::OkStatus();
    return c_.InputError(input, StrCat("expected dim ", axis, " to be at least 1, got ",
                                       c_.input_shape(input)->ToString()));
  }

  absl::Status Scalar(int input) const {
    const Shape* shape = c_.input_shape(input);
    if (shape == nullptr || shape->rank() == 0) return absl::OkStatus();
    const std::optional<int64_t> size = (*shape)[0].constant();
    if (shape->rank() == 1 && (!size || *size == 1)) return absl::OkStatus();
    return c_.InputError(input, StrCat("expected shape [] or [1], got ", shape->ToString()));
  }

 private:
  const ShapeContext& c_;
};

}  // namespace pagefuse
