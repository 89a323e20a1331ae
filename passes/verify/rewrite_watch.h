// SPDX-License-Identifier: Apache-2.0
// Looks at a model after each rewrite: where the rewrite was, and whether the numbers are what they
// were.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "pagefuse/passes/edit/graph_snapshot.h"
#include "pagefuse/passes/rewrite/text/rewrite.h"
#include "pagefuse/passes/verify/compare_models.h"
#include "pagefuse/passes/verify/value_bank.h"

namespace pagefuse {

struct WatchOptions {
  bool verify = false;
  int samples = 1;
  std::vector<std::map<std::string, Tensor>> feeds = {};  // in place of made-up ones
};

class RewriteWatch {
 public:
  // Types of the model must be inferred.
  RewriteWatch(const Model& model, WatchOptions options);

  // What one rewrite did. Where inputs or outputs are others than before, nothing is compared, and
  // what follows is compared on new numbers.
  Rewrite After(const Model& model, std::string_view pass, std::string_view rule);

 private:
  void Start(const Model& model);
  std::string StartOn(const Model& model, int attempt);
  void DoesNotRun(const Model& model, std::string_view why, Rewrite& rewrite);
  void Compare(const Model& model, const GraphChange& change, Rewrite& rewrite);

  WatchOptions options_;
  // What evaluation may take: to ask the system for each rewrite takes longer than most of them.
  int64_t memory_bytes_;
  GraphSnapshot snapshot_;
  Interface interface_;
  std::vector<ValueBank> banks_;
  std::string why_no_bank_;
  double tolerance_ = 0;
  int64_t number_ = 0;
};

}  // namespace pagefuse
