// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/serve/grammar_cache.h"

#include <utility>

#include "pagefuse/base/status_macros.h"

namespace pagefuse::serve {

absl::StatusOr<Grammar::Ptr> GrammarCache::Find(
    const std::string& name, const std::function<absl::StatusOr<Grammar::Ptr>()>& make,
    Grammar::Ptr base) {
  {
    const std::lock_guard lock(mutex_);
    const auto it = places_.find(name);
    if (it != places_.end()) {
      entries_.splice(entries_.begin(), entries_, it->second);
      return it->second->grammar;
    }
  }
  // Without the lock, since it takes its time; two at once make it twice.
  PF_ASSIGN_OR_RETURN(Grammar::Ptr made, make());
  const std::lock_guard lock(mutex_);
  if (places_.contains(name)) return made;
  entries_.push_front({name, made, std::move(base)});
  places_[name] = entries_.begin();
  if (entries_.size() > most_) {
    places_.erase(entries_.back().name);
    entries_.pop_back();
  }
  return made;
}

}  // namespace pagefuse::serve
