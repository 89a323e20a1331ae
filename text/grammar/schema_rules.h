// SPDX-License-Identifier: Apache-2.0
// Makes rules of the parts of one JSON schema.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "pagefuse/text/grammar/grammar_budget.h"
#include "pagefuse/text/grammar/rule_nfa.h"
#include "pagefuse/text/grammar/schema_node.h"

namespace pagefuse {

class SchemaRules {
 public:
  // Both must live as long as this.
  SchemaRules(const SchemaJson& root, const GrammarBudget& budget);

  // The rules of a schema, whose references are to the root.
  absl::StatusOr<RuleSet> Run(const SchemaNode& start);

 private:
  // A bit each, as in SchemaTypes().
  using Types = uint32_t;

  // The rule of a schema: the same each time; what it says is filled in later where it is referred to.
  absl::StatusOr<uint32_t> RuleOf(const SchemaNode& node);
  absl::StatusOr<uint32_t> CalleeOf(const SchemaNode& node);
  absl::Status Fill(const SchemaNode& node, uint32_t rule);
  absl::StatusOr<RuleNfa> Made(const SchemaNode& node);

  absl::StatusOr<RuleNfa> Reference(const SchemaNode& node);
  absl::StatusOr<RuleNfa> Alternatives(const SchemaNode& node, const char* keyword);
  absl::StatusOr<RuleNfa> Values(const SchemaNode& node);
  absl::StatusOr<bool> Fits(const SchemaNode& node, const SchemaJson& value);
  absl::StatusOr<RuleNfa> Typed(const SchemaNode& node);
  absl::StatusOr<uint32_t> CalleeOfType(const SchemaNode& node, size_t type, Types types);

  // schema_scalars.cc
  absl::StatusOr<RuleNfa> String(const SchemaNode& node);
  absl::StatusOr<uint32_t> Number(const SchemaNode& node, Types types);
  absl::StatusOr<RuleNfa> Integer(const SchemaNode& node);
  // schema_containers.cc
  struct Member {
    std::string name;
    uint32_t callee = 0;
    bool required = false;
  };
  absl::StatusOr<RuleNfa> Object(const SchemaNode& node);
  absl::StatusOr<std::vector<Member>> Members(const SchemaNode& node, bool open, uint32_t others);
  absl::StatusOr<RuleNfa> NameBut(const std::vector<Member>& members);
  void AddOthers(RuleNfa& rule, uint32_t from, uint32_t end, uint32_t name, uint32_t value);
  absl::StatusOr<RuleNfa> Array(const SchemaNode& node);
  absl::StatusOr<RuleNfa> Elements(const SchemaNode& node, uint32_t least, uint32_t most);

  const SchemaJson& root_;
  const GrammarBudget& budget_;
  RuleSet set_;
  absl::flat_hash_map<const SchemaJson*, uint32_t> rules_;
  // References whose rules are still empty: schemas that refer in a long row are no deep recursion.
  std::vector<std::pair<SchemaNode, uint32_t>> referred_;
};

// `from` to `to`, with one blank or none.
void AddOptionalBlank(RuleNfa& rule, uint32_t from, uint32_t to);

}  // namespace pagefuse
