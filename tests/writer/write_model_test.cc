// Models written by convert, quantize and synth load again and compute the same.
#include "writer/write_model.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "base/error.h"
#include "engine/runner.h"
#include "kernels/block_codec.h"
#include "model/family.h"

namespace spa {
namespace {

std::filesystem::path Folder() {
  const auto folder =
      std::filesystem::path(testing::TempDir()) / ("write_model_test." + std::to_string(getpid()));
  std::filesystem::create_directories(folder);
  return folder;
}

const std::string kModel = SPA_TEST_DATA "/mini.gguf";

TEST(WriteModel, EveryTypeLoadsAgainWithValuesNearTheOriginal) {
  ThreadPool pool(2);
  const ModelFile original = ModelFile::Open(kModel);
  for (const DType dtype : EncodableTypes()) {
    const auto path = Folder() / "out.gguf";
    if (original.config().model_dim % Info(dtype).block_size != 0) {
      EXPECT_THROW(WriteModel(original, path, {.dtype = dtype, .progress = {}}, pool), Error);
      continue;
    }
    WriteModel(original, path, {.dtype = dtype, .progress = {}}, pool);
    const ModelFile written = ModelFile::Open(path);
    const Mat<float> a = DecodeTensor(original, TensorRole::kWdown, 3, pool);
    const Mat<float> b = DecodeTensor(written, TensorRole::kWdown, 3, pool);
    double error = 0.0, size = 0.0;
    for (size_t i = 0; i < a.rows() * a.cols(); ++i) {
      error += std::pow(a.data()[i] - b.data()[i], 2);
      size += std::pow(a.data()[i], 2);
    }
    const double bound = dtype == DType::kF32 || dtype == DType::kBF16 ? 0.0
                         : dtype == DType::kF16                        ? 1e-3
                         : dtype == DType::kQ4_0                       ? 0.12
                                                                       : 0.01;
    EXPECT_LE(std::sqrt(error / size), bound) << Info(dtype).name;
    EXPECT_EQ(written.gguf()->metadata().size(), original.gguf()->metadata().size());
  }
}

TEST(WriteModel, NamesTheMatricesThatATypeDoesNotFit) {
  ThreadPool pool(2);
  ModelConfig config = NamedShape("llada-8b", 2);
  config.model_dim = 256;
  config.num_heads = config.num_kv_heads = 4;
  config.head_dim = 64;
  config.ffn_dim = 96;  // rows of the down projection: no multiple of Q4_K's 256
  config.rope_dim = config.head_dim;
  const auto path = Folder() / "wide.gguf";
  WriteSynthetic(config, DType::kF16, 1, path, {}, pool);
  const ModelFile model = ModelFile::Open(path);
  const auto others = WriteModel(model, Folder() / "q4_k.gguf", {DType::kQ4_K, {}}, pool);
  ASSERT_EQ(others.size(), 2u);
  EXPECT_EQ(others[0].tensor, "blk.0.ffn_down.weight");
  EXPECT_EQ(others[0].dtype, DType::kQ8_0);
  EXPECT_TRUE(WriteModel(model, Folder() / "q8_0.gguf", {DType::kQ8_0, {}}, pool).empty());
}

TEST(WriteModel, RefusesToOverwriteItsOwnInput) {
  ThreadPool pool(1);
  const auto path = Folder() / "same.gguf";
  std::filesystem::copy_file(kModel, path, std::filesystem::copy_options::overwrite_existing);
  EXPECT_THROW(WriteModel(ModelFile::Open(path), path, {}, pool), Error);
  EXPECT_NO_THROW(ModelFile::Open(path));
}

TEST(WriteModel, AHuggingFaceFolderAndItsConversionGiveTheSameLogits) {
  const std::filesystem::path folder = SPA_TEST_DATA "/tiny-llada-hf";
  ThreadPool pool(2);
  const auto path = Folder() / "converted.gguf";
  WriteModel(ModelFile::Open(folder), path, {}, pool);
  const auto logits = [](const std::filesystem::path& model) {
    Engine engine({.model = model, .threads = 1, .kv_type = KvType::kF32, .progress = {}});
    const auto ids = engine.Encode({.messages = {{"user", "True and not False is"}}, .text = ""});
    std::vector<float> all(ids.size() * engine.config().vocab_rows);
    engine.DenseLogits(ids, [&](size_t row, std::span<const float> values) {
      std::ranges::copy(values, all.begin() + static_cast<ptrdiff_t>(row * values.size()));
    });
    return all;
  };
  EXPECT_EQ(logits(folder), logits(path));
}

TEST(WriteSynthetic, EveryShapeLoadsAndRuns) {
  ThreadPool pool(2);
  for (const Family* family : Families()) {
    for (const auto& shape : family->shapes) {
      // The true structure, vocabulary and number of experts, a fraction of the width.
      ModelConfig config = NamedShape(std::string(shape.name), 2);
      config.model_dim = 64;
      config.num_heads = 4;
      config.num_kv_heads = config.wide.num_kv_heads = 2;
      for (LayerShape& layer : config.layer_shapes) layer.num_kv_heads = 2;
      if (config.ffn_dim > 0) config.ffn_dim = 96;
      if (config.experts.count > 0) config.experts.dim = 32;
      if (config.experts.shared_dim > 0) config.experts.shared_dim = 32;
      const auto path = Folder() / "shape.gguf";
      WriteSynthetic(config, DType::kQ4_0, 1, path, {}, pool);
      Engine engine({.model = path, .threads = 2, .kv_type = KvType::kF32, .progress = {}});
      EXPECT_EQ(engine.config().family, family->name);
      EXPECT_EQ(engine.config().mask_id, config.mask_id) << shape.name;
      EXPECT_EQ(engine.config().expand_id, config.expand_id) << shape.name;
      EXPECT_EQ(engine.config().attention, config.attention) << shape.name;
      // DiffusionGemma has no mask: its canvas is noise.
      const std::vector<TokenId> ids = {1, 2, config.mask_id >= 0 ? config.mask_id : 3};
      engine.DenseLogits(ids, [&](size_t, std::span<const float> logits) {
        EXPECT_TRUE(std::ranges::all_of(logits, [](float x) { return std::isfinite(x); }))
            << shape.name;
      });
      // Its makers' decoding, with the cache it gets unless told otherwise.
      DecodeOptions options = engine.DefaultDecodeOptions();
      options.gen_length = options.block_length = options.steps = 8;
      options.stop = Stop::kNever;
      const auto generation =
          RunAlone(engine, {{1, 2, 3, 4, 5},
                            options,
                            engine.PrepareCache({.name = engine.DefaultCache(), .options = {}})});
      const auto answer = CanvasIds(generation->decoder());
      EXPECT_GE(answer.size(), 8u) << shape.name;
      EXPECT_EQ(std::ranges::count(answer, config.mask_id), 0) << shape.name;
    }
    // Llama 3.2 scales its rotation, which is refused: there is no shape to run.
    EXPECT_EQ(family->shapes.empty(), family->name == "a2d-llama") << family->name;
  }
}

TEST(WriteSynthetic, MakesModelsThatRun) {
  ThreadPool pool(2);
  for (const std::string shape : {"llada-8b", "dream-7b"}) {
    // The true head size and structure, a fraction of the width.
    ModelConfig config = NamedShape(shape, 2);
    config.model_dim = 512;
    config.num_heads = 4;
    config.num_kv_heads = shape == "llada-8b" ? 4 : 2;
    config.ffn_dim = 768;
    for (const DType dtype : {DType::kQ4_0, DType::kQ5_1, DType::kQ4_K, DType::kQ6_K}) {
      const auto path = Folder() / "synthetic.gguf";
      WriteSynthetic(config, dtype, 1, path, {}, pool);
      Engine engine({.model = path, .threads = 2, .kv_type = KvType::kF32, .progress = {}});
      DecodeOptions options = engine.DefaultDecodeOptions();
      options.gen_length = options.steps = options.block_length = 4;
      const auto generation =
          RunAlone(engine, {engine.Encode({.messages = {{"user", "hello"}}, .text = ""}), options,
                            engine.PrepareCache({.name = "spa", .options = {{"rank", "8"}}})});
      for (const TokenId id : CanvasIds(generation->decoder())) EXPECT_NE(id, config.mask_id);
    }
  }
  EXPECT_THROW(NamedShape("llada-9b", 0), Error);
  EXPECT_THROW(NamedShape("llada-8b", 33), Error);
}

}  // namespace
}  // namespace spa
