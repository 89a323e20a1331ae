// SPDX-License-Identifier: Apache-2.0
// Symbolic inference over exported decoders: every value gets a type and a shape, in the terms of
// the graph's inputs.
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "must.h"
#include "paths.h"

#include "pagefuse/base/str_cat.h"
#include "pagefuse/ir/onnx/onnx_io.h"
#include "pagefuse/ops/infer/infer.h"

namespace pagefuse {
namespace {

// Loads and infers a model whose declarations of anything but inputs and initialisers were taken
// away.
Model Inferred(const std::string& name) {
  Model model = Must(LoadModel(SourcePath(StrCat("models/", name, "/model.onnx"))));
  for (Value* value : model.graph->values()) {
    if (value->producer() == nullptr) continue;
    value->set_dtype(DataType::kUndefined);
    value->set_shape(std::nullopt);
  }
  const absl::Status status = InferShapes(model);
  EXPECT_TRUE(status.ok()) << status;
  return model;
}

void ExpectAllKnown(const Model& model) {
  for (const Value* value : model.graph->values()) {
    const std::string what = StrCat(value->producer() ? value->producer()->Description() : "",
                                    " value \"", value->name(), "\"");
    EXPECT_NE(value->dtype(), DataType::kUndefined) << what;
    ASSERT_TRUE(value->shape().has_value()) << what;
    for (const Dim& dim : value->shape()->dims()) EXPECT_TRUE(dim.known()) << what;
  }
}

std::string OutputShape(const Model& model, const std::string& name) {
  const Value* value = model.graph->FindValue(name);
  return value != nullptr && value->shape() ? value->shape()->ToString() : "unknown";
}

TEST(InferModels, KnowsAllOfGemma3WithoutCache) {
  for (const char* name : {"gemma3_A18", "gemma3_A23"}) {
    SCOPED_TRACE(name);
    const Model model = Inferred(name);
    ExpectAllKnown(model);
    EXPECT_EQ(OutputShape(model, "logits"), "[batch, sequence, 256]");
  }
}

TEST(InferModels, KnowsAllOfGemma3WithPast) {
  const Model model = Inferred("gemma3_B18");
  ExpectAllKnown(model);
  EXPECT_EQ(OutputShape(model, "logits"), "[batch, sequence, 256]");
  for (int layer = 0; layer < 6; ++layer) {
    for (const char* kind : {"key", "value"}) {
      EXPECT_EQ(OutputShape(model, StrCat("present.", layer, ".", kind)),
                "[batch, 1, past_sequence + sequence, 32]");
    }
  }
}

}  // namespace
}  // namespace pagefuse
