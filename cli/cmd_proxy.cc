// spa proxy: compute and store the singular proxies of a model.
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <optional>

#include "base/error.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "policies/spa_proxy.h"

namespace spa::cli {
namespace {

struct ProxyFlags {
  std::string model, out;
  size_t threads = 0;
  std::optional<size_t> rank;
  bool json = false;
};

void RunProxy(const ProxyFlags& flags) {
  ThreadPool pool(flags.threads);
  const ModelFile file = flags.model.empty()
                             ? ModelFile::FromMemory(EmbeddedModel(), "the embedded model")
                             : ModelFile::Open(flags.model);
  const size_t width = MaxProxyRank(file.config());
  const size_t rank = flags.rank.value_or(DefaultProxyRank(file.config()));
  if (rank > width) throw Error("rank {} is above the width of the values, {}", rank, width);
  ProgressBar bar;
  const auto progress = [&](double share) { bar.Show("singular proxies", share); };
  Proxies proxies;
  std::string stored;
  if (!flags.out.empty()) {
    proxies = ComputeProxies(file, rank, pool, progress);
    SaveProxies(proxies, file, flags.out);
    stored = flags.out;
  } else {
    std::string not_stored;
    proxies = LoadOrComputeProxies(file, rank, pool, progress, &not_stored);
    if (!file.path().empty()) stored = ProxyPath(file, rank).string();
    if (!not_stored.empty()) {
      throw Error(
          "the proxies were computed but not stored ({}): free some space, or give --out FILE",
          not_stored);
    }
  }
  bar.Clear();
  if (flags.json) {
    nlohmann::ordered_json json = {{"rank", rank}, {"file", stored}};
    for (const LayerProxy& layer : proxies.layers) {
      json["layers"].push_back({{"retained_energy", layer.RetainedEnergy()},
                                {"bound", layer.SimilarityBound()},
                                {"lambda_1", layer.singular_values.front()},
                                {"lambda_r", layer.singular_values[rank - 1]}});
    }
    PrintLine(json.dump());
    return;
  }
  std::vector<std::vector<std::string>> table = {
      {"layer", "lambda_1", "lambda_r", "energy kept", "2(l_r+1/l_r)^2"}};
  for (size_t i = 0; i < proxies.layers.size(); ++i) {
    const LayerProxy& layer = proxies.layers[i];
    table.push_back({fmt::format("{}", i + 1), fmt::format("{:.4g}", layer.singular_values[0]),
                     fmt::format("{:.4g}", layer.singular_values[rank - 1]),
                     fmt::format("{:.1f}%", 100.0 * layer.RetainedEnergy()),
                     fmt::format("{:.3f}", layer.SimilarityBound())});
  }
  PrintLine(FormatTable(table) + fmt::format("rank {} of {}{}", rank, width,
                                             stored.empty() ? "" : ", stored in " + stored));
}

}  // namespace

void AddProxy(CommandLine& line) {
  auto flags = std::make_shared<ProxyFlags>();
  Command command = line.Add("proxy", "Compute and store a model's singular proxies");
  command
      .Add("-m,--model", flags->model,
           "GGUF file or Hugging Face folder (default: the embedded model)")
      .Type("PATH");
  command.Add("-r,--rank", flags->rank, "Rank (default: LLaDA 128, Dream 32)")
      .Between(1, 1 << 20)
      .Type("N");
  command.Add("--out", flags->out, "Store them here, not in the user's cache folder").Type("FILE");
  command.Add("-t,--threads", flags->threads, "Threads to use (default: one per core)")
      .Between(1, 1024)
      .Type("N");
  command.Add("--json", flags->json, "Print one JSON object");
  command.Footer("Example:\n  spa proxy -m LLaDA-8B-Instruct-Q4_0.gguf -r 128");
  command.Action([flags] { RunProxy(*flags); });
}

}  // namespace spa::cli
