// SPDX-License-Identifier: Apache-2.0
#include "tests/models/changed_decoder.h"

#include <fstream>
#include <iterator>
#include <string_view>

#include "gmock/gmock.h"
#include "paths.h"

#include "pagefuse/ir/text/text.h"
#include "pagefuse/runtime/engine.h"
#include "pagefuse/runtime/plain_decoder.h"

namespace pagefuse {
namespace {

std::string TextOf(const ChangedDecoder& changed) {
  std::ifstream file(SourcePath(std::string("tests/data/decoders/") + changed.file + ".onnxtxt"));
  std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  for (const auto& [line, instead] : changed.lines) {
    const size_t at = text.find(line);
    EXPECT_NE(at, std::string::npos) << line;
    if (at != std::string::npos) text.replace(at, std::string_view(line).size(), instead);
  }
  return text;
}

std::vector<Request> Prompts() {
  return {{.prompt = {1, 2, 3, 4, 5, 6, 7}, .max_new_tokens = 10},
          {.prompt = {9}, .max_new_tokens = 10},
          {.prompt = {15, 0, 3}, .max_new_tokens = 10}};
}

using Tokens = std::vector<std::vector<int64_t>>;

Tokens TokensOf(const absl::StatusOr<std::vector<Completion>>& completions) {
  EXPECT_TRUE(completions.ok()) << completions.status();
  Tokens tokens;
  if (!completions.ok()) return tokens;
  for (const Completion& completion : *completions) tokens.push_back(completion.tokens);
  return tokens;
}

Tokens PlainTokens(Model model) {
  EngineOptions options;
  options.session.optimise = false;
  const auto plain = PlainDecoder::Create(std::move(model), options);
  EXPECT_TRUE(plain.ok()) << plain.status();
  return plain.ok() ? TokensOf((*plain)->Generate(Prompts())) : Tokens();
}

}  // namespace

void PrintTo(const ChangedDecoder& changed, std::ostream* out) { *out << changed.name; }

void ExpectPagedOrNamed(const ChangedDecoder& changed) {
  auto model = ParseModel(TextOf(changed));
  ASSERT_TRUE(model.ok()) << model.status();
  EngineOptions options;
  options.block_size = 4;
  options.max_tokens_per_step = 6;  // the longest prompt comes in chunks
  const auto engine = Engine::Create(model->Clone(), options);
  if (*changed.reason) {
    ASSERT_FALSE(engine.ok());
    EXPECT_THAT(std::string(engine.status().message()), testing::HasSubstr(changed.reason));
    return;
  }
  ASSERT_TRUE(engine.ok()) << engine.status();
  EXPECT_EQ(TokensOf((*engine)->Generate(Prompts())), PlainTokens(*std::move(model)));
}

}  // namespace pagefuse
