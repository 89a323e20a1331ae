// SPDX-License-Identifier: Apache-2.0
// Fields that are newer than libonnx's messages, what is kept without being understood, functions,
// and models that share a data file.
#include <algorithm>
#include <filesystem>
#include <fstream>

#include <fcntl.h>
#include <unistd.h>

#include "must.h"
#include "paths.h"
#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <google/protobuf/util/message_differencer.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "pagefuse/base/str_cat.h"
#include "pagefuse/ir/graph/verify.h"
#include "pagefuse/ir/onnx/onnx_io.h"
#include "pagefuse/ir/onnx/onnx_proto.h"
#include "pagefuse/ir/text/text.h"

namespace pagefuse {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;

// Fields of ModelProto, NodeProto and TensorProto that nothing here reads.
constexpr int kModelConfiguration = 26;
constexpr int kNodeDeviceConfigurations = 10;
constexpr int kTensorMetadata = 16;

onnx::ModelProto FromText(const std::string& text) {
  onnx::ModelProto proto;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &proto)) << text;
  return proto;
}

constexpr const char* kSmall = R"(
  ir_version: 11
  opset_import { version: 22 } opset_import { domain: "f" version: 1 }
  graph {
    name: "g" doc_string: "what the graph is"
    input { name: "x" doc_string: "what x is" type { tensor_type { elem_type: 1 shape {
        dim { dim_value: 2 denotation: "DATA_BATCH" } } } } }
    initializer { name: "w" data_type: 1 dims: 2 float_data: [1, 2] doc_string: "a weight" }
    node { name: "n" domain: "f" op_type: "Call" input: "x" input: "w" output: "t"
           doc_string: "what n does" }
    node { op_type: "Relu" input: "t" output: "y" }
    value_info { name: "t" type { tensor_type { elem_type: 1 } } doc_string: "what t is" }
    output { name: "y" type { tensor_type { elem_type: 1 } } }
    quantization_annotation { tensor_name: "t" quant_parameter_tensor_names { key: "k" value: "w" } }
  }
  functions {
    domain: "f" name: "Call" input: "a" input: "b" output: "c" attribute: "axis"
    opset_import { version: 22 } doc_string: "what Call does"
    node { op_type: "Add" input: "a" input: "b" output: "c" }
  }
  metadata_props { key: "k" value: "v" }
)";

Metadata Entries() { return {{"first", "1"}, {"second", ""}}; }

// kSmall with every later field that pagefuse knows, and some that it does not.
onnx::ModelProto WithLaterFields() {
  onnx::ModelProto proto = FromText(kSmall);
  AddUnknown(proto, kModelConfiguration, "\x0a\x04gpus\x10\x02");
  onnx::GraphProto& graph = *proto.mutable_graph();
  AddUnknownMetadata(graph, field::kGraphMetadata, Entries());
  AddUnknownMetadata(*graph.mutable_input(0), field::kValueInfoMetadata, Entries());
  AddUnknownMetadata(*graph.mutable_value_info(0), field::kValueInfoMetadata, {{"t", "u"}});
  AddUnknownMetadata(*graph.mutable_initializer(0), kTensorMetadata, {{"w", "v"}});
  onnx::NodeProto& node = *graph.mutable_node(0);
  AddUnknown(node, field::kNodeOverload, "float");
  AddUnknownMetadata(node, field::kNodeMetadata, {{"namespace", "model.layers.0"}});
  AddUnknown(node, kNodeDeviceConfigurations, "\x0a\x04gpus");
  onnx::FunctionProto& function = *proto.mutable_functions(0);
  AddUnknown(function, field::kFunctionOverload, "float");
  AddUnknownMetadata(function, field::kFunctionMetadata, Entries());
  onnx::AttributeProto axis;
  axis.set_name("keep");
  axis.set_type(onnx::AttributeProto::INT);
  axis.set_i(3);
  AddUnknown(function, field::kFunctionAttributeProto, axis.SerializeAsString());
  onnx::ValueInfoProto info;
  info.set_name("c");
  info.mutable_type()->mutable_tensor_type()->set_elem_type(1);
  AddUnknown(function, field::kFunctionValueInfo, info.SerializeAsString());
  return proto;
}

Model Import(const onnx::ModelProto& proto) {
  return Must(ImportModel(proto.SerializeAsString(), {}));
}

onnx::ModelProto Export(const Model& model) {
  const absl::StatusOr<std::string> bytes = ExportModel(model);
  EXPECT_TRUE(bytes.ok()) << bytes.status();
  onnx::ModelProto proto;
  EXPECT_TRUE(proto.ParseFromString(bytes.value_or("")));
  return proto;
}

// Tensors are written as raw data whatever they were read as.
void UseRawData(onnx::ModelProto& proto) {
  for (onnx::TensorProto& tensor : *proto.mutable_graph()->mutable_initializer()) {
    if (tensor.float_data_size() == 0) continue;
    tensor.set_raw_data(tensor.float_data().data(), tensor.float_data_size() * sizeof(float));
    tensor.clear_float_data();
  }
}

void ExpectSame(const onnx::ModelProto& expected, const onnx::ModelProto& got) {
  google::protobuf::util::MessageDifferencer differencer;
  // An empty domain may be written or left out.
  differencer.set_message_field_comparison(google::protobuf::util::MessageDifferencer::EQUIVALENT);
  differencer.TreatAsSet(onnx::ModelProto::GetDescriptor()->FindFieldByName("opset_import"));
  std::string report;
  differencer.ReportDifferencesToString(&report);
  EXPECT_TRUE(differencer.Compare(expected, got)) << report;
}

TEST(ProtoFields, LaterFieldsAreRead) {
  const Model model = Import(WithLaterFields());
  const Graph& graph = *model.graph;
  EXPECT_EQ(graph.metadata, Entries());
  EXPECT_EQ(graph.doc_string, "what the graph is");
  EXPECT_EQ(graph.inputs()[0]->metadata, Entries());
  EXPECT_EQ(graph.inputs()[0]->doc_string, "what x is");
  const Node& node = *graph.nodes().front();
  EXPECT_EQ(node.overload, "float");
  EXPECT_EQ(FindMetadata(node.metadata, "namespace"), "model.layers.0");
  EXPECT_EQ(node.doc_string, "what n does");
  ASSERT_EQ(model.functions.size(), 1u);
  const Function& function = model.functions[0];
  EXPECT_EQ(function.overload, "float");
  EXPECT_EQ(function.metadata, Entries());
  EXPECT_THAT(function.attributes, ElementsAre("axis"));
  ASSERT_EQ(function.defaults.size(), 1u);
  EXPECT_EQ(function.defaults[0].first, "keep");
  EXPECT_EQ(std::get<int64_t>(function.defaults[0].second.value), 3);
  EXPECT_EQ(function.body->outputs()[0]->dtype(), DataType::kFloat);
  EXPECT_EQ(model.FindFunction("f", "Call", "float"), &function);
  EXPECT_EQ(model.FindFunction("f", "Call"), nullptr);
}

TEST(ProtoFields, EverythingIsWrittenAgain) {
  onnx::ModelProto proto = WithLaterFields();
  const Model model = Import(proto);
  UseRawData(proto);
  ExpectSame(proto, Export(model));
  ExpectSame(proto, Export(model.Clone()));
}

TEST(ProtoFields, EverythingIsInTheTextToo) {
  onnx::ModelProto proto = WithLaterFields();
  // But for what tensors say beside their data.
  onnx::TensorProto& tensor = *proto.mutable_graph()->mutable_initializer(0);
  tensor.clear_doc_string();
  TakeUnknown(tensor, kTensorMetadata);
  const Model again = Must(ParseModel(PrintModel(Import(proto))));
  UseRawData(proto);
  ExpectSame(proto, Export(again));
}

TEST(ProtoFields, DamagedMetadataIsNamed) {
  onnx::ModelProto proto = FromText(kSmall);
  AddUnknown(*proto.mutable_graph()->mutable_node(0), field::kNodeMetadata, "\xff\xff");
  const absl::Status status = ImportModel(proto.SerializeAsString(), {}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(StdView(status.message()).starts_with("node \"n\" (f.Call): metadata_props: "))
      << status;
}

TEST(ProtoFields, RenamedSparseInitialisersKeepTheirForm) {
  const Model model = Import(FromText(R"(
    ir_version: 8 opset_import { version: 17 }
    graph {
      name: "g"
      sparse_initializer { dims: 4
        values { name: "w" data_type: 1 dims: 1 float_data: 5 }
        indices { data_type: 7 dims: 1 int64_data: 2 } }
      node { op_type: "Neg" input: "w" output: "y" }
      output { name: "y" type { tensor_type { elem_type: 1 } } }
    })"));
  Value* w = model.graph->FindValue("w");
  EXPECT_THAT(w->initializer()->values<float>(), ElementsAre(0, 0, 5, 0));
  model.graph->Rename(w, "renamed");
  const onnx::ModelProto written = Export(model);
  ASSERT_EQ(written.graph().sparse_initializer_size(), 1);
  EXPECT_EQ(written.graph().sparse_initializer(0).values().name(), "renamed");
  const Model again = Import(written);
  EXPECT_THAT(again.graph->FindValue("renamed")->initializer()->values<float>(),
              ElementsAre(0, 0, 5, 0));
  // Other contents are no longer that sparse tensor.
  model.graph->SetInitializer(w, Tensor::Of<float>({4}, {1, 2, 3, 4}));
  EXPECT_EQ(Export(model).graph().sparse_initializer_size(), 0);
}

TEST(Functions, ConstantsOfABodySurviveTheFile) {
  Model model = Import(FromText(kSmall));
  Graph& body = *model.functions[0].body;
  Value* two = body.AddInitializer("two", Tensor::Of<float>({2}, {2, 2}));
  Node* add = body.nodes().front().get();
  add->SetInput(1, two);
  ASSERT_TRUE(Verify(model).ok());

  const Model again = Import(Export(model));
  const Graph& read = *again.functions[0].body;
  ASSERT_EQ(read.num_nodes(), 2);
  const Node* constant = read.FindValue("two")->producer();
  ASSERT_NE(constant, nullptr);
  EXPECT_TRUE(constant->Is("Constant"));
  const auto& tensor = std::get<Tensor>(constant->attribute("value")->value);
  EXPECT_TRUE(tensor.IdenticalTo(*two->initializer()));

  const Model parsed = Must(ParseModel(PrintModel(model)));
  EXPECT_TRUE(Verify(parsed).ok()) << Verify(parsed);
}

TEST(Functions, BodiesNeedNotBeSorted) {
  onnx::ModelProto proto = FromText(kSmall);
  onnx::FunctionProto& function = *proto.mutable_functions(0);
  function.mutable_node(0)->set_input(1, "late");
  onnx::NodeProto* late = function.add_node();
  late->set_op_type("Neg");
  late->add_input("b");
  late->add_output("late");
  // An attribute with a default that is a list of graphs, unsorted as well.
  const onnx::ModelProto graphs = FromText(R"(graph {
    name: "d" node { op_type: "Neg" input: "p" output: "q" }
    node { op_type: "Constant" output: "p" attribute { name: "value_float" type: FLOAT f: 1 } } })");
  onnx::AttributeProto attribute;
  attribute.set_name("bodies");
  attribute.set_type(onnx::AttributeProto::GRAPHS);
  *attribute.add_graphs() = graphs.graph();
  AddUnknown(function, field::kFunctionAttributeProto, attribute.SerializeAsString());

  const Model model = Import(proto);
  EXPECT_TRUE(model.functions[0].body->nodes().front()->Is("Neg"));
  const auto& bodies = std::get<Attribute::Graphs>(model.functions[0].defaults[0].second.value);
  EXPECT_TRUE(bodies[0]->nodes().front()->Is("Constant"));
}

TEST(Functions, InputsAndOutputsAreChecked) {
  const auto error = [](const std::string& function) {
    const absl::Status status =
        ImportModel(
            FromText(StrCat("ir_version: 8 opset_import { version: 17 } graph { name: 'g' }"
                            "functions { domain: 'f' name: 'F' opset_import { version: 17 }",
                            function, "}"))
                .SerializeAsString(),
            {})
            .status();
    return std::string(StdView(status.message()));
  };
  EXPECT_EQ(error("input: 'a' input: 'a'"), "function \"f.F\": input \"a\" is listed twice");
  EXPECT_EQ(error("input: ''"), "function \"f.F\": an input has no name");
  EXPECT_EQ(error("output: 'b'"),
            "function \"f.F\": graph output \"b\": expected a value that a node computes, an input "
            "or an initialiser, got an unknown name");
  EXPECT_EQ(error("input: 'a' node { op_type: 'Abs' input: 'a' output: 'a' }"),
            "function \"f.F\": node \"a\" (Abs): output 0 \"a\": expected a new name, got that of "
            "a graph input");
}

// Two models beside one file of weights.
class SharedData : public testing::Test {
 protected:
  // A folder for each test: they may run side by side.
  SharedData()
      : folder_(fs::path(testing::TempDir()) /
                StrCat("shared_data_test_",
                       testing::UnitTest::GetInstance()->current_test_info()->name())) {
    fs::create_directories(folder_);
    std::ofstream data(folder_ / "weights.bin", std::ios::binary);
    for (int i = 0; i < 4096; ++i) {
      const float value = static_cast<float>(i);
      data.write(reinterpret_cast<const char*>(&value), sizeof(value));
    }
  }
  ~SharedData() override { fs::remove_all(folder_); }

  std::string Write(const std::string& name, int64_t offset) const {
    const onnx::ModelProto proto = FromText(StrCat(R"(
      ir_version: 8 opset_import { version: 17 }
      graph { name: "g"
        initializer { name: "w" data_type: 1 dims: 16 data_location: EXTERNAL
          external_data { key: "location" value: "weights.bin" }
          external_data { key: "offset" value: ")",
                                                   offset, R"(" }
          external_data { key: "length" value: "64" }
          external_data { key: "checksum" value: "unused" } }
        node { op_type: "Neg" input: "w" output: "y" }
        output { name: "y" type { tensor_type { elem_type: 1 } } } })"));
    const std::string path = (folder_ / name).string();
    std::ofstream(path, std::ios::binary) << proto.SerializeAsString();
    return path;
  }

  fs::path folder_;
};

TEST_F(SharedData, EachModelReadsItsPart) {
  Model a = Must(LoadModel(Write("a.onnx", 0)));
  const Model b = Must(LoadModel(Write("b.onnx", 400)));
  const Tensor first = *a.graph->FindValue("w")->initializer();
  const Tensor& second = *b.graph->FindValue("w")->initializer();
  EXPECT_FALSE(first.buffer()->writable());
  a = Model();  // the tensor keeps the mapping
  EXPECT_EQ(first.values<float>()[15], 15.0f);
  EXPECT_EQ(second.values<float>()[0], 100.0f);
}

TEST_F(SharedData, AModelMayBeSavedOverItsOwnData) {
  const std::string path = Write("a.onnx", 64);
  const Model model = Must(LoadModel(path));
  const Model other = Must(LoadModel(Write("b.onnx", 128)));
  for (int round = 0; round < 2; ++round) {
    ASSERT_TRUE(SaveModel(model, path, {.external_data_threshold = 1}).ok());
    const Model again = Must(LoadModel(path));
    EXPECT_TRUE(again.graph->FindValue("w")->initializer()->IdenticalTo(
        *model.graph->FindValue("w")->initializer()));
    ASSERT_TRUE(SaveModel(again, path, {.external_data_threshold = 1}).ok());
  }
  EXPECT_EQ(model.graph->FindValue("w")->initializer()->values<float>()[0], 16.0f);
  EXPECT_EQ(other.graph->FindValue("w")->initializer()->values<float>()[0], 32.0f);
}

TEST_F(SharedData, TensorsThatShareMemoryAreWrittenOnce) {
  Model model = Must(LoadModel(Write("a.onnx", 0)));
  const Tensor w = *model.graph->FindValue("w")->initializer();
  model.graph->AddInitializer("same", w);
  const std::string path = (folder_ / "c.onnx").string();
  ASSERT_TRUE(SaveModel(model, path, {.external_data_threshold = 1}).ok());
  EXPECT_EQ(fs::file_size(path + ".data"), 64u);
  const Model again = Must(LoadModel(path));
  EXPECT_EQ(again.graph->FindValue("w")->initializer()->data(),
            again.graph->FindValue("same")->initializer()->data());
}

TEST_F(SharedData, APipeIsWrittenAndStaysAPipe) {
  const Model model = Must(LoadModel(Write("a.onnx", 0)));
  const std::string path = (folder_ / "pipe").string();
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  const int reader = open(path.c_str(), O_RDWR);  // so that neither side waits for the other
  ASSERT_GE(reader, 0);
  ASSERT_TRUE(SaveModel(model, path, {.external_data_threshold = 1}).ok());
  EXPECT_TRUE(fs::is_fifo(path));
  EXPECT_FALSE(fs::exists(path + ".data"));
  std::string bytes(4096, '\0');
  bytes.resize(std::max<ssize_t>(read(reader, bytes.data(), bytes.size()), 0));
  close(reader);
  const Model again = Must(ImportModel(bytes, {}));
  EXPECT_TRUE(again.graph->FindValue("w")->initializer()->IdenticalTo(
      *model.graph->FindValue("w")->initializer()));
}

TEST_F(SharedData, AFolderThatIsNotThereIsNamed) {
  const Model model = Must(LoadModel(Write("a.onnx", 0)));
  const std::string path = (folder_ / "missing" / "c.onnx").string();
  EXPECT_EQ(StdView(SaveModel(model, path).message()),
            StrCat("cannot create \"", path, "\": No such file or directory"));
}

TEST(ProtoFields, AValueThatIsListedAsTwoOutputsSurvives) {
  const auto text = Must(ReadFile(SourcePath("tests/ir/valid/output_listed_twice.txtpb")));
  const onnx::ModelProto proto = FromText(text);
  const Model model = Must(ImportModel(proto.SerializeAsString(), {}));
  const std::vector<Value*>& outputs = model.graph->outputs();
  ASSERT_EQ(outputs.size(), 4u);
  EXPECT_EQ(outputs[0], outputs[2]);
  const std::string written = Must(ExportModel(model));
  onnx::ModelProto again;
  ASSERT_TRUE(again.ParseFromString(written));
  EXPECT_TRUE(google::protobuf::util::MessageDifferencer::Equivalent(proto, again))
      << again.DebugString();
  const Model read = Must(ParseModel(PrintModel(model)));
  EXPECT_EQ(PrintModel(read), PrintModel(model));
}

}  // namespace
}  // namespace pagefuse
