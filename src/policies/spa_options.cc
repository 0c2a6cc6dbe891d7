#include "policies/spa_options.h"

#include <algorithm>

#include "base/atomic_file.h"
#include "base/error.h"
#include "policies/spa.h"
#include "policies/spa_budget.h"
#include "policies/spa_profile.h"
#include "policies/spa_proxy.h"

namespace spa {
namespace {

// How the presets differ. The intervals and the floor of `reference` come from the authors' scripts
// for GSM8K; those for other tasks use others.
struct Preset {
  const char* name;
  Identifier identifier;
  Scope scope;
  FirstLayer first_layer;
  double min_drift;
  bool overwrite_proxy, full_kv;
  size_t outside;
  bool focus, per_token;
  bool refresh_prompt, refresh_gen, warmup;  // at the model's intervals, or never
  bool floor;                                // no layer left of the peak below the model's floor
  bool stored_profile;                       // the budget `spa profile` stored is used
};
constexpr Preset kPresets[] = {
    {
        .name = "default",
        .identifier = Identifier::kAttnOutput,
        .scope = Scope::kReach,
        .first_layer = FirstLayer::kAttention,
        .min_drift = 0.001,
        .overwrite_proxy = false,
        .full_kv = false,
        .outside = 2,
        .focus = true,
        .per_token = true,
        .refresh_prompt = false,
        .refresh_gen = false,
        .warmup = false,
        .floor = false,
        .stored_profile = true,
    },
    {
        .name = "paper",
        .identifier = Identifier::kSingular,
        .scope = Scope::kAll,
        .first_layer = FirstLayer::kProxy,
        .min_drift = 0.0,
        .overwrite_proxy = false,
        .full_kv = false,
        .outside = 0,
        .focus = false,
        .per_token = false,
        .refresh_prompt = false,
        .refresh_gen = false,
        .warmup = false,
        .floor = false,
        .stored_profile = false,
    },
    {
        .name = "reference",
        .identifier = Identifier::kSingular,
        .scope = Scope::kGen,
        .first_layer = FirstLayer::kDense,
        .min_drift = 0.0,
        .overwrite_proxy = true,
        .full_kv = true,
        .outside = 0,
        .focus = false,
        .per_token = false,
        .refresh_prompt = true,
        .refresh_gen = true,
        .warmup = true,
        .floor = true,
        .stored_profile = false,
    },
};

template <typename T>
size_t Index(T value) {
  return static_cast<size_t>(value);
}

// Per-layer shares of the rows, by Equation 5 or by the authors' code.
std::vector<double> ReadRatios(OptionReader& reader, const PolicyContext& context,
                               const Preset& preset, FirstLayer first_layer) {
  const ModelConfig& config = context.file->config();
  const CacheDefaults& published = config.cache;
  const bool reference = preset.floor;
  constexpr double kLeast = 1e-4;
  // A measured profile gives the shape of the bell; its height stays the published peak. At the
  // paper's tau a model that drifts little would get next to nothing.
  Budget budget = ChooseBudget(reader, *context.file, preset.stored_profile);
  const auto uniform = reader.OptionalNumber("rho");
  const double floor = reader.Number("rho-min", reference ? published.spa_floor_ratio : 0.0);
  // The authors' Dream scripts scale the published peak of 0.30 to 0.25.
  const double peak =
      reader.Number("rho-peak", reference ? 0.25 : PublishedBudget(config).peak_ratio);
  const double scale = peak / budget.peak_ratio;  // the edges follow the peak unless given
  budget.first_ratio = reader.Number("rho-first", std::max(kLeast, budget.first_ratio * scale));
  budget.last_ratio = reader.Number("rho-last", std::max(kLeast, budget.last_ratio * scale));
  if (reference && !config.spa_budget && reader.Text("profile", "").empty()) {
    budget.peak_layer = published.spa_reference_peak_depth * static_cast<double>(config.num_layers);
  }
  budget.peak_layer = reader.Number("peak-layer", budget.peak_layer);
  if (budget.peak_layer > static_cast<double>(config.num_layers)) {
    throw Error("the spa option peak-layer={} is beyond the model's {} layers", budget.peak_layer,
                config.num_layers);
  }
  budget.peak_ratio = peak;
  std::vector<double> ratios;
  if (uniform) {
    ratios.assign(config.num_layers, *uniform);
  } else if (reference) {
    ratios = ReferenceBudgetRatios(budget, peak, floor, config.num_layers);
  } else {
    ratios = BudgetRatios(budget, config.num_layers);
    for (double& ratio : ratios) ratio = std::max(ratio, floor);
  }
  for (double& ratio : ratios) ratio = std::min(ratio, 1.0);
  if (first_layer == FirstLayer::kAttention) ratios[0] = std::ranges::max(ratios);
  return ratios;
}

SpaOptions ReadOptions(OptionReader& reader, const PolicyContext& context) {
  const ModelConfig& config = context.file->config();
  const Preset& preset = kPresets[reader.Choice("preset", 0)];
  const CacheDefaults& published = config.cache;
  SpaOptions o;
  const Identifier identifier =
      reader.OptionalNumber("rank") ? Identifier::kSingular : preset.identifier;
  o.identifier = static_cast<Identifier>(reader.Choice("identifier", Index(identifier)));
  o.rank = reader.Count("rank", DefaultProxyRank(config));
  if (o.rank > MaxProxyRank(config)) {
    throw Error("the spa option rank={} is beyond the model's {}", o.rank, MaxProxyRank(config));
  }
  // The preset's is a drift of attention outputs; other identifiers move on scales of their own.
  const bool by_preset = o.identifier == preset.identifier;
  o.min_drift = static_cast<float>(reader.Number("min-drift", by_preset ? preset.min_drift : 0.0));
  o.form = reader.Choice("form", 0) == 0 ? Reuse::kUpdate : Reuse::kOutput;
  o.scope = static_cast<Scope>(reader.Choice("scope", Index(preset.scope)));
  o.first_layer = static_cast<FirstLayer>(reader.Choice("first-layer", Index(preset.first_layer)));
  o.overwrite_proxy = reader.Choice("proxy", Index(preset.overwrite_proxy)) == 1;
  o.full_kv = reader.Choice("kv", Index(preset.full_kv)) == 1;
  // A prompt that moves with the answer does so at every token.
  o.outside = reader.Count(
      "outside", config.spa_prompt ? std::min<size_t>(1, preset.outside) : preset.outside);
  o.prompt = reader.Flag("prompt", config.spa_prompt) && o.scope == Scope::kReach;
  o.screen = reader.Flag("screen", true);
  o.focus = reader.Flag("focus", preset.focus);
  o.per_token = preset.per_token;
  o.warmup = preset.warmup ? published.spa_reference_warmup : 0;
  o.refresh_prompt =
      reader.Count("refresh-prompt", preset.refresh_prompt ? published.spa_prompt_interval : 0);
  o.refresh_gen = reader.Count("refresh-gen", preset.refresh_gen ? published.spa_gen_interval : 0);
  o.ratios = ReadRatios(reader, context, preset, o.first_layer);
  return o;
}

// Includes the norm's gain in the projection. Rows then need no norm: the cosine ignores the RMS
// norm's division.
PackedMatrix FoldGain(const Mat<float>& projection, const std::vector<float>& gain,
                      ThreadPool& pool) {
  Mat<float> folded(projection.rows(), projection.cols());
  for (size_t i = 0; i < folded.rows(); ++i) {
    for (size_t j = 0; j < folded.cols(); ++j) {
      folded.Row(i)[j] = projection.Row(i)[j] * gain[j];
    }
  }
  return PackedMatrix({.dtype = DType::kF32,
                       .rows = folded.rows(),
                       .cols = folded.cols(),
                       .data = reinterpret_cast<const std::byte*>(folded.data())},
                      pool);
}

}  // namespace

std::vector<OptionInfo> SpaOptionTable() {
  std::vector<std::string> presets;
  for (const Preset& preset : kPresets) presets.emplace_back(preset.name);
  constexpr double kLeast = 1e-4;
  return {
      OptionInfo::Choice("preset", presets, "default",
                         "Ours, the paper's algorithm as printed, or the authors' code"),
      OptionInfo::Choice("identifier",
                         {"singular", "value", "key", "query", "attn-input", "attn-output",
                          "changed", "random", "age", "local"},
                         "by preset", "What tells that a row drifted; the last four are controls"),
      OptionInfo::Count("rank", 1, 1 << 16, "by model",
                        "Rank of the singular proxy; chooses that identifier"),
      OptionInfo::Number("rho", kLeast, 1, "the bell",
                         "The same budget in every layer: a share of the rows that compete, with "
                         "scope=reach of the answer or of four blocks, whichever is less"),
      OptionInfo::Number("min-drift", 0, 2, "by preset",
                         "Rows that moved less (1 - cosine) are not recomputed, so the budget is a "
                         "limit; 0: all compete"),
      OptionInfo::Number("rho-peak", kLeast, 1, "by model", "Budget of the peak layer"),
      OptionInfo::Number("rho-first", kLeast, 1, "by model", "Budget of the first layer"),
      OptionInfo::Number("rho-last", kLeast, 1, "by model", "Budget of the last layer"),
      OptionInfo::Number("rho-min", 0, 1, "by preset", "No layer gets less"),
      OptionInfo::Number("peak-layer", 1, 1024, "by model", "The peak's layer, counted from 1"),
      OptionInfo::Text("profile", "auto",
                       "Shape of the bell: auto (what spa profile stored), off, or a file"),
      OptionInfo::Choice("scope", {"gen", "all", "reach"}, "by preset",
                         "Who competes: the answer, all rows, the answer up to the block's end"),
      OptionInfo::Choice("first-layer", {"attention", "dense", "proxy"}, "by preset",
                         "How the first layer's rows are chosen"),
      OptionInfo::Count("outside", 0, 1 << 20, "by model",
                        "With scope=reach: rows outside of the block compete whenever so many "
                        "tokens were settled, and when it begins. 0, or with blocks shorter than "
                        "8: rows before it always, rows after it never"),
      OptionInfo::Flag("prompt", "by model",
                       "With scope=reach: rows of the prompt compete whenever those of the answer "
                       "outside of the block do. Their updates and queries are then kept, too"),
      OptionInfo::Flag("focus", "by preset", "Rows that are read and rows just settled go first"),
      OptionInfo::Flag("screen", "on",
                       "With attn-output and min-drift: rows that hardly moved, by a sketch of "
                       "their attention, do not attend"),
      OptionInfo::Choice("form", {"update", "output"}, "update",
                         "What other rows reuse: update (code) or output (paper, literally)"),
      OptionInfo::Choice("proxy", {"scatter", "overwrite"}, "by preset",
                         "Compare with the last recomputation or with the last step"),
      OptionInfo::Choice("kv", {"sparse", "full"}, "by preset",
                         "Keys and values of recomputed rows or of all in scope"),
      OptionInfo::Count("refresh-prompt", 0, 1 << 20, "by preset",
                        "Recompute everything every so many steps; 0: never"),
      OptionInfo::Count("refresh-gen", 0, 1 << 20, "by preset",
                        "Recompute the scope every so many steps; 0: never"),
  };
}

std::shared_ptr<const SpaModel> PrepareSpa(OptionReader& reader, const PolicyContext& context) {
  const ModelConfig& config = context.file->config();
  auto model = std::make_shared<SpaModel>();
  model->options = ReadOptions(reader, context);
  if (model->options.identifier != Identifier::kSingular) return model;
  const size_t rank = model->options.rank;
  if (config.num_layers * config.kv_dim() * config.model_dim > context.max_proxy_weights &&
      !FileExists(ProxyPath(*context.file, rank))) {
    throw Error(
        "the singular proxies of rank {} would have to be computed first: "
        "`spa proxy --rank {}` does it",
        rank, rank);
  }
  const Proxies proxies =
      LoadOrComputeProxies(*context.file, rank, *context.pool, [&](double share) {
        if (context.progress) context.progress("singular proxies", share);
      });
  for (size_t layer = 0; layer < config.num_layers; ++layer) {
    model->projections.push_back(FoldGain(proxies.layers[layer].projection,
                                          context.weights->layers[layer].attn_norm, *context.pool));
  }
  return model;
}

PolicyFactory MakeSpa(OptionReader& reader, const PolicyContext& context) {
  std::shared_ptr<const SpaModel> model = PrepareSpa(reader, context);
  return [model] { return std::make_unique<SpaPolicy>(model); };
}

}  // namespace spa
