#include "pagefuse/ops/body_ops.h"

#include <map>
#include <string_view>
#include <utility>

#include "pagefuse/ops/onnx/body_op.h"
#include "pagefuse/ops/pagefuse/elementwise/elementwise_chain.h"

namespace pagefuse {

const BodyOp* FindBodyOp(std::string_view domain, std::string_view op) {
  using Name = std::pair<std::string_view, std::string_view>;
  static const auto* ops = new std::map<Name, BodyOp>{
      {{"", "If"}, onnx_ops::IfBodies()},
      {{"", "Loop"}, onnx_ops::LoopBodies()},
      {{"", "Scan"}, onnx_ops::ScanBodies()},
      {{"ai.onnx.preview", "FlexAttention"}, onnx_ops::FlexAttentionBodies()},
      {{"pagefuse", "Elementwise"}, pagefuse_ops::ElementwiseBodies()},
  };
  if (domain == "ai.onnx") domain = "";
  const auto it = ops->find(Name(domain, op));
  return it == ops->end() ? nullptr : &it->second;
}

}  // namespace pagefuse
