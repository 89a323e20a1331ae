// SPDX-License-Identifier: Apache-2.0
// Keys of contents: two are the same only where what they were written of is the same.
#pragma once

#include <cstdint>
#include <string>

#include "pagefuse/ir/graph/graph.h"

namespace pagefuse {

template <typename T>
void AppendBytes(std::string& key, const T& value) {
  key.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

void AppendText(std::string& key, const std::string& text);

// Type, dims and elements; of more than `most` bytes, or without data, its place in memory.
void AppendTensor(std::string& key, const Tensor& tensor, int64_t most);

// False for what is not compared: graphs, references, types.
bool AppendAttribute(std::string& key, const Attribute& attribute, int64_t most);

}  // namespace pagefuse
