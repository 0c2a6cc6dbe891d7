// How far the similarity of two proxies W_r h can be from that of the values W h. The paper's
// theorem, 2 (lambda_{r+1} / lambda_r)^2, is about h in the span of V_r, where the proxy in fact
// loses nothing. Elsewhere its lemma holds, which has a factor per h:
//   1/2 (lambda_{r+1} / lambda_r)^2 (|h1| / |V_r^T h1| + |h2| / |V_r^T h2|)^2
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/random.h"
#include "policies/spa_proxy.h"

namespace spa {
namespace {

using Vector = std::vector<double>;

double Dot(const Vector& a, const Vector& b) {
  double sum = 0.0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

double Norm(const Vector& a) { return std::sqrt(Dot(a, a)); }

double Cosine(const Vector& a, const Vector& b) { return Dot(a, b) / (Norm(a) * Norm(b)); }

Vector Times(const Mat<float>& m, const Vector& v) {
  Vector product(m.rows());
  for (size_t i = 0; i < m.rows(); ++i) {
    for (size_t j = 0; j < m.cols(); ++j) product[i] += m.Row(i)[j] * v[j];
  }
  return product;
}

// `count` random orthonormal vectors of `size` numbers.
std::vector<Vector> Orthonormal(size_t count, size_t size, uint64_t seed) {
  std::vector<Vector> basis;
  for (size_t k = 0; k < count; ++k) {
    const RandomStream random(seed, k, 0);
    Vector v(size);
    for (size_t i = 0; i < size; ++i) v[i] = 2.0 * random.Uniform(i) - 1.0;
    for (int pass = 0; pass < 2; ++pass) {  // twice is enough for double precision
      for (const Vector& other : basis) {
        const double part = Dot(v, other);
        for (size_t i = 0; i < size; ++i) v[i] -= part * other[i];
      }
    }
    const double norm = Norm(v);
    for (double& x : v) x /= norm;
    basis.push_back(v);
  }
  return basis;
}

constexpr size_t kRows = 24, kCols = 32, kRank = 8;

// W [kRows, kCols] whose singular values fall slowly, then by `ratio` behind the first kRank: the
// rank a proxy is cut at.
struct Case {
  explicit Case(double ratio)
      : left(Orthonormal(kRows, kRows, 1)), right(Orthonormal(kCols, kCols, 2)), w(kRows, kCols) {
    for (size_t k = 0; k < kRows; ++k) {
      lambda.push_back((k < kRank ? 1.0 : ratio) * (1.0 - 0.02 * static_cast<double>(k)));
    }
    for (size_t i = 0; i < kRows; ++i) {
      for (size_t j = 0; j < kCols; ++j) {
        double sum = 0.0;
        for (size_t k = 0; k < kRows; ++k) sum += lambda[k] * left[k][i] * right[k][j];
        w.Row(i)[j] = static_cast<float>(sum);
      }
    }
    ThreadPool pool(1);
    proxy = TruncatedSvd(w, kRank, pool);
  }

  // |h| / |V_r^T h|
  double Factor(const Vector& h) const {
    double kept = 0.0;
    for (size_t k = 0; k < kRank; ++k) kept += std::pow(Dot(right[k], h), 2);
    return Norm(h) / std::sqrt(kept);
  }
  double Bound(const Vector& h1, const Vector& h2) const {
    return 0.5 * std::pow(lambda[kRank] / lambda[kRank - 1] * (Factor(h1) + Factor(h2)), 2);
  }
  double Moved(const Vector& h1, const Vector& h2) const {
    return std::abs(Cosine(Times(w, h1), Times(w, h2)) -
                    Cosine(Times(proxy.projection, h1), Times(proxy.projection, h2)));
  }
  // a v_i + b v_j
  Vector Combine(double a, size_t i, double b, size_t j) const {
    Vector h(kCols);
    for (size_t k = 0; k < kCols; ++k) h[k] = a * right[i][k] + b * right[j][k];
    return h;
  }

  std::vector<Vector> left, right;
  Vector lambda;
  Mat<float> w;
  LayerProxy proxy;
};

TEST(SimilarityLemma, HoldsForAnyInput) {
  size_t meaningful = 0;
  double closest = 0.0;
  for (const double ratio : {0.3, 0.1, 0.03}) {
    const Case c(ratio);
    for (uint64_t trial = 0; trial < 400; ++trial) {
      const RandomStream random(7, trial, 0);
      // From mostly inside the span of V_r to mostly outside.
      const double outside = 3.0 * static_cast<double>(trial) / 400.0;
      Vector h1(kCols), h2(kCols);
      for (size_t k = 0; k < kCols; ++k) {
        const double scale = k < kRank ? 1.0 : outside;
        const double a = scale * (2.0 * random.Uniform(2 * k) - 1.0);
        const double b = scale * (2.0 * random.Uniform(2 * k + 1) - 1.0);
        for (size_t i = 0; i < kCols; ++i) {
          h1[i] += a * c.right[k][i];
          h2[i] += b * c.right[k][i];
        }
      }
      const double moved = c.Moved(h1, h2), bound = c.Bound(h1, h2);
      EXPECT_LE(moved, bound + 1e-5) << ratio << " " << trial;
      if (bound > 1.0) continue;  // two cosines are never further apart than 2
      ++meaningful;
      closest = std::max(closest, moved / bound);
    }
  }
  EXPECT_GT(meaningful, 800u);
  EXPECT_GT(closest, 0.03);  // random pairs stay far below; the next test does not
}

// h1 and h2 agree where the proxy looks and disagree where it does not.
TEST(SimilarityLemma, IsNearlyReached) {
  for (const double ratio : {0.05, 0.02}) {
    const Case c(ratio);
    const Vector h1 = c.Combine(1.0, kRank - 1, 3.0, kRank);
    const Vector h2 = c.Combine(1.0, kRank - 1, -3.0, kRank);
    EXPECT_LE(c.Moved(h1, h2), c.Bound(h1, h2) + 1e-5);
    EXPECT_GT(c.Moved(h1, h2), 0.8 * c.Bound(h1, h2));
  }
}

// The bound that a proxy reports is the theorem's: without its condition on h it does not hold.
TEST(SimilarityLemma, TheTheoremNeedsTheSpan) {
  const Case c(0.1);
  const double ratio = c.lambda[kRank] / c.lambda[kRank - 1];
  EXPECT_NEAR(c.proxy.SimilarityBound(), 2.0 * ratio * ratio, 1e-3 * ratio);
  const Vector h1 = c.Combine(0.01, 0, 1.0, kRank), h2 = c.Combine(0.01, 0, -1.0, kRank);
  EXPECT_GT(c.Moved(h1, h2), 1.5);
  EXPECT_LT(c.proxy.SimilarityBound(), 0.05);
  // Inside the span the similarity does not move at all.
  EXPECT_LT(c.Moved(c.Combine(1.0, 0, 1.0, 1), c.Combine(1.0, 0, -0.5, 2)), 1e-4);
}

}  // namespace
}  // namespace spa
