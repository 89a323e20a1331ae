// SPDX-License-Identifier: Apache-2.0
// Weights that kernels read packed: who keeps rows, and that nothing changes with it.
#include <string>
#include <vector>

#include "must.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pagefuse/base/str_cat.h"
#include "pagefuse/ir/tensor/absent_tensor.h"
#include "pagefuse/ir/text/text.h"
#include "pagefuse/ops/evaluate/evaluate.h"
#include "pagefuse/ops/kernels/numeric/small_float.h"
#include "pagefuse/runtime/session.h"

namespace pagefuse {
namespace {

// Whole blocks, which are packed where they lie, and parts of some.
struct Sizes {
  int64_t n, k;
};
constexpr Sizes kSizes[] = {{32, 64}, {19, 33}};

Tensor Numbers(DataType type, std::vector<int64_t> dims) {
  Tensor floats = Must(Tensor::Allocate(DataType::kFloat, std::move(dims)));
  int64_t i = 0;
  for (float& value : floats.mutable_values<float>()) value = static_cast<float>(i++ % 17 - 8) / 4;
  if (type == DataType::kFloat) return floats;
  Tensor rounded = Must(Tensor::Allocate(type, floats.dims()));
  for (int64_t e = 0; e < floats.size(); ++e) {
    rounded.mutable_values<Bfloat16>()[e] = Bfloat16(floats.values<float>()[e]);
  }
  return rounded;
}

// `body` over ids [3], x [2, K] and the constant w [N, K].
Model ModelOf(const Sizes& s, const std::string& outputs, const std::string& body) {
  Model model = Must(ParseModel(StrCat(
      "<ir_version: 10, opset_import: [\"\" : 24, \"pagefuse\" : 1]> g (int64[3] ids, float[2, ",
      s.k, "] x) => (", outputs, ") <bfloat16[", s.n, ", ", s.k, "] w = ...> {", body, "}")));
  Value* w = model.graph->FindValue("w");
  model.graph->SetInitializer(w, Numbers(DataType::kBfloat16, {s.n, s.k}));
  return model;
}

constexpr char kTied[] = "r = Gather (w, ids) rows = Cast <to = 1> (r) y = pagefuse.Linear (x, w)";
constexpr char kTiedOutputs[] = "float[3, K] rows, float[2, N] y";

std::unique_ptr<Session> Load(Model model, const std::map<std::string, std::string>& kernels = {}) {
  SessionOptions options;
  options.optimise = false;
  options.force_kernel = kernels;
  return Must(Session::Create(std::move(model), options));
}

bool HoldsRows(const Session& session) {
  return !IsAbsent(*session.model().graph->FindValue("w")->initializer());
}

std::vector<Tensor> RunOn(Session& session, const Sizes& s) {
  return Must(session.Run({{"ids", Tensor::Of<int64_t>({3}, {s.n - 1, 0, -2})},
                           {"x", Numbers(DataType::kFloat, {2, s.k})}}));
}

TEST(PackConstants, ATableAndATiedHeadAreInMemoryOnce) {
  for (const Sizes& s : kSizes) {
    const auto packed = Load(ModelOf(s, kTiedOutputs, kTied));
    EXPECT_FALSE(HoldsRows(*packed));
    EXPECT_EQ(packed->stats().packed_weight_bytes, 0);
    const auto rows = Load(ModelOf(s, kTiedOutputs, kTied), {{"Linear", "reference"}});
    EXPECT_TRUE(HoldsRows(*rows));
    const std::vector<Tensor> got = RunOn(*packed, s), want = RunOn(*rows, s);
    EXPECT_TRUE(got[0].IdenticalTo(want[0]));
    // Sums of few quarters are exact in any order.
    EXPECT_TRUE(got[1].IdenticalTo(want[1]));
  }
}

TEST(PackConstants, ATableAloneStaysRows) {
  const auto session =
      Load(ModelOf(kSizes[0], "float[3, K] rows", "r = Gather (w, ids) rows = Cast <to = 1> (r)"));
  EXPECT_TRUE(HoldsRows(*session));
}

TEST(PackConstants, WhatOthersReadIsCopied) {
  for (const Sizes& s : kSizes) {
    const auto session = Load(
        ModelOf(s, "float[2, N] y, bfloat16[N, K] z", "y = pagefuse.Linear (x, w) z = Neg (w)"));
    EXPECT_TRUE(HoldsRows(*session));
    EXPECT_GE(session->stats().packed_weight_bytes, s.n * s.k * 2);
    const Tensor negative = RunOn(*session, s)[1];
    const Tensor w = Numbers(DataType::kBfloat16, {s.n, s.k});
    for (int64_t i = 0; i < w.size(); ++i) {
      ASSERT_EQ(static_cast<float>(negative.values<Bfloat16>()[i]),
                -static_cast<float>(w.values<Bfloat16>()[i]));
    }
  }
}

// Matrices of two shapes on the same memory: each is packed as what it is.
TEST(PackConstants, OneMemoryInTwoShapesIsTwoWeights) {
  const auto load = [](const std::map<std::string, std::string>& kernels) {
    Model model = Must(ParseModel(
        "<ir_version: 10, opset_import: [\"\" : 24, \"pagefuse\" : 1]> g (float[2, 64] a, "
        "float[2, 32] b) => (float[2, N] y, float[2, M] z) <bfloat16[32, 64] w = ..., "
        "bfloat16[64, 32] v = ...> {y = pagefuse.Linear (a, w) z = pagefuse.Linear (b, v)}"));
    const Tensor w = Numbers(DataType::kBfloat16, {32, 64});
    model.graph->SetInitializer(model.graph->FindValue("w"), w);
    model.graph->SetInitializer(model.graph->FindValue("v"), Must(w.Reshaped({64, 32})));
    return Load(std::move(model), kernels);
  };
  const auto run = [](Session& session) {
    return Must(session.Run(
        {{"a", Numbers(DataType::kFloat, {2, 64})}, {"b", Numbers(DataType::kFloat, {2, 32})}}));
  };
  const auto packed = load({}), rows = load({{"Linear", "reference"}});
  const std::vector<Tensor> got = run(*packed), want = run(*rows);
  EXPECT_TRUE(got[0].IdenticalTo(want[0]));
  EXPECT_TRUE(got[1].IdenticalTo(want[1]));
}

// Codes of a table and of a head, in shapes of their own, in whole groups of rows and in part of one.
TEST(PackConstants, CodesOfATableAndATiedHeadAreInMemoryOnce) {
  for (const int64_t n : {256, 249}) {
    for (const int64_t bits : {4, 8}) {
      const int64_t k = 256, blocks = k / 32, bytes = 32 * bits / 8;
      const auto load = [&](const std::map<std::string, std::string>& kernels) {
        const std::string sizes = StrCat("bits = ", bits, ", block_size = 32");
        Model model = Must(ParseModel(StrCat(
            "<ir_version: 10, opset_import: [\"\" : 24, \"com.microsoft\" : 1]> g (int64[3] ids, "
            "float[2, 256] x) => (float[3, K] rows, float[2, N] y) <uint8[",
            n, ", ", blocks, ", ", bytes, "] codes = ..., uint8[", n, ", ", blocks * bytes,
            "] table = ..., float[", n, ", ", blocks,
            "] scales = ...> {rows = com.microsoft.GatherBlockQuantized <", sizes,
            "> (table, ids, scales) y = com.microsoft.MatMulNBits <K = 256, N = ", n,
            ", accuracy_level = 4, ", sizes, "> (x, codes, scales)}")));
        Tensor codes = Must(Tensor::Allocate(DataType::kUint8, {n, blocks, bytes}));
        int64_t i = 0;
        for (uint8_t& code : codes.mutable_values<uint8_t>()) {
          code = static_cast<uint8_t>(i++ * 37 % 251);
        }
        const auto set = [&](const char* name, Tensor tensor) {
          model.graph->SetInitializer(model.graph->FindValue(name), std::move(tensor));
        };
        set("table", Must(codes.Reshaped({n, blocks * bytes})));
        set("codes", std::move(codes));
        set("scales", Numbers(DataType::kFloat, {n, blocks}));
        return Load(std::move(model), kernels);
      };
      const auto run = [&](Session& session) {
        return Must(session.Run({{"ids", Tensor::Of<int64_t>({3}, {n - 1, 0, -2})},
                                 {"x", Numbers(DataType::kFloat, {2, k})}}));
      };
      const auto packed = load({}), rows = load({{"GatherBlockQuantized", "reference"}});
      for (const char* name : {"table", "codes", "scales"}) {
        EXPECT_TRUE(IsAbsent(*packed->model().graph->FindValue(name)->initializer())) << name;
      }
      EXPECT_EQ(packed->stats().packed_weight_bytes, 0);
      EXPECT_FALSE(IsAbsent(*rows->model().graph->FindValue("table")->initializer()));
      const std::vector<Tensor> got = run(*packed), want = run(*rows);
      EXPECT_TRUE(got[0].IdenticalTo(want[0]));
      EXPECT_TRUE(got[1].IdenticalTo(want[1]));
    }
  }
}

// The memory of a model that its owner keeps is not packed in place.
TEST(PackConstants, LeavesTheMemoryOfOthersAlone) {
  const Model kept = ModelOf(kSizes[0], kTiedOutputs, kTied);
  const Tensor w = *kept.graph->FindValue("w")->initializer();
  const auto session = Load(ModelOf(kSizes[0], kTiedOutputs, kTied));
  Model shared = ModelOf(kSizes[0], kTiedOutputs, kTied);
  shared.graph->SetInitializer(shared.graph->FindValue("w"), w);
  const auto second = Load(std::move(shared));
  EXPECT_TRUE(w.IdenticalTo(Numbers(DataType::kBfloat16, {kSizes[0].n, kSizes[0].k})));
  EXPECT_TRUE(RunOn(*session, kSizes[0])[1].IdenticalTo(RunOn(*second, kSizes[0])[1]));
}

TEST(PackConstants, BodiesOfNodesReadTheSame) {
  const Sizes s = kSizes[0];
  const auto session = Load(
      ModelOf(s, "float[2, N] y",
              "zero = Constant <value_int: int = 0> () some = Size (ids) c = Greater (some, zero) "
              "y = If <then_branch = t () => (p) { p = pagefuse.Linear (x, w) }, "
              "else_branch = e () => (q) { l = pagefuse.Linear (x, w) q = Neg (l) }> (c)"));
  EXPECT_FALSE(HoldsRows(*session));
  const auto plain = Load(ModelOf(s, "float[2, N] y", "y = pagefuse.Linear (x, w)"));
  EXPECT_TRUE(RunOn(*session, s)[0].IdenticalTo(RunOn(*plain, s)[0]));
}

}  // namespace
}  // namespace pagefuse
