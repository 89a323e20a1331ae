// SPDX-License-Identifier: Apache-2.0
// pagefuse expect: pass tests and expectations of whole models, in files.
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "tools/cli/html_page.h"
#include "tools/cli/plugins.h"
#include "tools/cli/subcommand.h"

#include "pagefuse/base/new_file.h"
#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ir/onnx/onnx_io.h"
#include "pagefuse/passes/debug/expectation.h"
#include "pagefuse/runtime/rewrite_check.h"

namespace pagefuse::tools {
namespace {

struct Flags {
  std::vector<std::string> paths;
  std::string junit;
  bool update = false;
};

struct Ran {
  std::string path;
  std::vector<std::string> failures;
};

std::string JUnit(const std::vector<Ran>& ran, int failed) {
  std::string text =
      StrCat("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuite name=\"pagefuse\"",
             " tests=\"", ran.size(), "\" failures=\"", failed, "\">\n");
  for (const Ran& test : ran) {
    StrAppend(&text, "  <testcase name=\"", EscapeHtml(test.path), "\"");
    if (test.failures.empty()) {
      text += "/>\n";
      continue;
    }
    text += "><failure message=\"" + EscapeHtml(test.failures.front()) + "\">";
    for (const std::string& failure : test.failures) StrAppend(&text, EscapeHtml(failure), "\n");
    text += "</failure></testcase>\n";
  }
  return text + "</testsuite>\n";
}

void Print(const Ran& test) {
  std::cout << (test.failures.empty() ? "ok " : "FAIL ") << test.path << "\n";
  for (const std::string& failure : test.failures) {
    for (absl::string_view line : absl::StrSplit(failure, '\n')) {
      if (!line.empty()) std::cout << "  " << line << "\n";
    }
  }
}

absl::Status ComparePaged(const Model& before, const PipelineOptions& options, double tolerance) {
  EngineOptions engine;
  engine.session.pipeline = options;
  return CompareRewrites(before, engine, {.tolerance = tolerance}).status();
}

// Writes what is there now where it is not what the file says; true if it did.
absl::StatusOr<bool> Update(const std::string& path, const CaseResult& result) {
  if (result.failures.empty() || result.updated.empty()) return false;
  PF_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  if (text == result.updated) return false;
  PF_RETURN_IF_ERROR(WriteWholeFile(path, result.updated));
  std::cout << "updated " << path << "\n";
  return true;
}

absl::StatusOr<int> Run(const Flags& flags) {
  const ExpectHooks hooks = {
      .compare_paged = ComparePaged,
      .load_plugin = [](const std::string& path) { return LoadPlugins({path}); },
      .read_model =
          [](const std::string& path) {
            return ReadModel(ModelFlags{path}, {.allow_missing_data = true});
          }};
  if (!flags.junit.empty()) PF_RETURN_IF_ERROR(CheckNewFile(flags.junit));
  std::vector<Ran> ran;
  int failed = 0;
  for (const std::string& path : flags.paths) {
    PF_ASSIGN_OR_RETURN(const std::vector<std::string> files, FindExpectations(path));
    for (const std::string& file : files) {
      CaseResult result = RunExpectFile(file, hooks);
      if (flags.update) {
        PF_ASSIGN_OR_RETURN(const bool updated, Update(file, result));
        if (updated) result = RunExpectFile(file, hooks);
      }
      ran.push_back({file, std::move(result.failures)});
      failed += ran.back().failures.empty() ? 0 : 1;
      Print(ran.back());
    }
  }
  if (!flags.junit.empty()) PF_RETURN_IF_ERROR(WriteWholeFile(flags.junit, JUnit(ran, failed)));
  std::cout << ran.size() - failed << " passed, " << failed << " failed\n";
  return failed == 0 ? kDone : kWrongInput;
}

}  // namespace

void AddExpectCommand(Command app, Outcome& outcome) {
  auto flags = std::make_shared<Flags>();
  Command command = AddSubcommand(
      app, outcome, {"expect", "runs pass tests and expectations of models, in files"}, flags, Run);
  command.AddArguments("files", flags->paths, "files, or folders that are searched for them")
      .Required();
  command.AddFlag("--update", flags->update, "write what is there now into files that fail");
  command.AddText("--junit", flags->junit, "file for the results as JUnit XML");
  command.Footer(
      "A file holds a graph before and after some passes, or says what a model becomes; "
      "docs/authoring.md has both formats. "
      "Status 1 if one of them fails.");
}

}  // namespace pagefuse::tools
