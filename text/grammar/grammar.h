// SPDX-License-Identifier: Apache-2.0
// What an answer may say: texts that fit a JSON schema, a regular expression, one of several choices,
// or parts of such in a row.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "nlohmann/json_fwd.hpp"

namespace pagefuse {

class Automaton;
class RuleMaskCache;

// A set of texts, as an automaton over their bytes with a stack. Immutable and thread-safe; all who
// share one share what TokenMask has found out about it.
//
// A grammar takes at most 100,000 states and 100 ms of a processor's time to make; past that
// ResourceExhausted. InvalidArgument if no text fits.
class Grammar {
 public:
  using Ptr = std::shared_ptr<const Grammar>;

  // Documents that are valid under the schema (docs: see JsonSchemaRules in json_schema.h for the
  // keywords), in compact form: one blank at most behind "," and ":", members in the schema's order.
  // 64 KiB of text and 32 levels of schemas at most.
  static absl::StatusOr<Ptr> OfJsonSchema(const nlohmann::ordered_json& schema);
  // Any JSON object, in compact form. The same object at each call.
  static Ptr OfAnyJsonObject();
  // One of these texts.
  static absl::StatusOr<Ptr> OfChoice(const std::vector<std::string>& choices);
  // UTF-8 that matches the expression (regex.h) as a whole.
  static absl::StatusOr<Ptr> OfRegex(std::string_view regex);

  // This text.
  static absl::StatusOr<Ptr> OfText(std::string_view text);
  // Any UTF-8, also none.
  static Ptr AnyText();
  // UTF-8 in which `mark` does not occur, also none. InvalidArgument if `mark` is empty or no UTF-8.
  static absl::StatusOr<Ptr> TextWithout(std::string_view mark);
  // UTF-8 that ends in `mark`, which occurs nowhere before.
  static absl::StatusOr<Ptr> Until(std::string_view mark);

  // One behind the other. Free text, then perhaps a mark and what must follow it, is
  //   AnyOf({TextWithout(mark), Sequence({Until(mark), what follows})}).
  static absl::StatusOr<Ptr> Sequence(const std::vector<Ptr>& parts);
  static absl::StatusOr<Ptr> AnyOf(const std::vector<Ptr>& parts);
  // `part` at least `least` times, at most `most` times; -1: without a bound.
  static absl::StatusOr<Ptr> Repeat(const Ptr& part, int least, int most);
  static absl::StatusOr<Ptr> Optional(const Ptr& part) { return Repeat(part, 0, 1); }

  ~Grammar();

  // For those that run it.
  const Automaton& automaton() const { return *automaton_; }
  RuleMaskCache& masks() const { return *masks_; }

 private:
  explicit Grammar(Automaton automaton);
  friend class GrammarMaker;

  std::unique_ptr<const Automaton> automaton_;
  std::unique_ptr<RuleMaskCache> masks_;
};

}  // namespace pagefuse
