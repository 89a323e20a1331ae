// SPDX-License-Identifier: Apache-2.0
// Packing with vectors against PackBits, on every SIMD target.
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "simd_targets.h"

#include "pagefuse/ops/kernels/numeric/packing.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "formats/pack_codes_test.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep

#include "pagefuse/ops/kernels/formats/pack_codes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace pagefuse {
namespace HWY_NAMESPACE {

template <int bits>
void Pack(const std::vector<float>& codes, uint8_t* to) {
  const hn::RebindToSigned<hn::ScalableTag<float>> di;
  StoreCodes<bits>(
      codes.data(), codes.size(), [&](auto v) HWY_ATTR { return hn::ConvertTo(di, v); }, to);
}
void PackThree(const std::vector<float>& codes, uint8_t* to) { Pack<3>(codes, to); }
void PackFour(const std::vector<float>& codes, uint8_t* to) { Pack<4>(codes, to); }

}  // namespace HWY_NAMESPACE
}  // namespace pagefuse
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pagefuse {
namespace {

HWY_EXPORT(PackThree);
HWY_EXPORT(PackFour);

template <int bits, class Pack>
void ExpectPacked(const Pack& pack) {
  constexpr uint8_t kGuard = 0xA5;
  std::mt19937 random(5);
  for (int64_t n = 1; n <= 200; ++n) {
    std::vector<uint8_t> codes(n);
    for (uint8_t& code : codes) code = static_cast<uint8_t>(random() % (1 << bits));
    std::vector<uint8_t> expected(PackedBytes(n, bits) + 70, kGuard);
    std::vector<uint8_t> got = expected;
    PackBits<bits>(codes.data(), n, expected.data() + 1);
    pack(std::vector<float>(codes.begin(), codes.end()), got.data() + 1);
    ASSERT_EQ(got, expected) << n << " codes";
  }
}

TEST(StoreCodes, WritesTheBytesOfPackBitsAndNoOthers) {
  testing::ForEachSimdTarget([] {
    ExpectPacked<3>([](const auto& codes, uint8_t* to) {
      HWY_DYNAMIC_DISPATCH(PackThree)(codes, to);
    });
    ExpectPacked<4>([](const auto& codes, uint8_t* to) {
      HWY_DYNAMIC_DISPATCH(PackFour)(codes, to);
    });
  });
}

}  // namespace
}  // namespace pagefuse
#endif  // HWY_ONCE
