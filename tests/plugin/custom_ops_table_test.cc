// SPDX-License-Identifier: Apache-2.0
// The table of functions that libraries of custom ops get.
#include <set>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "pagefuse/plugin/custom_ops/library_call.h"
#include "pagefuse/plugin/custom_ops/table.h"

namespace pagefuse::ort {
namespace {

using ::testing::HasSubstr;

// Calls a function as one without arguments, as no library would.
Status* Call(Api* api, int place) {
  return reinterpret_cast<Status* (*)()>(const_cast<void*>(api[place]))();
}

TEST(CustomOpsTable, EveryVersionThatIsKnownHasTheSameTable) {
  const ApiBase& base = HostApiBase();
  Api* api = base.get_api(1);
  ASSERT_NE(api, nullptr);
  EXPECT_EQ(base.get_api(kNewestVersion), api);
  EXPECT_EQ(base.get_api(0), nullptr);
  EXPECT_EQ(base.get_api(kNewestVersion + 1), nullptr);
  EXPECT_STREQ(base.version(), "1.23.0");
}

TEST(CustomOpsTable, AFunctionThatIsNotThereSaysWhichItIs) {
  Api* api = HostApiBase().get_api(1);
  constexpr int kCreateAllocator = 131, kLast = kPlaces - 1;
  for (const auto& [place, name] :
       {std::pair(kCreateAllocator, "CreateAllocator"),
        std::pair(kLast, "GetHardwareDeviceEpIncompatibilityDetails")}) {
    Status* status = Call(api, place);
    ASSERT_NE(status, nullptr);
    EXPECT_EQ(kGetErrorCode(api, status), ErrorCode::kNotImplemented);
    EXPECT_THAT(kGetErrorMessage(api, status),
                HasSubstr("function " + std::to_string(place) + ", " + name));
    kReleaseStatus(api, status);
  }
}

// What would be taken for a status, or for another table, is null.
TEST(CustomOpsTable, AFunctionThatAnswersNoStatusAnswersNothing) {
  constexpr int kGetModelEditorApi = 291;
  EXPECT_STREQ(FunctionName(kGetModelEditorApi), "GetModelEditorApi");
  EXPECT_EQ(Call(HostApiBase().get_api(1), kGetModelEditorApi), nullptr);
}

// Each place that is filled in has a function of its own, so none was set twice.
TEST(CustomOpsTable, NoTwoPlacesHaveTheSameFunction) {
  Api* api = HostApiBase().get_api(1);
  std::set<const void*> functions;
  for (int place = 0; place < kPlaces; ++place) functions.insert(api[place]);
  EXPECT_EQ(functions.size(), kPlaces);
}

TEST(CustomOpsTable, WhatALibraryLackedIsItsErrorWhateverItSays) {
  Api* api = HostApiBase().get_api(1);
  constexpr int kCreateAllocator = 131;
  const absl::Status status = CallLibrary([&]() -> Status* {
    kReleaseStatus(api, Call(api, kCreateAllocator));
    return nullptr;
  });
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(status.message()), HasSubstr("CreateAllocator"));
  EXPECT_TRUE(CallLibrary([]() -> Status* { return nullptr; }).ok());
}

TEST(CustomOpsTable, TheVersionThatWasRefusedIsNamedInAnError) {
  const absl::Status status = CallLibrary([]() -> Status* {
    EXPECT_EQ(HostApiBase().get_api(kNewestVersion + 1), nullptr);
    return kCreateStatus(HostApiBase().get_api(1), ErrorCode::kFail, "no table");
  });
  EXPECT_EQ(std::string(status.message()),
            "no table; it asks for version 24 of ONNX Runtime's C API, expected 1 to 23");
}

}  // namespace
}  // namespace pagefuse::ort
