// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/passes/edit/readers_text.h"

#include <vector>

#include "pagefuse/base/str_cat.h"

namespace pagefuse {

namespace {

std::vector<std::string> ReadersOf(const Value& value) {
  std::vector<std::string> readers;
  for (const Use& use : value.uses()) {
    if (readers.empty() || readers.back() != use.node->Description()) {
      readers.push_back(use.node->Description());
    }
  }
  return readers;
}

std::string Listed(const std::vector<std::string>& readers) {
  if (readers.empty()) return "none";
  std::string text = readers[0];
  for (size_t i = 1; i < readers.size(); ++i) {
    StrAppend(&text, i + 1 == readers.size() ? " and " : ", ", readers[i]);
  }
  return text;
}

}  // namespace

bool HasOneReader(const Value& value) { return value.uses().size() == 1 && !value.is_output(); }

Node* OnlyReader(const Value& value) {
  return HasOneReader(value) ? value.uses()[0].node : nullptr;
}

std::string ReadersText(const Value& value) { return Listed(ReadersOf(value)); }

std::string ReadersAndCallerText(const Value& value) {
  std::vector<std::string> readers = ReadersOf(value);
  if (value.is_output()) readers.emplace_back("the graph's caller");
  return Listed(readers);
}

}  // namespace pagefuse
