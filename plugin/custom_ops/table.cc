// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/plugin/custom_ops/table.h"

#include <array>
#include <cstdio>
#include <iterator>
#include <string>
#include <utility>

#include "pagefuse/plugin/custom_ops/answers.h"
#include "pagefuse/plugin/custom_ops/library_call.h"

namespace pagefuse::ort {
namespace {

struct Place {
  const char* name;
  bool answers_status;
};

constexpr Place kFunctions[] = {
#define PF_STATUS(name) {#name, true},
#define PF_OTHER(name) {#name, false},
#include "pagefuse/plugin/custom_ops/slots.inc"
#undef PF_STATUS
#undef PF_OTHER
};
static_assert(std::size(kFunctions) == kPlaces);

// What stands where nothing is filled in. The calling conventions of all our platforms let the
// caller clear away the arguments, so a function without any may be called with them.
template <int kPlace>
Status* Unfilled() {
  const std::string message = MissingFunction(kPlace);
  NoteMissing(message);
  if (!kFunctions[kPlace].answers_status) return nullptr;
  return Refuse(ErrorCode::kNotImplemented, message);
}

template <int... kPlace>
std::array<const void*, kPlaces> AllUnfilled(std::integer_sequence<int, kPlace...>) {
  return {reinterpret_cast<const void*>(&Unfilled<kPlace>)...};
}

Api* Table() {
  static const auto* const table = [] {
    static auto places = AllUnfilled(std::make_integer_sequence<int, kPlaces>());
    const TableFiller filler(places.data());
    FillStatuses(filler);
    FillRegistration(filler);
    FillTypes(filler);
    FillValues(filler);
    FillMemory(filler);
    FillKernelInfo(filler);
    FillKernelContext(filler);
    FillShapeInference(filler);
    return &places;
  }();
  return table->data();
}

Api* GetApi(uint32_t version) {
  if (version >= 1 && version <= kNewestVersion) return Table();
  // Few libraries look whether they got a table: this may be the last that is heard of one.
  std::fprintf(stderr, "it asks for version %u of ONNX Runtime's C API, expected 1 to %u\n",
               version, kNewestVersion);
  NoteRefusedVersion(version);
  return nullptr;
}

const char* Version() { return "1.23.0"; }

}  // namespace

const char* FunctionName(int place) { return kFunctions[place].name; }

const ApiBase& HostApiBase() {
  static constexpr ApiBase kBase = {GetApi, Version};
  return kBase;
}

}  // namespace pagefuse::ort
