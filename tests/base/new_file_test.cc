// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/base/new_file.h"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>

#include <fcntl.h>
#include <unistd.h>

#include "gtest/gtest.h"
#include <sys/stat.h>

namespace pagefuse {
namespace {

namespace fs = std::filesystem;

class NewFileTest : public testing::Test {
 protected:
  NewFileTest() {
    std::string name = (fs::temp_directory_path() / "new_file_XXXXXX").string();
    folder_ = mkdtemp(name.data());
  }
  ~NewFileTest() override { fs::remove_all(folder_); }

  std::string Path(const std::string& name) const { return (folder_ / name).string(); }
  std::string Content(const std::string& name) const {
    std::ifstream file(folder_ / name, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  }
  std::set<std::string> Files() const {
    std::set<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder_)) {
      names.insert(entry.path().filename().string());
    }
    return names;
  }
  // Opened, written and finished.
  static void Fill(NewFile& file, std::string_view bytes) {
    ASSERT_TRUE(file.Open().ok());
    ASSERT_TRUE(file.Write(bytes).ok());
    ASSERT_TRUE(file.Finish().ok());
  }

  fs::path folder_;
};

TEST_F(NewFileTest, ReplacesAWholeFile) {
  ASSERT_TRUE(WriteWholeFile(Path("a"), "first").ok());
  EXPECT_EQ(Content("a"), "first");
  ASSERT_TRUE(WriteWholeFile(Path("a"), "2nd").ok());
  EXPECT_EQ(Content("a"), "2nd");
  EXPECT_EQ(Files(), std::set<std::string>{"a"});
  const mode_t mask = umask(0);
  umask(mask);
  EXPECT_EQ(static_cast<mode_t>(fs::status(folder_ / "a").permissions()), 0666 & ~mask);
}

TEST_F(NewFileTest, LeavesNothingOfWhatIsNotFinished) {
  ASSERT_TRUE(WriteWholeFile(Path("a"), "older").ok());
  {
    NewFile opened(Path("a")), written(Path("a")), finished(Path("a"));
    ASSERT_TRUE(opened.Open().ok());
    ASSERT_TRUE(written.Open().ok());
    ASSERT_TRUE(written.Write("newer").ok());
    Fill(finished, "newer");
    EXPECT_EQ(Content("a"), "older");
  }
  EXPECT_EQ(Content("a"), "older");
  EXPECT_EQ(Files(), std::set<std::string>{"a"});
}

TEST_F(NewFileTest, SeveralTakeTheirPlacesOrNone) {
  ASSERT_TRUE(WriteWholeFile(Path("data"), "older").ok());
  fs::create_directory(folder_ / "model");  // which no file replaces
  {
    NewFile data(Path("data")), fresh(Path("fresh")), model(Path("model"));
    Fill(data, "newer");
    Fill(fresh, "newer");
    Fill(model, "newer");
    const absl::Status status = NewFile::Commit({&data, &fresh, &model});
    EXPECT_EQ(status.message(), "cannot write \"" + Path("model") + "\": Is a directory");
  }
  EXPECT_EQ(Content("data"), "older");
  EXPECT_EQ(Files(), (std::set<std::string>{"data", "model"}));
  fs::remove(folder_ / "model");
  {
    NewFile data(Path("data")), model(Path("model"));
    Fill(data, "newer");
    Fill(model, "newer");
    EXPECT_TRUE(NewFile::Commit({&data, &model}).ok());
  }
  EXPECT_EQ(Content("data"), "newer");
  EXPECT_EQ(Files(), (std::set<std::string>{"data", "model"}));
}

TEST_F(NewFileTest, SaysWhatCannotBeWritten) {
  ASSERT_TRUE(WriteWholeFile(Path("file"), "").ok());
  EXPECT_EQ(WriteWholeFile(Path("file/a"), "x").message(),
            "cannot create \"" + Path("file/a") + "\": Not a directory");
  EXPECT_EQ(WriteWholeFile(Path("none/a"), "x").message(),
            "cannot create \"" + Path("none/a") + "\": No such file or directory");
  EXPECT_EQ(WriteWholeFile("/dev/full", "x").message(),
            "cannot write \"/dev/full\": No space left on device");
  EXPECT_TRUE(WriteWholeFile("/dev/null", "x").ok());
  EXPECT_TRUE(IsSpecialFile("/dev/null"));
}

TEST_F(NewFileTest, TellsBeforeThatAFileCannotBeMade) {
  EXPECT_TRUE(CheckNewFile(Path("a")).ok());
  EXPECT_TRUE(Files().empty());
  ASSERT_TRUE(WriteWholeFile(Path("file"), "kept").ok());
  EXPECT_TRUE(CheckNewFile(Path("file")).ok());
  EXPECT_EQ(Content("file"), "kept");
  EXPECT_TRUE(CheckNewFile("/dev/null").ok());
  EXPECT_EQ(CheckNewFile(Path("none/a")).message(),
            "cannot create \"" + Path("none/a") + "\": No such file or directory");
  fs::create_directory(folder_ / "folder");
  EXPECT_EQ(CheckNewFile(Path("folder")).message(),
            "cannot write \"" + Path("folder") + "\": Is a directory");
}

TEST_F(NewFileTest, WritesWhereALinkLeads) {
  ASSERT_TRUE(WriteWholeFile(Path("target"), "older").ok());
  fs::create_symlink("target", folder_ / "link");
  ASSERT_TRUE(WriteWholeFile(Path("link"), "newer").ok());
  EXPECT_TRUE(fs::is_symlink(folder_ / "link"));
  EXPECT_EQ(Content("target"), "newer");
}

// As /dev/stdout leads to what standard output is redirected to.
TEST_F(NewFileTest, WritesBehindWhatAnOpenFileHasWhereALinkLeadsToIt) {
  const int fd = open(Path("printed").c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
  ASSERT_GE(fd, 0);
  fs::create_symlink("/proc/self/fd/" + std::to_string(fd), folder_ / "out");
  ASSERT_EQ(write(fd, "before ", 7), 7);
  EXPECT_TRUE(CheckNewFile(Path("out")).ok());
  EXPECT_TRUE(WriteWholeFile(Path("out"), "it ").ok());
  NewFile file(Path("out"));
  Fill(file, "too ");
  EXPECT_TRUE(NewFile::Commit({&file}).ok());
  ASSERT_EQ(write(fd, "after", 5), 5);
  // One whose name is gone is written as well.
  fs::remove(folder_ / "printed");
  EXPECT_TRUE(WriteWholeFile(Path("out"), "more").ok());
  EXPECT_EQ(lseek(fd, 0, SEEK_CUR), 23);
  close(fd);
  EXPECT_TRUE(fs::is_symlink(folder_ / "out"));
  EXPECT_EQ(Files(), std::set<std::string>{"out"});
}

TEST_F(NewFileTest, LeavesZerosBetween) {
  NewFile file(Path("a"));
  ASSERT_TRUE(file.Open().ok());
  ASSERT_TRUE(file.SeekTo(2).ok());
  ASSERT_TRUE(file.Write("x").ok());
  ASSERT_TRUE(file.Finish().ok());
  ASSERT_TRUE(NewFile::Commit({&file}).ok());
  EXPECT_EQ(Content("a"), std::string("\0\0x", 3));
}

}  // namespace
}  // namespace pagefuse
