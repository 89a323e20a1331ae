// SPDX-License-Identifier: Apache-2.0
#include "hosted.h"

#include <filesystem>
#include <utility>

#include <dlfcn.h>

#include "gtest/gtest.h"
#include "must.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ir/text/text.h"
#include "pagefuse/ops/registry/registry.h"
#include "pagefuse/plugin/custom_ops/library.h"
#include "pagefuse/runtime/session.h"

namespace pagefuse {

absl::StatusOr<std::vector<OpDef>> OpsOfLibrary(const std::string& path) {
  void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) return absl::NotFoundError(dlerror());
  return HostedOps(dlsym(handle, kRegisterCustomOps),
                   std::filesystem::path(path).filename().string());
}

absl::Status Publish(const std::vector<OpDef>& ops) {
  OpRegistry next = OpRegistry::Global();
  for (const OpDef& op : ops) PF_RETURN_IF_ERROR(next.Add(op));
  OpRegistry::Publish(std::move(next));
  return absl::OkStatus();
}

Model ThirdPartyModel(const std::string& ports, const std::string& body) {
  return Must(ParseModel(StrCat(
      "<ir_version: 10, opset_import: [\"\" : 21, \"third.party\" : 1, \"third.party.c\" : 1, "
      "\"third.party.cxx\" : 1]>\ng ",
      ports, " {\n", body, "\n}")));
}

absl::StatusOr<std::vector<Tensor>> RunModel(Model model,
                                             const std::map<std::string, Tensor>& feeds) {
  SessionOptions options;
  options.optimise = false;
  options.num_threads = 2;
  auto session = Session::Create(std::move(model), options);
  if (!session.ok()) return session.status();
  return (*session)->Run(feeds);
}

std::vector<float> Floats(const Tensor& tensor) {
  return {tensor.values<float>().begin(), tensor.values<float>().end()};
}

}  // namespace pagefuse
