// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <limits>
#include <span>

#include "op_test.h"

#include "pagefuse/turboquant_instance.h"

namespace pagefuse::pagefuse_ops {
namespace {

using testing::AttentionInputs;
using testing::DequantInputs;
using testing::InsertInputs;
using testing::TurboQuantInputs;
using testing::TurboQuantSpec;

OpCase MakeCase(std::string name, TurboQuantInputs call, int num_outputs = 1) {
  OpCase op_case;
  op_case.name = std::move(name);
  op_case.inputs = std::move(call.inputs);
  while (!op_case.inputs.back().defined()) op_case.inputs.pop_back();
  for (auto& [attribute, value] : call.attributes)
    op_case.attributes.emplace_back(attribute, value);
  op_case.num_outputs = num_outputs;
  return op_case;
}

// A query that is no number.
OpCase BrokenQuery() {
  OpCase op_case = MakeCase("nan_value", AttentionInputs({.sequences = {{1, 37}, {3, 9}}}), 2);
  op_case.inputs[0].mutable_values<float>()[0] = std::numeric_limits<float>::quiet_NaN();
  return WithAttribute(std::move(op_case), "nan_value", 1.5f);
}

// What a float16 number of a slot becomes: the key's norm, or the scale of the value.
struct SlotField {
  bool is_scale = true;
  uint16_t number = 0;
};

// A token of each sequence, and of the first one's slot 33 another number.
OpCase WithField(std::string name, const TurboQuantSpec& spec, SlotField field) {
  OpCase op_case = MakeCase(std::move(name), AttentionInputs(spec), 2);
  const auto& dims = op_case.inputs[1].dims();
  const int64_t block = op_case.inputs[2].values<int32_t>()[33 / dims[1]];
  const auto slot = op_case.inputs[1].mutable_values<uint8_t>().subspan(
      (block * dims[1] + 33 % dims[1]) * dims[2] * dims[3]);
  const TurboQuantFormat format = spec.format();
  op_case.within =
      Tolerance{.rtol = 1e-4, .atol = 1e-4};  // lse of queries that kernels round to half
  const int64_t at =
      field.is_scale ? format.KeyBytes() + format.ValueDataBytes() : format.KeyDataBytes();
  slot[at] = static_cast<uint8_t>(field.number);
  slot[at + 1] = static_cast<uint8_t>(field.number >> 8);
  if (field.number == 0x7C00) {  // as a value leaves it whose numbers reach too far
    std::ranges::fill(slot.subspan(format.KeyBytes(), format.ValueDataBytes()), uint8_t{0});
  }
  return op_case;
}

OpCases& AddBrokenSlots(OpCases& cases) {
  const auto spec = [](int key_bits, int value_bits) {
    return TurboQuantSpec{.key_bits = key_bits,
                          .value_bits = value_bits,
                          .type = DataType::kBfloat16,
                          .head_size = 128,
                          .sequences = {{1, 100}, {1, 40}},
                          .lse = true};
  };
  OpCase sink = WithField("norm_is_nan_beside_a_sink", spec(4, 4), {false, 0x7E00});
  sink.inputs.resize(7);
  sink.inputs.push_back(Floats({4}, {150, 150, 150, 150}));
  return cases.Add(WithField("scale_is_nan", spec(4, 4), {true, 0x7E00}))
      .Add(WithField("scale_is_infinite", spec(3, 4), {true, 0x7C00}))
      .Add(WithField("scale_is_negative", spec(3, 3), {true, 0xB4CD}))
      .Add(sink);
}

Tensor Bytes(std::vector<int64_t> dims) {
  return *Tensor::Allocate(DataType::kUint8, std::move(dims));
}

// A key of one element and an identity rotation show the layout: byte by byte as in formats.md.
OpCase LayoutCase() {
  std::vector<float> identity(64, 0);
  for (int i = 0; i < 8; ++i) identity[i * 9] = 1;
  OpCase op_case;
  op_case.name = "layout_of_a_slot";
  op_case.inputs = {
      Floats({1, 1, 8}, {-2, 0, 0, 0, 0, 0, 0, 0}),
      Floats({1, 1, 8}, {-1, -0.5f, 0, 0.5f, 1, 1.5f, 2, 2.5f}),
      Codes(DataType::kUint8, {1, 1, 1, 14}, std::vector<uint8_t>(14, 0xAB)),
      Ints({1}, {0}),
      Floats({8, 8}, identity),
      Floats({8}, {-0.875f, -0.625f, -0.375f, -0.125f, 0.125f, 0.375f, 0.625f, 0.875f})};
  op_case.attributes = {{"key_bits", 3}, {"value_bits", 3}};
  // Index 0, then seven times the tie at 0, which goes up to 4: 0b100100100100100100100000.
  // Values 0 to 7 in steps of 0.5; scale 0.5, zero -1.
  op_case.outputs = {
      Codes(DataType::kUint8, {1, 1, 1, 14},
            {0x20, 0x49, 0x92, 0x00, 0x40, 0x88, 0xC6, 0xFA, 0x00, 0x38, 0x00, 0xBC, 0xAB, 0xAB})};
  return op_case;
}

// A zero key and a constant value, next to a row that saturates float8.
OpCase EdgeRows(int key_bits) {
  TurboQuantSpec spec;
  spec.key_bits = key_bits;
  spec.kv_heads = 1;
  spec.head_size = 16;
  spec.sequences = {{3, 3}};
  TurboQuantInputs call = InsertInputs(spec);
  std::vector<float> keys(3 * 16, 0);
  std::vector<float> values(3 * 16, 0.3f);
  for (int d = 0; d < 16; ++d) keys[32 + d] = 200 * (static_cast<float>(d * d % 7) - 3.3f);
  call.inputs[0] = Floats({3, 1, 16}, keys);
  call.inputs[1] = Floats({3, 1, 16}, values);
  call.inputs[3] = Ints({3}, {5, 5, 2});
  return MakeCase("edge_rows", std::move(call));
}

}  // namespace

OpCases TurboQuantInsertCases() {
  using enum DataType;
  const OpCase good = MakeCase("", InsertInputs({.head_size = 16, .sequences = {{3, 3}}}));
  OpCases cases("pagefuse.TurboQuantInsert");
  cases.Add(LayoutCase())
      .Add(EdgeRows(4))
      .Add(EdgeRows(8))
      .Add(MakeCase("4bit", InsertInputs({.type = kBfloat16, .sequences = {{9, 9}}})))
      .Add(MakeCase("3bit_padded", InsertInputs({.key_bits = 3,
                                                 .value_bits = 3,
                                                 .type = kFloat16,
                                                 .head_size = 128,
                                                 .padding = 6,
                                                 .sequences = {{5, 5}}})))
      .Add(MakeCase("k8v3", InsertInputs({.key_bits = 8,
                                          .value_bits = 3,
                                          .type = kFloat16,
                                          .head_size = 40,
                                          .padding = 1,
                                          .sequences = {{5, 5}}})))
      .Add(MakeCase(
          "k8v4",
          InsertInputs({.key_bits = 8, .head_size = 6, .padding = 1, .sequences = {{5, 5}}})))
      .Add(MakeCase("rotation", InsertInputs({.key_bits = 3,
                                              .head_size = 24,
                                              .padding = 1,
                                              .sequences = {{6, 6}},
                                              .rotation = true,
                                              .centroids = true})))
      .Add(MakeCase("no_tokens", InsertInputs({.sequences = {{0, 0}}})))
      .Rejects(
          With(good, 2, Bytes({1, 16, 2, 20})),
          "input 2 \"kv_cache\": expected [NB, BS, Hk, S], S >= slot_bytes with slot_bytes = 22")
      .Rejects(With(good, 2, Bytes({1, 16, 2, 23})),
               "input 2 \"kv_cache\": expected [NB, BS, Hk, S], S % 2 = 0, got")
      .Rejects(With(good, 2, Bytes({1, 16, 3, 22})),
               "input 2 \"kv_cache\": expected [NB, BS, Hk, S] with Hk = 2 of \"key\", got")
      .Rejects(With(good, 3, Ints({3}, {0, 1, 32})),
               "input 3 \"slot_mapping\": expected slots below 32")
      .Rejects(With(good, 3, Ints({4}, {0, 1, 2, 3})),
               "input 3 \"slot_mapping\": expected [T], T <= T' with T' = 3 of \"key\", got [4]")
      .Rejects(With(good, 4, Floats({2, 8}, std::vector<float>(16))),
               "input 4 \"rotation\": expected [D, D] with D = 16 of \"key\", got [2, 8]")
      .Rejects(With(good, 5, Floats({8}, std::vector<float>(8))),
               "input 5 \"centroids\": expected [2^key_bits] with \"key_bits\" = 4, got [8]")
      .Rejects(With(good, 5, Floats({16}, {1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0})),
               "input 5 \"centroids\": expected finite numbers that do not fall")
      .Rejects(WithAttribute(good, "key_bits", 5),
               "attribute \"key_bits\": expected 3, 4 or 8, got 5")
      .Rejects(WithAttribute(good, "value_bits", 8),
               "attribute \"value_bits\": expected 3 or 4, got 8")
      .Rejects(With(good, 0, Floats({3, 2, 16}, std::vector<float>(96, 20000))),
               "a row has the norm 80000, and float16, in which a slot has it, ends at 65504")
      .Rejects(
          With(good, 1, Floats({3, 2, 16}, std::vector<float>(96, -70000))),
          "a row reaches from -70000 to -70000, and float16, in which a slot has its least and "
          "its step, ends at 65504");
  const OpCase twelve =
      MakeCase("", InsertInputs({.head_size = 12, .sequences = {{3, 3}}, .rotation = true}));
  cases.Rejects(With(twelve, 4, Tensor()), "input 4 \"rotation\": is missing")
      .Rejects(WithAttribute(twelve, "value_bits", 3),
               "input 0 \"key\": expected a head size that is a multiple of 8");
  return cases;
}

OpCases TurboQuantAttentionCases() {
  using enum DataType;
  const OpCase good =
      MakeCase("", AttentionInputs({.head_size = 16, .sequences = {{1, 5}, {2, 3}}}));
  OpCases cases("pagefuse.TurboQuantAttention");
  cases
      .Add(MakeCase(
          "4bit", AttentionInputs({.head_size = 128, .sequences = {{1, 37}, {5, 18}, {1, 0}}}), 2))
      .Add(BrokenQuery())
      .Add(MakeCase("3bit", AttentionInputs({.key_bits = 3,
                                             .value_bits = 3,
                                             .type = kFloat16,
                                             .padding = 2,
                                             .sequences = {{1, 37}, {3, 2}}})))
      .Add(MakeCase("k8v4", AttentionInputs({.key_bits = 8,
                                             .norm_correction = false,
                                             .type = kBfloat16,
                                             .heads = 6,
                                             .kv_heads = 1,
                                             .head_size = 80,
                                             .sequences = {{1, 37}, {1, 5}},
                                             .starts = false})))
      .Add(MakeCase(
          "k3v4",
          AttentionInputs(
              {.key_bits = 3, .heads = 3, .kv_heads = 1, .sequences = {{1, 300}, {4, 70}}})))
      .Add(MakeCase("k4v3_rotation",
                    AttentionInputs({.value_bits = 3,
                                     .norm_correction = false,
                                     .heads = 2,
                                     .head_size = 24,
                                     .padding = 1,
                                     .sequences = {{1, 20}, {3, 9}},
                                     .rotation = true,
                                     .centroids = true}),
                    2))
      .Add(MakeCase("k8v3", AttentionInputs({.key_bits = 8,
                                             .value_bits = 3,
                                             .norm_correction = false,
                                             .head_size = 8,
                                             .padding = 1,
                                             .sequences = {{1, 20}, {2, 9}}})))
      .Add(MakeCase("4bit_window_of_chunks",
                    AttentionInputs({.sequences = {{1, 37}, {5, 38}, {9, 9}, {1, 0}}, .window = 6}),
                    2))
      .Add(MakeCase("3bit_softcap_and_sinks",
                    AttentionInputs({.key_bits = 3,
                                     .value_bits = 3,
                                     .type = kFloat16,
                                     .sequences = {{1, 37}, {3, 20}},
                                     .softcap = 2.0f,
                                     .sinks = true}),
                    2))
      .Add(
          MakeCase("k8v4_window_softcap_and_sinks", AttentionInputs({.key_bits = 8,
                                                                     .norm_correction = false,
                                                                     .head_size = 80,
                                                                     .sequences = {{1, 90}, {1, 3}},
                                                                     .starts = false,
                                                                     .window = 17,
                                                                     .softcap = 5.0f,
                                                                     .sinks = true})))
      .Within(kFloat, {.rtol = 2e-5, .atol = 1e-5}, "sums of products that cancel")
      .Within(kFloat16, {.rtol = 2e-3, .atol = 4e-4}, "sums of products that cancel")
      .Within(kBfloat16, {.rtol = 1e-2, .atol = 2e-3}, "sums of products that cancel")
      .Rejects(
          With(good, 1, Bytes({4, 16, 2, 20})),
          "input 1 \"kv_cache\": expected [NB, BS, Hk, S], S >= slot_bytes with slot_bytes = 22")
      .Rejects(With(good, 1, Bytes({4, 16, 3, 22})),
               "input 0 \"query\": expected [T, Hq, D], Hq % Hk = 0 with Hk = 3 of \"kv_cache\"")
      .Rejects(With(good, 2, Int32s({2, 1}, {0, 4})), "input 2 \"block_table\": block 4 at [1, 0]")
      .Rejects(With(good, 3, Int32s({2}, {17, 3})),
               "input 2 \"block_table\": expected at least 2 columns")
      .Rejects(With(good, 3, Int32s({2}, {-1, 3})), "input 3 \"seq_lens\": expected 0 or more")
      .Rejects(With(good, 4, Int32s({3}, {0, 2, 1})), "input 4 \"query_start_loc\": falls from 2")
      .Rejects(With(good, 4, Tensor()),
               "input 2 \"block_table\": expected [T, M] with T = 3 of \"query\", no "
               "\"query_start_loc\", got [2, 1]")
      .Rejects(With(good, 5, Floats({16, 8}, std::vector<float>(128))),
               "input 5 \"rotation\": expected [D, D] with D = 16 of \"query\", got [16, 8]")
      .Rejects(With(good, 6, Floats({8}, std::vector<float>(8))),
               "input 6 \"centroids\": expected [2^key_bits] with \"key_bits\" = 4, got [8]")
      .Rejects(WithAttribute(good, "key_bits", 2), "attribute \"key_bits\": expected 3, 4")
      .Rejects(With(good, 7, Floats({2}, {0, 0})),
               "input 7 \"head_sink\": expected [Hq] with Hq = 4 of \"query\", got [2]")
      .Rejects(WithAttribute(good, "sliding_window", -1),
               "attribute \"sliding_window\": expected at least 0, got -1")
      .Rejects(WithAttribute(good, "softcap", -1.0f),
               "attribute \"softcap\": expected 0 or more, got -1")
      .Rejects(WithAttribute(good, "norm_correction", 2),
               "attribute \"norm_correction\": expected 0 or 1, got 2");
  return AddBrokenSlots(cases);
}

OpCases TurboQuantDequantCases() {
  using enum DataType;
  const auto make = [](std::string name, const TurboQuantSpec& spec) {
    return MakeCase(std::move(name), DequantInputs(spec), 2);
  };
  const OpCase good = make("", {.head_size = 16, .sequences = {{1, 5}, {1, 3}}});
  const OpCase ragged = make("4bit", {.head_size = 128, .sequences = {{1, 37}, {1, 0}, {1, 16}}});
  const OpCase given = make("k4v3", {.value_bits = 3,
                                     .head_size = 24,
                                     .padding = 1,
                                     .sequences = {{1, 20}},
                                     .rotation = true,
                                     .centroids = true});
  OpCase shorter = WithAttribute(ragged, "max_seq_len", 40);
  shorter.name = "positions_of_max_seq_len";
  OpCase longer = WithAttribute(ragged, "max_seq_len", 100);
  longer.name = "more_positions_than_the_table_has";
  OpCase back = WithAttribute(given, "inverse_rotate", 1);
  back.name = "rotated_back_by_a_given_rotation";
  OpCase hadamard = WithAttribute(ragged, "inverse_rotate", 1);
  hadamard.name = "rotated_back";
  const TurboQuantSpec k8v4 = {.key_bits = 8, .norm_correction = false, .head_size = 80};
  const TurboQuantSpec k3v3 = {.key_bits = 3, .value_bits = 3, .padding = 4};
  OpCases cases("pagefuse.TurboQuantDequant");
  cases.Add(ragged)
      .Add(given)
      .Add(shorter)
      .Add(longer)
      .Add(back)
      .Add(hadamard)
      .Add(make("k8v4", k8v4))
      .Add(make("3bit", k3v3))
      .Within(kFloat16, {.rtol = 2e-3, .atol = 1e-3}, "keys rotated back are sums that cancel")
      .Rejects(
          With(good, 0, Bytes({4, 16, 2, 20})),
          "input 0 \"kv_cache\": expected [NB, BS, Hk, S], S >= slot_bytes with slot_bytes = 22")
      .Rejects(With(good, 1, Int32s({2, 1}, {-1, 0})),
               "input 1 \"block_table\": block -1 at [0, 0]")
      .Rejects(With(good, 2, Int32s({2}, {17, 3})),
               "input 1 \"block_table\": expected at least 2 columns")
      .Rejects(With(good, 2, Int32s({2}, {5, -3})), "input 2 \"seq_lens\": expected 0 or more")
      .Rejects(WithAttribute(good, "max_seq_len", 4),
               "input 2 \"seq_lens\": expected at most the 4 positions")
      .Rejects(
          WithAttribute(good, "head_size", 18),
          "input 0 \"kv_cache\": expected [NB, BS, Hk, S], S >= slot_bytes with slot_bytes = 24")
      .Rejects(WithAttribute(good, "head_size", -16), "attribute \"head_size\": expected 1 to")
      .Rejects(WithAttribute(good, "head_size", 15),
               "attribute \"head_size\": expected a head size that is a multiple of 2")
      .Rejects(With(WithAttribute(given, "inverse_rotate", 1), 3, Tensor()),
               "input 3 \"rotation\": is missing");
  return cases;
}

}  // namespace pagefuse::pagefuse_ops
