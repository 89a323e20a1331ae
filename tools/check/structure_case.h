// Checks models that have no reference data: they must load, have known ops only, and tell the
// shapes of all values.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "pagefuse/ir/graph/model.h"

namespace pagefuse {

// Loads `folder`/model.onnx. Weights that are not there, as `folder`/initializers.json lists them
// (`data_bytes`), are zeros that take no memory. NotFound or InvalidArgument naming the file.
absl::StatusOr<Model> LoadStructure(const std::string& folder);

// Loads, verifies ops and infers; every value must then have a type and known dims. Unimplemented
// for an op that is not known, InvalidArgument naming a value that is not.
absl::Status CheckStructure(const std::string& folder);

}  // namespace pagefuse
