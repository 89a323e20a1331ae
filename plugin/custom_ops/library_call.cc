// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/plugin/custom_ops/library_call.h"

#include <memory>

#include "pagefuse/base/str_cat.h"
#include "pagefuse/plugin/custom_ops/table.h"

namespace pagefuse::ort {
namespace {

thread_local MissingNotes* current = nullptr;

}  // namespace

std::string MissingFunction(int place) {
  return StrCat("function ", place, ", ", FunctionName(place),
                ", of ONNX Runtime's C API is not there for custom ops");
}

void NoteMissing(const std::string& sentence) {
  if (current != nullptr && current->function_.empty()) current->function_ = sentence;
}

void NoteRefusedVersion(uint32_t version) {
  if (current != nullptr) current->version_ = version;
}

MissingNotes::MissingNotes() : before_(current) { current = this; }

MissingNotes::~MissingNotes() { current = before_; }

absl::Status MissingNotes::Judge(const absl::Status& status) const {
  if (!function_.empty()) return absl::UnimplementedError(function_);
  if (status.ok() || version_ == 0) return status;
  return absl::Status(status.code(),
                      StrCat(StdView(status.message()), "; it asks for version ", version_,
                             " of ONNX Runtime's C API, expected 1 to ", kNewestVersion));
}

absl::Status FromAnswer(Status* status) {
  const std::unique_ptr<Status> owned(status);
  if (owned == nullptr) return absl::OkStatus();
  switch (owned->code) {
    case ErrorCode::kInvalidArgument:
      return absl::InvalidArgumentError(owned->message);
    case ErrorCode::kNotImplemented:
      return absl::UnimplementedError(owned->message);
    default:
      return absl::AbortedError(owned->message);
  }
}

}  // namespace pagefuse::ort
