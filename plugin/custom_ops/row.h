// SPDX-License-Identifier: Apache-2.0
// A custom op as a library declares it: one combination of types. What it says is read once, and
// no field that is newer than its version.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "plugin/ort/ort_abi.h"

#include "pagefuse/base/data_type.h"
#include "pagefuse/ops/schema/port.h"

namespace pagefuse::ort {

struct RowPort {
  DataType type = DataType::kUndefined;  // any
  PortKind kind = PortKind::kRequired;
  bool is_homogeneous = true;  // variadic: all are of one type
  int least = 1;               // variadic: so many
};

struct Row {
  const CustomOp* op = nullptr;
  std::string domain, name;
  std::vector<RowPort> inputs, outputs;
  int start_version = 1;
  int end_version = 0x7fffffff;
  std::string refusal = {};  // why no node of it can be computed; empty: it can

  // Functions that older versions do not have are null.
  decltype(CustomOp::create_kernel_v2) create_kernel_v2 = nullptr;
  decltype(CustomOp::compute_v2) compute_v2 = nullptr;
  decltype(CustomOp::infer_output_shapes) infer_output_shapes = nullptr;

  // Whether values of these types may be its inputs; undefined is an omitted one.
  bool Takes(const std::vector<DataType>& types) const;
  // "(float, any...)"
  std::string InputTypes() const;
};

// The port of value `i`: the last one goes on if it is variadic. Null past the end.
const RowPort* PortAt(const std::vector<RowPort>& ports, size_t i);

// InvalidArgument naming the op where the library broke the rules of the declaration.
absl::StatusOr<Row> ReadRow(const CustomOp& op, const std::string& domain);
// That a further row of an op differs from its first one in types alone.
absl::Status CheckSameShape(const Row& first, const Row& other);

}  // namespace pagefuse::ort
