// SPDX-License-Identifier: Apache-2.0
// Statuses, and what the host says of itself.

#include "pagefuse/plugin/custom_ops/answers.h"
#include "pagefuse/plugin/custom_ops/table.h"

namespace pagefuse::ort {
namespace {

Status* Create(ErrorCode code, const char* message) { return Refuse(code, message); }

ErrorCode CodeOf(const Status* status) { return status == nullptr ? ErrorCode::kOk : status->code; }

const char* MessageOf(const Status* status) { return status->message.c_str(); }

const char* BuildInfo() { return "pagefuse"; }

}  // namespace

void FillStatuses(const TableFiller& table) {
  table.Set(kCreateStatus, Create);
  table.Set(kGetErrorCode, CodeOf);
  table.Set(kGetErrorMessage, MessageOf);
  table.Set(kReleaseStatus, Release<Status>);
  table.Set(kGetBuildInfoString, BuildInfo);
}

}  // namespace pagefuse::ort
