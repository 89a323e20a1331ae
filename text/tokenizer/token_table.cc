// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/text/tokenizer/token_table.h"

#include "pagefuse/base/str_cat.h"

namespace pagefuse {

void TokenTable::Reserve(size_t tokens, size_t bytes) {
  places_.reserve(tokens);
  texts_.reserve(bytes);
}

absl::Status TokenTable::Add(std::string_view text, int64_t id) {
  if (id < 0 || id > kMaxId) {
    return absl::InvalidArgumentError(
        StrCat("token \"", text, "\": expected an id of 0 to ", kMaxId, ", got ", id));
  }
  if (id >= size()) places_.resize(id + 1);
  places_[id] = {static_cast<uint32_t>(texts_.size()), static_cast<uint32_t>(text.size()), true};
  texts_.append(text);
  return absl::OkStatus();
}

void TokenTable::Finish() {
  ids_.clear();
  ids_.reserve(places_.size());
  for (size_t id = 0; id < places_.size(); ++id) {
    if (places_[id].used) ids_[Text(static_cast<int64_t>(id))] = static_cast<int32_t>(id);
  }
}

int32_t TokenTable::Find(std::string_view text) const {
  const auto found = ids_.find(text);
  return found == ids_.end() ? kNone : found->second;
}

std::string_view TokenTable::Text(int64_t id) const {
  if (id < 0 || id >= size()) return {};
  return std::string_view(texts_).substr(places_[id].first, places_[id].size);
}

}  // namespace pagefuse
