// SPDX-License-Identifier: Apache-2.0
// Tokenizers against what another implementation gave, and files that are refused.
#include "pagefuse/text/tokenizer/tokenizer.h"

#include <fstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "must.h"
#include "nlohmann/json.hpp"
#include "tests/text/text_data.h"

#include "pagefuse/base/str_cat.h"

namespace pagefuse {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;

std::shared_ptr<const Tokenizer> Load(const std::string& name) {
  return Must(Tokenizer::Load(TextDataPath(StrCat("tokenizers/", name, ".json"))));
}

class TokenizerSamples : public testing::TestWithParam<const char*> {
 protected:
  std::shared_ptr<const Tokenizer> tokenizer_ = Load(GetParam());
  json samples_ = ReadTextData(StrCat("tokenizers/", GetParam(), ".samples.json"));
};

INSTANTIATE_TEST_SUITE_P(All, TokenizerSamples,
                         testing::Values("gemma3", "deepseek_v3", "llama3", "qwen3", "llama2",
                                         "metaspace"),
                         [](const auto& info) { return std::string(info.param); });

TEST_P(TokenizerSamples, EncodesAsTheReference) {
  ASSERT_EQ(samples_.size(), 300u);
  for (const json& sample : samples_) {
    const auto ids = Must(tokenizer_->Encode(sample["text"].get<std::string>()));
    EXPECT_EQ(ids, sample["ids"].get<std::vector<int64_t>>()) << sample["text"];
  }
}

TEST_P(TokenizerSamples, DecodesAsTheReference) {
  for (const json& sample : samples_) {
    const auto ids = sample["ids"].get<std::vector<int64_t>>();
    EXPECT_EQ(tokenizer_->Decode(ids), sample["decoded"].get<std::string>()) << sample["ids"];
    EXPECT_EQ(tokenizer_->Decode(ids, /*special=*/true), sample["with_special"].get<std::string>());
  }
}

TEST_P(TokenizerSamples, StreamsWholeCharactersThatJoinToTheText) {
  for (const json& sample : samples_) {
    TextStream stream(tokenizer_);
    std::string text;
    for (const json& id : sample["ids"]) {
      const std::string piece = stream.Add(id.get<int64_t>());
      EXPECT_FALSE(FirstBrokenByte(piece)) << sample["ids"];
      text += piece;
    }
    text += stream.Finish();
    EXPECT_EQ(text, tokenizer_->Decode(sample["ids"].get<std::vector<int64_t>>()));
  }
}

TEST(Tokenizer, LeavesSpecialTokensOfUsersAsText) {
  for (const char* name : {"gemma3", "deepseek_v3", "llama2"}) {
    const auto tokenizer = Load(name);
    const std::string special = tokenizer->Bytes(1);
    const std::string text = StrCat(special, "a ", special, "b");
    const size_t user = special.size() + 2;
    const auto all = Must(tokenizer->Encode(text, {.adds_special = false}));
    const auto first = Must(
        tokenizer->Encode(text, {.adds_special = false, .plain = {{user, user + special.size()}}}));
    EXPECT_EQ(std::count(all.begin(), all.end(), 1), 2) << name;
    EXPECT_EQ(std::count(first.begin(), first.end(), 1), 1) << name;
    EXPECT_EQ(first.front(), 1) << name;
  }
}

TEST(Tokenizer, CutsNoWordWhereASpecialTokenOfAUserBegins) {
  const auto tokenizer = Load("llama2");
  const auto ids = Must(tokenizer->Encode("the</s>", {.adds_special = false, .plain = {{0, 7}}}));
  EXPECT_EQ(tokenizer->Decode(ids), "the</s>");
}

TEST(Tokenizer, TellsTokensBytesAndSpecialOnes) {
  const auto tokenizer = Load("qwen3");
  const auto id = tokenizer->Find("<|im_end|>");
  ASSERT_TRUE(id);
  EXPECT_TRUE(tokenizer->IsSpecial(*id));
  EXPECT_EQ(tokenizer->Bytes(*id), "<|im_end|>");
  EXPECT_EQ(tokenizer->Bytes(*tokenizer->Find("Ġ")), " ");
  EXPECT_FALSE(tokenizer->Find("no such token"));
  EXPECT_EQ(tokenizer->Bytes(-1), "");
  EXPECT_EQ(tokenizer->Bytes(tokenizer->size()), "");
}

TEST(Tokenizer, RefusesTextThatIsNoUtf8) {
  const auto ids = Load("gemma3")->Encode("ab\xFF");
  EXPECT_EQ(ids.status().message(), "text: expected UTF-8, byte 2 is not part of a character");
}

TEST(Tokenizer, EncodesALongWordInNLogN) {
  const auto tokenizer = Load("gemma3");
  std::string word;
  for (int i = 0; i < 1'000'000; ++i) word.push_back(static_cast<char>('a' + i * 7 % 26));
  const auto ids = Must(tokenizer->Encode(word));
  EXPECT_EQ(tokenizer->Decode(ids), word);
}

// A small file; `change` may break it.
std::string FileWith(const std::function<void(json&)>& change) {
  json file = {
      {"model", {{"type", "BPE"}, {"vocab", {{"a", 0}, {"b", 1}, {"ab", 2}}}, {"merges", {"a b"}}}},
      {"decoder", {{"type", "Fuse"}}}};
  change(file);
  return file.dump();
}

std::string ErrorOf(const std::function<void(json&)>& change) {
  const auto tokenizer = Tokenizer::Parse(FileWith(change));
  return tokenizer.ok() ? "" : std::string(tokenizer.status().message());
}

TEST(Tokenizer, ReadsASmallFile) {
  const auto tokenizer = Must(Tokenizer::Parse(FileWith([](json&) {})));
  EXPECT_THAT(*tokenizer->Encode("abba"), ElementsAre(2, 1, 0));
}

TEST(Tokenizer, RefusesOtherKindsByName) {
  EXPECT_EQ(ErrorOf([](json& file) { file["model"]["type"] = "Unigram"; }),
            "model.type: expected one of BPE, got \"Unigram\"");
  EXPECT_EQ(ErrorOf([](json& file) { file["normalizer"]["type"] = "Lowercase"; }),
            "normalizer.type: expected one of Sequence, NFC, NFD, NFKC, NFKD, Replace, Prepend, "
            "Strip, got \"Lowercase\"");
  EXPECT_THAT(ErrorOf([](json& file) { file["pre_tokenizer"]["type"] = "Whitespace"; }),
              HasSubstr("pre_tokenizer.type: expected one of Sequence, Split"));
  EXPECT_THAT(ErrorOf([](json& file) { file["post_processor"]["type"] = "BertProcessing"; }),
              HasSubstr("post_processor.type: expected one of"));
  EXPECT_THAT(ErrorOf([](json& file) {
                file["decoder"] = {{"type", "Sequence"},
                                   {"decoders", {{{"type", "Fuse"}}, {{"type", "CTC"}}}}};
              }),
              HasSubstr("decoder.decoders[1].type: expected one of"));
}

TEST(Tokenizer, NamesWhatIsWrongInAFile) {
  EXPECT_EQ(ErrorOf([](json& file) { file.erase("model"); }), "model: expected an object");
  EXPECT_EQ(ErrorOf([](json& file) { file["model"]["vocab"]["a"] = "0"; }),
            "model.vocab[\"a\"]: expected an integer");
  EXPECT_EQ(ErrorOf([](json& file) { file["model"]["vocab"]["a"] = -1; }),
            "token \"a\": expected an id of 0 to 4194303, got -1");
  EXPECT_EQ(ErrorOf([](json& file) {
              file["model"]["merges"] = {"a b", "ab"};
            }),
            "model.merges[1]: expected two tokens");
  EXPECT_EQ(ErrorOf([](json& file) { file["model"]["merges"] = {"b a"}; }),
            "model.merges[0]: \"ba\" is not in the vocabulary");
  EXPECT_EQ(ErrorOf([](json& file) { file["model"]["unk_token"] = "<unk>"; }),
            "model.unk_token: \"<unk>\" is not in the vocabulary");
  EXPECT_EQ(ErrorOf([](json& file) {
              file["added_tokens"] = {{{"id", 3}}};
            }),
            "added_tokens[0].content: expected a string, got null");
  EXPECT_THAT(
      ErrorOf([](json& file) {
        file["pre_tokenizer"] = {
            {"type", "Split"}, {"behavior", "Isolated"}, {"pattern", {{"Regex", "\\p{Klingon}"}}}};
      }),
      HasSubstr("pre_tokenizer.pattern: pattern \"\\p{Klingon}\": the property \"Klingon\""));
  const auto tokenizer = Tokenizer::Parse("{");
  EXPECT_THAT(std::string(tokenizer.status().message()), HasSubstr("no JSON: "));
}

// Steps of the kind, as many as `count`.
json Steps(const char* list, int count, const json& step) {
  return {{"type", "Sequence"}, {list, std::vector<json>(count, step)}};
}

std::string EncodingError(const std::function<void(json&)>& change, const std::string& text) {
  return std::string(Must(Tokenizer::Parse(FileWith(change)))->Encode(text).status().message());
}

TEST(Tokenizer, TextsDoNotGrowBeyondAllMeasure) {
  const json doubled = {{"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", "aa"}};
  EXPECT_EQ(
      EncodingError([&](json& file) { file["normalizer"] = Steps("normalizers", 30, doubled); },
                    "aaaa"),
      "normalizer: step 8: a replacement makes more than 1280 bytes of a text of 1024");
  const json same = {{"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", "a"}};
  EXPECT_THAT(
      EncodingError([&](json& file) { file["normalizer"] = Steps("normalizers", 2000, same); },
                    std::string(2000, 'a')),
      HasSubstr("makes in all more than 129024 bytes of a text of 2000"));
  const json bytes = {{"type", "ByteLevel"}, {"use_regex", false}, {"add_prefix_space", false}};
  EXPECT_EQ(
      EncodingError([&](json& file) { file["pre_tokenizer"] = Steps("pretokenizers", 30, bytes); },
                    "\xC3\xA9"),
      "pre_tokenizer: step 9: it makes more than 1152 bytes of a text of 2");
  const json spaces = {{"type", "Metaspace"}, {"replacement", std::string(1 << 20, ' ')}};
  EXPECT_THAT(
      EncodingError([&](json& file) { file["pre_tokenizer"] = spaces; }, std::string(1 << 20, ' ')),
      HasSubstr("pre_tokenizer: step 0: a replacement makes more than"));
  // A token that would grow so is shown as it is.
  const auto tokenizer = Must(Tokenizer::Parse(
      FileWith([&](json& file) { file["decoder"] = Steps("decoders", 30, doubled); })));
  EXPECT_LE(tokenizer->Decode(std::vector<int64_t>{0}).size(), 1088u);
}

TEST(Tokenizer, PatternsThatBacktrackForeverEndInAStatus) {
  const auto tokenizer = Must(Tokenizer::Parse(FileWith([](json& file) {
    file["pre_tokenizer"] = {
        {"type", "Split"}, {"behavior", "Isolated"}, {"pattern", {{"Regex", "(?:a+)+$"}}}};
  })));
  const auto ids = tokenizer->Encode(std::string(40, 'a') + "b");
  EXPECT_THAT(std::string(ids.status().message()), HasSubstr("a pattern gives up: "));
}

}  // namespace
}  // namespace pagefuse
