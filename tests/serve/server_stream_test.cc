// SPDX-License-Identifier: Apache-2.0
// Answers of servers as `pagefuse chat --url` reads them, in pieces of every size.
#include "tools/run/server_stream.h"

#include <string>
#include <string_view>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace pagefuse::tools {
namespace {

using ::testing::HasSubstr;

struct Read {
  std::vector<std::string> shown;
  std::string thought;
  ServerStream stream{[this](const std::string& text) { shown.push_back(text); },
                      [this](const std::string& text) { thought += text; }};
  void Take(std::string_view text, size_t piece) {
    for (size_t i = 0; i < text.size(); i += piece) stream.Take(text.substr(i, piece));
  }
};

std::string Delta(std::string_view content) {
  const nlohmann::ordered_json json = {{"choices", {{{"delta", {{"content", content}}}}}}};
  return "data: " + json.dump() + "\n\n";
}

TEST(ServerStream, IsTheSameInPiecesOfEverySize) {
  const std::string text =
      ": ping\n\ndata: {\"choices\": [{\"delta\": {\"role\": \"assistant\", \"content\": \"\"}}]}\n\n" +
      Delta("86 ") +
      "data: {\"choices\": [{\"delta\": {\"reasoning\": \"hm\", \"reasoning_content\": \"hm\"}}]}\n\n" +
      Delta("n\xc3\xa9\"\n") + "data: {\"choices\": [], \"usage\": {}}\n\ndata: [DONE]\n\n" +
      Delta("behind the end");
  for (size_t piece = 1; piece <= text.size(); ++piece) {
    Read read;
    read.Take(text, piece);
    EXPECT_EQ(read.stream.text(), "86 n\xc3\xa9\"\n") << piece;
    EXPECT_EQ(read.shown, (std::vector<std::string>{"86 ", "n\xc3\xa9\"\n"}));
    EXPECT_EQ(read.thought, "hm");
    EXPECT_TRUE(read.stream.ended());
    EXPECT_TRUE(read.stream.error().ok());
  }
}

TEST(ServerStream, TakesLinesOfOtherServers) {
  Read read;
  read.stream.Take(
      "data:{\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\r\n\r\nevent: x\r\ndata: [DONE]\r\n");
  EXPECT_EQ(read.stream.text(), "a");
  EXPECT_TRUE(read.stream.ended());
}

TEST(ServerStream, AnErrorEndsIt) {
  Read read;
  read.stream.Take(Delta("a") + "data: {\"error\": {\"message\": \"no memory\"}}\n\n" + Delta("b"));
  EXPECT_EQ(read.stream.text(), "a");
  EXPECT_FALSE(read.stream.ended());
  EXPECT_THAT(std::string(read.stream.error().message()), HasSubstr("no memory"));
}

TEST(ServerStream, PassesOverWhatIsNoAnswer) {
  Read read;
  const std::string deep(100000, '[');
  for (const std::string& data :
       {std::string("{"), std::string("1"), std::string("{\"choices\": 1}"),
        std::string("{\"choices\": [1]}"), std::string("{\"choices\": [{\"delta\": [1]}]}"),
        std::string("{\"choices\": [{\"delta\": {\"content\": 1}}]}"), deep}) {
    read.stream.Take("data: " + data + "\n\n");
  }
  EXPECT_EQ(read.stream.text(), "");
  EXPECT_TRUE(read.stream.error().ok());
  EXPECT_FALSE(read.stream.ended());
}

TEST(ErrorOfReply, SaysWhatTheServerSaid) {
  const auto told = [](int status, const std::string& body) {
    return std::string(ErrorOfReply(status, body).message());
  };
  EXPECT_THAT(told(400, "{\"error\": {\"message\": \"too long\"}}"), HasSubstr("too long"));
  EXPECT_THAT(told(400, "{\"error\": \"as a text\"}"), HasSubstr("as a text"));
  EXPECT_THAT(told(422, "{\"detail\": \"of another server\"}"), HasSubstr("of another server"));
  EXPECT_THAT(told(502, "<html>"), HasSubstr("status 502"));
  EXPECT_THAT(told(401, ""), HasSubstr("--api-key-file"));
  EXPECT_EQ(ErrorOfReply(401, "").code(), absl::StatusCode::kUnauthenticated);
  EXPECT_EQ(ErrorOfReply(503, "").code(), absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace pagefuse::tools
