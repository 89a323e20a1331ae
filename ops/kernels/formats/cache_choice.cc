// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/kernels/formats/cache_choice.h"

#include <vector>

#include "absl/strings/str_cat.h"

namespace pagefuse {
namespace {

constexpr CacheChoice kGrouped8 = {.name = "fp8", .stored = DataType::kUint8, .grouped_bits = 8};
constexpr CacheChoice kIndexChoices[] = {
    {.name = "none"},
    {.name = "bf16", .stored = DataType::kBfloat16},
    kGrouped8,
    {.name = "mxfp4", .stored = DataType::kUint8, .grouped_bits = 4}};

std::vector<CacheChoice> MakeChoices() {
  std::vector<CacheChoice> choices;
  for (const RowFormat& format : RowFormats()) {
    for (const auto& [name, stored] : format.cache_names) {
      choices.push_back({.name = name, .mode = format.mode, .stored = stored});
    }
  }
  for (const TurboQuantPreset& preset : kTurboQuantPresets) {
    choices.push_back({.name = preset.name, .stored = DataType::kUint8, .turboquant = &preset});
  }
  choices.push_back(kGrouped8);
  return choices;
}

std::string NamesOf(std::span<const CacheChoice> choices) {
  std::string names;
  for (const CacheChoice& choice : choices) {
    absl::StrAppend(&names, names.empty() ? "" : ", ", std::string(choice.name));
  }
  return names;
}

absl::StatusOr<CacheChoice> Find(std::string_view name, std::span<const CacheChoice> choices) {
  for (const CacheChoice& choice : choices) {
    if (choice.name == name) return choice;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("expected ", NamesOf(choices), ", got \"", std::string(name), "\""));
}

}  // namespace

std::span<const CacheChoice> CacheChoices() {
  static const std::vector<CacheChoice> choices = MakeChoices();
  return choices;
}

std::string CacheChoiceNames() { return NamesOf(CacheChoices()); }

absl::StatusOr<CacheChoice> FindCacheChoice(std::string_view name) {
  return Find(name, CacheChoices());
}

std::span<const CacheChoice> IndexChoices() { return kIndexChoices; }

std::string IndexChoiceNames() { return NamesOf(kIndexChoices); }

absl::StatusOr<CacheChoice> FindIndexChoice(std::string_view name) {
  return Find(name, kIndexChoices);
}

std::string_view NameOfCache(KvQuantMode mode, DataType stored, DataType computed) {
  const RowFormat& format = RowFormatOf(mode);
  const bool rounded = CacheFormat{.mode = mode}.is_plain() && stored != computed;
  for (const CacheName& choice : format.cache_names) {
    if (!rounded || choice.stored == stored) return choice.name;
  }
  return format.name;
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
