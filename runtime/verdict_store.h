// SPDX-License-Identifier: Apache-2.0
// Keeps what the comparison of a rewritten graph with its export gave (rewrite_check.h), so that a
// model is compared once.
#pragma once

#include <optional>
#include <string>

#include "pagefuse/runtime/rewrite_check.h"

namespace pagefuse {

// $XDG_CACHE_HOME/pagefuse/verdicts, else $HOME/.cache/pagefuse/verdicts; empty if neither is set.
std::string VerdictFolder();

// Tells what is run apart: the content of the model (of large initialisers pages of their bytes, not all of them), the
// build of this program, and the options that tell what the passes make of the model. Hexadecimal digits.
std::string RunKey(const Model& exported, const EngineOptions& options);

// The place of one verdict, by the content of the model, the build of this program, and the options
// that tell what the passes make of the model. Of large initialisers pages of their bytes count, not
// all of them. Several processes may keep and find verdicts at the same time.
class VerdictStore {
 public:
  // `folder` empty: that of the user.
  VerdictStore(const std::string& folder, const Model& exported, const EngineOptions& options);

  // Nothing if there is none, or none that can be read.
  std::optional<RewriteVerdict> Find() const;
  // Written whole or not at all; that it cannot be is no matter. Where nothing was compared, or
  // memory was short for a probe, nothing is kept: it may be there the next time.
  void Keep(const RewriteVerdict& verdict) const;

 private:
  std::string path_;  // empty: nothing is kept
};

}  // namespace pagefuse
