// The releases of ONNX Runtime that tests run in.
#pragma once

#include <string>
#include <vector>

namespace pagefuse {

// Paths of libonnxruntime.so.1, from the environment variable PAGEFUSE_ORT_LIBS, with colons.
std::vector<std::string> OrtLibraries();

}  // namespace pagefuse
