// SPDX-License-Identifier: Apache-2.0
// Files of tensor data beside a model: the links of a download cache, links that lead elsewhere,
// and files that change while they are used.
#include <filesystem>
#include <fstream>

#include "must.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pagefuse/base/str_cat.h"
#include "pagefuse/ir/onnx/contained_path.h"
#include "pagefuse/ir/onnx/onnx_io.h"

namespace pagefuse {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A folder that is gone after the test.
class TemporaryFolder {
 public:
  TemporaryFolder()
      : path_(fs::path(testing::TempDir()) /
              StrCat("external_", testing::UnitTest::GetInstance()->current_test_info()->name())) {
    fs::remove_all(path_);
    fs::create_directories(path_);
  }
  ~TemporaryFolder() { fs::remove_all(path_); }
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

// y = x + w; w lies in `model.onnx.data`.
void SaveExample(const fs::path& folder) {
  fs::create_directories(folder);
  Model model;
  model.opset_imports[""] = 20;
  model.graph = std::make_shared<Graph>();
  Value* x = model.graph->AddInput("x", DataType::kFloat, Shape{4});
  Value* w = model.graph->AddInitializer("w", Tensor::Of<float>({4}, {1, 2, 3, 4}));
  Value* y = model.graph->AddValue("y", DataType::kFloat);
  model.graph->AddNode("", "Add", {x, w}, {y});
  model.graph->AddOutput(y);
  Must(SaveModel(model, (folder / "model.onnx").string(), {.external_data_threshold = 1}));
}

std::string MessageOf(const absl::StatusOr<Model>& model) {
  return std::string(StdView(model.status().message()));
}

// What a download cache makes of the example: files by hash, and links to them in a snapshot.
struct Repository {
  fs::path root, snapshot;

  explicit Repository(const fs::path& hub, const fs::path& inner = "") {
    root = hub / "models--org--name";
    snapshot = root / "snapshots" / "0123abcd" / inner;
    SaveExample(root / "files");
    fs::create_directories(root / "blobs");
    fs::create_directories(snapshot);
    Link("model.onnx", "aaaa");
    Link("model.onnx.data", "bbbb");
  }

  void Link(const std::string& name, const std::string& hash) const {
    fs::rename(root / "files" / name, root / "blobs" / hash);
    fs::create_symlink(fs::relative(root / "blobs" / hash, snapshot), snapshot / name);
  }
};

TEST(ExternalData, FollowsTheLinksOfADownloadCache) {
  const TemporaryFolder folder;
  const Repository repository(folder.path());
  const auto model = Must(LoadModel((repository.snapshot / "model.onnx").string()));
  EXPECT_THAT(model.graph->FindValue("w")->initializer()->values<float>(), ElementsAre(1, 2, 3, 4));
}

TEST(ExternalData, FollowsTheLinksOfAFolderInASnapshot) {
  const TemporaryFolder folder;
  const Repository repository(folder.path(), "onnx");
  const auto model = LoadModel((repository.snapshot / "model.onnx").string());
  EXPECT_TRUE(model.ok()) << model.status();
}

TEST(ExternalData, FollowsThemThroughALinkToTheSnapshot) {
  const TemporaryFolder folder;
  const Repository repository(folder.path());
  fs::create_directory_symlink(repository.snapshot, folder.path() / "current");
  const auto model = LoadModel((folder.path() / "current" / "model.onnx").string());
  EXPECT_TRUE(model.ok()) << model.status();
}

TEST(ExternalData, APathMayGoUpWithinTheFolder) {
  const TemporaryFolder folder;
  SaveExample(folder.path());
  fs::create_directories(folder.path() / "sub/inner");
  const auto contained = [&](const std::string& location) {
    const auto path = ContainedPath(folder.path().string(), location);
    return path.ok() ? path->filename().string() : std::string(StdView(path.status().message()));
  };
  EXPECT_EQ(contained("sub/../model.onnx.data"), "model.onnx.data");
  EXPECT_EQ(contained("./sub/inner/../../model.onnx.data"), "model.onnx.data");
  const std::string leaves = " leaves the folder of the model";
  EXPECT_THAT(contained("../model.onnx.data"), HasSubstr(leaves));
  EXPECT_THAT(contained("sub/../../APathMayGoUpWithinTheFolder/model.onnx.data"),
              HasSubstr(leaves));
  fs::create_directories(folder.path() / "elsewhere/deep");
  const fs::path inner = folder.path() / "elsewhere";
  SaveExample(inner);
  fs::create_symlink(folder.path() / "sub/inner", inner / "link");
  const auto through = ContainedPath(inner.string(), "link/../model.onnx.data");
  EXPECT_FALSE(through.ok());
}

TEST(ExternalData, SaysThatAFileIsAPointer) {
  const TemporaryFolder folder;
  SaveExample(folder.path());
  std::ofstream(folder.path() / "model.onnx.data")
      << "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 16\n";
  EXPECT_THAT(
      MessageOf(LoadModel((folder.path() / "model.onnx").string())),
      HasSubstr("initialiser \"w\": external data: \"model.onnx.data\": this is a pointer of "
                "Git LFS in place of the file"));
}

TEST(ExternalData, RefusesALinkOutOfTheRepository) {
  const TemporaryFolder folder;
  const Repository repository(folder.path());
  fs::rename(repository.root / "blobs" / "bbbb", folder.path() / "bbbb");
  fs::remove(repository.snapshot / "model.onnx.data");
  fs::create_symlink(folder.path() / "bbbb", repository.snapshot / "model.onnx.data");
  EXPECT_THAT(MessageOf(LoadModel((repository.snapshot / "model.onnx").string())),
              HasSubstr("initialiser \"w\": external data: location \"model.onnx.data\" is a link "
                        "that leaves the repository of the model"));
}

TEST(ExternalData, RefusesALinkIntoAnotherRepository) {
  const TemporaryFolder folder;
  const Repository repository(folder.path());
  const Repository other(folder.path() / "more");
  fs::remove(repository.snapshot / "model.onnx.data");
  fs::create_symlink(other.root / "blobs" / "bbbb", repository.snapshot / "model.onnx.data");
  EXPECT_THAT(MessageOf(LoadModel((repository.snapshot / "model.onnx").string())),
              HasSubstr("is a link that leaves the repository of the model"));
}

// Any folder may be called `snapshots`; without `blobs` beside it nothing makes it a repository.
TEST(ExternalData, SnapshotsWithoutBlobsAreNoRepository) {
  const TemporaryFolder folder;
  const Repository repository(folder.path());
  fs::rename(repository.root / "blobs", repository.root / "things");
  fs::remove(repository.snapshot / "model.onnx");
  fs::remove(repository.snapshot / "model.onnx.data");
  fs::copy(repository.root / "things" / "aaaa", repository.snapshot / "model.onnx");
  fs::create_symlink(repository.root / "things" / "bbbb", repository.snapshot / "model.onnx.data");
  EXPECT_THAT(MessageOf(LoadModel((repository.snapshot / "model.onnx").string())),
              HasSubstr("is a link that leaves the folder of the model"));
}

TEST(ExternalData, AMappedFileThatBecameShorterIsFound) {
  const TemporaryFolder folder;
  SaveExample(folder.path());
  const auto model = Must(LoadModel((folder.path() / "model.onnx").string()));
  const Buffer& buffer = *model.graph->FindValue("w")->initializer()->buffer();
  EXPECT_TRUE(buffer.CheckIntact().ok());
  const fs::path file = folder.path() / "model.onnx.data";
  fs::resize_file(file, 4);
  EXPECT_EQ(buffer.CheckIntact().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(
      StdView(buffer.CheckIntact().message()),
      StrCat("\"", file.string(), "\" was 16 bytes long when it was loaded and is shorter now"));
}

TEST(ExternalData, AMappedFileThatIsReplacedStaysWhatItWas) {
  const TemporaryFolder folder;
  SaveExample(folder.path());
  const auto model = Must(LoadModel((folder.path() / "model.onnx").string()));
  std::ofstream(folder.path() / "new") << "short";
  fs::rename(folder.path() / "new", folder.path() / "model.onnx.data");
  const Tensor& w = *model.graph->FindValue("w")->initializer();
  EXPECT_TRUE(w.buffer()->CheckIntact().ok());
  EXPECT_THAT(w.values<float>(), ElementsAre(1, 2, 3, 4));
}

TEST(ExternalData, AFileThatIsReadMayChange) {
  const TemporaryFolder folder;
  SaveExample(folder.path());
  const auto model = Must(LoadModel((folder.path() / "model.onnx").string(), {.map_files = false}));
  fs::resize_file(folder.path() / "model.onnx.data", 0);
  const Tensor& w = *model.graph->FindValue("w")->initializer();
  EXPECT_TRUE(w.buffer()->CheckIntact().ok());
  EXPECT_THAT(w.values<float>(), ElementsAre(1, 2, 3, 4));
}

TEST(ExternalData, AFileThatIsTooShortAtLoadIsRefused) {
  const TemporaryFolder folder;
  SaveExample(folder.path());
  fs::resize_file(folder.path() / "model.onnx.data", 15);
  for (const bool map_files : {true, false}) {
    const auto model = LoadModel((folder.path() / "model.onnx").string(), {.map_files = map_files});
    EXPECT_THAT(MessageOf(model), HasSubstr("expected 16 bytes at offset 0 of \"model.onnx.data\", "
                                            "got a file of 15 bytes"));
  }
}

}  // namespace
}  // namespace pagefuse
