#include "policy.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include "arrays.h"
#include "base/error.h"
#include "kernels/matmul.h"
#include "kernels/rows.h"
#include "policies/spa.h"

namespace spa::python {
namespace {

using namespace nb::literals;

// Engine matrices lent to Python during a call. They change afterwards, so a cache that keeps one
// is told to copy it.
class Loans {
 public:
  nb::object Lend(MatView<const float> m) {
    lent_.push_back(nb::cast(Matrix<const float>(m.data, {m.rows, m.cols}, nb::handle(),
                                                 {static_cast<int64_t>(m.stride), 1}),
                             nb::rv_policy::reference));
    return lent_.back();
  }
  void TakeBack() {
    if (Kept()) nb::module_::import_("gc").attr("collect")();
    if (Kept()) {
      throw Error(
          "a cache kept a view of the engine's memory, which changes after the call and with the "
          "next "
          "call of normed, values or proxies: keep a copy, as in layer.inputs.copy()");
    }
    lent_.clear();
  }

 private:
  bool Kept() const {
    return std::ranges::any_of(lent_, [](const nb::object& o) { return Py_REFCNT(o.ptr()) > 1; });
  }
  std::vector<nb::object> lent_;
};

bool IsRange(const RowSet& rows) {
  return !rows.empty() && rows[rows.size() - 1] - rows[0] + 1 == rows.size();
}

// SPA-Cache's singular proxies. Lives as long as its policy: fresh megabytes in every layer would
// cost more than the product.
class ProxyMaker {
 public:
  explicit ProxyMaker(std::shared_ptr<const SpaModel> model) : model_(std::move(model)) {}

  double budget(size_t layer) const { return model_->options.ratios[layer]; }
  // [rows, rank], until the next call.
  MatView<const float> Make(const LayerView& view, const RowSet& rows) {
    const PackedMatrix& projection = model_->projections[view.layer];
    proxies_.Resize(rows.size(), projection.rows());
    if (IsRange(rows)) {
      input_.Set(view.x.Rows(rows[0], rows.size()));
    } else {
      gathered_.Resize(rows.size(), view.x.cols);
      GatherRows(view.x, rows, gathered_.View(), *view.pool);
      input_.Set(gathered_.View());
    }
    MatMul(input_, projection, proxies_.View(), *view.pool);
    return proxies_.View();
  }

 private:
  std::shared_ptr<const SpaModel> model_;
  Mat<float> proxies_;   // [rows, rank]
  Mat<float> gathered_;  // [rows, model_dim], when the rows are not consecutive
  Activations input_;
};

// What a call may look at; `engine` is null once the call is over.
template <typename T>
struct Shown {
  T* engine = nullptr;
  nb::object step = {};  // the Python object of the step
  Loans loans = {}, projected = {};
  ProxyMaker* proxies = nullptr;

  T& Get() const {
    if (engine == nullptr) throw Error("this can be looked at only while the cache is called");
    return *engine;
  }
};

using ShownStep = Shown<const StepInput>;
using ShownLayer = Shown<LayerView>;
using ShownAttention = Shown<const AttentionView>;

// Shows `engine` to Python for as long as this object lives.
template <typename T>
class Showing {
 public:
  Showing(T& engine, nb::object step, ProxyMaker* proxies = nullptr)
      : shown_(new Shown<T>{.engine = &engine, .step = std::move(step), .proxies = proxies}),
        object_(nb::cast(shown_, nb::rv_policy::take_ownership)) {}
  ~Showing() { shown_->engine = nullptr; }
  Showing(const Showing&) = delete;
  Showing& operator=(const Showing&) = delete;

  const nb::object& object() const { return object_; }
  void End() {
    shown_->loans.TakeBack();
    shown_->projected.TakeBack();
  }

 private:
  Shown<T>* shown_;
  nb::object object_;
};

// spa.Plan: what a layer does, when one set of rows does not say it all.
struct Plan {
  nb::object rows, keys, values, queries, live;
  bool choose_after_attention = false;
};

class PythonPolicy : public CachePolicy {
 public:
  PythonPolicy(nb::object policy, std::shared_ptr<const SpaModel> proxies)
      : policy_(std::move(policy)) {
    if (proxies != nullptr) proxies_.emplace(std::move(proxies));
    const auto reuse = nb::cast<std::string>(policy_.attr("reuse"));
    if (reuse == "update") {
      keeps_.reuse = Reuse::kUpdate;
    } else if (reuse == "output") {
      keeps_.reuse = Reuse::kOutput;
    } else if (reuse != "nothing") {
      throw Error("a cache's reuse is 'nothing', 'update' or 'output', not '{}'", reuse);
    }
    keeps_.reuse_in_last_layer = nb::cast<bool>(policy_.attr("reuse_in_last_layer"));
    keeps_.query_layers = nb::cast<size_t>(policy_.attr("query_layers"));
    keeps_.inputs = nb::cast<bool>(policy_.attr("keep_inputs"));
    keeps_.attention = nb::cast<bool>(policy_.attr("attention_weights"));
  }
  ~PythonPolicy() override {
    const nb::gil_scoped_acquire gil;
    step_.reset();
    policy_.reset();
  }
  PythonPolicy(const PythonPolicy&) = delete;
  PythonPolicy& operator=(const PythonPolicy&) = delete;

  Keeps keeps() const override { return keeps_; }

  RowSet BeginStep(const StepInput& step) override {
    const nb::gil_scoped_acquire gil;
    step_.emplace(step, nb::object());
    return ReadRows(policy_.attr("begin_step")(step_->object()), step.visible, step.num_rows(),
                    "begin_step");
  }

  LayerPlan PlanLayer(LayerView& view) override {
    const nb::gil_scoped_acquire gil;
    Showing<LayerView> layer(view, step_->object(), proxies_ ? &*proxies_ : nullptr);
    nb::object answer = policy_.attr("plan_layer")(layer.object());
    layer.End();
    const RowSet& there = keeps_.inputs ? view.step->visible : *view.live;
    const auto read = [&](nb::handle rows) {
      return ReadRows(rows, there, view.step->num_rows(), "plan_layer");
    };
    if (!nb::isinstance<Plan>(answer)) {
      LayerPlan plan = LayerPlan::Of(read(answer));
      if (keeps_.reuse != Reuse::kNothing) plan.live = view.live->Union(plan.out_rows);
      return plan;
    }
    const Plan& given = nb::cast<const Plan&>(answer);
    LayerPlan plan = LayerPlan::Of(read(given.rows));
    plan.k_rows = given.keys.is_none() ? plan.out_rows : read(given.keys);
    plan.v_rows = given.values.is_none() ? plan.k_rows : read(given.values);
    if (!given.queries.is_none()) {
      plan.q_rows = read(given.queries);
      if (!plan.out_rows.Includes(*plan.q_rows) || view.layer >= keeps_.query_layers ||
          (!plan.out_rows.empty() && !IsRange(plan.out_rows))) {
        throw Error(
            "plan_layer: queries are for some of the rows, where rows are consecutive, in the "
            "first query_layers layers");
      }
    }
    plan.live = keeps_.reuse == Reuse::kNothing ? plan.out_rows
                : given.live.is_none()          ? view.live->Union(plan.out_rows)
                                                : read(given.live).Union(plan.out_rows);
    plan.ask_after_attention = given.choose_after_attention;
    return plan;
  }

  std::optional<RowSet> AfterAttention(const AttentionView& view) override {
    const nb::gil_scoped_acquire gil;
    Showing<const AttentionView> attention(view, step_->object());
    const nb::object answer = policy_.attr("after_attention")(attention.object());
    attention.End();
    if (answer.is_none()) return {};
    return ReadRows(answer, *view.out_rows, view.step->num_rows(), "after_attention");
  }

  void EndStep(std::span<const uint32_t> positions, std::span<const float> confidence) override {
    const nb::gil_scoped_acquire gil;
    step_.reset();
    policy_.attr("end_step")(Copy<uint32_t>(positions), Copy<float>(confidence));
  }

 private:
  nb::object policy_;
  std::optional<ProxyMaker> proxies_;
  Keeps keeps_;
  std::optional<Showing<const StepInput>> step_;
};

// The options of the cache spa that a policy's `proxies` names, or nothing.
std::optional<CacheSpec> ProxySpec(const nb::object& policy) {
  const nb::object wanted = policy.attr("proxies");
  if (wanted.is_none()) return {};
  CacheSpec spec = ParseCacheSpec(nb::cast<std::string>(wanted));
  if (spec.name != "spa") throw Error("a cache's proxies are options of spa, not of {}", spec.name);
  spec.options["identifier"] = "singular";
  return spec;
}

// `project` computes, without the GIL, a matrix that its next call overwrites.
template <typename Project>
nb::object Projected(ShownLayer& shown, nb::handle given, const char* who, const Project& project) {
  LayerView& view = shown.Get();
  const RowSet rows = ReadRows(given, *view.live, view.step->num_rows(), who);
  shown.projected.TakeBack();
  MatView<const float> matrix;
  {
    const nb::gil_scoped_release release;
    matrix = project(view, rows);
  }
  return shown.projected.Lend(matrix);
}

nb::object Proxies(ShownLayer& shown, nb::handle given) {
  if (shown.proxies == nullptr) {
    throw Error("this cache has no proxies: set proxies = \"spa\" in its class");
  }
  return Projected(shown, given, "layer.proxies", [&](LayerView& view, const RowSet& rows) {
    return shown.proxies->Make(view, rows);
  });
}

nb::object LendIfThere(ShownAttention& shown, MatView<const float> matrix) {
  return matrix.data == nullptr ? nb::none() : shown.loans.Lend(matrix);
}

}  // namespace

RowSet ReadRows(nb::handle value, const RowSet& among, size_t num_rows, const char* who) {
  using Given = nb::ndarray<nb::ro, nb::ndim<1>, nb::device::cpu, nb::c_contig>;
  Given given;
  if (!nb::try_cast(value, given, false)) {
    nb::object array = nb::module_::import_("numpy").attr("ascontiguousarray")(value);
    if (!nb::try_cast(array, given, false)) {
      throw Error("{}: rows are a list or an array of numbers, or a mask of all rows", who);
    }
  }
  if (given.size() == 0) return RowSet();  // NumPy takes the numbers of an empty list for real ones
  std::vector<uint32_t> rows;
  const auto read = [&](const auto* data) {
    rows.reserve(given.size());
    for (size_t i = 0; i < given.size(); ++i) {
      if (data[i] < 0 || static_cast<uint64_t>(data[i]) >= num_rows) {
        throw Error("{}: there is no row {}; there are {}", who, data[i], num_rows);
      }
      rows.push_back(static_cast<uint32_t>(data[i]));
    }
  };
  if (given.dtype() == nb::dtype<int64_t>()) {
    read(static_cast<const int64_t*>(given.data()));
  } else if (given.dtype() == nb::dtype<uint32_t>()) {
    read(static_cast<const uint32_t*>(given.data()));
  } else if (given.dtype() == nb::dtype<int32_t>()) {
    read(static_cast<const int32_t*>(given.data()));
  } else if (given.dtype() == nb::dtype<bool>()) {
    if (given.size() != num_rows) {
      throw Error("{}: a mask of {} rows, but there are {}", who, given.size(), num_rows);
    }
    const auto* mask = static_cast<const bool*>(given.data());
    for (size_t row = 0; row < num_rows; ++row) {
      if (mask[row]) rows.push_back(static_cast<uint32_t>(row));
    }
  } else {
    throw Error("{}: rows are whole numbers or a mask", who);
  }
  RowSet set(std::move(rows));
  if (!among.Includes(set)) {
    throw Error("{}: row {} takes no part here", who, set.Without(among)[0]);
  }
  return set;
}

std::shared_ptr<nb::object> Share(nb::object object) {
  return {new nb::object(std::move(object)), [](nb::object* shared) {
            const nb::gil_scoped_acquire gil;
            delete shared;
          }};
}

PolicyFactory PythonPolicies(std::shared_ptr<nb::object> make, const PolicyContext& context) {
  std::optional<CacheSpec> spec;
  {
    const nb::gil_scoped_acquire gil;
    spec = ProxySpec((*make)());
  }
  std::shared_ptr<const SpaModel> proxies;
  if (spec) {
    OptionReader options(*spec, SpaOptionTable());
    proxies = PrepareSpa(options, context);
  }
  return [make, proxies]() -> std::unique_ptr<CachePolicy> {
    const nb::gil_scoped_acquire gil;
    return std::make_unique<PythonPolicy>((*make)(), proxies);
  };
}

void BindPolicy(nb::module_& module) {
  nb::class_<Plan>(module, "Plan",
                   "What a layer does with the rows. `rows` run attention and FFN; `keys` and "
                   "`values`\nare the rows whose keys and values are projected (None: the same), "
                   "`queries` those\nwhose queries are, `live` the rows that go on to the next "
                   "layer.")
      .def(
          "__init__",
          [](Plan* plan, nb::object rows, nb::object keys, nb::object values, nb::object queries,
             nb::object live, bool choose) {
            new (plan) Plan{std::move(rows),    std::move(keys), std::move(values),
                            std::move(queries), std::move(live), choose};
          },
          "rows"_a, nb::kw_only(), "keys"_a = nb::none(), "values"_a = nb::none(),
          "queries"_a = nb::none(), "live"_a = nb::none(), "choose_after_attention"_a = false);

  constexpr auto kCopied = nb::rv_policy::move;  // arrays that own their values
  const auto rows = [](RowSet StepInput::*member) {
    return [member](const ShownStep& s) { return Copy<uint32_t>(s.Get().*member); };
  };
  const auto number = [](size_t StepInput::*member) {
    return [member](const ShownStep& s) { return s.Get().*member; };
  };
  nb::class_<ShownStep>(module, "Step", "A step of one sequence, as its cache sees it.")
      .def_prop_ro("step", number(&StepInput::step), "counted over the whole generation")
      .def_prop_ro("step_in_block", number(&StepInput::step_in_block))
      .def_prop_ro("prompt_length", number(&StepInput::prompt_length))
      .def_prop_ro("block_begin", number(&StepInput::block_begin))
      .def_prop_ro("block_end", number(&StepInput::block_end))
      .def_prop_ro("shift", number(&StepInput::shift),
                   "a position is predicted by the row this many places before it")
      .def_prop_ro("num_rows", [](const ShownStep& s) { return s.Get().num_rows(); })
      .def_prop_ro(
          "ids", [](const ShownStep& s) { return Copy<int32_t>(s.Get().ids); }, kCopied)
      .def_prop_ro(
          "masked", [](const ShownStep& s) { return Copy<bool>(s.Get().masked); }, kCopied,
          "True where a position is open")
      .def_prop_ro("visible", rows(&StepInput::visible), kCopied, "rows that take part")
      .def_prop_ro("changed", rows(&StepInput::changed), kCopied,
                   "positions whose token is new since the last step")
      .def_prop_ro("wanted", rows(&StepInput::wanted), kCopied, "rows whose logits are read")
      .def_prop_ro("checked", rows(&StepInput::checked), kCopied)
      .def_prop_ro("never_computed", rows(&StepInput::never_computed), kCopied)
      .def_prop_ro("new_tokens", rows(&StepInput::new_tokens), kCopied,
                   "visible rows whose token is not the one they last ran with");

  nb::class_<ShownLayer>(module, "Layer", "A layer of one step, as a cache sees it while planning.")
      .def_prop_ro("index", [](const ShownLayer& s) { return s.Get().layer; })
      .def_prop_ro("num_layers", [](const ShownLayer& s) { return s.Get().config->num_layers; })
      .def_prop_ro("step", [](const ShownLayer& s) { return s.step; })
      .def_prop_ro(
          "live", [](const ShownLayer& s) { return Copy<uint32_t>(*s.Get().live); }, kCopied,
          "rows that reached this layer")
      .def_prop_ro(
          "inputs", [](ShownLayer& s) { return s.loans.Lend(s.Get().x); },
          "[num_rows, width], a view; rows that are not live hold nothing")
      .def_prop_ro(
          "budget",
          [](const ShownLayer& s) -> std::optional<double> {
            if (s.proxies == nullptr) return {};
            return s.proxies->budget(s.Get().layer);
          },
          "share of the rows that SPA-Cache recomputes here; None without proxies")
      .def(
          "normed",
          [](ShownLayer& s, nb::handle given) {
            return Projected(s, given, "layer.normed",
                             [](LayerView& v, const RowSet& r) { return v.Normed(r); });
          },
          "rows"_a, "[rows, width], a view: their normed inputs")
      .def(
          "values",
          [](ShownLayer& s, nb::handle given) {
            return Projected(s, given, "layer.values",
                             [](LayerView& v, const RowSet& r) { return v.Values(r); });
          },
          "rows"_a, "[rows, value width], a view: their value projections")
      .def("proxies", Proxies, "rows"_a, "[rows, rank], a view: their singular proxies");

  nb::class_<ShownAttention>(module, "Attention",
                             "The attention of a layer, before its output projection.")
      .def_prop_ro("index", [](const ShownAttention& s) { return s.Get().layer; })
      .def_prop_ro("step", [](const ShownAttention& s) { return s.step; })
      .def_prop_ro(
          "rows", [](const ShownAttention& s) { return Copy<uint32_t>(*s.Get().out_rows); },
          kCopied, "rows that attended")
      .def_prop_ro(
          "queries", [](ShownAttention& s) { return s.loans.Lend(s.Get().q); },
          "[rows, query width], a view")
      .def_prop_ro(
          "heads", [](ShownAttention& s) { return s.loans.Lend(s.Get().heads); },
          "[rows, query width], a view: the output of each head")
      .def_prop_ro(
          "weights", [](ShownAttention& s) { return LendIfThere(s, s.Get().mean_weights); },
          "[rows, num_rows], a view: attention weights, mean over heads; None unless the cache has "
          "attention_weights = True");
}

}  // namespace spa::python
