// SPDX-License-Identifier: Apache-2.0
// schema_documents SCHEMAS.json COUNT: COUNT documents for each schema, drawn at random from masks; a line each, {"schema": index,
// "text": document}. Judged by check_documents.py.
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <optional>
#include <random>
#include <string>

#include "nlohmann/json.hpp"
#include "random_answer.h"
#include "vocabulary.h"

#include "pagefuse/text/grammar/grammar.h"
#include "pagefuse/text/grammar/token_mask.h"

namespace pagefuse {
namespace {

constexpr int64_t kTokens = 3000;

absl::Status WriteDocuments(size_t index, const nlohmann::ordered_json& schema, int count,
                            const std::shared_ptr<const TokenTrie>& trie) {
  PF_ASSIGN_OR_RETURN(const Grammar::Ptr grammar, Grammar::OfJsonSchema(schema));
  std::mt19937 random(static_cast<uint32_t>(index));
  for (int i = 0; i < count; ++i) {
    std::optional<std::string> text;
    for (int tries = 0; tries < 20 && !text; ++tries) {
      PF_ASSIGN_OR_RETURN(text, DrawAnswer(TokenMask(grammar, trie, {kTokens}), *trie, kTokens,
                                           schema.dump(), random));
    }
    if (!text) return absl::InternalError("a document does not end");
    std::cout << nlohmann::json{{"schema", index}, {"text", *text}} << "\n";
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace pagefuse

int main(int argc, char** argv) {
  if (argc != 3) {
    std::cerr << "schema_documents SCHEMAS.json COUNT\n";
    return 1;
  }
  std::ifstream file(argv[1]);
  const auto entries = nlohmann::ordered_json::parse(file);
  const auto trie = pagefuse::TokenTrie::Of(pagefuse::MadeUpVocabulary(pagefuse::kTokens));
  for (size_t i = 0; i < entries.size(); ++i) {
    const absl::Status status =
        pagefuse::WriteDocuments(i, entries[i]["schema"], std::atoi(argv[2]), trie);
    if (status.ok()) continue;
    std::cerr << entries[i]["name"] << ": " << status << "\n";
    return 1;
  }
  return 0;
}
