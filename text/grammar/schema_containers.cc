// SPDX-License-Identifier: Apache-2.0
// Rules of objects and arrays of a JSON schema.
#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/text/grammar/json_rules.h"
#include "pagefuse/text/grammar/schema_rules.h"
#include "pagefuse/text/utf8.h"

namespace pagefuse {
namespace {

absl::StatusOr<std::vector<std::string>> RequiredNames(const SchemaNode& node) {
  std::vector<std::string> names;
  if (!node.Has("required")) return names;
  const SchemaJson& list = node["required"];
  if (!list.is_array()) return node.Wrong("required", "a list of names");
  for (const SchemaJson& name : list) {
    if (!name.is_string()) return node.Wrong("required", "a list of names");
    names.push_back(name.get<std::string>());
  }
  return names;
}

// Reads `,` and perhaps a blank.
void AddComma(RuleNfa& rule, uint32_t from, uint32_t to) {
  AddOptionalBlank(rule, rule.AddText(from, ","), to);
}

// Reads `:`, perhaps a blank, and a value.
void AddMemberValue(RuleNfa& rule, uint32_t from, uint32_t callee, uint32_t to) {
  const uint32_t value = rule.AddState();
  AddOptionalBlank(rule, rule.AddText(from, ":"), value);
  rule.AddCall(value, callee, to);
}

}  // namespace

void AddOptionalBlank(RuleNfa& rule, uint32_t from, uint32_t to) {
  rule.AddEmpty(from, to);
  rule.AddBytes(from, {' ', ' '}, to);
}

// The declared members, and what is required of others.
absl::StatusOr<std::vector<SchemaRules::Member>> SchemaRules::Members(const SchemaNode& node,
                                                                      bool open, uint32_t others) {
  PF_ASSIGN_OR_RETURN(const std::vector<std::string> required, RequiredNames(node));
  std::vector<Member> members;
  absl::flat_hash_map<std::string, size_t> places;
  if (node.Has("properties")) {
    const SchemaJson& properties = node["properties"];
    if (!properties.is_object()) return node.Wrong("properties", "an object of schemas");
    const SchemaNode all{&properties, node.pointer + "/properties", node.depth};
    for (const auto& [name, schema] : properties.items()) {
      PF_ASSIGN_OR_RETURN(const uint32_t callee, CalleeOf(all.Child(name, schema)));
      places[name] = members.size();
      members.push_back({name, callee});
    }
  }
  for (size_t i = 0; i < required.size(); ++i) {
    const auto [place, added] = places.try_emplace(required[i], members.size());
    if (added && !open) {
      return absl::InvalidArgumentError(StrCat(node.pointer, "/required/", i,
                                               ": expected a declared property, got \"",
                                               required[i], "\""));
    }
    if (added) members.push_back({required[i], others});
    members[place->second].required = true;
  }
  return members;
}

// The rest of a string, behind its opening quote, that is the name of none of the members. Up to
// where it differs from them all it is spelled as they are, behind that in any way.
absl::StatusOr<RuleNfa> SchemaRules::NameBut(const std::vector<Member>& members) {
  struct Node {
    std::map<char32_t, uint32_t> next;
    bool taken = false;
  };
  std::vector<Node> nodes(1);
  for (const Member& member : members) {
    uint32_t at = 0;
    for (size_t i = 0; i < member.name.size();) {
      const char32_t character = NextCodePoint(member.name, i);
      const auto [place, added] =
          nodes[at].next.try_emplace(character, static_cast<uint32_t>(nodes.size()));
      at = place->second;
      if (added) nodes.emplace_back();
    }
    nodes[at].taken = true;
    PF_RETURN_IF_ERROR(budget_.Check(nodes.size()));
  }
  RuleNfa rule;
  while (rule.size() < nodes.size()) rule.AddState();
  const uint32_t differs = rule.AddState(), end = rule.AddState();
  rule.AddCall(differs, set_.CalleeOf(kJsonStringRest), end);
  rule.Accept(end);
  for (uint32_t i = 0; i < nodes.size(); ++i) {
    PF_RETURN_IF_ERROR(budget_.Check(rule.size()));
    CharacterSet named;
    for (const auto& [character, to] : nodes[i].next) {
      named.Add(character, character);
      rule.AddJsonCharacters(i, CharacterSet({{character, character}}), to);
    }
    rule.AddJsonCharacters(i, named.Complement(), differs);
    if (!nodes[i].taken) rule.AddBytes(i, {'"', '"'}, end);
  }
  return rule;
}

// Members with other names from `from` on, one at least, and the closing brace.
void SchemaRules::AddOthers(RuleNfa& rule, uint32_t from, uint32_t end, uint32_t name,
                            uint32_t value) {
  const uint32_t named = rule.AddState(), valued = rule.AddState();
  rule.AddCall(rule.AddText(from, "\""), name, named);
  AddMemberValue(rule, named, value, valued);
  AddComma(rule, valued, from);
  rule.AddTextTo(valued, "}", end);
}

absl::StatusOr<RuleNfa> SchemaRules::Object(const SchemaNode& node) {
  bool open = !node.Has("properties");
  uint32_t others = set_.CalleeOf(kJsonValue);
  if (node.Has("additionalProperties")) {
    const SchemaJson& schema = node["additionalProperties"];
    open = schema != SchemaJson(false);
    if (open) {
      PF_ASSIGN_OR_RETURN(others, CalleeOf(node.Child("additionalProperties", schema)));
    }
  }
  PF_ASSIGN_OR_RETURN(const std::vector<Member> members, Members(node, open, others));
  RuleNfa rule;
  // `first`: nothing has come yet; `next`: behind a comma. Both are in front of the same member.
  uint32_t first = rule.AddText(0, "{"), next = rule.AddState();
  const uint32_t end = rule.AddState();
  rule.Accept(end);
  const auto last_required = std::find_if(members.rbegin(), members.rend(),
                                          [](const Member& member) { return member.required; });
  const auto may_end_at = static_cast<size_t>(members.rend() - last_required);
  if (may_end_at == 0) rule.AddTextTo(first, "}", end);
  for (size_t i = 0; i < members.size(); ++i) {
    PF_RETURN_IF_ERROR(budget_.Check(rule.size()));
    const uint32_t name = rule.AddState(), valued = rule.AddState();
    rule.AddEmpty(first, name);
    rule.AddEmpty(next, name);
    AddMemberValue(rule, rule.AddText(name, SchemaJson(members[i].name).dump()), members[i].callee,
                   valued);
    const uint32_t first_behind = rule.AddState(), next_behind = rule.AddState();
    if (!members[i].required) {
      rule.AddEmpty(first, first_behind);
      rule.AddEmpty(next, next_behind);
    }
    AddComma(rule, valued, next_behind);
    if (i + 1 >= may_end_at) rule.AddTextTo(valued, "}", end);
    first = first_behind;
    next = next_behind;
  }
  if (open) {
    PF_ASSIGN_OR_RETURN(RuleNfa name, NameBut(members));
    const uint32_t other = rule.AddState();
    rule.AddEmpty(first, other);
    rule.AddEmpty(next, other);
    AddOthers(rule, other, end, set_.CalleeOf(set_.Add(std::move(name))), others);
  }
  return rule;
}

absl::StatusOr<RuleNfa> SchemaRules::Array(const SchemaNode& node) {
  PF_ASSIGN_OR_RETURN(const uint32_t least, node.Count("minItems", 0));
  PF_ASSIGN_OR_RETURN(uint32_t most, node.Count("maxItems", kUnbounded));
  if (least > most) return node.Wrong("maxItems", StrCat("minItems (", least, ") or more"));
  if (node.Has("prefixItems") && (!node["prefixItems"].is_array() || node["prefixItems"].empty())) {
    return node.Wrong("prefixItems", "a list of schemas, not empty");
  }
  if (node.Has("items") && node["items"] == SchemaJson(false)) {
    const size_t prefix = node.Has("prefixItems") ? node["prefixItems"].size() : 0;
    most = std::min(most, static_cast<uint32_t>(prefix));
    if (least > most) return node.Wrong("minItems", StrCat("at most ", most, " elements"));
  }
  return Elements(node, least, most);
}

absl::StatusOr<RuleNfa> SchemaRules::Elements(const SchemaNode& node, uint32_t least,
                                              uint32_t most) {
  std::vector<uint32_t> callees;
  if (node.Has("prefixItems")) {
    const SchemaJson& prefix = node["prefixItems"];
    for (size_t i = 0; i < prefix.size(); ++i) {
      PF_ASSIGN_OR_RETURN(
          const uint32_t callee,
          CalleeOf({&prefix[i], StrCat(node.pointer, "/prefixItems/", i), node.depth + 1}));
      callees.push_back(callee);
    }
  }
  uint32_t other = set_.CalleeOf(kJsonValue);
  if (node.Has("items")) {
    PF_ASSIGN_OR_RETURN(other, CalleeOf(node.Child("items", node["items"])));
  }
  // Elements that differ from the one before in what it is or in what may follow; then those of a
  // list without an end, if it has none.
  const size_t told = most == kUnbounded ? std::max<size_t>(least, callees.size()) : most;
  PF_RETURN_IF_ERROR(budget_.Check(told));
  RuleNfa rule;
  const uint32_t open = rule.AddText(0, "["), end = rule.AddState();
  rule.Accept(end);
  if (least == 0) rule.AddTextTo(open, "]", end);
  uint32_t before = rule.AddState();
  rule.AddEmpty(open, before);
  for (size_t i = 0; i <= told; ++i) {
    if (i % 256 == 0) PF_RETURN_IF_ERROR(budget_.Check(rule.size()));
    if (i == told && most != kUnbounded) break;
    const uint32_t valued = rule.AddState(), next = i < told ? rule.AddState() : before;
    rule.AddCall(before, i < callees.size() ? callees[i] : other, valued);
    AddComma(rule, valued, next);
    if (i + 1 >= least) rule.AddTextTo(valued, "]", end);
    before = next;
  }
  return rule;
}

}  // namespace pagefuse
