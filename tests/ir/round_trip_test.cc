// SPDX-License-Identifier: Apache-2.0
// Import and export of whole models: what goes in comes out, field by field.
#include <algorithm>
#include <filesystem>

#include "must.h"
#include "paths.h"
#include <gmock/gmock.h>
#include <google/protobuf/util/message_differencer.h>
#include <gtest/gtest.h>

#include "pagefuse/ir/graph/verify.h"
#include "pagefuse/ir/onnx/export_graph.h"
#include "pagefuse/ir/onnx/import_tensor.h"
#include "pagefuse/ir/onnx/onnx_io.h"
#include "pagefuse/ir/onnx/onnx_proto.h"

namespace pagefuse {
namespace {

namespace fs = std::filesystem;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

const fs::path kModels = SourcePath("models");

// Rewrites every tensor in the one form that export uses: raw data inside the message.
void NormaliseTensors(Message* message, ExternalData& external) {
  if (auto* proto = dynamic_cast<onnx::TensorProto*>(message)) {
    const Tensor tensor = Must(TakeTensor(*proto, external));
    ExportContext context;
    ASSERT_TRUE(ExportTensor(tensor, "", false, context, proto).ok());
    return;
  }
  const auto* reflection = message->GetReflection();
  std::vector<const FieldDescriptor*> fields;
  reflection->ListFields(*message, &fields);
  for (const FieldDescriptor* field : fields) {
    if (field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) continue;
    if (!field->is_repeated()) {
      NormaliseTensors(reflection->MutableMessage(message, field), external);
      continue;
    }
    for (int i = 0; i < reflection->FieldSize(*message, field); ++i) {
      NormaliseTensors(reflection->MutableRepeatedMessage(message, field, i), external);
    }
  }
}

onnx::ModelProto ReadNormalised(const std::string& bytes, const std::string& base_dir) {
  onnx::ModelProto proto;
  EXPECT_TRUE(proto.ParseFromString(bytes));
  ExternalData external({.base_dir = base_dir});
  NormaliseTensors(&proto, external);
  return proto;
}

void ExpectSameModel(const onnx::ModelProto& expected, const onnx::ModelProto& actual) {
  google::protobuf::util::MessageDifferencer differencer;
  differencer.set_message_field_comparison(google::protobuf::util::MessageDifferencer::EQUIVALENT);
  differencer.TreatAsSet(onnx::ModelProto::GetDescriptor()->FindFieldByName("opset_import"));
  std::string report;
  differencer.ReportDifferencesToString(&report);
  EXPECT_TRUE(differencer.Compare(expected, actual)) << report.substr(0, 2000);
}

std::vector<fs::path> ModelFiles() {
  std::vector<fs::path> files;
  for (const auto& entry : fs::recursive_directory_iterator(kModels)) {
    // Structures whose weights are not bundled have a list of them instead.
    if (fs::exists(entry.path().parent_path() / "initializers.json")) continue;
    if (entry.path().extension() == ".onnx") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

class RealModel : public testing::TestWithParam<fs::path> {};

TEST_P(RealModel, SurvivesImportAndExport) {
  const std::string bytes = Must(ReadFile(GetParam().string()));
  const std::string folder = GetParam().parent_path().string();
  const Model model = Must(ImportModel(bytes, {.base_dir = folder}));
  const std::string written = Must(ExportModel(model));
  ExpectSameModel(ReadNormalised(bytes, folder), ReadNormalised(written, folder));
}

TEST_P(RealModel, SurvivesSavingWithExternalData) {
  const std::string bytes = Must(ReadFile(GetParam().string()));
  const std::string folder = GetParam().parent_path().string();
  const Model model = Must(ImportModel(bytes, {.base_dir = folder}));
  const fs::path saved =
      fs::path(testing::TempDir()) /
      (GetParam().parent_path().filename().string() + GetParam().stem().string());
  fs::create_directories(saved);
  const std::string file = (saved / "m.onnx").string();
  ASSERT_TRUE(SaveModel(model, file, {.external_data_threshold = 4096}).ok());

  const std::string written = Must(ReadFile(file));
  const Model again = Must(ImportModel(written, {.base_dir = saved.string()}));
  for (const Value* value : again.graph->initializers()) {
    if (value->initializer()->byte_size() >= 4096) {
      EXPECT_EQ(value->initializer()->buffer_offset() % 4096, 0);
      EXPECT_FALSE(value->initializer()->buffer()->writable());
    }
  }
  ExpectSameModel(ReadNormalised(bytes, folder), ReadNormalised(written, saved.string()));
  fs::remove_all(saved);
}

TEST_P(RealModel, SurvivesCloning) {
  const std::string bytes = Must(ReadFile(GetParam().string()));
  Model model = Must(ImportModel(bytes, {.base_dir = GetParam().parent_path().string()}));
  const absl::StatusOr<std::string> written = ExportModel(model);
  const Model clone = model.Clone();
  model = Model();
  EXPECT_TRUE(Verify(clone).ok());
  const std::string cloned = Must(ExportModel(clone));
  EXPECT_TRUE(*written == cloned);
}

INSTANTIATE_TEST_SUITE_P(Models, RealModel, testing::ValuesIn(ModelFiles()), [](const auto& info) {
  return info.param.parent_path().filename().string() + "_" + info.param.stem().string();
});

}  // namespace
}  // namespace pagefuse
