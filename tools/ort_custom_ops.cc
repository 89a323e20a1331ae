#include "tools/ort_custom_ops.h"

#include <algorithm>
#include <cstring>
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

// Stands for the options of a session.
struct Session {
  const std::map<std::string, std::string>& config;
  CustomOps ops;
};

ort::Status* AddDomain(ort::SessionOptions* options, ort::CustomOpDomain* domain) {
  const auto& added = *reinterpret_cast<Domain*>(domain);
  CustomOps& ops = reinterpret_cast<Session*>(options)->ops;
  ops.names[added.name].insert(added.ops.begin(), added.ops.end());
  ops.rows += static_cast<int>(added.ops.size());
  return nullptr;
}

ort::Status* HasEntry(const ort::SessionOptions* options, const char* key, int* is_there) {
  *is_there = reinterpret_cast<const Session*>(options)->config.count(key) > 0 ? 1 : 0;
  return nullptr;
}

// As ONNX Runtime: without memory it tells the size, the zero at the end included.
ort::Status* GetEntry(const ort::SessionOptions* options, const char* key, char* value,
                      size_t* size) {
  const std::string& text = reinterpret_cast<const Session*>(options)->config.at(key);
  if (value != nullptr) std::memcpy(value, text.c_str(), std::min(*size, text.size() + 1));
  *size = text.size() + 1;
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
  set(ort::kHasSessionConfigEntry, HasEntry);
  set(ort::kGetSessionConfigEntry, GetEntry);
  return table;
}

}  // namespace

absl::StatusOr<CustomOps> LookAtCustomOps(void* handle,
                                          const std::map<std::string, std::string>& config) {
  auto* const register_ops =
      reinterpret_cast<ort::RegisterCustomOps*>(dlsym(handle, ort::kRegisterCustomOps));
  if (register_ops == nullptr) {
    return absl::NotFoundError("the library registers no ops for ONNX Runtime");
  }
  static const ort::ApiBase base = {[](uint32_t) { return Table(); }, [] { return "1.17.0"; }};
  Session session{config, {}};
  if (register_ops(reinterpret_cast<ort::SessionOptions*>(&session), &base) != nullptr) {
    return absl::InternalError("the library did not register its ops");
  }
  return session.ops;
}

}  // namespace pagefuse::tools
