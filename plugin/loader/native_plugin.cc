// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/plugin/loader/native_plugin.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>

#include <dlfcn.h>

#include "absl/strings/ascii.h"
#include "absl/strings/strip.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/status_place.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/plugin.h"
#include "pagefuse/plugin/loader/host_table.h"
#include "pagefuse/plugin/loader/native_kernel.h"

namespace pagefuse {
namespace {

constexpr std::string_view kSymbol = "pagefuse_plugin";

// What pf_plugin starts with: numbers, which are in the file as they will be in memory.
struct Head {
  uint32_t magic, abi_major, abi_minor, size;
};
static_assert(offsetof(pf_plugin, name) == sizeof(Head));

// Sizes in version 1.0.
constexpr size_t kLeastPlugin = offsetof(pf_plugin, register_all) + sizeof(void*);
constexpr size_t kLeastKernel = offsetof(pf_kernel, release) + sizeof(void*);
constexpr size_t kLeastCondition = offsetof(pf_condition, holds) + sizeof(void*);

absl::Status CheckHead(const ElfFile& object) {
  if (!object.Defines(kSymbol)) {
    return absl::InvalidArgumentError("has no symbol pagefuse_plugin or RegisterCustomOps");
  }
  const std::optional<std::string_view> bytes = object.Data(kSymbol, sizeof(Head));
  if (!bytes) return absl::InvalidArgumentError("pagefuse_plugin is no data of the file");
  Head head;
  std::memcpy(&head, bytes->data(), sizeof(head));
  if (head.magic != PF_PLUGIN_MAGIC) {
    return absl::InvalidArgumentError(
        "pagefuse_plugin is no pf_plugin: its first word is not PF_PLUGIN_MAGIC");
  }
  if (head.abi_major != PF_ABI_MAJOR || head.abi_minor > PF_ABI_MINOR) {
    return absl::InvalidArgumentError(StrCat("plug-in ABI ", head.abi_major, ".", head.abi_minor,
                                             ", this pagefuse takes ", PF_ABI_MAJOR, ".0 to ",
                                             PF_ABI_MAJOR, ".", PF_ABI_MINOR));
  }
  if (head.size < kLeastPlugin) {
    return absl::InvalidArgumentError(
        StrCat("pagefuse_plugin has ", head.size, " bytes, expected at least ", kLeastPlugin));
  }
  return absl::OkStatus();
}

// Collects what a plug-in says. The first thing that is wrong with it stays.
struct Registrar {
  pf_registrar table;  // first: a pointer to it is one to the whole
  const pf_host* host;
  std::string path;
  PluginContents contents;
  absl::Status status;

  pf_status Fail(std::string_view text) {
    if (status.ok()) status = absl::InvalidArgumentError(AbslView(text));
    return host->error(host, PF_INVALID_ARGUMENT, "%s", std::string(text).c_str());
  }
};

Registrar& Of(pf_registrar* registrar) { return *reinterpret_cast<Registrar*>(registrar); }

pf_status AddText(pf_registrar* registrar, const char* text) {
  Registrar& to = Of(registrar);
  if (text == nullptr) return to.Fail("add_text: the text is NULL");
  to.contents.texts.push_back({StrCat(to.path, ": text ", to.contents.texts.size() + 1), text});
  return PF_OK;
}

// A struct that starts with its size. Those of older minor versions are shorter, but not than
// `least`; what they lack says nothing.
template <typename T>
bool CopyStruct(const T* from, size_t least, T& to) {
  if (from == nullptr || from->size < least) return false;
  std::memcpy(&to, from, std::min(from->size, sizeof(T)));
  return true;
}

pf_status AddKernel(pf_registrar* registrar, const char* op, const pf_kernel* kernel) {
  Registrar& to = Of(registrar);
  pf_kernel copy = {};
  if (op == nullptr || !CopyStruct(kernel, kLeastKernel, copy)) {
    return to.Fail("add_kernel: expected an op and a pf_kernel with its size");
  }
  absl::StatusOr<Kernel> made = MakeNativeKernel(to.host, copy);
  if (!made.ok()) return to.Fail(StdView(made.status().message()));
  to.contents.kernels.push_back({op, *std::move(made)});
  return PF_OK;
}

pf_status AddCondition(pf_registrar* registrar, const pf_condition* condition) {
  Registrar& to = Of(registrar);
  pf_condition copy = {};
  if (!CopyStruct(condition, kLeastCondition, copy)) {
    return to.Fail("add_condition: expected a pf_condition with its size");
  }
  auto made = MakeNativeCondition(to.host, copy);
  if (!made.ok()) return to.Fail(StdView(made.status().message()));
  to.contents.conditions.push_back(*std::move(made));
  return PF_OK;
}

bool IsName(const char* name) {
  if (name == nullptr || *name == '\0') return false;
  return std::all_of(name, name + std::strlen(name), [](unsigned char c) {
    return absl::ascii_islower(c) || absl::ascii_isdigit(c) || c == '-' || c == '_';
  });
}

}  // namespace

absl::Status LoaderError(const std::string& file) {
  const char* error = dlerror();
  absl::string_view text = error == nullptr ? "cannot be loaded" : error;
  absl::ConsumePrefix(&text, StrCat(file, ": "));
  return absl::InvalidArgumentError(text);
}

absl::StatusOr<PluginContents> ReadNativePlugin(const std::string& path, const std::string& file,
                                                const ElfFile& object) {
  PF_RETURN_IF_ERROR(CheckHead(object));
  // Stays loaded: kernels of it may be in use wherever they were seen once.
  void* library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return LoaderError(file);
  const auto* plugin = static_cast<const pf_plugin*>(dlsym(library, "pagefuse_plugin"));
  if (plugin == nullptr) return LoaderError(file);
  if (!IsName(plugin->name) || plugin->version == nullptr || plugin->register_all == nullptr) {
    return absl::InvalidArgumentError(
        "pagefuse_plugin needs a name of lower-case letters, digits, - and _, a version, and a "
        "function");
  }
  const pf_host* host = MakeHost(plugin->name);
  Registrar registrar{.table = {sizeof(pf_registrar), AddText, AddKernel, AddCondition},
                      .host = host,
                      .path = path,
                      .contents = {},
                      .status = {}};
  registrar.contents.name = plugin->name;
  registrar.contents.version = plugin->version;
  registrar.contents.kind = StrCat("plug-in ABI ", plugin->abi_major, ".", plugin->abi_minor);
  const absl::Status status =
      RunCallback([&] { return plugin->register_all(host, &registrar.table); });
  PF_RETURN_IF_ERROR(registrar.status);
  PF_RETURN_IF_ERROR(AtPlace("its registration", status));
  return std::move(registrar.contents);
}

}  // namespace pagefuse
