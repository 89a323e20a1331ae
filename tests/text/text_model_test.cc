// SPDX-License-Identifier: Apache-2.0
// What a folder says of special tokens, templates and beginnings.
#include "pagefuse/text/model/text_model.h"

#include <filesystem>
#include <fstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "must.h"

#include "pagefuse/base/str_cat.h"
#include "pagefuse/text/model/stop_match.h"

namespace pagefuse {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;
using testing::ElementsAre;
using testing::HasSubstr;

// Three letters, and three special tokens.
constexpr const char* kTokenizer = R"({
  "added_tokens": [
    {"id": 3, "content": "<s>", "special": true}, {"id": 4, "content": "</s>", "special": true},
    {"id": 5, "content": "<t>", "special": true}],
  "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "c": 2, "<s>": 3, "</s>": 4, "<t>": 5},
            "merges": []}})";

class TextModelTest : public testing::Test {
 protected:
  TextModelTest() : folder_(fs::path(testing::TempDir()) / "text_model_test") {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
    files_.tokenizer = Write("tokenizer.json", kTokenizer);
  }
  ~TextModelTest() override { fs::remove_all(folder_); }

  std::string Write(const std::string& name, const std::string& text) {
    std::ofstream(folder_ / name) << text;
    return (folder_ / name).string();
  }
  // The tokens of a conversation of no messages.
  std::vector<int64_t> Chat() {
    return Must(Must(TextModel::Load(files_))->EncodeChat(ordered_json::object(), 0));
  }
  std::string Error() { return std::string(StdView(TextModel::Load(files_).status().message())); }

  fs::path folder_;
  TextFiles files_;
};

TEST_F(TextModelTest, TheMapGivesTokensThatTheConfigLacks) {
  files_.tokenizer_config = Write("tokenizer_config.json", R"({"eos_token": "</s>"})");
  files_.special_tokens_map = Write(
      "special_tokens_map.json",
      R"({"bos_token": {"content": "<s>"}, "additional_special_tokens": ["<t>", {"content": "</s>"}]})");
  files_.chat_template = Write(
      "chat_template.jinja",
      "{{ bos_token }}{{ additional_special_tokens[0] }}{{ additional_special_tokens | last }}");
  EXPECT_THAT(Chat(), ElementsAre(3, 5, 4));
}

TEST_F(TextModelTest, RendersAConversationBeforeItIsEncoded) {
  const std::string source = "{{ bos_token }}{{ messages[0].content }}{{ '</s>' }}";
  files_.chat_template = Write("chat_template.jinja", source);
  files_.tokenizer_config = Write("tokenizer_config.json", R"({"bos_token": "<s>"})");
  const auto model = Must(TextModel::Load(files_));
  EXPECT_EQ(model->chat_template_source(), source);
  const ordered_json given = {{"messages", {{{"role", "user"}, {"content", "ab"}}}}};
  const RenderedChat chat = Must(model->RenderChat(given, 0));
  EXPECT_EQ(chat.text, "<s>ab</s>");
  ASSERT_EQ(chat.user.size(), 1u);
  EXPECT_EQ(chat.user[0].first, 3u);
  EXPECT_EQ(chat.user[0].end, 5u);
  EXPECT_THAT(Must(model->EncodeRendered(chat)), ElementsAre(3, 0, 1, 4));
  EXPECT_EQ(Must(model->EncodeChat(given, 0)), Must(model->EncodeRendered(chat)));
}

TEST_F(TextModelTest, WithoutATemplateRendersNothing) {
  const auto model = Must(TextModel::Load(files_));
  EXPECT_EQ(model->chat_template_source(), "");
  EXPECT_EQ(model->RenderChat(ordered_json::object(), 0).status().code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST_F(TextModelTest, AConfigThatListsItsTokensGoesBeforeTheMap) {
  files_.special_tokens_map =
      Write("special_tokens_map.json", R"({"bos_token": "<t>", "eos_token": "</s>"})");
  files_.chat_template = Write("chat_template.jinja", "{{ bos_token }}{{ eos_token }}");
  files_.tokenizer_config = Write("tokenizer_config.json", R"({"bos_token": "<s>"})");
  EXPECT_THAT(Chat(), ElementsAre(5, 4));
  Write("tokenizer_config.json", R"({"bos_token": "<s>", "added_tokens_decoder": {}})");
  EXPECT_THAT(Chat(), ElementsAre(3, 4));
}

TEST_F(TextModelTest, TemplatesSeeAllSpecialTokens) {
  files_.tokenizer_config = Write(
      "tokenizer_config.json",
      R"({"sep_token": "<t>", "cls_token": "<s>", "extra_special_tokens": {"tool_token": "</s>"},
          "additional_special_tokens": []})");
  files_.chat_template = Write(
      "chat_template.jinja",
      "{{ sep_token }}{{ cls_token }}{{ tool_token }}{{ 'a' if additional_special_tokens else 'b' }}");
  EXPECT_THAT(Chat(), ElementsAre(5, 3, 4, 1));
  Write("tokenizer_config.json", R"({"additional_special_tokens": "<t>"})");
  EXPECT_THAT(Error(), HasSubstr("tokenizer_config.json\": additional_special_tokens: expected a "
                                 "list, got string"));
}

TEST_F(TextModelTest, OfSeveralTemplatesTheFirstCounts) {
  files_.chat_template_json =
      Write("chat_template.json", R"({"chat_template": [{"name": "default", "template": "a"}]})");
  EXPECT_THAT(Chat(), ElementsAre(0));
  files_.tokenizer_config = Write("tokenizer_config.json", R"({"chat_template": "b"})");
  EXPECT_THAT(Chat(), ElementsAre(1));
  files_.chat_template = Write("chat_template.jinja", "c");
  EXPECT_THAT(Chat(), ElementsAre(2));
  files_.chat_template.clear();
  files_.tokenizer_config.clear();
  Write("chat_template.json", R"({"chat_template": 1})");
  EXPECT_THAT(Error(), HasSubstr("chat_template.json\": the file.chat_template: expected"));
}

TEST_F(TextModelTest, TellsASecondBeginning) {
  files_.tokenizer_config =
      Write("tokenizer_config.json", R"({"bos_token": "<s>", "add_bos_token": true})");
  const auto model = Must(TextModel::Load(files_));
  EXPECT_EQ(model->BeginsTwice(std::vector<int64_t>{3, 3, 0}), "<s>");
  EXPECT_EQ(model->BeginsTwice(std::vector<int64_t>{3, 0, 3}), std::nullopt);
  EXPECT_EQ(model->BeginsTwice(std::vector<int64_t>{0, 0}), std::nullopt);
  EXPECT_EQ(model->BeginsTwice(std::vector<int64_t>{5, 5}), std::nullopt);
  EXPECT_EQ(model->BeginsTwice(std::vector<int64_t>{3}), std::nullopt);
}

TEST_F(TextModelTest, TakesSpecialTokensAmongStopsByTheirIds) {
  const auto model = Must(TextModel::Load(files_));
  const Tokenizer& tokenizer = *model->tokenizer();
  EXPECT_THAT(Must(StopTokens(tokenizer, {"ab", "</s>", "<t>"})), ElementsAre(4, 5));
  EXPECT_THAT(std::string(StopTokens(tokenizer, {"a<t>"}).status().message()),
              HasSubstr("got the special token \"<t>\" within \"a<t>\""));
  EXPECT_THAT(std::string(StopTokens(tokenizer, {""}).status().message()),
              HasSubstr("expected a text, got none"));
}

}  // namespace
}  // namespace pagefuse
