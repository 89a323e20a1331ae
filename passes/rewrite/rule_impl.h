// SPDX-License-Identifier: Apache-2.0
// The parts of a rule, and how a match is replaced. It is private to rule*.cc.
#pragma once

#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "pagefuse/passes/edit/graph_index.h"
#include "pagefuse/passes/rewrite/matcher.h"
#include "pagefuse/passes/rewrite/rule.h"

namespace pagefuse {

// A replacement in text, parsed once. No body: a builder replaces.
struct RuleReplacement {
  std::shared_ptr<const Graph> body;
  bool takes_all_attributes =
      false;  // the body is one call of the op whose attributes the pattern bound
};

struct Rule::Impl {
  std::string name;
  std::string description;
  struct Text {
    std::string text;
    std::string name;
  };
  // In the order of declaration.
  std::vector<std::variant<Text, std::string>>
      sources;  // a text, or the op whose decompositions to match
  std::vector<std::variant<Condition, Derivation>> steps;
  std::vector<std::string> metadata;
  std::vector<std::string> needs;  // op types
  std::string replacement_text;
  Builder builder;
  absl::Status declared;  // what a declaration in text says that does not parse

  // Filled by Compile.
  struct Compiled {
    std::vector<std::shared_ptr<const Pattern>> patterns;
    std::vector<RuleReplacement> replacements;  // one a pattern
  };
  std::unique_ptr<Compiled> compiled;
};

// Where a rule works, and what it keeps up to date there.
struct RewriteScope {
  Graph* graph = nullptr;
  OpsetImports* opsets = nullptr;
  GraphIndex* index = nullptr;
  SymbolicContents* contents = nullptr;
};

// Puts the replacement in for a match, moves the readers over, erases what nobody reads any more.
// FailedPrecondition, with the graph as it was, if the replacement does not fit (a cycle, another
// shape).
absl::Status ReplaceMatch(const Rule::Impl& rule, int pattern, const Match& match,
                          const RewriteScope& scope);

}  // namespace pagefuse
