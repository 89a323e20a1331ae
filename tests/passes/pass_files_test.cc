// One test for every tests/passes/<folder>/<name>.onnxtxt: see pass_case.h for the format.
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "gtest/gtest.h"
#include "pass_case.h"
#include "paths.h"

#include "pagefuse/ir/str_cat.h"
#include "pagefuse/ir/text.h"
#include "pagefuse/ir/verify.h"
#include "pagefuse/passes/compare_models.h"
#include "pagefuse/passes/pipeline.h"

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

std::string Names(const std::vector<Miss>& misses) {
  std::string text;
  for (const Miss& miss : misses) {
    StrAppend(&text, "  ", miss.rule, " at \"", miss.at, "\": ", miss.condition, "\n");
  }
  return text.empty() ? "  nothing\n" : text;
}

class PassFile : public testing::TestWithParam<std::string> {
 protected:
  // Runs the passes of the case on `model`. What each says of `changed` is checked against the
  // graph's text.
  absl::Status RunPasses(const PassCase& test, Model& model, bool& changed, bool explain = true) {
    changed = false;
    for (const std::string& name : test.passes) {
      auto pass = FindTestPass(name);
      if (!pass.ok()) return pass.status();
      PassContext context;
      context.options = test.options;
      context.explain = explain;
      context.after_rewrite = [](const Model& now, std::string_view rule) {
        const absl::Status status = Verify(now);
        EXPECT_TRUE(status.ok()) << "after a rewrite by " << rule << ": " << status;
        return status;
      };
      // Inference may say more of an output than the file does; that is no change by the pass.
      const absl::Status inferred = InferShapes(model);
      if (!inferred.ok()) return inferred;
      const std::string before = PrintModel(model, {.max_elements = -1, .value_infos = false});
      const auto pass_changed = RunPass(**pass, model, context);
      if (!pass_changed.ok()) return pass_changed.status();
      const std::string after = PrintModel(model, {.max_elements = -1, .value_infos = false});
      EXPECT_EQ(*pass_changed, before != after)
          << name << " does not tell the truth about `changed`";
      const absl::Status valid = Verify(model);
      EXPECT_TRUE(valid.ok()) << name << ": " << valid;
      changed = changed || *pass_changed;
      misses_.insert(misses_.end(), context.misses.begin(), context.misses.end());
    }
    return absl::OkStatus();
  }

  void CheckReasons(const PassCase& test) const {
    for (const PassCase::Because& because : test.because) {
      const bool found = std::any_of(misses_.begin(), misses_.end(), [&](const Miss& miss) {
        return miss.rule == because.rule && miss.at == because.at &&
               miss.condition == because.reason;
      });
      EXPECT_TRUE(found) << "expected " << because.rule << " at \"" << because.at
                         << "\": " << because.reason << "\ngot:\n"
                         << Names(misses_);
    }
  }

  void CheckGraph(const PassCase& test, const Model& before, const Model& model) const {
    absl::StatusOr<Model> expected =
        test.outcome == PassCase::Outcome::kUnchanged ? before.Clone() : ParseModel(test.after);
    ASSERT_TRUE(expected.ok()) << expected.status();
    if (!test.after_has_header) expected->opset_imports = model.opset_imports;
    // Types are inferred on both sides, so that declared and inferred outputs look alike.
    ASSERT_TRUE(InferShapes(*expected).ok()) << InferShapes(*expected);
    const std::string wanted = CanonicalText(*expected);
    const std::string got = CanonicalText(model);
    EXPECT_TRUE(wanted == got) << TextDiff(wanted, got);
  }

  // What nobody asks to explain is given up earlier, and comes to the same.
  void CheckUnexplained(const PassCase& test, Model before, const Model& model) {
    bool changed = false;
    const absl::Status status = RunPasses(test, before, changed, /*explain=*/false);
    ASSERT_TRUE(status.ok()) << status;
    ASSERT_TRUE(InferShapes(before).ok()) << InferShapes(before);
    const std::string wanted = CanonicalText(model);
    const std::string got = CanonicalText(before);
    EXPECT_TRUE(wanted == got) << "explained and not are two things:\n" << TextDiff(wanted, got);
  }

  void Update(const PassCase& test, const Model& model, bool changed) const {
    std::ofstream file(test.path);
    file << test.head;
    if (!changed) {
      file << "# ---- after: unchanged\n";
      for (const Miss& miss : misses_) {
        file << "# because " << miss.rule << " at \"" << miss.at << "\": " << miss.condition
             << "\n";
      }
      return;
    }
    file << "# ---- after\n" << PrintModel(model, {.max_elements = -1, .value_infos = false});
  }

  std::vector<Miss> misses_;
};

TEST_P(PassFile, DoesWhatItSays) {
  const auto test = ReadPassCase((Root() / GetParam()).string());
  ASSERT_TRUE(test.ok()) << test.status();
  absl::StatusOr<Model> model = ParseModel(test->before);
  ASSERT_TRUE(model.ok()) << model.status();
  ASSERT_TRUE(Verify(*model).ok()) << Verify(*model);
  const Model before = model->Clone();

  bool changed = false;
  const absl::Status status = RunPasses(*test, *model, changed);
  if (test->outcome == PassCase::Outcome::kError) {
    EXPECT_EQ(StdView(status.message()), test->error);
    return;
  }
  ASSERT_TRUE(status.ok()) << status;
  if (UpdatesFiles()) return Update(*test, *model, changed);

  ASSERT_TRUE(InferShapes(*model).ok()) << InferShapes(*model);
  CheckGraph(*test, before, *model);
  EXPECT_EQ(changed, test->outcome == PassCase::Outcome::kAfter);
  CheckReasons(*test);
  CheckUnexplained(*test, before.Clone(), *model);
  if (test->compare_numbers && changed) {
    const auto compared = CompareOnRandomInputs(before, *model, 1e-5);
    ASSERT_TRUE(compared.ok()) << compared.status();
    EXPECT_EQ(*compared, "equal");
  }

  const std::string once = PrintModel(*model);
  bool changed_again = false;
  ASSERT_TRUE(RunPasses(*test, *model, changed_again).ok());
  EXPECT_FALSE(changed_again) << "a second run changes the graph:\n"
                              << TextDiff(once, PrintModel(*model));
}

INSTANTIATE_TEST_SUITE_P(Files, PassFile, testing::ValuesIn(PassFiles()), TestName);

}  // namespace
}  // namespace pagefuse
