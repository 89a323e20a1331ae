// SPDX-License-Identifier: Apache-2.0
// Any bytes give a model or a Status. A model that is imported verifies, exports, and comes back
// the same.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "paths.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/ir/graph/verify.h"
#include "pagefuse/ir/onnx/onnx_io.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace pagefuse;  // NOLINT(google-build-using-namespace)
  const ImportOptions options = {.base_dir = SourcePath("tests/ir/broken")};
  const absl::StatusOr<Model> model =
      ImportModel(std::string_view(reinterpret_cast<const char*>(data), size), options);
  if (!model.ok()) return 0;
  PF_CHECK(Verify(*model).ok());
  const absl::StatusOr<std::string> bytes = ExportModel(*model);
  PF_CHECK(bytes.ok());
  const absl::StatusOr<Model> again = ImportModel(*bytes, options);
  PF_CHECK(again.ok());
  const absl::StatusOr<std::string> bytes_again = ExportModel(*again);
  PF_CHECK(bytes_again.ok() && *bytes == *bytes_again);
  PF_CHECK(Verify(model->Clone()).ok());
  return 0;
}
