// SPDX-License-Identifier: Apache-2.0
// Tells files that are no ONNX model by how they begin, so that an error says what they are.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace pagefuse {

// InvalidArgument that says what the file is and what to do with it, for the formats that lie beside
// models and are taken for them: GGUF, safetensors, PyTorch, archives, pages of a web site. OK for
// all others.
absl::Status CheckIsNoForeignFile(std::string_view bytes);

// InvalidArgument for the pointer that Git LFS leaves in place of a large file.
absl::Status CheckIsNoPointer(std::string_view bytes);

}  // namespace pagefuse
