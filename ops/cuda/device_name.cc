// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/cuda/device_name.h"

#include <charconv>
#include <string>

#include "pagefuse/base/str_cat.h"

namespace pagefuse {
namespace {

// "12.4" of 12040.
std::string VersionText(int version) { return StrCat(version / 1000, ".", version % 1000 / 10); }

// "0", "0 to 1"
std::string NumbersBelow(int count) { return count == 1 ? "0" : StrCat("0 to ", count - 1); }

absl::Status Missing(std::string_view what) {
  return absl::FailedPreconditionError(AbslView(what));
}

}  // namespace

absl::StatusOr<std::optional<int>> ParseDeviceName(std::string_view name) {
  if (name == "cpu") return std::nullopt;
  if (name == "cuda") return 0;
  constexpr std::string_view kPrefix = "cuda:";
  if (name.starts_with(kPrefix)) {
    const std::string_view digits = name.substr(kPrefix.size());
    int ordinal = 0;
    const auto [end, error] =
        std::from_chars(digits.data(), digits.data() + digits.size(), ordinal);
    if (error == std::errc() && end == digits.data() + digits.size() && ordinal >= 0 &&
        digits.front() != '-') {
      return ordinal;
    }
  }
  return absl::InvalidArgumentError(StrCat("expected cpu, cuda or cuda:N, got \"", name, "\""));
}

absl::Status CheckMachine(const cuda::Machine& machine, int ordinal) {
  if (!machine.has_driver) return Missing("no NVIDIA driver: libcuda.so.1 cannot be opened");
  if (machine.driver_version > 0 && machine.driver_version < machine.needed_version) {
    return Missing(StrCat("the driver supports CUDA ", VersionText(machine.driver_version),
                          ", this program needs ", VersionText(machine.needed_version)));
  }
  if (!machine.failure.empty()) return Missing(machine.failure);
  if (machine.gpus == 0) return Missing("the driver sees no GPU");
  if (ordinal < 0 || ordinal >= machine.gpus) {
    return Missing(StrCat("expected ", NumbersBelow(machine.gpus)));
  }
  if (machine.capability < cuda::kLeastCapability) {
    return Missing(StrCat("GPU ", ordinal, " (", machine.name, ") is sm_", machine.capability,
                          ", kernels need sm_", cuda::kLeastCapability, " or newer"));
  }
  return absl::OkStatus();
}

absl::Status NoCudaInBuild() {
  return Missing(
      "this build has no CUDA kernels; configure with -DPAGEFUSE_CUDA=ON and nvcc 12.4 or newer");
}

}  // namespace pagefuse
