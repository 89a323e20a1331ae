// SPDX-License-Identifier: Apache-2.0
// One test for every tests/passes/<folder>/<name>.onnxtxt: see passes/debug/pass_case.h for the format.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "must.h"
#include "paths.h"

#include "pagefuse/passes/debug/pass_case.h"
#include "pagefuse/passes/pipeline/pipeline.h"

namespace pagefuse {
namespace {

std::filesystem::path Root() { return SourcePath("tests/passes"); }

std::vector<std::string> PassFiles() {
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(Root())) {
    if (entry.path().extension() == ".onnxtxt") {
      files.push_back(std::filesystem::relative(entry.path(), Root()).string());
    }
  }
  std::sort(files.begin(), files.end());
  return files;
}

std::string TestName(const testing::TestParamInfo<std::string>& info) {
  std::string name = info.param.substr(0, info.param.rfind('.'));
  for (char& c : name) {
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
  }
  return name;
}

bool UpdatesFiles() {
  const char* update = std::getenv("PAGEFUSE_UPDATE_TESTS");
  return update != nullptr && std::string_view(update) == "1";
}

class PassFile : public testing::TestWithParam<std::string> {};

TEST_P(PassFile, DoesWhatItSays) {
  const auto test = Must(ReadPassCase((Root() / GetParam()).string()));
  const CaseResult result = RunPassCase(test);
  if (UpdatesFiles() && !result.updated.empty()) {
    std::ofstream(test.path) << result.updated;
    return;
  }
  for (const std::string& failure : result.failures) ADD_FAILURE() << failure;
}

INSTANTIATE_TEST_SUITE_P(Files, PassFile, testing::ValuesIn(PassFiles()), TestName);

// A rule that no case shows is one of which nobody knows that it can still fire.
TEST(PassFiles, ShowEachRuleAndEachPass) {
  std::set<std::string> fired;
  for (const std::string& file : PassFiles()) {
    const auto test = Must(ReadPassCase((Root() / file).string()));
    fired.merge(Must(RulesThatFire(test)));
  }
  std::set<std::string> expected;
  for (const auto& pass : AllPasses()) {
    for (const RuleSummary& rule : pass->rules()) expected.insert(rule.name);
    if (pass->rules().empty()) expected.emplace(pass->name());
  }
  expected.erase("unfused-places");  // only reports
  std::vector<std::string> unseen;
  std::ranges::set_difference(expected, fired, std::back_inserter(unseen));
  EXPECT_THAT(unseen, testing::IsEmpty());
}

}  // namespace
}  // namespace pagefuse
