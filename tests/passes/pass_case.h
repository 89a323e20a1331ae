// One pass test file: what to run, the graph before, and what has to come out.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "pagefuse/passes/pass.h"

namespace pagefuse {

// tests/passes/<folder>/<name>.onnxtxt:
//
//   # What this is about.
//   # run: pass-a, pass-b
//   # options: block_size=16            (optional)
//   # numbers: not compared, <reason>   (optional)
//   <model>
//   # ---- after | # ---- after: unchanged | # ---- error: <message>
//   <model, without header if that is as before> | # because <rule> at "<value>": <reason>
struct PassCase {
  enum class Outcome { kAfter, kUnchanged, kError };
  struct Because {
    std::string rule;
    std::string at;
    std::string reason;
  };

  std::string path;
  std::string head;  // the file up to the line of `# ---- `
  std::vector<std::string> passes;
  std::map<std::string, std::string> options;
  bool compare_numbers = true;
  std::string before;
  Outcome outcome = Outcome::kAfter;
  std::string after;  // kAfter: the model's text, with a header
  bool after_has_header = false;
  std::string error;
  std::vector<Because> because;
};

// InvalidArgument naming the file and what is wrong with it.
absl::StatusOr<PassCase> ReadPassCase(const std::string& path);

// The model as text in which only what matters is left: values are named by their place, nodes are
// ordered by what reads them, names of nodes, metadata and types of inner values are gone. Names of
// inputs and outputs stay.
std::string CanonicalText(const Model& model);

// The two texts, with the lines marked that only one of them has.
std::string TextDiff(const std::string& expected, const std::string& got);

// The pass of that name: a test rule (test_rules.cc) or a pass of the pipeline.
absl::StatusOr<std::unique_ptr<Pass>> FindTestPass(const std::string& name);

}  // namespace pagefuse
