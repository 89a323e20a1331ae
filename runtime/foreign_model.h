// SPDX-License-Identifier: Apache-2.0
// Tells what a file or folder holds that somebody took for an ONNX graph.
#pragma once

#include <string>

namespace pagefuse {

// What the file is instead, and how one comes to a graph from it: "is a Git-LFS pointer, not the file
// itself: ...". Known are pointers of Git LFS, web pages, and the files of safetensors, GGUF, PyTorch
// and ONNX Runtime's own format. Empty for what may be a graph, and for what cannot be read.
std::string WhatFileIsInstead(const std::string& path);

// The same for a folder without a graph: "has weights without a graph (model.safetensors): ...", "is
// empty". Empty where nothing in it is known.
std::string WhatFolderHasInstead(const std::string& path);

}  // namespace pagefuse
