#include "pagefuse/kernels/formats/cache_choice.h"

#include "absl/strings/str_cat.h"

namespace pagefuse {
namespace {

constexpr CacheChoice kChoices[] = {
    {"none", KvQuantMode::kNone, DataType::kUndefined},
    {"bf16", KvQuantMode::kNone, DataType::kBfloat16},
    {"fp8_per_tensor", KvQuantMode::kFp8PerTensor, DataType::kFloat8E4M3FN},
    {"fp8_per_token_head", KvQuantMode::kFp8PerTokenHead, DataType::kFloat8E4M3FN},
    {"int8_per_token_head", KvQuantMode::kInt8PerTokenHead, DataType::kInt8},
    {"int4_per_token_head", KvQuantMode::kInt4PerTokenHead, DataType::kUint8},
};

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
    if (rounded ? choice.mode == mode && choice.stored == stored : choice.mode == mode) {
      return choice.name;
    }
  }
  return "none";
}

}  // namespace pagefuse
