// Configurations as the published models write them, and files with impossible values.
#include "model/config.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "model/model_file.h"

namespace spa {
namespace {

std::filesystem::path WriteConfig(const std::string& json) {
  const auto folder =
      std::filesystem::path(testing::TempDir()) / ("config_test." + std::to_string(getpid()));
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "config.json") << json;
  return folder;
}

std::string Llada(const std::string& extra = "") {
  return R"({"model_type":"llada","d_model":64,"n_heads":4,"n_kv_heads":4,"n_layers":2,
    "mlp_hidden_size":96,"vocab_size":300,"embedding_size":320,"rope_theta":500000.0,
    "rms_norm_eps":1e-5,"max_sequence_length":4096,"mask_token_id":299,"eos_token_id":1,
    "weight_tying":false,"include_bias":false,"include_qkv_bias":false)" +
         extra + "}";
}

TEST(Config, ReadsTheFieldsOfBothFamilies) {
  const ModelConfig llada = ConfigFromFolder(WriteConfig(Llada()));
  EXPECT_EQ(llada.family, "llada");
  EXPECT_EQ(llada.vocab_rows, 320u);
  EXPECT_EQ(llada.head_dim, 16u);
  EXPECT_FALSE(llada.logit_shift);
  const ModelConfig dream = ConfigFromFolder(WriteConfig(
      R"({"model_type":"Dream","hidden_size":64,"num_attention_heads":8,"num_key_value_heads":2,
      "num_hidden_layers":3,"intermediate_size":96,"vocab_size":300,"rope_theta":1000000.0,
      "rms_norm_eps":1e-6,"max_position_embeddings":131072,"mask_token_id":299,
      "rope_scaling":null,"tie_word_embeddings":false})"));
  EXPECT_EQ(dream.family, "dream");
  EXPECT_TRUE(dream.logit_shift);
  EXPECT_TRUE(dream.qkv_bias);
  EXPECT_EQ(dream.kv_dim(), 16u);
}

TEST(Config, RefusesWhatItDoesNotCompute) {
  for (const char* extra :
       {R"(,"alibi":true)", R"(,"rope":false)", R"(,"block_type":"sequential")",
        R"(,"layer_norm_type":"default")", R"(,"attention_layer_norm":true)",
        R"(,"block_group_size":2)", R"(,"n_heads":3)", R"(,"n_layers":0)", R"(,"n_layers":-1)",
        R"(,"n_layers":1.5)", R"(,"n_layers":100000)", R"(,"d_model":"wide")",
        R"(,"mask_token_id":400)", R"(,"rms_norm_eps":0)", R"(,"n_kv_heads":8)",
        R"(,"n_heads":16,"n_kv_heads":16)", R"(,"activation_type":"gelu")"}) {
    // The later of two equal keys wins in the JSON library, so each case overrides a good value.
    EXPECT_THROW(ConfigFromFolder(WriteConfig(Llada(extra))), Error) << extra;
  }
  EXPECT_THROW(ConfigFromFolder(WriteConfig("{")), Error);
  EXPECT_THROW(ConfigFromFolder(WriteConfig("[]")), Error);
  EXPECT_THROW(ConfigFromFolder(WriteConfig(R"({"model_type":"llama"})")), Error);
}

TEST(Config, RefusesAMillionEndTokens) {
  std::string ids = "0";
  for (int id = 1; id < 1000000; ++id) ids += "," + std::to_string(id);
  EXPECT_THROW(ConfigFromFolder(WriteConfig(Llada(",\"eos_token_id\":[" + ids + "]"))), Error);
}

// Printing or copying such a value would overflow the stack.
TEST(Config, RefusesWhatNestsTooDeep) {
  const std::string deep = std::string(300000, '[') + std::string(300000, ']');
  for (const char* key : {"n_layers", "block_type", "eos_token_id", "text_config"}) {
    EXPECT_THROW(ConfigFromFolder(WriteConfig(Llada(std::string(",\"") + key + "\":" + deep))),
                 Error)
        << key;
  }
  const auto folder = WriteConfig(Llada());
  std::ofstream(folder / "tokenizer_config.json") << R"({"mask_token":{"content":)" << deep << "}}";
  EXPECT_THROW(ConfigFromFolder(folder), Error);
  std::filesystem::remove(folder / "tokenizer_config.json");
}

TEST(Config, ThePublishedFoldersHaveTheirPublishedShapes) {
  const std::filesystem::path models = SPA_TEST_DATA;
  const ModelConfig llada = ConfigFromFolder(models / "LLaDA-8B-Instruct");
  EXPECT_EQ(llada.num_layers, 32u);
  EXPECT_EQ(llada.vocab_rows, 126464u);
  EXPECT_EQ(llada.ffn_dim, 12288u);
  EXPECT_EQ(llada.mask_id, 126336);
  const ModelConfig dream = ConfigFromFolder(models / "Dream-7B-Instruct");
  EXPECT_EQ(dream.num_layers, 28u);
  EXPECT_EQ(dream.num_kv_heads, 4u);
  EXPECT_EQ(dream.kv_dim(), 512u);
  EXPECT_EQ(dream.vocab_rows, 152064u);
  EXPECT_EQ(dream.mask_id, 151666);
  // Weights are absent here: one clear error, not a crash.
  EXPECT_THROW(ModelFile::Open(models / "Dream-7B-Instruct"), Error);
}

TEST(ModelFile, InterleavedRowsComeOutInHalfSplitOrder) {
  const ModelFile model = ModelFile::Open(SPA_TEST_DATA "/mini.gguf");
  const auto order = model.HalfSplitRowOrder(TensorRole::kWq);
  ASSERT_EQ(order.size(), 128u);
  EXPECT_EQ(order[0], 0u);
  EXPECT_EQ(order[1], 2u);
  EXPECT_EQ(order[16], 1u);
  EXPECT_EQ(order[32], 32u);
  EXPECT_TRUE(model.HalfSplitRowOrder(TensorRole::kWv).empty());
}

}  // namespace
}  // namespace spa
