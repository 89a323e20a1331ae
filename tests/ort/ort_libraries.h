// SPDX-License-Identifier: Apache-2.0
// The releases of ONNX Runtime that tests run in, and the library that they get.
#pragma once

#include <string>
#include <vector>

namespace pagefuse {

// Paths of libonnxruntime.so.1, from the environment variable PAGEFUSE_ORT_LIBS, with colons.
std::vector<std::string> OrtLibraries();
// Path of libpagefuse_ort.so.
std::string CustomOpsLibrary();

}  // namespace pagefuse
