// SPDX-License-Identifier: Apache-2.0
// JSON schemas as rules of a grammar.
#pragma once

#include "absl/status/statusor.h"
#include "nlohmann/json_fwd.hpp"

#include "pagefuse/text/grammar/grammar_budget.h"
#include "pagefuse/text/grammar/rule_nfa.h"

namespace pagefuse {

// Every text of the rules is a document that is valid under the schema. Not every valid document is
// one: texts are compact (json_rules.h), and the schema is read as narrowly as it may be:
//  - members come in the order of "properties", then those that "required" alone names, then others;
//  - an object with "properties" and without "additionalProperties" has the declared members alone;
//    one with neither has any. Names of other members may repeat, but are none of the declared ones;
//  - without "type", the other keywords say which types are meant ("minLength": strings);
//  - "pattern" and "format" spell each character in one way, escaped where it must be. A pattern is
//    one of ECMAScript (regex.h), "date-time" and "time" have an offset and no leap seconds;
//  - integers have 64 bits and neither a point nor an exponent.
//
// Keywords: type, properties, required, additionalProperties, items, prefixItems, minItems, maxItems,
// enum, const, anyOf, allOf of one schema, $ref to "#" and "#/...", $defs, definitions, minLength,
// maxLength, pattern, format (date, time, date-time, uuid, ipv4), minimum, maximum, exclusiveMinimum
// and exclusiveMaximum of integers; annotations, "strict" and names that begin with "x-" say nothing.
//
// InvalidArgument naming the JSON pointer: another keyword, a value that a keyword cannot have, or a
// contradiction. ResourceExhausted naming the limit: schemas too long, too deep or too large.
absl::StatusOr<RuleSet> JsonSchemaRules(const nlohmann::ordered_json& schema,
                                        const GrammarBudget& budget);

}  // namespace pagefuse
