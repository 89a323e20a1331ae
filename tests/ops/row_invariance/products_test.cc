// SPDX-License-Identifier: Apache-2.0
// A row of a matrix product has the same bits whatever other rows there are.
#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "hwy/aligned_allocator.h"
#include "rows.h"

#include "pagefuse/ops/kernels/linalg/linear_bf16.h"
#include "pagefuse/ops/kernels/linalg/linear_f32.h"
#include "pagefuse/ops/kernels/linalg/nbits.h"
#include "pagefuse/ops/kernels/linalg/nbits_int8.h"
#include "pagefuse/ops/kernels/scratch.h"

namespace pagefuse::testing {
namespace {

struct Sizes {
  int64_t k, n;
};
// One chunk along k and one tile; edges of both; two and several chunks, which are cut into blocks.
const Sizes kSizes[] = {{64, 128}, {37, 45}, {1031, 259}, {2310, 130}};

TEST(RowInvariance, Float32Products) {
  for (const auto& [k, n] : kSizes) {
    const std::vector<float> weights = RandomFloats(k * n, 3);
    for (const bool transposed : {false, true}) {
      SCOPED_TRACE(std::to_string(k) + " x " + std::to_string(n) + (transposed ? "^T" : ""));
      const WeightView w{weights.data(), k, n, transposed};
      ExpectRowInvariance(
          {k, n, [&](const float* x, const std::vector<int64_t>& labels) {
             const auto m = static_cast<int64_t>(labels.size());
             Scratch scratch;
             std::vector<float> y(m * w.n);
             LinearF32({x, m, w.k}, w, scratch.Get(LinearF32ScratchBytes(m, w)), {y.data(), w.n});
             return y;
           }});
    }
  }
}

// Many rows by a matrix that is cut into tiles of rows too.
TEST(RowInvariance, Float32ProductsOfManyRows) {
  const Sizes s{300, 70};
  const std::vector<float> weights = RandomFloats(s.k * s.n, 3);
  const WeightView w{weights.data(), s.k, s.n, false};
  ExpectRowInvariance(
      {.k = s.k,
       .n = s.n,
       .run =
           [&](const float* x, const std::vector<int64_t>& labels) {
             const auto m = static_cast<int64_t>(labels.size());
             Scratch scratch;
             std::vector<float> y(m * w.n);
             LinearF32({x, m, w.k}, w, scratch.Get(LinearF32ScratchBytes(m, w)), {y.data(), w.n});
             return y;
           },
       .most_rows = 600});
}

TEST(RowInvariance, GatedFloat32Products) {
  for (const bool transposed : {false, true}) {
    const Sizes s{1030, 258};
    const std::vector<float> gate = RandomFloats(s.k * s.n, 3), up = RandomFloats(s.k * s.n, 4);
    const GatedWeights w{{gate.data(), s.k, s.n, transposed},
                         {up.data(), s.k, s.n, transposed},
                         Activation::kGeluTanh};
    ExpectRowInvariance({s.k, s.n, [&](const float* x, const std::vector<int64_t>& labels) {
                           const auto m = static_cast<int64_t>(labels.size());
                           Scratch scratch;
                           std::vector<float> y(m * s.n);
                           GatedLinearF32({x, m, s.k}, w,
                                          scratch.Get(GatedLinearF32ScratchBytes(m, w.gate)),
                                          {y.data(), s.n});
                           return y;
                         }});
  }
}

TEST(RowInvariance, Bfloat16Products) {
  for (const auto& [k, n] : {Sizes{64, 128}, {333, 130}}) {
    const std::vector<float> weights = RandomFloats(k * n, 3);
    std::vector<uint16_t> words(k * n);
    RoundToRows({weights.data(), k, n, false}, words.data());
    const auto blocks = hwy::AllocateAligned<uint16_t>(PackedBf16::Words(k, n));
    PackedBf16::Pack({.words = words.data(), .n = n, .k = k}, blocks.get());
    const PackedBf16 w(blocks.get(), k, n);
    ExpectRowInvariance(
        {k, n, [&, k = k, n = n](const float* x, const std::vector<int64_t>& labels) {
           const auto m = static_cast<int64_t>(labels.size());
           Scratch scratch;
           std::vector<float> y(m * n);
           LinearBf16({x, m, k}, w, scratch.Get(LinearBf16ScratchBytes(m, k)), {y.data(), n});
           return y;
         }});
  }
}

struct CodesCase {
  int bits;
  int64_t k, n, block;
  bool zeros;
};

// Random codes, and what they belong to.
struct Codes {
  explicit Codes(const CodesCase& c) {
    w.bits = c.bits;
    w.k = c.k;
    w.n = c.n;
    w.block = c.block;
    w.row_bytes = (w.blocks() * w.block * w.bits + 7) / 8;
    std::mt19937 random(5);
    codes.resize(w.n * w.row_bytes);
    for (uint8_t& code : codes) code = static_cast<uint8_t>(random());
    scales = RandomFloats(w.n * w.blocks(), 6);
    zeros = RandomFloats(w.n * w.blocks(), 7);
    w.codes = codes.data();
    w.scales = scales.data();
    if (c.zeros) w.zeros = zeros.data();
    trace = std::to_string(c.bits) + " bits, " + std::to_string(c.k) + " x " + std::to_string(c.n) +
            ", blocks of " + std::to_string(c.block);
  }

  NBitsWeight w;
  std::vector<uint8_t> codes;
  std::vector<float> scales, zeros;
  std::string trace;
};

// Weights of 4 and 8 bits with activations of 8: with zero points and without, blocks of W as long as
// those of x and longer, sums of one chunk and of several.
TEST(RowInvariance, IntegerProducts) {
  for (const CodesCase& c :
       {CodesCase{4, 70, 37, 32, false}, CodesCase{4, 1200, 130, 32, true},
        CodesCase{8, 1200, 130, 32, false}, CodesCase{8, 600, 45, 128, true}}) {
    const Codes made(c);
    SCOPED_TRACE(made.trace);
    const OwnedLanes lanes(made.w);
    const NBitsLanes& w = lanes.view();
    ExpectRowInvariance({w.k, w.n, [&](const float* x, const std::vector<int64_t>& labels) {
                           const auto m = static_cast<int64_t>(labels.size());
                           Scratch scratch;
                           std::vector<float> y(m * w.n);
                           LinearNBitsInt8({x, m, w.k}, w, scratch.Get(NBitsInt8ScratchBytes(m, w)),
                                           {y.data(), w.n});
                           return y;
                         }});
  }
}

TEST(RowInvariance, GatedIntegerProducts) {
  const Codes gate_rows({4, 150, 70, 32, true}), up_rows({4, 150, 70, 32, false});
  const OwnedLanes gates(gate_rows.w), ups(up_rows.w);
  const NBitsLanes& gate = gates.view();
  ExpectRowInvariance({gate.k, gate.n, [&](const float* x, const std::vector<int64_t>& labels) {
                         const auto m = static_cast<int64_t>(labels.size());
                         Scratch scratch;
                         std::vector<float> y(m * gate.n);
                         GatedLinearNBitsInt8(
                             {x, m, gate.k}, {gate, ups.view(), Activation::kGeluTanh},
                             scratch.Get(NBitsInt8ScratchBytes(m, gate)), {y.data(), gate.n});
                         return y;
                       }});
}

// The same with both sides rounded to bfloat16, where a unit for it is faster.
TEST(RowInvariance, ProductsOfCodesAsBfloat16) {
  for (const CodesCase& c : {CodesCase{4, 70, 37, 32, true}, CodesCase{8, 1312, 20, 64, false}}) {
    const Codes made(c);
    SCOPED_TRACE(made.trace);
    const OwnedLanes lanes(made.w);
    const NBitsLanes& w = lanes.view();
    ExpectRowInvariance({.k = w.k,
                         .n = w.n,
                         .run =
                             [&](const float* x, const std::vector<int64_t>& labels) {
                               const auto m = static_cast<int64_t>(labels.size());
                               Scratch scratch;
                               std::vector<float> y(m * w.n);
                               if (!ReadsCodesAsBf16()) return y;
                               LinearCodesBf16({x, m, w.k}, w,
                                               scratch.Get(LinearBf16ScratchBytes(m, w.k)),
                                               {y.data(), w.n});
                               return y;
                             },
                         .most_rows = 40});
  }
}

// The same with activations as they are: also blocks that are several runs, that end within a word of
// codes, and of one row each.
TEST(RowInvariance, ProductsOfCodes) {
  for (const CodesCase& c : {CodesCase{4, 70, 37, 32, false}, CodesCase{4, 600, 130, 32, true},
                             CodesCase{8, 600, 130, 32, false}, CodesCase{8, 130, 45, 10, true},
                             CodesCase{4, 600, 20, 600, false}, CodesCase{2, 70, 33, 16, true}}) {
    const Codes made(c);
    SCOPED_TRACE(made.trace);
    const NBitsWeight& w = made.w;
    for (const NBitsPrecision precision : {NBitsPrecision::kFloat32, NBitsPrecision::kBfloat16}) {
      if (precision == NBitsPrecision::kBfloat16 && c.k != 70) continue;
      ExpectRowInvariance({w.k, w.n, [&](const float* x, const std::vector<int64_t>& labels) {
                             const auto m = static_cast<int64_t>(labels.size());
                             Scratch scratch;
                             std::vector<float> y(m * w.n);
                             EXPECT_TRUE(LinearNBits({x, m, w.k}, w, precision,
                                                     scratch.Get(NBitsScratchBytes(m, w)),
                                                     {y.data(), w.n})
                                             .ok());
                             return y;
                           }});
    }
  }
}

}  // namespace
}  // namespace pagefuse::testing
