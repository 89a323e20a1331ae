#include "pagefuse/ops/kernels/formats/weight_choice.h"

#include "absl/strings/str_cat.h"

namespace pagefuse {
namespace {

constexpr WeightChoice kChoices[] = {
    {.name = "float32"},
    {.name = "bf16", .alias = "bfloat16", .bits = kBf16Bits},
    {.name = "int8", .bits = 8},
    {.name = "int4", .bits = 4},
};

}  // namespace

std::span<const WeightChoice> WeightChoices() { return kChoices; }

std::string WeightChoiceNames() {
  std::string names;
  for (const WeightChoice& choice : kChoices) {
    absl::StrAppend(&names, names.empty() ? "" : ", ", std::string(choice.name));
  }
  return names;
}

absl::StatusOr<WeightChoice> FindWeightChoice(std::string_view name) {
  for (const WeightChoice& choice : kChoices) {
    if (choice.name == name || (!name.empty() && choice.alias == name)) return choice;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("expected ", WeightChoiceNames(), ", got \"", std::string(name), "\""));
}

}  // namespace pagefuse
