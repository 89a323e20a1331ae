// SPDX-License-Identifier: Apache-2.0
// Members of what clients send, who may call, and errors as replies.
#include "pagefuse/serve/fields.h"

#include <string>

#include "must.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pagefuse/base/str_cat.h"
#include "pagefuse/serve/access.h"
#include "pagefuse/serve/http_error.h"

namespace pagefuse::serve {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::string MessageOf(const absl::Status& status) { return std::string(status.message()); }

TEST(Fields, ValuesOfTheirTypesAreRead) {
  const Json json = Json::parse(R"({"number": 1.5, "whole": 3, "flag": false, "text": "ab",
      "null": null, "texts": ["a", "b"], "integers": [1, -2], "object": {"a": 1}})");
  Fields fields = Must(Fields::Of(json, ""));
  EXPECT_EQ(Must(fields.Number("number", 0, 2)), 1.5);
  EXPECT_EQ(Must(fields.Number("whole", 0, 3)), 3);
  EXPECT_EQ(Must(fields.Integer("whole", 3, 3)), 3);
  EXPECT_EQ(Must(fields.Flag("flag")), false);
  EXPECT_EQ(Must(fields.Text("text")), "ab");
  EXPECT_EQ(Must(fields.OneOf("text", {"a", "ab"})), "ab");
  EXPECT_EQ(Must(fields.Text("null")), std::nullopt);
  EXPECT_EQ(Must(fields.Text("missing")), std::nullopt);
  EXPECT_FALSE(fields.Has("null"));
  EXPECT_THAT(*Must(fields.Texts("texts", 2)), ElementsAre("a", "b"));
  EXPECT_THAT(*Must(fields.Integers("integers", 2)), ElementsAre(1, -2));
  EXPECT_EQ(Must(Must(fields.Object("object"))->Integer("a", 0, 1)), 1);
  EXPECT_THAT(fields.Ignored(), IsEmpty());
}

TEST(Fields, WrongValuesAreNamedWithTheirPlace) {
  const Json json = Json::parse(StrCat(R"({"text": "ab", "long": ")", std::string(50, 'x'),
                                       R"(", "number": 1.5, "large": 9223372036854775808,
      "list": ["a", 1], "object": {}})"));
  Fields fields = Must(Fields::Of(json, "messages[2]"));
  const auto expect = [](const absl::Status& status, std::string_view param,
                         std::string_view message) {
    EXPECT_TRUE(absl::IsInvalidArgument(status));
    EXPECT_EQ(ParamOf(status), param);
    EXPECT_EQ(MessageOf(status), StrCat(param, ": ", message));
  };
  expect(fields.Number("text", 0, 2).status(), "messages[2].text",
         "expected a number from 0 to 2, got \"ab\"");
  expect(fields.Number("number", 2, 3).status(), "messages[2].number",
         "expected a number from 2 to 3, got 1.5");
  expect(fields.Integer("number", 0, 2).status(), "messages[2].number",
         "expected an integer from 0 to 2, got 1.5");
  expect(fields.Integer("large", 0, 2).status(), "messages[2].large",
         "expected an integer from 0 to 2, got 9223372036854775808");
  expect(fields.Flag("text").status(), "messages[2].text", "expected true or false, got \"ab\"");
  expect(fields.Text("object").status(), "messages[2].object", "expected a text, got an object");
  expect(fields.OneOf("long", {"a", "b", "c"}).status(), "messages[2].long",
         "expected \"a\", \"b\" or \"c\", got a text of 50 bytes");
  expect(fields.Object("list").status(), "messages[2].list", "expected an object, got a list");
  expect(fields.Texts("list", 3).status(), "messages[2].list",
         "expected a list of 3 texts at most, got a list of 2");
  expect(fields.Integers("list", 1).status(), "messages[2].list",
         "expected a list of 1 integers at most, got a list of 2");
  expect(fields.Refuse("number", "expected none"), "messages[2].number", "expected none");
  EXPECT_TRUE(fields.Refuse("number", "expected none", 1.5).ok());
  EXPECT_EQ(MessageOf(Fields::Of(Json(3), "").status()), "body: expected an object, got 3");
}

TEST(Fields, WhatNobodyReadsIsTold) {
  const Json json = Json::parse(R"({"a": 1, "b": null, "c": 2, "d": 3, "e": 4})");
  Fields fields = Must(Fields::Of(json, "x"));
  EXPECT_TRUE(fields.Integer("a", 0, 9).ok());
  EXPECT_FALSE(fields.Text("c").ok());
  fields.Accept({"d"});
  EXPECT_THAT(fields.Ignored(), ElementsAre("x.e"));
}

HttpRequest WithHeaders(Headers headers) {
  HttpRequest request;
  request.headers = std::move(headers);
  return request;
}

TEST(Access, ForeignHostsAreRefused) {
  const auto allowed = [](const std::string& host) {
    return CheckHost(WithHeaders({{"host", host}}), "192.168.1.7", {"Known.example"}).ok();
  };
  for (const char* host :
       {"localhost", "LOCALHOST:80", "127.0.0.1", "127.9.8.7:1", "[::1]", "[::1]:8080",
        "192.168.1.7:8080", "known.EXAMPLE", "known.example:1", ""}) {
    EXPECT_TRUE(allowed(host)) << host;
  }
  for (const char* host :
       {"evil.example", "127.0.0.1.evil.example", "127.0.0.1@evil.example",
        "localhost.evil.example", "127.evil.example", "192.168.1.70", "1.127.0.0", "[::2]", "[::1",
        "known.example.evil", "[::1]x.example", "localhost:80:80"}) {
    EXPECT_FALSE(allowed(host)) << host;
  }
}

TEST(Access, AKeyOfTheListIsAskedFor) {
  const std::vector<std::string> keys = {"first", "second"};
  const auto allowed = [&keys](Headers headers) {
    return CheckKey(WithHeaders(std::move(headers)), keys).ok();
  };
  EXPECT_TRUE(allowed({{"authorization", "Bearer first"}}));
  EXPECT_TRUE(allowed({{"authorization", "bearer second"}}));
  EXPECT_TRUE(allowed({{"x-api-key", "second"}}));
  for (const char* value : {"", "first", "Bearer", "Bearer ", "Bearer firs", "Bearer firstt",
                            "Bearer First", "Basic first"}) {
    EXPECT_FALSE(allowed({{"authorization", value}})) << value;
  }
  EXPECT_FALSE(allowed({}));
  EXPECT_FALSE(allowed({{"x-api-key", "third"}, {"authorization", "Bearer first"}}));
  EXPECT_TRUE(CheckKey({}, {}).ok());
  EXPECT_EQ(HttpOf(CheckKey({}, keys)), 401);
}

TEST(HttpError, StatusesBecomeRepliesOfEachProtocol) {
  struct Case {
    absl::Status error;
    int http;
    const char *openai, *anthropic;
  };
  const Case cases[] = {
      {BadParam("n", "expected 1"), 400, "invalid_request_error", "invalid_request_error"},
      {absl::UnauthenticatedError("a"), 401, "authentication_error", "authentication_error"},
      {absl::PermissionDeniedError("a"), 403, "permission_error", "permission_error"},
      {absl::NotFoundError("a"), 404, "not_found_error", "not_found_error"},
      {WithHttp(absl::InvalidArgumentError("a"), 413), 413, "invalid_request_error",
       "request_too_large"},
      {absl::ResourceExhaustedError("a"), 429, "rate_limit_error", "rate_limit_error"},
      {absl::InternalError("a"), 500, "server_error", "api_error"},
      {absl::UnavailableError("a"), 503, "service_unavailable_error", "overloaded_error"},
  };
  for (const Case& one : cases) {
    const ErrorReply openai = ReplyOf(one.error), anthropic = AnthropicReplyOf(one.error);
    EXPECT_EQ(openai.status, one.http);
    EXPECT_EQ(Json::parse(openai.body)["error"]["type"], one.openai);
    EXPECT_EQ(anthropic.status, one.http);
    EXPECT_EQ(Json::parse(anthropic.body)["type"], "error");
    EXPECT_EQ(Json::parse(anthropic.body)["error"]["type"], one.anthropic);
    const bool waits = one.http == 429 || one.http == 503;
    const bool told = std::ranges::count(openai.headers, "Retry-After",
                                         &std::pair<std::string, std::string>::first) == 1;
    EXPECT_EQ(told, waits) << one.http;
  }
  const Json body = Json::parse(OpenAiError(WithCode(BadParam("n", "expected 1"), "c")))["error"];
  EXPECT_EQ(body["param"], "n");
  EXPECT_EQ(body["code"], "c");
  EXPECT_EQ(body["message"], "n: expected 1");
  // The place that was found first is the one that is told, and text of a client does no harm.
  EXPECT_EQ(ParamOf(WithParam(BadParam("inner", "x"), "outer")), "inner");
  EXPECT_THAT(OpenAiError(absl::InvalidArgumentError("\xff\"")), HasSubstr("\\\""));
}

}  // namespace
}  // namespace pagefuse::serve
