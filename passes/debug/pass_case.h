// SPDX-License-Identifier: Apache-2.0
// Reads a pass test file: which passes run, the graph before, and the graph that must come out.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "pagefuse/passes/pass.h"
#include "pagefuse/passes/rewrite/text/rewrite.h"

namespace pagefuse {

// A file <name>.onnxtxt:
//
//   # What this is about.
//   # run: pass-a, pass-b
//   # options: block_size=16            (optional)
//   # rules: mine.rules.txt             (optional, beside the file; `run` names it, or one of its rules)
//   # plugin: acme.txt                  (optional, beside the file)
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
  std::vector<RuleFile> rules;
  std::vector<std::string> plugins;  // paths, loaded before the case runs (RunExpectFile)
  bool compare_numbers = true;
  std::string before;
  Outcome outcome = Outcome::kAfter;
  std::string after;  // kAfter: the model's text, with a header
  bool after_has_header = false;
  std::string error;
  std::vector<Because> because;
};

// `name=value, name=value` into options. InvalidArgument for what is none.
absl::Status ReadOptions(const std::string& text, std::map<std::string, std::string>& options);
// The names in `one, another`.
std::vector<std::string> ReadNames(const std::string& text);
// The path of what a file names, beside it.
std::string PathBeside(const std::string& file, const std::string& name);
// The rules there.
absl::StatusOr<RuleFile> ReadRulesBeside(const std::string& file, const std::string& name);

// True for the text of a pass test: it has a line that starts with `# ---- ` and one `# run:`.
bool IsPassCase(const std::string& text);

// InvalidArgument naming the file and what is wrong with it.
absl::StatusOr<PassCase> ReadPassCase(const std::string& path);

// What running a case shows.
struct CaseResult {
  std::vector<std::string> failures;  // each of one line or more; none: it is as the file says
  std::string updated;  // the file as it would be written now; empty where it expects an error
};

// Runs the passes and checks the graph that comes out, the reasons, what each pass says of
// `changed`, that the graph is valid after every rewrite, that a second run changes nothing, that
// nobody has to ask for explanations to get the same, and the numbers on made-up inputs.
CaseResult RunPassCase(const PassCase& test);

// The rules, and the passes that have none, that rewrite something there. Checks nothing else.
absl::StatusOr<std::set<std::string>> RulesThatFire(const PassCase& test);

}  // namespace pagefuse
