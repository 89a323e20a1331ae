// SPDX-License-Identifier: Apache-2.0
// Reads tokenizer.json: the long lists as views, the rest as JSON.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"

#include "pagefuse/text/tokenizer/added_tokens.h"
#include "pagefuse/text/tokenizer/bpe.h"

namespace pagefuse {

struct TokenizerFile {
  std::vector<std::pair<std::string_view, int64_t>> vocabulary;
  std::vector<Bpe::Merge> merges;
  BpeOptions bpe;
  std::vector<AddedToken> added;
  nlohmann::json normalizer, pre_tokenizer, post_processor, decoder;  // null where there is none
  std::shared_ptr<const void> texts;                                  // what the views look at
};

// Texts and JSON values are UTF-8. InvalidArgument or Unimplemented naming the member, what was
// expected and what is there.
absl::StatusOr<TokenizerFile> ReadTokenizerFile(const std::string& json);

}  // namespace pagefuse
