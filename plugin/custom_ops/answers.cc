// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/plugin/custom_ops/answers.h"

#include <utility>

namespace pagefuse::ort {

Status* Refuse(ErrorCode code, std::string message) { return new Status{code, std::move(message)}; }

Status* ToAnswer(const absl::Status& status) {
  if (status.ok()) return nullptr;
  ErrorCode code = ErrorCode::kFail;
  if (absl::IsInvalidArgument(status)) code = ErrorCode::kInvalidArgument;
  if (absl::IsUnimplemented(status)) code = ErrorCode::kNotImplemented;
  return Refuse(code, std::string(status.message()));
}

Status* GiveText(std::string_view text, char* out, size_t* size) {
  const size_t room = *size;
  *size = text.size() + 1;
  if (out == nullptr) return nullptr;
  if (room < text.size() + 1) {
    return Refuse(ErrorCode::kInvalidArgument, "the memory for a text is too small");
  }
  std::copy(text.begin(), text.end(), out);
  out[text.size()] = '\0';
  return nullptr;
}

}  // namespace pagefuse::ort
