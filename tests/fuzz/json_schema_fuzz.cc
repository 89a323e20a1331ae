// SPDX-License-Identifier: Apache-2.0
// Any JSON as a schema, and any text as an expression, end in a Status or in a grammar within the limits, whose masks are never empty
// and whose answers, drawn at random, are JSON.
#include <cstddef>
#include <cstdint>
#include <random>
#include <string_view>

#include "nlohmann/json.hpp"
#include "random_answer.h"
#include "vocabulary.h"

#include "pagefuse/base/json_depth.h"
#include "pagefuse/base/status_macros.h"
#include "pagefuse/text/grammar/grammar.h"
#include "pagefuse/text/grammar/token_mask.h"
#include "pagefuse/text/utf8.h"

namespace pagefuse {
namespace {

constexpr int64_t kTokens = 600;

void Walk(const Grammar::Ptr& grammar, bool is_json) {
  static const auto* const kTrie =
      new std::shared_ptr<const TokenTrie>(TokenTrie::Of(MadeUpVocabulary(kTokens)));
  std::mt19937 random(1);
  TokenMask mask(grammar, *kTrie, {kTokens});
  std::string text;
  for (int i = 0; i < 40; ++i) {
    const auto allowed = mask.Allowed();
    PF_CHECK(allowed.ok());
    const auto tokens = TokensIn(*allowed);
    PF_CHECK(!tokens.empty());
    const int64_t token = DrawToken(tokens, **kTrie, kTokens, random() % 2 == 0, random);
    PF_CHECK(mask.Accept(token).ok());
    text += (*kTrie)->bytes_of(token);
    if (token != kTokens) continue;
    PF_CHECK(is_json ? nlohmann::json::accept(text) : !FirstBrokenByte(text));
    return;
  }
}

}  // namespace
}  // namespace pagefuse

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  if (const auto regex = pagefuse::Grammar::OfRegex(bytes); regex.ok()) {
    pagefuse::Walk(*regex, /*is_json=*/false);
  }
  if (pagefuse::IsNestedTooDeeply(bytes)) return 0;
  const auto schema = nlohmann::ordered_json::parse(bytes, nullptr, /*allow_exceptions=*/false);
  if (schema.is_discarded()) return 0;
  if (const auto grammar = pagefuse::Grammar::OfJsonSchema(schema); grammar.ok()) {
    pagefuse::Walk(*grammar, /*is_json=*/true);
  }
  return 0;
}
