// SPDX-License-Identifier: Apache-2.0
// Recorded cases on the device: those of tests/golden, each under its own rule, and those of the
// standard, of ops that have a kernel there.
#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "device_op.h"
#include "must.h"
#include "paths.h"
#include "report.h"
#include "settings.h"
#include "tools/check/testcase.h"
#include <gtest/gtest.h>

#include "pagefuse/base/str_cat.h"

namespace pagefuse {
namespace {

struct Folder {
  std::string path, test;
  CaseKind kind;
  std::string op;  // with its domain
};
void PrintTo(const Folder& folder, std::ostream* os) { *os << folder.path; }

// Cases of one node whose op has a kernel for the device.
void AddFolders(const std::string& root, CaseKind kind, std::vector<Folder>& folders) {
  for (const std::string& path : FindTestCases(root)) {
    const absl::StatusOr<Model> model = LoadCaseModel(path);
    if (!model.ok() || model->graph->nodes().size() != 1) continue;
    const Node& node = *model->graph->nodes().front();
    const OpDef* op = OpRegistry::Global().Find(node.domain(), node.op_type(),
                                                model->OpsetVersion(node.domain()));
    if (op == nullptr || !HasDeviceKernel(*op)) continue;
    std::string test = path.substr(root.size() + 1);
    std::ranges::replace_if(
        test, [](unsigned char c) { return std::isalnum(c) == 0; }, '_');
    folders.push_back(
        {path, test, kind,
         StrCat(node.domain().empty() ? "ai.onnx" : node.domain(), ".", node.op_type())});
  }
}

std::vector<Folder> Folders() {
  std::vector<Folder> folders;
  AddFolders(TestDataPath("golden"), CaseKind::kGolden, folders);
  AddFolders(TestDataPath("onnx_node"), CaseKind::kStandard, folders);
  return folders;
}

class DeviceCase : public ::testing::TestWithParam<Folder> {
 protected:
  void SetUp() override { ASSERT_TRUE(DeviceIsWell()); }
};

// What a kernel is instantiated by, as far as a case shows it.
std::string FormOf(const DeviceModel& model) {
  const Node& node = *model.model().graph->nodes().front();
  std::string form = StrCat(node.op_type(), " ", OnlyPlace(model).kernel);
  for (const Value* input : node.inputs()) {
    StrAppend(&form, " ", input == nullptr ? "-" : DataTypeName(input->dtype()));
  }
  for (const auto& [name, attribute] : node.attributes()) {
    if (const auto* text = std::get_if<std::string>(&attribute.value)) {
      StrAppend(&form, " ", *text);
    }
  }
  return form;
}

TEST_P(DeviceCase, Passes) {
  static auto* seen = new std::set<std::string>;  // forms, under a sanitizer
  const TestCase test_case = Must(LoadTestCase(GetParam().path));
  auto model = DeviceModel::Make(test_case.model.Clone(), TestSettings().op_device());
  if (model.ok()) {
    const NodePlace& place = OnlyPlace(**model);
    if (!place.on_device) {
      Report::Get().AddHostStep(GetParam().op, place.reason);
      return;
    }
    if (TestSettings().sanitize && !seen->insert(FormOf(**model)).second) return;
  }
  const GuardedRun guarded;
  const absl::Status status = CheckTestCase(
      test_case,
      [&](const Model&,
          const std::map<std::string, Tensor>& feeds) -> absl::StatusOr<std::vector<Tensor>> {
        if (!model.ok()) return model.status();
        return (*model)->Run(feeds);
      });
  EXPECT_TRUE(status.ok()) << status;
  Report::Get().Add(GetParam().op, GetParam().kind, status.ok());
}

INSTANTIATE_TEST_SUITE_P(All, DeviceCase, ::testing::ValuesIn(Folders()),
                         [](const auto& info) { return info.param.test; });
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(DeviceCase);

}  // namespace
}  // namespace pagefuse
