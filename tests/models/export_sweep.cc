// Exports under other spellings: what each ends in must be what the export ends in.
//   export_sweep FOLDER|MODEL.. [--idioms] [--mutation NAME] [--seeds N] [--share X]
//                [--save FILE]
// A line for each graph that ends in other fused ops, which --save writes, the last of them; then how
// many of each mutation end alike.
#include <cstdio>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "graph_mutations.h"
#include "tests/models/fused_ops.h"

#include "pagefuse/ir/onnx_io.h"
#include "pagefuse/ir/str_cat.h"
#include "pagefuse/ops/infer.h"

namespace pagefuse {
namespace {

using Ops = std::map<std::string, int>;

struct Arguments {
  std::vector<std::string> models;
  std::string mutation, save;
  bool idioms = false;
  int seeds = 1;
  double share = 0.5;
};

std::string Text(const Ops& ops) {
  std::string text;
  for (const auto& [name, count] : ops) StrAppend(&text, " ", name, " x", count);
  return text.empty() ? " nothing" : text;
}

class Sweep {
 public:
  explicit Sweep(const Arguments& arguments) : arguments_(arguments) {}

  void Run(const std::string& path) {
    auto plain = LoadModel(path);
    if (!plain.ok()) return Line(path, "", std::string(plain.status().message()));
    const auto base = FusedOps(*plain);
    if (!base.ok()) return Line(path, "", std::string(base.status().message()));
    Line(path, "as it is", Text(*base));
    if (!InferShapes(*plain).ok()) return Line(path, "", "its shapes cannot be inferred");
    for (int seed = 0; seed < arguments_.seeds; ++seed) {
      for (const testing::Mutation& mutation :
           arguments_.idioms ? testing::Idioms() : testing::Spellings()) {
        if (!arguments_.mutation.empty() && mutation.name != arguments_.mutation) continue;
        Respell(path, *plain, mutation, seed, *base);
      }
    }
  }

  void Print() const {
    for (const auto& [name, share] : alike_) {
      std::printf("| %s | %d of %d |\n", name.c_str(), share.first, share.second);
    }
  }

 private:
  void Respell(const std::string& path, const Model& plain, const testing::Mutation& mutation,
               int seed, const Ops& base) {
    Model mutated = plain.Clone();
    testing::Random random(seed);
    const auto count = Mutate(mutated, mutation, arguments_.share, random);
    const std::string name(mutation.name);
    if (!count.ok()) return Line(path, name, std::string(count.status().message()));
    if (*count == 0) return;
    const auto found = FusedOps(mutated);
    auto& [alike, all] = alike_[name];
    ++all;
    if (found.ok() && *found == base) {
      ++alike;
      return;
    }
    if (!arguments_.save.empty()) SaveModel(mutated, arguments_.save).IgnoreError();
    Line(path, StrCat(name, " seed ", seed, ", ", *count, " nodes"),
         found.ok() ? Text(*found) : std::string(found.status().message()));
  }

  static void Line(const std::string& path, const std::string& what, const std::string& found) {
    std::printf("%s, %s: %s\n", path.c_str(), what.c_str(), found.c_str());
    std::fflush(stdout);
  }

  const Arguments& arguments_;
  std::map<std::string, std::pair<int, int>> alike_;
};

int Main(int argc, char** argv) {
  Arguments arguments;
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    const bool has_value = i + 1 < argc;
    if (name == "--idioms") {
      arguments.idioms = true;
    } else if (name == "--mutation" && has_value) {
      arguments.mutation = argv[++i];
    } else if (name == "--save" && has_value) {
      arguments.save = argv[++i];
    } else if (name == "--seeds" && has_value) {
      arguments.seeds = std::stoi(argv[++i]);
    } else if (name == "--share" && has_value) {
      arguments.share = std::stod(argv[++i]);
    } else {
      arguments.models.push_back(std::filesystem::is_directory(name) ? name + "/model.onnx" : name);
    }
  }
  Sweep sweep(arguments);
  for (const std::string& model : arguments.models) sweep.Run(model);
  sweep.Print();
  return 0;
}

}  // namespace
}  // namespace pagefuse

int main(int argc, char** argv) { return pagefuse::Main(argc, argv); }
