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
  };
  Kind kind = kLiteral;
  int line = 1;
  int height = 1;  // of the tree: bounded, it is walked by recursion
  std::string name = {};
  Value literal = {};
  std::vector<ExprPtr> parts = {};
  std::vector<std::pair<std::string, ExprPtr>> named = {};
  std::vector<std::string> operators = {};  // kCompare
};

struct Statement;
using Body = std::vector<std::unique_ptr<Statement>>;

// `a`, or `object.a`.
struct Target {
  std::string name, attribute;
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
    kBreak,
    kContinue,
    kGroup
  };
  Kind kind = kText;
  int line = 1;
  MarkedText text = {};              // kText
  ExprPtr value = {};                // kPrint, kFor (what is walked), kSet, filters of blocks
  ExprPtr condition = {};            // kFor
  std::vector<Target> targets = {};  // kFor, kSet, kSetBlock
  std::vector<std::pair<ExprPtr, Body>> branches = {};  // kIf
  Body body = {}, otherwise = {};
  std::string name = {};                                         // kMacro
  std::vector<std::pair<std::string, ExprPtr>> parameters = {};  // kMacro, with defaults or null
};

// InvalidArgument or Unimplemented naming the line.
absl::StatusOr<Body> ParseTemplate(std::string_view source);

}  // namespace pagefuse::chat_template
