// SPDX-License-Identifier: Apache-2.0
// Grammars that requests have asked for, since clients ask for the same ones again.
#pragma once

#include <functional>
#include <list>
#include <mutex>
#include <string>
#include <unordered_map>

#include "absl/status/statusor.h"

#include "pagefuse/text/grammar/grammar.h"

namespace pagefuse::serve {

// The last ones that were used. Thread-safe.
class GrammarCache {
 public:
  explicit GrammarCache(size_t most = 64) : most_(most) {}
  // What `make` gives where there is none under the name; errors are not kept. `base`: one that it was made
  // from, which lives as long as it does here, so that its address may stand in the name.
  absl::StatusOr<Grammar::Ptr> Find(const std::string& name,
                                    const std::function<absl::StatusOr<Grammar::Ptr>()>& make,
                                    Grammar::Ptr base = nullptr);

 private:
  struct Entry {
    std::string name;
    Grammar::Ptr grammar, base;
  };
  size_t most_;
  std::mutex mutex_;
  std::list<Entry> entries_;  // the one that was used last first
  std::unordered_map<std::string, std::list<Entry>::iterator> places_;
};

}  // namespace pagefuse::serve
