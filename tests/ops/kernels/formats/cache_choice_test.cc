// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/kernels/formats/cache_choice.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "must.h"

namespace pagefuse {
namespace {

using ::testing::HasSubstr;

TEST(CacheChoice, IsFoundByItsNameAndNamesWhatItMakes) {
  for (const CacheChoice& choice : CacheChoices()) {
    const auto found = Must(FindCacheChoice(choice.name));
    EXPECT_EQ(found.mode, choice.mode);
    EXPECT_EQ(found.turboquant, choice.turboquant);
    if (const TurboQuantPreset* preset = choice.turboquant) {
      EXPECT_EQ(NameOfSlots(preset->key_bits, preset->value_bits, preset->norm_correction),
                choice.name);
      continue;
    }
    if (choice.grouped()) continue;
    const DataType stored =
        choice.stored == DataType::kUndefined ? DataType::kFloat : choice.stored;
    EXPECT_EQ(NameOfCache(choice.mode, stored, DataType::kFloat), choice.name);
  }
}

TEST(CacheChoice, IsATypeThatItsModeTakes) {
  for (const CacheChoice& choice : CacheChoices()) {
    if (choice.changes_nothing() || choice.turboquant || choice.grouped()) continue;
    EXPECT_TRUE(CacheFormat::Make(choice.mode, choice.stored).ok()) << choice.name;
  }
}

TEST(CacheChoice, OfIndexKeysIsOneOfFour) {
  for (const char* name : {"none", "bf16", "fp8", "mxfp4"}) {
    EXPECT_TRUE(FindIndexChoice(name).ok()) << name;
  }
  EXPECT_FALSE(FindCacheChoice("mxfp4").ok());
  EXPECT_EQ(FindIndexChoice("int8_per_token_head").status().message(),
            "expected none, bf16, fp8, mxfp4, got \"int8_per_token_head\"");
}

TEST(CacheChoice, OfBfloat16KeysThemselvesIsNone) {
  EXPECT_EQ(NameOfCache(KvQuantMode::kNone, DataType::kBfloat16, DataType::kBfloat16), "none");
}

TEST(CacheChoice, OfBytesThatNoModeExplainsIsNoSlots) {
  EXPECT_EQ(NameOfCache(KvQuantMode::kNone, DataType::kUint8, DataType::kFloat), "none");
}

TEST(CacheChoice, OfAMixOfBitsWithoutANameIsTurboquant) {
  EXPECT_EQ(NameOfSlots(4, 3, true), "turboquant");
  EXPECT_EQ(NameOfSlots(4, 4, false), "turboquant");
}

TEST(CacheChoice, ListsItsNamesForAnother) {
  const absl::Status status = FindCacheChoice("fp4").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("expected none, bf16, fp8_per_tensor"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("got \"fp4\""));
}

}  // namespace
}  // namespace pagefuse
