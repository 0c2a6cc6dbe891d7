// Singular proxies: for every layer W_r = Lambda_r V_r^T from the truncated SVD of the value
// projection, so that |W_r h| keeps the geometry of the values in r numbers. Computed once per
// model and rank, kept in a file keyed by the model's fingerprint.
#pragma once

#include <filesystem>
#include <functional>
#include <vector>

#include "base/matrix.h"
#include "base/thread_pool.h"
#include "model/model_file.h"

namespace spa {

struct LayerProxy {
  Mat<float> projection;                // W_r [rank, model_dim]
  std::vector<double> singular_values;  // at least rank of them, descending
  double energy = 0.0;                  // squared Frobenius norm of the value projection

  // Share of the energy in the first `rank` directions, and the bound of the paper's Theorem on
  // how far a similarity can move: 2 (lambda_{r+1} / lambda_r)^2.
  double RetainedEnergy() const;
  double SimilarityBound() const;
};

struct Proxies {
  size_t rank = 0;
  std::vector<LayerProxy> layers;
};

// The full rank of the value projection.
size_t MaxProxyRank(const ModelConfig& config);
// LLaDA 128, Dream 32, for other widths the same share of the value width; never above the maximum.
size_t DefaultProxyRank(const ModelConfig& config);

// Truncated SVD of a matrix W [rows, cols]: the `rank` largest singular values and W_r.
LayerProxy TruncatedSvd(const Mat<float>& w, size_t rank, ThreadPool& pool);

// `progress` gets the share of layers done.
Proxies ComputeProxies(const ModelFile& file, size_t rank, ThreadPool& pool,
                       const std::function<void(double)>& progress = {});

// Where the proxies of a model are kept: $XDG_CACHE_HOME/spa or ~/.cache/spa. Empty if the
// environment names no home.
std::filesystem::path ProxyPath(const ModelFile& file, size_t rank);

void SaveProxies(const Proxies& proxies, const ModelFile& file, const std::filesystem::path& path);
// Throws Error if the file is damaged or was made for another model or rank.
Proxies ReadProxies(const std::filesystem::path& path, const ModelFile& file, size_t rank);

// Reads them, or computes and saves them. A cache that cannot be written is not an error;
// `not_stored` then says why.
Proxies LoadOrComputeProxies(const ModelFile& file, size_t rank, ThreadPool& pool,
                             const std::function<void(double)>& progress = {},
                             std::string* not_stored = nullptr);

}  // namespace spa
