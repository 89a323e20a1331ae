// SPDX-License-Identifier: Apache-2.0
// Makes the statuses, texts and lists that functions of the table return to a library.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"

#include "pagefuse/plugin/custom_ops/objects.h"

namespace pagefuse::ort {

// A status of the library's, which releases it.
Status* Refuse(ErrorCode code, std::string message);
// Null for OK.
Status* ToAnswer(const absl::Status& status);

// A function of the table that reads a field of an object.
template <typename Object, typename Field, Field Object::*kField>
Status* GetField(const Object* object, Field* out) {
  *out = object->*kField;
  return nullptr;
}
// One that ends an object which the library owns.
template <typename Object>
void Release(Object* object) {
  const std::unique_ptr<Object> owned(object);
}

// A text for memory of the library's: its size with the zero at the end where there is no memory.
Status* GiveText(std::string_view text, char* out, size_t* size);

// A list, likewise.
template <typename T>
Status* GiveList(const std::vector<T>& list, T* out, size_t* size) {
  const size_t room = *size;
  *size = list.size();
  if (out == nullptr) return nullptr;
  if (room < list.size()) {
    return Refuse(ErrorCode::kInvalidArgument, "the memory for a list is too small");
  }
  std::copy(list.begin(), list.end(), out);
  return nullptr;
}

}  // namespace pagefuse::ort
