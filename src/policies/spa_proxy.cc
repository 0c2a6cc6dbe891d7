#include "policies/spa_proxy.h"

#include <Eigen/Dense>
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>

#include "base/atomic_file.h"
#include "base/error.h"
#include "base/random.h"
#include "file/gguf.h"
#include "file/gguf_writer.h"
#include "kernels/matmul.h"
#include "model/weights.h"

namespace spa {
namespace {

using RowMatrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

// Up to this size the eigenvectors of W W^T or W^T W are computed outright (Dream has 512).
constexpr size_t kExactSize = 512;
// Rounds of subspace iteration. A random matrix is the worst case, its spectrum being flat; with a
// block of twice the rank eight rounds bring its last singular value within 1% (spa_test.cc).
constexpr int kRounds = 8;
constexpr uint64_t kSeed = 20260202;

PackedMatrix Pack(const Mat<float>& m, ThreadPool& pool) {
  return PackedMatrix({.dtype = DType::kF32,
                       .rows = m.rows(),
                       .cols = m.cols(),
                       .data = reinterpret_cast<const std::byte*>(m.data())},
                      pool);
}

Mat<float> Transposed(const Mat<float>& m) {
  Mat<float> t(m.cols(), m.rows());
  for (size_t i = 0; i < m.rows(); ++i) {
    for (size_t j = 0; j < m.cols(); ++j) t.Row(j)[i] = m.Row(i)[j];
  }
  return t;
}

Mat<float> Multiply(const Mat<float>& x, const PackedMatrix& w, ThreadPool& pool) {
  Mat<float> y(x.rows(), w.rows());
  Activations rows;
  rows.Set(x.View());
  MatMul(rows, w, y.View(), pool);
  return y;
}

// Makes the rows of x orthonormal.
void Orthonormalize(Mat<float>& x) {
  const auto rows = static_cast<Eigen::Index>(x.rows()), cols = static_cast<Eigen::Index>(x.cols());
  Eigen::Map<RowMatrix> map(x.data(), rows, cols);
  Eigen::HouseholderQR<Eigen::MatrixXf> qr(map.transpose());
  map = (qr.householderQ() * Eigen::MatrixXf::Identity(cols, rows)).transpose();
}

// Given orthonormal rows X whose span holds the wanted right singular vectors and Y = X W^T, the
// singular values of W in that span, and W_r = diag(s) U^T X where X W^T W X^T = U diag(s^2) U^T.
void RayleighRitz(const Mat<float>& x, const Mat<float>& y, size_t rank, LayerProxy& proxy) {
  const auto size = static_cast<Eigen::Index>(x.rows());
  const Eigen::Map<const RowMatrix> ym(y.data(), size, static_cast<Eigen::Index>(y.cols()));
  const Eigen::Map<const RowMatrix> xm(x.data(), size, static_cast<Eigen::Index>(x.cols()));
  const Eigen::MatrixXd yd = ym.cast<double>();
  const Eigen::SelfAdjointEigenSolver<Eigen::MatrixXd> eigen(yd * yd.transpose());
  proxy.singular_values.clear();
  for (Eigen::Index i = size - 1; i >= 0; --i) {  // Eigen orders them ascending
    proxy.singular_values.push_back(std::sqrt(std::max(0.0, eigen.eigenvalues()[i])));
  }
  Eigen::MatrixXf scaled(static_cast<Eigen::Index>(rank), size);  // diag(s) U_r^T
  for (Eigen::Index i = 0; i < scaled.rows(); ++i) {
    scaled.row(i) = (eigen.eigenvectors().col(size - 1 - i).transpose() *
                     proxy.singular_values[static_cast<size_t>(i)])
                        .cast<float>();
  }
  proxy.projection.Resize(rank, x.cols());
  Eigen::Map<RowMatrix>(proxy.projection.data(), scaled.rows(),
                        static_cast<Eigen::Index>(x.cols())) = scaled * xm;
}

}  // namespace

double LayerProxy::RetainedEnergy() const {
  double kept = 0.0;
  for (size_t i = 0; i < projection.rows(); ++i) kept += singular_values[i] * singular_values[i];
  return energy > 0.0 ? std::min(1.0, kept / energy) : 1.0;
}

double LayerProxy::SimilarityBound() const {
  const size_t rank = projection.rows();
  if (rank >= singular_values.size() || singular_values[rank - 1] <= 0.0) return 0.0;
  const double ratio = singular_values[rank] / singular_values[rank - 1];
  return 2.0 * ratio * ratio;
}

size_t MaxProxyRank(const ModelConfig& config) {
  return std::min(config.kv_dim(), config.model_dim);
}

size_t DefaultProxyRank(const ModelConfig& config) {
  const size_t share = config.cache.spa_proxy_share;
  const size_t max = MaxProxyRank(config);
  return std::clamp<size_t>(config.kv_dim() / share, std::min<size_t>(16, max), max);
}

LayerProxy TruncatedSvd(const Mat<float>& w, size_t rank, ThreadPool& pool) {
  const size_t smaller = std::min(w.rows(), w.cols());
  SPA_CHECK(rank >= 1 && rank <= smaller);
  LayerProxy proxy;
  for (size_t i = 0; i < w.rows() * w.cols(); ++i) {
    proxy.energy += static_cast<double>(w.data()[i]) * w.data()[i];
  }
  const PackedMatrix packed = Pack(w, pool);
  Mat<float> x;  // rows span a space of right singular vectors
  if (w.rows() <= kExactSize && w.rows() <= w.cols()) {
    x.Resize(w.rows(), w.cols());
    std::memcpy(x.data(), w.data(), w.rows() * w.cols() * sizeof(float));  // its row space: all
    Orthonormalize(x);
  } else {
    const size_t block = std::min(smaller, std::max(2 * rank, rank + 32));
    x.Resize(block, w.cols());
    for (size_t i = 0; i < block; ++i) {
      const RandomStream random(kSeed, 0, i);
      for (size_t j = 0; j < w.cols(); ++j) {
        x.Row(i)[j] = static_cast<float>(random.Uniform(j) - 0.5);
      }
    }
    const PackedMatrix transposed = Pack(Transposed(w), pool);
    Orthonormalize(x);
    for (int round = 0; round < kRounds; ++round) {
      x = Multiply(Multiply(x, packed, pool), transposed, pool);
      Orthonormalize(x);
    }
  }
  RayleighRitz(x, Multiply(x, packed, pool), rank, proxy);
  return proxy;
}

Proxies ComputeProxies(const ModelFile& file, size_t rank, ThreadPool& pool,
                       const std::function<void(double)>& progress) {
  if (!file.config().layer_shapes.empty()) {
    throw Error("{}: SPA-Cache needs layers that are alike; use --cache block", file.where());
  }
  Proxies proxies;
  proxies.rank = rank;
  const size_t num_layers = file.config().num_layers;
  for (size_t layer = 0; layer < num_layers; ++layer) {
    proxies.layers.push_back(
        TruncatedSvd(DecodeTensor(file, TensorRole::kWv, layer, pool), rank, pool));
    file.tensors().Release(file.Get(TensorRole::kWv, layer));
    if (progress) progress(static_cast<double>(layer + 1) / static_cast<double>(num_layers));
  }
  return proxies;
}

std::filesystem::path ProxyPath(const ModelFile& file, size_t rank) {
  std::filesystem::path folder;
  if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache != nullptr && *cache != '\0') {
    folder = cache;
  } else if (const char* home = std::getenv("HOME"); home != nullptr && *home != '\0') {
    folder = std::filesystem::path(home) / ".cache";
  } else {
    return {};
  }
  return folder / "spa" / fmt::format("proxy-{:016x}-r{}.gguf", file.Fingerprint(), rank);
}

void SaveProxies(const Proxies& proxies, const ModelFile& file, const std::filesystem::path& path) {
  GgufWriter writer(path);
  writer.AddString("general.architecture", "spa-proxy");
  writer.AddString("spa.fingerprint", fmt::format("{:016x}", file.Fingerprint()));
  writer.AddUint32("spa.rank", static_cast<uint32_t>(proxies.rank));
  std::vector<std::vector<float>> values;
  for (const LayerProxy& layer : proxies.layers) {
    // Singular values, then the energy: what `spa proxy` prints.
    std::vector<float>& row =
        values.emplace_back(layer.singular_values.begin(), layer.singular_values.end());
    row.push_back(static_cast<float>(layer.energy));
  }
  for (size_t i = 0; i < proxies.layers.size(); ++i) {
    writer.DeclareTensor(fmt::format("proxy.{}", i), DType::kF32,
                         {proxies.rank, proxies.layers[i].projection.cols()});
    writer.DeclareTensor(fmt::format("values.{}", i), DType::kF32, {values[i].size()});
  }
  writer.BeginData();
  for (size_t i = 0; i < proxies.layers.size(); ++i) {
    const Mat<float>& projection = proxies.layers[i].projection;
    writer.WriteData({reinterpret_cast<const std::byte*>(projection.data()),
                      projection.rows() * projection.cols() * sizeof(float)});
    writer.WriteData(
        {reinterpret_cast<const std::byte*>(values[i].data()), values[i].size() * sizeof(float)});
  }
  writer.Finish();
}

Proxies ReadProxies(const std::filesystem::path& path, const ModelFile& file, size_t rank) {
  const GgufFile stored(path);
  const std::string* fingerprint = stored.FindString("spa.fingerprint");
  if (fingerprint == nullptr || *fingerprint != fmt::format("{:016x}", file.Fingerprint()) ||
      stored.FindUint("spa.rank") != rank) {
    throw Error("{} holds the proxies of another model or rank", path.string());
  }
  Proxies proxies;
  proxies.rank = rank;
  for (size_t i = 0; i < file.config().num_layers; ++i) {
    const Tensor* projection = stored.Find(fmt::format("proxy.{}", i));
    const Tensor* values = stored.Find(fmt::format("values.{}", i));
    if (projection == nullptr || values == nullptr || projection->dtype != DType::kF32 ||
        values->dtype != DType::kF32 || values->cols() < rank + 1 ||
        projection->shape != std::vector<uint64_t>{rank, file.config().model_dim}) {
      throw Error("{} is damaged: layer {} is missing", path.string(), i);
    }
    LayerProxy& layer = proxies.layers.emplace_back();
    layer.projection.Resize(rank, file.config().model_dim);
    std::memcpy(layer.projection.data(), projection->bytes.data(), projection->bytes.size());
    std::vector<float> numbers(values->cols());
    std::memcpy(numbers.data(), values->bytes.data(), values->bytes.size());
    layer.energy = numbers.back();
    layer.singular_values.assign(numbers.begin(), numbers.end() - 1);
  }
  return proxies;
}

Proxies LoadOrComputeProxies(const ModelFile& file, size_t rank, ThreadPool& pool,
                             const std::function<void(double)>& progress, std::string* not_stored) {
  // A model in memory is small: computing its proxies is faster than reading a file.
  const std::filesystem::path path =
      file.path().empty() ? std::filesystem::path() : ProxyPath(file, rank);
  if (FileExists(path)) {
    try {
      return ReadProxies(path, file, rank);
    } catch (const Error&) {
      // Stale or damaged: computed again below.
    }
  }
  Proxies proxies = ComputeProxies(file, rank, pool, progress);
  if (!path.empty()) {
    try {
      std::filesystem::create_directories(path.parent_path());
      SaveProxies(proxies, file, path);
    } catch (const std::exception& error) {
      // A full disk or a read-only home costs time at the next start, not this one.
      if (not_stored != nullptr) *not_stored = error.what();
    }
  }
  return proxies;
}

}  // namespace spa
