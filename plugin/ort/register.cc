// SPDX-License-Identifier: Apache-2.0
// The one function that the library exports, which ONNX Runtime calls when the library is given to
// the options of a session.
#include <string>

#include "absl/strings/str_cat.h"
#include "plugin/ort/op_table.h"
#include "plugin/ort/ort_status.h"

extern "C" __attribute__((visibility("default"))) pagefuse::ort::Status* RegisterCustomOps(
    pagefuse::ort::SessionOptions* options, const pagefuse::ort::ApiBase* base) {
  using namespace pagefuse::ort;  // NOLINT(google-build-using-namespace)
  Api* api = base->get_api(kApiVersion);
  if (api == nullptr) {
    constexpr uint32_t kFirstVersion = 1;
    const std::string message = absl::StrCat("pagefuse: expected ONNX Runtime 1.", kApiVersion,
                                             " or newer, got ", base->version());
    return kCreateStatus(base->get_api(kFirstVersion), ErrorCode::kFail, message.c_str());
  }
  return Answer(api, [&] { return OpTable::AddTo(api, base->version(), options); });
}
