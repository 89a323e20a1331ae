// SPDX-License-Identifier: Apache-2.0
// Runs a node on a device as a session does: planned as a model of one node, fed from the host.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "op_run.h"

#include "pagefuse/base/device.h"
#include "pagefuse/ir/graph/model.h"
#include "pagefuse/runtime/session.h"

namespace pagefuse {

// Where a node runs.
struct NodePlace {
  bool on_device = false;
  std::string kernel;  // "cuda on cuda", "hwy", "decomposition"
  std::string reason;  // of a step on the host: why each kernel of the device refused
};

// Where the nodes of a graph would run with a device. Errors of inference, and of planning.
absl::StatusOr<std::vector<NodePlace>> PlacesOf(Model model, std::shared_ptr<DeviceContext> device);

// A graph as it came that is ready to run with a device; null: on the host.
class DeviceModel {
 public:
  static absl::StatusOr<std::unique_ptr<DeviceModel>> Make(Model model,
                                                           std::shared_ptr<DeviceContext> device);
  const std::vector<NodePlace>& places() const { return places_; }
  const Model& model() const { return session_->model(); }
  // Feeds by name of the input, the outputs in order. Caches that the graph updates are written.
  absl::StatusOr<std::vector<Tensor>> Run(const std::map<std::string, Tensor>& feeds) {
    return session_->Run(feeds);
  }

 private:
  std::vector<NodePlace> places_;
  std::unique_ptr<Session> session_;
};

// The place of a model's only node.
const NodePlace& OnlyPlace(const DeviceModel& model);

// The case as a model, whose inputs are called as those of CaseNode, and copies of what it is fed.
Model ModelOf(const CaseNode& call);
std::map<std::string, Tensor> FeedsOf(const CaseNode& call);

// Whether any kernel of the op is for the device.
bool HasDeviceKernel(const OpDef& op);

}  // namespace pagefuse
