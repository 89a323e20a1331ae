// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <string>
#include <vector>

#include "op_test.h"
#include "special_rows.h"

namespace pagefuse::pagefuse_ops {
namespace {

struct InvRope {
  std::string name;
  DataType type = DataType::kBfloat16;
  DataType table_type = DataType::kFloat;
  int64_t tokens = 3;
  int64_t heads = 4;
  int64_t size = 512;
  int64_t rotated = 64;
  int64_t groups = 2;
  int64_t quant_group = 128;
  std::string scale_format = "float32";
  std::string storage = "float8e4m3fn";
  double deviation = 2;
};

OpCase InvRopeCase(const InvRope& o) {
  std::vector<int64_t> positions;
  for (int64_t t = 0; t < o.tokens; ++t) positions.push_back(t * 5 % 9);
  return {.name = o.name,
          .inputs = {Random(o.type, {o.tokens, o.heads, o.size}, Normal{0, o.deviation}, 1),
                     Ints({o.tokens}, positions),
                     Random(o.table_type, {9, o.rotated}, Uniform{-1, 1}, 2)},
          .attributes = {{"n_groups", o.groups},
                         {"quant_group_size", o.quant_group},
                         {"scale_format", o.scale_format},
                         {"fp8_storage", o.storage}}};
}

struct QNorm {
  std::string name;
  std::string format = "fp8_ue8m0";
  int64_t heads = 3;
  int64_t padded_heads = 0;
  int64_t size = 512;
  int64_t rotated = 64;
  std::vector<int64_t> slots = {7, -1, 0, 3};
  std::vector<int64_t> positions = {0, 8, 2, 2, 5};
  DataType cache_type = DataType::kUint8;
  std::string storage = "float8e4m3fn";
  int64_t block_bytes = 2881;
  DataType type = DataType::kBfloat16;
  int64_t group = 64;
};

OpCase QNormCase(const QNorm& o) {
  const bool grouped = o.format == "fp8_ue8m0";
  const std::vector<int64_t> cache_dims =
      grouped ? std::vector<int64_t>{2, o.block_bytes} : std::vector<int64_t>{2, 4, o.size};
  const Filling filling =
      o.cache_type == DataType::kUint8 ? Filling(Uniform{0, 255}) : Filling(Normal{});
  const int64_t count = static_cast<int64_t>(o.slots.size());
  const bool fp8 = o.format == "fp8";
  return {.name = o.name,
          .inputs = {Random(o.type, {5, o.heads, o.size}, Normal{0, 3}, 1),
                     Random(o.type, {5, o.size}, Normal{0, 3}, 2),
                     Random(o.cache_type, cache_dims, filling, 3), Ints({count}, o.slots),
                     Ints({5}, o.positions),
                     Random(DataType::kFloat, {9, o.rotated}, Uniform{-1, 1}, 4),
                     fp8 ? Floats({1}, {0.37f}) : Tensor(), fp8 ? Floats({}, {23.0f}) : Tensor()},
          .attributes = {{"format", o.format},
                         {"block_size", 4},
                         {"quant_group_size", o.group},
                         {"padded_heads", o.padded_heads},
                         {"fp8_storage", o.storage}}};
}

// A query and a key row of that type.
QNorm Of(DataType type, QNorm o) {
  o.type = type;
  return o;
}

QNorm Dense(std::string name, std::string format, DataType cache_type, int64_t size,
            int64_t rotated) {
  return {.name = std::move(name),
          .format = std::move(format),
          .size = size,
          .rotated = rotated,
          .cache_type = cache_type};
}

}  // namespace

OpCases InvRopeQuantCases() {
  using enum DataType;
  OpCase far = InvRopeCase({.name = "far"});
  far.inputs[1] = Ints({3}, {0, 9, 0});
  OpCase no_groups = InvRopeCase({.name = "no_groups"});
  no_groups.attributes.erase(no_groups.attributes.begin());
  return OpCases("pagefuse.InvRopeQuant")
      .Add(InvRopeCase({.name = "float_scales"}))
      .Add(WithSpecials(InvRopeCase({.name = "specials"}), 0))
      .Add(InvRopeCase({.name = "packed_scales", .scale_format = "ue8m0_int32"}))
      .Add(InvRopeCase({.name = "as_uint8", .groups = 4, .storage = "uint8"}))
      .Add(InvRopeCase({.name = "zero", .deviation = 0}))
      .Add(InvRopeCase({.name = "tiny", .deviation = 1e-12}))
      .Add(InvRopeCase({.name = "no_tokens", .tokens = 0}))
      .Add(InvRopeCase({.name = "all_rotated",
                        .type = kFloat,
                        .table_type = kBfloat16,
                        .size = 66,
                        .rotated = 66,
                        .quant_group = 33}))
      .Add(InvRopeCase({.name = "nothing_rotated",
                        .type = kFloat16,
                        .heads = 1,
                        .size = 36,
                        .rotated = 0,
                        .groups = 1,
                        .quant_group = 12}))
      .Rejects(InvRopeCase({.name = "groups", .heads = 3}),
               "input 0 \"o\": expected [T, H, D], H % n_groups = 0 with \"n_groups\" = 2, got")
      .Rejects(InvRopeCase({.name = "quant", .quant_group = 100}),
               "input 0 \"o\": expected [T, H, D], D % quant_group_size = 0 with "
               "\"quant_group_size\" = 100")
      .Rejects(InvRopeCase({.name = "packed", .quant_group = 64, .scale_format = "ue8m0_int32"}),
               "input 0 \"o\": expected [T, H, D], scales * quant_group_size = D with scales = 4, "
               "\"quant_group_size\" = 64, got")
      .Rejects(InvRopeCase({.name = "format", .scale_format = "int8"}),
               "attribute \"scale_format\": expected float32 or ue8m0_int32, got")
      .Rejects(InvRopeCase({.name = "storage", .storage = "int8"}), "attribute \"fp8_storage\"")
      .Rejects(InvRopeCase({.name = "odd", .rotated = 63}), "input 2 \"cos_sin\": expected [P, R]")
      .Rejects(InvRopeCase({.name = "wide", .rotated = 514}), "input 2 \"cos_sin\"")
      .Rejects(far, "input 1 \"positions\": expected positions in [0, 9), got 9 at 1")
      .Rejects(no_groups, "n_groups");
}

OpCases QNormRopeKvInsertCases() {
  using enum DataType;
  OpCase no_scale = QNormCase(Dense("no_scale", "fp8", kFloat8E4M3FN, 32, 8));
  no_scale.inputs[6] = Tensor();
  OpCase zero_scale = QNormCase(Dense("zero_scale", "fp8", kFloat8E4M3FN, 32, 8));
  zero_scale.inputs[7] = Floats({1}, {0});
  OpCase tokens = QNormCase({.name = "tokens"});
  tokens.inputs[1] = Random(kBfloat16, {4, 512}, Normal{}, 2);
  QNorm dense_pad = Dense("dense_pad", "bf16", kBfloat16, 32, 8);
  dense_pad.padded_heads = 8;
  QNorm twin = Dense("fp8_twin", "fp8", kUint8, 40, 8);
  twin.storage = "uint8";
  return OpCases("pagefuse.QNormRopeKvInsert")
      .Within(DataType::kFloat8E4M3FN, {.rtol = 0.15, .share = 1e-5},
              "a number at a rounding border may get the next code")
      .Add(QNormCase({.name = "grouped"}))
      .Add(QNormCase({.name = "grouped_aligned", .block_bytes = 2880}))
      .Add(WithSpecials(QNormCase({.name = "grouped_specials", .block_bytes = 2880}), 1))
      .Add(QNormCase({.name = "padded", .heads = 1, .padded_heads = 4}))
      .Add(QNormCase({.name = "last_of_a_slot_wins", .slots = {1, 6, 1, 6, 6}}))
      .Add(QNormCase({.name = "no_slots", .slots = {}}))
      .Add(QNormCase(Dense("bf16", "bf16", kBfloat16, 512, 64)))
      .Add(QNormCase(Dense("bf16_odd", "bf16", kBfloat16, 19, 6)))
      .Add(QNormCase(Dense("fp8", "fp8", kFloat8E4M3FN, 512, 64)))
      .Add(QNormCase(twin))
      .Add(QNormCase(Of(kFloat, Dense("none", "none", kFloat, 512, 64))))
      .Add(QNormCase(Of(kFloat, Dense("none_small", "none", kFloat, 32, 8))))
      .Add(QNormCase(Of(kFloat, Dense("none_all_rotated", "none", kFloat, 6, 6))))
      .Add(QNormCase(Of(kFloat16, Dense("none_float16", "none", kFloat16, 19, 6))))
      .Add(QNormCase(Dense("none_bfloat16", "none", kBfloat16, 48, 16)))
      .Add(QNormCase(Of(kFloat, Dense("bf16_of_float", "bf16", kBfloat16, 32, 8))))
      .Add(QNormCase(Of(kFloat16, Dense("bf16_of_float16", "bf16", kBfloat16, 96, 32))))
      .Add(QNormCase(Of(kFloat, Dense("fp8_of_float", "fp8", kFloat8E4M3FN, 64, 16))))
      .Add(QNormCase(Of(kFloat, {.name = "grouped_of_float", .padded_heads = 4})))
      .Add(QNormCase({.name = "grouped_small",
                      .size = 32,
                      .rotated = 8,
                      .block_bytes = 4 * (24 + 16 + 3 + 1) + 5,
                      .type = kFloat,
                      .group = 8}))
      .Add(QNormCase({.name = "grouped_by_32",
                      .size = 224,
                      .rotated = 32,
                      .block_bytes = 4 * (192 + 64 + 6 + 1),
                      .type = kFloat16,
                      .group = 32}))
      .Rejects(QNormCase({.name = "past_the_end", .slots = {8}}),
               "input 3 \"slot_mapping\": expected slots below 8")
      .Rejects(QNormCase({.name = "far", .positions = {0, 9, 0, 0, 0}}),
               "input 4 \"positions\": expected positions in [0, 9), got 9 at 1")
      .Rejects(QNormCase({.name = "heads", .heads = 3, .padded_heads = 2}),
               "input 0 \"q\": expected [N, H, D], H <= Hp with Hp = 2, got")
      .Rejects(QNormCase({.name = "slots", .slots = {0, 1, 2, 3, 4, 5}}),
               "input 3 \"slot_mapping\": expected [N'], N' <= N with N = 5 of \"q\", got [6]")
      .Rejects(QNormCase({.name = "block", .block_bytes = 2335}), "input 2 \"kv_cache\"")
      .Rejects(QNormCase({.name = "size", .size = 500}),
               "input 5 \"cos_sin\": expected [P, R], (D - R) % group = 0 with D = 500")
      .Rejects(QNormCase(dense_pad), "attribute \"padded_heads\": expected 0")
      .Rejects(QNormCase({.name = "format", .format = "int8"}),
               "attribute \"format\": expected fp8_ue8m0, none, bf16 or fp8, got")
      .Rejects(QNormCase(Dense("type", "bf16", kUint8, 32, 8)),
               "input 2 \"kv_cache\": expected type bfloat16")
      .Rejects(no_scale, "input 6 \"kv_scale\": is missing with format = fp8")
      .Rejects(zero_scale, "input 7 \"q_scale_inv\": expected a finite positive scale, got 0")
      .Rejects(
          tokens,
          "input 1 \"kv\": expected [N, D] with N = 5 of \"q\", D = 512 of \"q\", got [4, 512]");
}

}  // namespace pagefuse::pagefuse_ops
