// SPDX-License-Identifier: Apache-2.0
#include <filesystem>

#include "pagefuse/base/new_file.h"
#include "pagefuse/base/status_macros.h"
#include "pagefuse/ir/onnx/export_graph.h"
#include "pagefuse/ir/onnx/onnx_io.h"

namespace pagefuse {
namespace {

absl::Status WriteData(const ExportContext& context, NewFile& file) {
  PF_RETURN_IF_ERROR(file.Open());
  for (const ExportContext::Piece& piece : context.pieces) {
    PF_RETURN_IF_ERROR(file.SeekTo(piece.offset));
    PF_RETURN_IF_ERROR(file.Write({static_cast<const char*>(piece.tensor.data()),
                                   static_cast<size_t>(piece.tensor.byte_size())}));
  }
  return file.Finish();
}

absl::Status WriteBytes(const std::string& bytes, NewFile& file) {
  PF_RETURN_IF_ERROR(file.Open());
  PF_RETURN_IF_ERROR(file.Write(bytes));
  return file.Finish();
}

}  // namespace

absl::Status SaveModel(const Model& model, const std::string& path, const ExportOptions& options) {
  const std::string data_path = path + ".data";
  ExportContext context;
  context.location = std::filesystem::path(data_path).filename().string();
  // Nothing lies beside a device or a pipe.
  if (IsSpecialFile(path)) context.location.clear();
  context.threshold = options.external_data_threshold;
  onnx::ModelProto proto;
  PF_RETURN_IF_ERROR(ExportModel(model, context, &proto));
  NewFile data_file(data_path);
  NewFile model_file(path);
  if (!context.pieces.empty()) PF_RETURN_IF_ERROR(WriteData(context, data_file));
  PF_RETURN_IF_ERROR(WriteBytes(proto.SerializePartialAsString(), model_file));
  if (context.pieces.empty()) return NewFile::Commit({&model_file});
  return NewFile::Commit({&data_file, &model_file});
}

absl::Status SaveTensor(const Tensor& tensor, std::string_view name, const std::string& path) {
  if (!tensor.defined()) return absl::InvalidArgumentError("expected a tensor, got none");
  ExportContext context;
  onnx::TensorProto proto;
  proto.set_name(std::string(name));
  PF_RETURN_IF_ERROR(ExportTensor(tensor, "", false, context, &proto));
  return WriteWholeFile(path, proto.SerializePartialAsString());
}

}  // namespace pagefuse
