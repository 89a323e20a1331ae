// SPDX-License-Identifier: Apache-2.0
// The ports of an op: their names, types and shapes, as an op declares them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>

namespace pagefuse {

// How a port may be used.
enum class PortKind {
  kRequired,
  kOptional,
  kVariadic,  // the last port: one or more
};

// What a port carries, for the matcher: values that a decomposition computes from metadata alone
// (slots, lengths, masks, tables) may have readers outside a match; values computed from data may
// not.
enum class PortRole { kData, kMetadata };

// One row of a table of ports. Type and shape are checked: see op_def.h for what they may say.
struct PortSpec {
  std::string_view name;
  std::string_view type;
  std::string_view shape;
  PortKind kind = PortKind::kRequired;
  PortRole role = PortRole::kData;
  bool in_blocks = false;
  std::string_view required_if = {};  // a condition; it must be given then
  std::string_view only_if = {};      // a condition; it may not be given else

  constexpr PortSpec() = default;
  constexpr PortSpec(std::string_view name, std::string_view type, std::string_view shape)
      : name(name), type(type), shape(shape) {}

  constexpr PortSpec Metadata() const {
    PortSpec spec = *this;
    spec.role = PortRole::kMetadata;
    return spec;
  }
  // An input that may come in blocks: elements of its first dim need not lie one behind the other
  // (TensorArg::block_stride).
  constexpr PortSpec InBlocks() const {
    PortSpec spec = *this;
    spec.in_blocks = true;
    return spec;
  }
  constexpr PortSpec Optional() const {
    PortSpec spec = *this;
    spec.kind = PortKind::kOptional;
    return spec;
  }
  constexpr PortSpec RequiredIf(std::string_view condition) const {
    PortSpec spec = Optional();
    spec.required_if = condition;
    return spec;
  }
  constexpr PortSpec OnlyIf(std::string_view condition) const {
    PortSpec spec = Optional();
    spec.only_if = condition;
    return spec;
  }
  constexpr PortSpec ExactlyIf(std::string_view condition) const {
    return RequiredIf(condition).OnlyIf(condition);
  }
};

// Not constant expressions: what the compiler names where a table of ports is used wrongly.
int NoPortHasThisName();
int TwoPortsHaveOneName();

// The inputs or the outputs of an op in order. Code says a port by name, and a name that is not in
// the table does not compile:
//
//   constexpr Ports kIn({
//       {"x", "T", "[..., K]"},
//       PortSpec("bias", "T", "[N]").Optional(),
//   });
//   args.input(kIn["bias"])
template <size_t N>
struct Ports {
  PortSpec specs[N];

  consteval explicit Ports(const PortSpec (&list)[N]) {
    std::copy(list, list + N, specs);
    for (size_t i = 0; i < N; ++i) {
      for (size_t j = 0; j < i; ++j) {
        if (specs[i].name == specs[j].name) TwoPortsHaveOneName();
      }
    }
  }

  // -1 if no port has the name.
  constexpr int Find(std::string_view name) const {
    for (size_t i = 0; i < N; ++i) {
      if (specs[i].name == name) return static_cast<int>(i);
    }
    return -1;
  }
  consteval int operator[](std::string_view name) const {
    const int i = Find(name);
    return i >= 0 ? i : NoPortHasThisName();
  }
  static constexpr int size() { return static_cast<int>(N); }
};

// A port of an OpDef.
struct Port {
  std::string name;
  std::string type;
  std::string shape;
  PortKind kind = PortKind::kRequired;
  PortRole role = PortRole::kData;
  bool in_blocks = false;
  std::string required_if = {};
  std::string only_if = {};
  bool is_checked = false;  // type and shape are in the language of op_def.h; else for the reader
};

}  // namespace pagefuse
