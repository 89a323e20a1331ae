// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/runtime/model_config.h"

#include <filesystem>
#include <fstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "must.h"

namespace pagefuse {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class ModelConfigTest : public ::testing::Test {
 protected:
  ModelConfigTest() : folder_(std::filesystem::path(::testing::TempDir()) / "model_config_test") {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_ / "onnx");
  }
  ~ModelConfigTest() override { std::filesystem::remove_all(folder_); }

  void Write(const std::string& name, const std::string& text) {
    std::ofstream(folder_ / name) << text;
  }
  absl::StatusOr<ModelConfig> Read(const std::string& model = "model.onnx") {
    return ReadModelConfig((folder_ / model).string());
  }

  std::filesystem::path folder_;
};

TEST_F(ModelConfigTest, KnowsNothingWithoutFiles) {
  const auto config = Must(Read("onnx/model.onnx"));
  EXPECT_FALSE(config.begin_token || config.max_positions);
  EXPECT_THAT(config.end_tokens, IsEmpty());
}

TEST_F(ModelConfigTest, ReadsTheFolderAroundTheGraph) {
  Write("config.json", R"({"bos_token_id": 2, "eos_token_id": 1, "max_position_embeddings": 64})");
  const auto config = Must(Read("onnx/model.onnx"));
  EXPECT_EQ(config.begin_token, 2);
  EXPECT_THAT(config.end_tokens, ElementsAre(1));
  EXPECT_EQ(config.max_positions, 64);
  EXPECT_THAT(config.max_positions_file, HasSubstr("config.json, max_position_embeddings"));
}

TEST_F(ModelConfigTest, TakesTokensOfTheGenerationFirst) {
  Write("config.json", R"({"eos_token_id": 1, "bos_token_id": null})");
  Write("genai_config.json", R"({"model": {"eos_token_id": 7, "context_length": 32}})");
  Write("generation_config.json", R"({"eos_token_id": [1, 106]})");
  const auto config = Must(Read());
  EXPECT_THAT(config.end_tokens, ElementsAre(1, 106));
  EXPECT_EQ(config.max_positions, 32);
}

TEST_F(ModelConfigTest, TakesTheSmallestLimit) {
  Write("config.json",
        R"({"max_position_embeddings": 512, "text_config": {"max_position_embeddings": 128}})");
  Write("genai_config.json", R"({"model": {"context_length": 256}})");
  const auto config = Must(Read());
  EXPECT_EQ(config.max_positions, 128);
}

TEST(NewTokens, AreThoseWantedOrAsManyAsThereIsRoomFor) {
  ModelConfig config;
  EXPECT_EQ(Must(NewTokens(config, 90, std::nullopt, 32)), 32);
  config.max_positions = 100;
  config.max_positions_file = "config.json";
  EXPECT_EQ(Must(NewTokens(config, 90, std::nullopt, 32)), 10);
  EXPECT_EQ(Must(NewTokens(config, 90, 4, 32)), 4);
  EXPECT_THAT(
      std::string(NewTokens(config, 90, 11, 32).status().message()),
      HasSubstr("a prompt of 90 tokens and 11 new ones: expected 100 at most, the positions "
                "of the model (config.json)"));
  EXPECT_THAT(std::string(NewTokens(config, 100, std::nullopt, 32).status().message()),
              HasSubstr("a prompt of 100 tokens: expected less than 100"));
}

TEST_F(ModelConfigTest, NamesFileAndFieldOfWhatItCannotRead) {
  for (const auto& [text, why] :
       {std::pair{"{", "expected a JSON object, got text that is no JSON"},
        {"[1]", "expected a JSON object, got array"},
        {R"({"eos_token_id": "end"})", "eos_token_id: expected token ids, got \"end\""},
        {R"({"eos_token_id": [1, -4]})", "eos_token_id: expected token ids, got -4"},
        {R"({"max_position_embeddings": 0})",
         "max_position_embeddings: expected a positive number, got 0"}}) {
    Write("config.json", text);
    const absl::Status status = Read().status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(status.message()), HasSubstr("config.json")) << text;
    EXPECT_THAT(std::string(status.message()), HasSubstr(why)) << text;
  }
}

}  // namespace
}  // namespace pagefuse
