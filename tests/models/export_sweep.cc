// SPDX-License-Identifier: Apache-2.0
// Exports under other forms: what each ends in must be what the export ends in.
//   export_sweep FOLDER|MODEL.. [--forms | --idioms] [--mutation NAME] [--seeds N] [--share X]
//                [--part I N] [--save FILE]
// A line for each graph that ends in other fused ops, which --save writes, the last of them; then
// a table of exports and mutations, and how many graphs are paged and end alike.
#include <cstdio>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "graph_mutations.h"
#include "tests/models/fused_ops.h"

#include "pagefuse/base/str_cat.h"
#include "pagefuse/ir/onnx/onnx_io.h"
#include "pagefuse/ops/infer/infer.h"

namespace pagefuse {
namespace {

struct Arguments {
  std::vector<std::string> models;
  std::string mutation, save;
  bool variants = false, idioms = false;  // both by default
  int seeds = 1;
  double share = 0.5;
  int part = 0, parts = 1;  // every so many mutations one
};

std::string Text(const Ending& ending) {
  std::string text;
  for (const auto& [name, count] : ending.ops) StrAppend(&text, " ", name, " x", count);
  if (text.empty()) text = " nothing";
  if (!ending.why_not_paged.empty()) StrAppend(&text, "; no pages: ", ending.why_not_paged);
  return text;
}

// Of graphs that say the same.
struct Share {
  int paged = 0, alike = 0, all = 0;
  void Add(const Share& other) {
    paged += other.paged;
    alike += other.alike;
    all += other.all;
  }
  std::string Text() const {
    return StrCat(paged, " of ", all, " paged, ", alike, " of ", all, " end alike");
  }
};

class Sweep {
 public:
  explicit Sweep(const Arguments& arguments) : arguments_(arguments) {}

  void Run(const std::string& path) {
    auto plain = LoadModel(path);
    if (!plain.ok()) return Line(path, "", std::string(plain.status().message()));
    const auto base = EndOf(*plain);
    if (!base.ok()) return Line(path, "", std::string(base.status().message()));
    Line(path, "as it is", Text(*base));
    if (!InferShapes(*plain).ok()) return Line(path, "", "its shapes cannot be inferred");
    int at = 0;
    for (int seed = 0; seed < arguments_.seeds; ++seed) {
      for (const testing::Mutation& mutation : Mutations()) {
        if (!arguments_.mutation.empty() && mutation.name != arguments_.mutation) continue;
        if (at++ % arguments_.parts == arguments_.part) {
          Respell(path, *plain, mutation, seed, *base);
        }
      }
    }
  }

  void Print() const {
    std::printf("\n| export | mutation | graphs |\n|---|---|---|\n");
    Share all;
    for (const auto& [names, share] : shares_) {
      std::printf("| %s | %s | %s |\n", names.first.c_str(), names.second.c_str(),
                  share.Text().c_str());
      all.Add(share);
    }
    std::printf("\n%s\n", all.Text().c_str());
  }

 private:
  std::vector<testing::Mutation> Mutations() const {
    std::vector<testing::Mutation> all;
    const bool some = arguments_.variants || arguments_.idioms;
    if (arguments_.variants || !some) {
      all.insert(all.end(), testing::Variants().begin(), testing::Variants().end());
    }
    if (arguments_.idioms || !some) {
      all.insert(all.end(), testing::Idioms().begin(), testing::Idioms().end());
    }
    return all;
  }

  void Respell(const std::string& path, const Model& plain, const testing::Mutation& mutation,
               int seed, const Ending& base) {
    Model mutated = plain.Clone();
    testing::Random random(seed);
    const auto count = Mutate(mutated, mutation, arguments_.share, random);
    const std::string name(mutation.name);
    if (!count.ok()) return Line(path, name, std::string(count.status().message()));
    if (*count == 0) return;
    const auto found = EndOf(mutated);
    const bool alike = found.ok() && found->ops == base.ops;
    // What the export itself has no pages for cannot lose them.
    const bool paged = found.ok() && (found->why_not_paged.empty() || !base.why_not_paged.empty());
    shares_[{path, name}].Add({paged, alike, 1});
    if (alike && paged) return;
    if (!arguments_.save.empty()) SaveModel(mutated, arguments_.save).IgnoreError();
    Line(path, StrCat(name, " seed ", seed, ", ", *count, " nodes"),
         found.ok() ? Text(*found) : std::string(found.status().message()));
  }

  static void Line(const std::string& path, const std::string& what, const std::string& found) {
    std::printf("%s, %s: %s\n", path.c_str(), what.c_str(), found.c_str());
    std::fflush(stdout);
  }

  const Arguments& arguments_;
  std::map<std::pair<std::string, std::string>, Share> shares_;  // by export and mutation
};

int Main(int argc, char** argv) {
  Arguments arguments;
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    const bool has_value = i + 1 < argc;
    if (name == "--idioms") {
      arguments.idioms = true;
    } else if (name == "--forms") {
      arguments.variants = true;
    } else if (name == "--mutation" && has_value) {
      arguments.mutation = argv[++i];
    } else if (name == "--save" && has_value) {
      arguments.save = argv[++i];
    } else if (name == "--seeds" && has_value) {
      arguments.seeds = std::stoi(argv[++i]);
    } else if (name == "--share" && has_value) {
      arguments.share = std::stod(argv[++i]);
    } else if (name == "--part" && i + 2 < argc) {
      arguments.part = std::stoi(argv[++i]);
      arguments.parts = std::stoi(argv[++i]);
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
