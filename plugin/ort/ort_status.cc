// SPDX-License-Identifier: Apache-2.0
#include "plugin/ort/ort_status.h"

#include "pagefuse/base/short_message.h"
#include "pagefuse/base/str_cat.h"

namespace pagefuse::ort {

Status* ToOrtStatus(Api* api, const absl::Status& status) {
  if (status.ok()) return nullptr;
  ErrorCode code = ErrorCode::kFail;
  if (absl::IsInvalidArgument(status) || absl::IsOutOfRange(status)) {
    code = ErrorCode::kInvalidArgument;
  }
  if (absl::IsUnimplemented(status)) code = ErrorCode::kNotImplemented;
  return kCreateStatus(api, code, ShortMessage(StdView(status.message())).c_str());
}

absl::Status FromOrtStatus(Api* api, Status* status) {
  if (status == nullptr) return absl::OkStatus();
  const std::string message = kGetErrorMessage(api, status);
  kReleaseStatus(api, status);
  return absl::InternalError(message);
}

}  // namespace pagefuse::ort
