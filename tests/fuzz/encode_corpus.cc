// SPDX-License-Identifier: Apache-2.0
// encode_corpus OUT_DIR FILE...: writes models in protobuf's text format as binary files, seeds of
// a fuzz test.
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>

#include <google/protobuf/text_format.h>
#include <onnx/onnx_pb.h>

int main(int argc, char** argv) {
  namespace fs = std::filesystem;
  if (argc < 2) return 1;
  const fs::path folder = argv[1];
  fs::create_directories(folder);
  std::ofstream list(folder / "seed_list");  // tells the build that all is done
  for (int i = 2; i < argc; ++i) {
    std::stringstream text;
    text << std::ifstream(argv[i]).rdbuf();
    onnx::ModelProto model;
    if (!google::protobuf::TextFormat::ParseFromString(text.str(), &model)) {
      std::fprintf(stderr, "%s: no model in protobuf's text format\n", argv[i]);
      return 1;
    }
    std::ofstream(folder / fs::path(argv[i]).stem(), std::ios::binary) << model.SerializeAsString();
    list << argv[i] << "\n";
  }
  return 0;
}
