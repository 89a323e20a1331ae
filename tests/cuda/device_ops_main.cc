// SPDX-License-Identifier: Apache-2.0
// device_ops_test: the case tables of all ops on a device that is none, whose memory the host cannot touch and whose kernels
// are the CPU's: where nodes run, what is copied, shapes, checks of values, memory that outputs share.
#include <memory>

#include "fake_context.h"
#include "settings.h"
#include <gtest/gtest.h>

#include "pagefuse/ops/registry/registry.h"

namespace pagefuse {
namespace {

int Run(int argc, char** argv) {
  // Tests are listed by the kernels that ops have.
  OpRegistry::Publish(WithFakeKernels());
  ::testing::InitGoogleTest(&argc, argv);
  Settings& settings = TestSettings();
  settings.device = std::make_shared<FakeContext>();
  settings.guarded = std::make_shared<GuardedContext>(settings.device);
  settings.random_cases = 20;
  return RUN_ALL_TESTS();
}

}  // namespace
}  // namespace pagefuse

int main(int argc, char** argv) { return pagefuse::Run(argc, argv); }
