// Rules that exercise the matcher, for pass test files.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"

#include "pagefuse/passes/pass.h"

namespace pagefuse {

// The pass of that name: a test rule or a pass of the pipeline.
absl::StatusOr<std::unique_ptr<Pass>> FindTestPass(const std::string& name);

}  // namespace pagefuse
