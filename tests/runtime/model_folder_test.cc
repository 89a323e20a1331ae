// SPDX-License-Identifier: Apache-2.0
// Folders in both layouts, and what is wrong with others.
#include "pagefuse/runtime/model_folder.h"

#include <filesystem>
#include <fstream>

#include <unistd.h>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "must.h"
#include "paths.h"

#include "pagefuse/base/str_cat.h"

namespace pagefuse {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;
using testing::IsEmpty;

class ModelFolderTest : public testing::Test {
 protected:
  ModelFolderTest()
      : around_(fs::path(testing::TempDir()) / "model_folder_test"), folder_(around_ / "model") {
    fs::remove_all(around_);
    fs::create_directories(folder_ / "onnx");
  }
  ~ModelFolderTest() override { fs::remove_all(around_); }

  void Write(const std::string& name, const std::string& text = "{}") {
    std::ofstream(folder_ / name) << text;
  }
  absl::StatusOr<ModelFolder> Open(const std::string& graph = "") {
    return OpenModelFolder(folder_.string(), graph);
  }
  std::string Error(const std::string& graph = "") {
    return std::string(StdView(Open(graph).status().message()));
  }

  fs::path around_, folder_;
};

TEST_F(ModelFolderTest, ReadsHuggingFacesLayout) {
  Write("onnx/model.onnx");
  Write("onnx/model_q4.onnx");
  Write("config.json", R"({"max_position_embeddings": 64, "eos_token_id": 1})");
  Write("generation_config.json",
        R"({"do_sample": true, "top_k": 64, "top_p": 0.95, "eos_token_id": [1, 106]})");
  Write("tokenizer.json");
  Write("tokenizer_config.json");
  Write("chat_template.jinja");
  Write("chat_template.json");
  Write("special_tokens_map.json");
  Write("tokenizer.model");
  const auto model = Must(Open());
  EXPECT_THAT(model.graph, EndsWith("model/onnx/model.onnx"));
  EXPECT_THAT(model.other_graphs, ElementsAre("onnx/model_q4.onnx"));
  EXPECT_THAT(model.tokenizer, EndsWith("model/tokenizer.json"));
  EXPECT_THAT(model.tokenizer_config, EndsWith("tokenizer_config.json"));
  EXPECT_THAT(model.chat_template, EndsWith("chat_template.jinja"));
  EXPECT_THAT(model.chat_template_json, EndsWith("chat_template.json"));
  EXPECT_THAT(model.special_tokens_map, EndsWith("special_tokens_map.json"));
  EXPECT_TRUE(model.has_tokenizer_model);
  EXPECT_EQ(model.config.max_positions, 64);
  EXPECT_EQ(model.config.sampling.temperature, 1);
  EXPECT_EQ(model.config.sampling.top_k, 64);
  EXPECT_EQ(model.config.sampling.top_p, 0.95);
  EXPECT_THAT(model.config.end_tokens, ElementsAre(1, 106));
  EXPECT_THAT(model.config.contradictions, IsEmpty());
  EXPECT_THAT(Open("model_q4.onnx")->graph, EndsWith("onnx/model_q4.onnx"));
  EXPECT_THAT(OpenModelFolder((folder_ / "onnx/model_q4.onnx").string())->tokenizer,
              EndsWith("tokenizer.json"));
}

TEST_F(ModelFolderTest, ReadsTheLayoutOfGenAi) {
  Write("decoder.onnx");
  Write("embedding.onnx");
  Write("config.json", R"({"max_position_embeddings": 64, "eos_token_id": 7})");
  Write("generation_config.json", R"({"do_sample": true, "temperature": 0.5})");
  Write(
      "genai_config.json",
      R"({"model": {"context_length": 32, "eos_token_id": [1, 2], "decoder": {"filename": "decoder.onnx"}},
                                "search": {"do_sample": false}})");
  const auto model = Must(Open());
  EXPECT_THAT(model.graph, EndsWith("decoder.onnx"));
  EXPECT_EQ(model.config.max_positions, 32);
  EXPECT_EQ(model.config.sampling.temperature, 0);
  ASSERT_EQ(model.config.contradictions.size(), 2u);
  EXPECT_EQ(
      model.config.contradictions[0],
      "eos_token_id is [1, 2] in genai_config.json, and [7] in config.json: the first counts");
  EXPECT_THAT(model.config.contradictions[1], HasSubstr("positions are 32 in "));
}

TEST_F(ModelFolderTest, SaysWhatIsMissing) {
  EXPECT_THAT(Error(), EndsWith("expected model.onnx, onnx/model*.onnx or genai_config.json with "
                                "model.decoder.filename, got no graph"));
  Write("a.onnx");
  EXPECT_THAT(Open()->graph, EndsWith("a.onnx"));
  Write("b.onnx");
  EXPECT_THAT(Error(),
              EndsWith("expected model.onnx, or --graph with one of several, got a.onnx, b.onnx"));
  EXPECT_THAT(Error("c.onnx"), EndsWith("expected the graph \"c.onnx\", got a.onnx, b.onnx"));
  Write("genai_config.json", R"({"model": {"decoder": {"filename": "decoder.onnx"}}})");
  EXPECT_THAT(
      Error(),
      EndsWith("genai_config.json\": model.decoder.filename: \"decoder.onnx\" is not there"));
  EXPECT_THAT(std::string(StdView(OpenModelFolder("no/such").status().message())),
              HasSubstr("\"no/such\": expected a folder or a graph, got nothing"));
}

TEST_F(ModelFolderTest, TakesOfSeveralGraphsTheFirstThatCanBePaged) {
  for (const char* name : {"a.onnx", "b.onnx", "model.onnx"}) Write(name);
  const auto choose = [this](const std::string& pages) {
    return OpenModelFolder(folder_.string(), "",
                           [pages](const std::string& path) { return path.ends_with(pages); });
  };
  auto model = Must(choose("model.onnx"));
  EXPECT_THAT(model.graph, EndsWith("model/model.onnx"));
  EXPECT_THAT(model.choice, EndsWith("model.onnx is used, which can be paged"));
  model = Must(choose("b.onnx"));
  EXPECT_THAT(model.graph, EndsWith("model/b.onnx"));
  EXPECT_THAT(model.choice, HasSubstr("of the 3 graphs in "));
  EXPECT_THAT(model.choice, EndsWith("b.onnx is used, the first that can be paged"));
  EXPECT_THAT(model.other_graphs, ElementsAre("a.onnx", "model.onnx"));
  model = Must(choose("none"));
  EXPECT_THAT(model.graph, EndsWith("model/model.onnx"));
  EXPECT_THAT(model.choice, EndsWith("model.onnx is used; none of them can be paged"));
  // What was named is not asked about, nor a single graph.
  EXPECT_THAT(Must(Open("a.onnx")).choice, IsEmpty());
  fs::remove(folder_ / "a.onnx");
  fs::remove(folder_ / "model.onnx");
  EXPECT_THAT(Must(choose("none")).choice, IsEmpty());
}

TEST_F(ModelFolderTest, SaysWhatIsThereInsteadOfAGraph) {
  fs::remove(folder_ / "onnx");
  EXPECT_THAT(Error(), EndsWith("model\" is empty"));
  const std::string pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n";
  const std::string header = R"({"__metadata__":{}})";
  const std::string safetensors = std::string("\x13\0\0\0\0\0\0\0", 8) + header;
  Write("model.safetensors", safetensors);
  EXPECT_THAT(Error(), HasSubstr("model\" has weights without a graph (model.safetensors): "
                                 "optimum-cli export onnx --model \""));
  Write("model.safetensors", pointer);
  EXPECT_THAT(Error(), HasSubstr("has weights without a graph (model.safetensors)"));
  fs::remove(folder_ / "model.safetensors");
  Write("model.gguf", "GGUF\x03");
  EXPECT_THAT(Error(), HasSubstr("has weights without a graph (model.gguf): optimum-cli"));
  const std::pair<std::string, const char*> files[] = {
      {pointer, "is a Git-LFS pointer, not the file itself: git -C "},
      {safetensors, "is a safetensors file, weights without a graph: optimum-cli export onnx"},
      {"GGUF\x03", "is a GGUF file, weights without a graph: optimum-cli export onnx"},
      {"PK\x03\x04            archive/data.pkl", "is a PyTorch file, weights without a graph"},
      {"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9", "is a PyTorch file, weights without a graph"},
      {"<!DOCTYPE html>", "is a web page"}};
  for (const auto& [text, what] : files) {
    Write("model.onnx", text);
    EXPECT_THAT(Error(), HasSubstr(StrCat("model.onnx\" ", what)));
  }
  Write("model.onnx", std::string("\x1c\0\0\0ORTM", 8));
  EXPECT_THAT(Error(), HasSubstr("is in ONNX Runtime's own format (.ort)"));
  Write("model.onnx");
  Write("tokenizer.json", pointer);
  EXPECT_THAT(Error(), HasSubstr("tokenizer.json\" is a Git-LFS pointer"));
}

TEST_F(ModelFolderTest, SaysWhatMayNotBeRead) {
  if (geteuid() == 0) GTEST_SKIP() << "root may read everything";
  Write("model.onnx");
  fs::permissions(folder_, fs::perms::none);
  EXPECT_THAT(Error(), HasSubstr("model\": Permission denied"));
  fs::permissions(folder_, fs::perms::owner_read);
  EXPECT_THAT(Error(), HasSubstr("Permission denied"));
  fs::permissions(folder_, fs::perms::owner_all);
}

TEST_F(ModelFolderTest, NamesFileAndKeyOfWhatIsBroken) {
  Write("model.onnx");
  Write("genai_config.json", "{");
  EXPECT_THAT(Error(),
              HasSubstr("genai_config.json\": expected a JSON object, got text that is no JSON"));
  Write("genai_config.json", R"({"model": {"decoder": {"filename": 5}}})");
  EXPECT_THAT(Error(), HasSubstr("genai_config.json\": filename: expected a string, got 5"));
  Write("genai_config.json", "{}");
  Write("generation_config.json", R"({"do_sample": "yes"})");
  EXPECT_THAT(
      Error(),
      HasSubstr("generation_config.json\": do_sample: expected true or false, got \"yes\""));
  Write("generation_config.json", R"({"do_sample": true, "top_p": 3})");
  EXPECT_THAT(Error(),
              HasSubstr("generation_config.json\": top_p: expected more than 0, at most 1, got 3"));
}

TEST_F(ModelFolderTest, StaysInsideOfTheFolder) {
  std::ofstream(around_ / "outside.onnx") << "x";
  std::ofstream(around_ / "outside.json") << "{}";
  Write("model.onnx");
  Write("genai_config.json", R"({"model": {"decoder": {"filename": "../outside.onnx"}}})");
  EXPECT_THAT(Error(), HasSubstr("location \"../outside.onnx\" leaves the folder of the model"));
  Write("genai_config.json", "{}");
  for (const char* name : {"tokenizer.json", "config.json", "chat_template.jinja"}) {
    fs::create_symlink(around_ / "outside.json", folder_ / name);
    EXPECT_THAT(Error(), HasSubstr(StrCat("location \"", name,
                                          "\" is a link that leaves the folder of the model")));
    fs::remove(folder_ / name);
  }
  fs::remove(folder_ / "model.onnx");
  fs::create_symlink(around_ / "outside.onnx", folder_ / "model.onnx");
  EXPECT_THAT(Error(),
              HasSubstr("location \"model.onnx\" is a link that leaves the folder of the model"));
}

TEST_F(ModelFolderTest, FollowsLinksOfADownloadCache) {
  const fs::path snapshot = around_ / "repo/snapshots/abc";
  fs::create_directories(snapshot);
  fs::create_directories(around_ / "repo/blobs");
  std::ofstream(around_ / "repo/blobs/1") << "{}";
  for (const char* name : {"model.onnx", "config.json", "tokenizer.json"}) {
    fs::create_symlink("../../blobs/1", snapshot / name);
  }
  const auto model = Must(OpenModelFolder(snapshot.string()));
  EXPECT_THAT(model.tokenizer, EndsWith("snapshots/abc/tokenizer.json"));
}

TEST_F(ModelFolderTest, OpensTheBundledModel) {
  const auto model = Must(OpenModelFolder(SourcePath("models/gemma3_recall")));
  EXPECT_THAT(model.graph, EndsWith("gemma3_recall/model.onnx"));
  EXPECT_THAT(model.other_graphs, ElementsAre("model_with_past.onnx"));
  EXPECT_FALSE(model.tokenizer.empty() || model.tokenizer_config.empty() ||
               model.chat_template.empty());
  EXPECT_THAT(model.config.end_tokens, ElementsAre(3, 10));
}

}  // namespace
}  // namespace pagefuse
