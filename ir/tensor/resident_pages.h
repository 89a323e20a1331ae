// SPDX-License-Identifier: Apache-2.0
// Returns the memory of mapped files to the system while the tensors on them live on.
#pragma once

#include <cstddef>

#include "pagefuse/ir/tensor/tensor.h"

namespace pagefuse {

// Tells the operating system that bytes [data, data + bytes) of the buffer are not read soon: whole
// pages of a mapped file leave this process's memory, and come back from the file when they are
// read again. The contents never change; buffers that are no mapped file are left alone.
// Thread-safe.
void ReleasePages(const Buffer& buffer, const void* data, size_t bytes);

// Whether the buffer is a mapped file.
bool IsMappedFile(const Buffer& buffer);

}  // namespace pagefuse
