#include "tools/ort_custom_ops.h"

#include <deque>

#include <dlfcn.h>

#include "plugin/ort_abi.h"

namespace pagefuse::tools {
namespace {

// A host that keeps lists. The library gets its objects as those of ONNX Runtime.
struct Domain {
  std::string name;
  std::deque<std::string> ops;
};

ort::Status* CreateDomain(const char* name, ort::CustomOpDomain** domain) {
  // The library keeps it as long as the program runs.
  *domain = reinterpret_cast<ort::CustomOpDomain*>(new Domain{name, {}});
  return nullptr;
}

ort::Status* AddOp(ort::CustomOpDomain* domain, const ort::CustomOp* op) {
  reinterpret_cast<Domain*>(domain)->ops.emplace_back(op->name(op));
  return nullptr;
}

ort::Status* AddDomain(ort::SessionOptions* options, ort::CustomOpDomain* domain) {
  const auto& added = *reinterpret_cast<Domain*>(domain);
  auto& ops = *reinterpret_cast<CustomOps*>(options);
  ops.names[added.name].insert(added.ops.begin(), added.ops.end());
  ops.rows += static_cast<int>(added.ops.size());
  return nullptr;
}

ort::Status* HasNoEntry(const ort::SessionOptions*, const char*, int* is_there) {
  *is_there = 0;
  return nullptr;
}

// The part of the table that registration calls.
ort::Api* Table() {
  constexpr int kPlaces = 276;
  static const void* table[kPlaces] = {};
  const auto set = [](const auto& function, auto* host) {
    table[function.place] = reinterpret_cast<const void*>(host);
  };
  set(ort::kCreateCustomOpDomain, CreateDomain);
  set(ort::kCustomOpDomainAdd, AddOp);
  set(ort::kAddCustomOpDomain, AddDomain);
  set(ort::kHasSessionConfigEntry, HasNoEntry);
  return table;
}

}  // namespace

absl::StatusOr<CustomOps> LookAtCustomOps(void* handle) {
  auto* const register_ops =
      reinterpret_cast<ort::RegisterCustomOps*>(dlsym(handle, ort::kRegisterCustomOps));
  if (register_ops == nullptr) {
    return absl::NotFoundError("the library registers no ops for ONNX Runtime");
  }
  static const ort::ApiBase base = {[](uint32_t) { return Table(); }, [] { return "1.17.0"; }};
  CustomOps ops;
  if (register_ops(reinterpret_cast<ort::SessionOptions*>(&ops), &base) != nullptr) {
    return absl::InternalError("the library did not register its ops");
  }
  return ops;
}

}  // namespace pagefuse::tools
