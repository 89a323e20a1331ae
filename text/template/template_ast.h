// SPDX-License-Identifier: Apache-2.0
// The syntax tree of a chat template.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "pagefuse/text/template/template_value.h"

namespace pagefuse::chat_template {

struct Expr;
using ExprPtr = std::unique_ptr<Expr>;

struct Expr {
  enum Kind {
    kLiteral,
    kName,
    kList,       // name: "tuple" for one
    kDict,       // keys and values in turn
    kAttribute,  // parts[0].name
    kItem,       // parts[0][parts[1]]
    kSlice,      // parts[0][parts[1]:parts[2]:parts[3]], each may be null
    kCall,       // parts[0](the rest, named)
    kFilter,     // parts[0] | name(the rest, named)
    kTest,       // parts[0] is name(the rest)
    kUnary,      // name: "-", "+", "not"
    kBinary,     // name: the operator
    kCompare,    // parts with operators between them
    kAnd,
    kOr,
    kConditional,  // parts[0] if parts[1] else parts[2], which may be null
    kSpread,       // *parts[0] among the arguments of a call
  };
  Kind kind = kLiteral;
  int line = 1;
  int height = 1;  // of the tree: bounded, it is walked by recursion
  std::string name = {};
  Value literal = {};
  std::vector<ExprPtr> parts = {};
  std::vector<std::pair<std::string, ExprPtr>> named = {};  // without a name: **value
  std::vector<std::string> operators = {};                  // kCompare
};

struct Statement;
using Body = std::vector<std::unique_ptr<Statement>>;

// `a`, `object.a`, or several in brackets.
struct Target {
  std::string name = {}, attribute = {};
  std::vector<Target> parts = {};
};

struct Statement {
  enum Kind {
    kText,
    kPrint,
    kIf,
    kFor,
    kSet,
    kSetBlock,
    kMacro,
    kFilterBlock,
    kCallBlock,
    kWith,
    kBreak,
    kContinue,
    kGroup
  };
  Kind kind = kText;
  int line = 1;
  MarkedText text = {};  // kText
  // kPrint, kFor (what is walked), kSet, filters of blocks, the call of a kCallBlock
  ExprPtr value = {};
  ExprPtr condition = {};                               // kFor
  std::vector<Target> targets = {};                     // kFor, kSet, kSetBlock
  std::vector<std::pair<ExprPtr, Body>> branches = {};  // kIf
  Body body = {}, otherwise = {};
  std::string name = {};  // kMacro
  // kMacro and kCallBlock, with defaults or null; kWith, with values.
  std::vector<std::pair<std::string, ExprPtr>> parameters = {};
  // kMacro: its body asks for what stands in the call beyond the parameters.
  bool takes_caller = false, takes_more = false, takes_more_named = false;
  bool recursive = false;  // kFor
};

// InvalidArgument or Unimplemented naming the line.
absl::StatusOr<Body> ParseTemplate(std::string_view source);

}  // namespace pagefuse::chat_template
