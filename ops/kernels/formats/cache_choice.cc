#include "pagefuse/kernels/formats/cache_choice.h"

#include <iterator>

#include "absl/strings/str_cat.h"

namespace pagefuse {
namespace {

constexpr CacheChoice SlotsOf(const TurboQuantPreset& preset) {
  return {preset.name, KvQuantMode::kNone, DataType::kUint8, &preset};
}

constexpr CacheChoice kChoices[] = {
    {"none", KvQuantMode::kNone, DataType::kUndefined},
    {"bf16", KvQuantMode::kNone, DataType::kBfloat16},
    {"fp8_per_tensor", KvQuantMode::kFp8PerTensor, DataType::kFloat8E4M3FN},
    {"fp8_per_token_head", KvQuantMode::kFp8PerTokenHead, DataType::kFloat8E4M3FN},
    {"int8_per_token_head", KvQuantMode::kInt8PerTokenHead, DataType::kInt8},
    {"int4_per_token_head", KvQuantMode::kInt4PerTokenHead, DataType::kUint8},
    SlotsOf(kTurboQuantPresets[0]),
    SlotsOf(kTurboQuantPresets[1]),
    SlotsOf(kTurboQuantPresets[2]),
    SlotsOf(kTurboQuantPresets[3]),
};
static_assert(std::size(kTurboQuantPresets) == 4);

}  // namespace

std::span<const CacheChoice> CacheChoices() { return kChoices; }

std::string CacheChoiceNames() {
  std::string names;
  for (const CacheChoice& choice : kChoices) {
    absl::StrAppend(&names, names.empty() ? "" : ", ", std::string(choice.name));
  }
  return names;
}

absl::StatusOr<CacheChoice> FindCacheChoice(std::string_view name) {
  for (const CacheChoice& choice : kChoices) {
    if (choice.name == name) return choice;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("expected ", CacheChoiceNames(), ", got \"", std::string(name), "\""));
}

std::string_view NameOfCache(KvQuantMode mode, DataType stored, DataType computed) {
  const bool rounded = mode == KvQuantMode::kNone && stored != computed;
  for (const CacheChoice& choice : kChoices) {
    if (choice.turboquant != nullptr) continue;
    if (rounded ? choice.mode == mode && choice.stored == stored : choice.mode == mode) {
      return choice.name;
    }
  }
  return "none";
}

std::string_view NameOfSlots(int key_bits, int value_bits, bool norm_correction) {
  for (const TurboQuantPreset& preset : kTurboQuantPresets) {
    // 8-bit keys have no norm to correct.
    const bool corrects = key_bits != 8 && norm_correction;
    if (preset.key_bits == key_bits && preset.value_bits == value_bits &&
        preset.norm_correction == corrects) {
      return preset.name;
    }
  }
  return "turboquant";
}

}  // namespace pagefuse
