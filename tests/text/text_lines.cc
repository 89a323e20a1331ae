// SPDX-License-Identifier: Apache-2.0
// text_lines encode|decode TOKENIZER.JSON: lines in, lines out, for exact.mjs, which compares with other implementations. encode
// reads JSON strings and writes ids with commas, once with and once without the tokens around a text; decode reads ids and
// writes JSON strings, special tokens included.
#include <iostream>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "nlohmann/json.hpp"

#include "pagefuse/text/tokenizer/tokenizer.h"

namespace {

using pagefuse::Tokenizer;

std::string Encoded(const Tokenizer& tokenizer, const std::string& line) {
  const auto text = nlohmann::json::parse(line).get<std::string>();
  std::string out;
  for (const bool adds_special : {true, false}) {
    const auto ids = tokenizer.Encode(text, {.adds_special = adds_special});
    if (!ids.ok()) return std::string(ids.status().message());
    if (!adds_special) out += ' ';
    out += absl::StrJoin(*ids, ",");
  }
  return out;
}

std::string Decoded(const Tokenizer& tokenizer, const std::string& line) {
  std::vector<int64_t> ids;
  for (absl::string_view part : absl::StrSplit(line, ',', absl::SkipEmpty())) {
    if (!absl::SimpleAtoi(part, &ids.emplace_back())) return "no id";
  }
  return nlohmann::json(tokenizer.Decode(ids, /*special=*/true)).dump();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 1;
  const auto tokenizer = Tokenizer::Load(argv[2]);
  if (!tokenizer.ok()) {
    std::cerr << tokenizer.status().message() << "\n";
    return 1;
  }
  std::ios::sync_with_stdio(false);
  const bool decode = std::string(argv[1]) == "decode";
  for (std::string line; std::getline(std::cin, line);) {
    std::cout << (decode ? Decoded(**tokenizer, line) : Encoded(**tokenizer, line)) << "\n";
  }
  return 0;
}
