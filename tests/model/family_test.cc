// A family is one record: the worked example of docs/adding-a-family.md, compiled from there; and
// files that belong to no family or contradict themselves.
#include "model/family.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "file/gguf_writer.h"
#include "model/model_file.h"

namespace spa {

const Family& LumenFamily();  // in the document

namespace {

std::filesystem::path Folder() {
  const auto folder =
      std::filesystem::path(testing::TempDir()) / ("family_test." + std::to_string(getpid()));
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  return folder;
}

void Write(const std::filesystem::path& path, const std::string& text) {
  std::ofstream(path) << text;
}

// The message of the Error, or nothing.
template <typename Call>
std::string Refusal(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

std::string RefusalOf(const std::string& config_json) {
  const auto folder = Folder();
  Write(folder / "config.json", config_json);
  return Refusal([&] { ConfigFromFolder(folder); });
}

std::string Qwen(const std::string& extra) {
  return R"({"hidden_size":64,"num_attention_heads":4,"num_key_value_heads":2,"head_dim":32,
    "num_hidden_layers":2,"intermediate_size":96,"vocab_size":300,"rope_theta":1000000.0,
    "rms_norm_eps":1e-6,"max_position_embeddings":4096)" +
         extra + "}";
}

std::string Llada2(const std::string& extra) {
  return Qwen(R"(,"architectures":["LLaDA2MoeModelLM"],"use_bias":false,"num_experts":16,
    "num_experts_per_tok":4,"moe_intermediate_size":32,"n_group":4,"topk_group":2,
    "num_shared_experts":1,"first_k_dense_replace":1,"routed_scaling_factor":2.5,
    "partial_rotary_factor":0.5,"mask_token_id":299,"pad_token_id":298)" +
              extra);
}

TEST(Family, AnExampleFromTheDocumentReadsFoldersAndGguf) {
  AddFamily(LumenFamily());
  const auto folder = Folder();
  Write(folder / "config.json",
        Qwen(R"(,"architectures":["LumenForDiffusion"],"mask_token_id":299,"use_qk_norm":true)"));
  const ModelConfig config = ConfigFromFolder(folder);
  EXPECT_EQ(config.family, "lumen");
  EXPECT_TRUE(config.qk_norm);
  EXPECT_EQ(config.decode.block_length, 64u);
  EXPECT_EQ(config.q_dim(), 128u);  // not the width

  const auto path = folder / "lumen.gguf";
  {
    GgufWriter writer(path);
    writer.AddString("general.architecture", "lumen");
    for (const auto& [key, value] :
         std::initializer_list<std::pair<const char*, uint32_t>>{{"block_count", 2},
                                                                 {"context_length", 4096},
                                                                 {"embedding_length", 64},
                                                                 {"feed_forward_length", 96},
                                                                 {"attention.head_count", 4},
                                                                 {"attention.head_count_kv", 2},
                                                                 {"attention.key_length", 32}}) {
      writer.AddUint32(std::string("lumen.") + key, value);
    }
    writer.AddFloat32("lumen.attention.layer_norm_rms_epsilon", 1e-6f);
    writer.AddFloat32("lumen.rope.freq_base", 1e6f);
    writer.AddUint32("tokenizer.ggml.mask_token_id", 299);
    const std::vector<StoredTensor> tensors = StoredTensors(config, kGgufNames, false);
    for (const StoredTensor& tensor : tensors) {
      writer.DeclareTensor(tensor.name, DType::kF32, tensor.shape);
    }
    writer.BeginData();
    for (const StoredTensor& tensor : tensors) {
      size_t count = 1;
      for (const uint64_t extent : tensor.shape) count *= extent;
      const std::vector<float> values(count, 0.5f);
      writer.WriteData(std::as_bytes(std::span(values)));
    }
    writer.Finish();
  }
  const ModelFile file = ModelFile::Open(path);
  EXPECT_EQ(file.config().family, "lumen");
  EXPECT_EQ(file.Get(TensorRole::kQNorm, 1).num_elements(), 32u);
}

TEST(Family, AnUnknownArchitectureIsNamedWithWhatIsSupported) {
  const std::string message =
      RefusalOf(R"({"architectures":["LlamaForCausalLM"],"model_type":"llada"})");
  EXPECT_NE(message.find("'LlamaForCausalLM'"), std::string::npos) << message;
  for (const char* name : {"LLaDAModelLM", "DreamModel", "SDARForCausalLM", "RND1"}) {
    EXPECT_NE(message.find(name), std::string::npos) << message;
  }
  EXPECT_NE(RefusalOf(R"({"model_type":"gpt2"})").find("'gpt2'"), std::string::npos);
}

TEST(Family, TheArchitectureDecidesBeforeTheModelType) {
  const auto folder = Folder();
  Write(folder / "config.json",
        Qwen(R"(,"architectures":["LLaDAMoEModel"],"model_type":"llada","num_experts":8,
             "num_experts_per_tok":2,"expert_intermediate_size":32,"mask_token_id":299)"));
  const ModelConfig config = ConfigFromFolder(folder);
  EXPECT_EQ(config.family, "llada-moe");
  EXPECT_EQ(config.experts.count, 8u);
  EXPECT_TRUE(config.has_experts(0));
}

TEST(Family, TheMaskComesFromTheTokenizerAndMustAgreeWithTheConfig) {
  const auto folder = Folder();
  const std::string a2d = R"(,"architectures":["A2DQwen3LMHeadModel"])";
  Write(folder / "config.json", Qwen(a2d));
  EXPECT_NE(Refusal([&] { ConfigFromFolder(folder); }).find("<|mask|>"), std::string::npos);
  Write(folder / "added_tokens.json", R"({"<|mask|>":297})");
  EXPECT_EQ(ConfigFromFolder(folder).mask_id, 297);
  Write(folder / "config.json", Qwen(a2d + R"(,"mask_token_id":298)"));
  const std::string message = Refusal([&] { ConfigFromFolder(folder); });
  EXPECT_NE(message.find("298"), std::string::npos) << message;
  EXPECT_NE(message.find("297"), std::string::npos) << message;
  Write(folder / "config.json", Qwen(a2d + R"(,"mask_token_id":297)"));
  Write(folder / "tokenizer_config.json",
        R"({"added_tokens_decoder":{"296":{"content":"<|mask|>"}}})");
  EXPECT_NE(Refusal([&] { ConfigFromFolder(folder); }), "");  // one text, two ids
}

TEST(Family, NamesTellVariantsApartAlsoInADownloadCache) {
  const std::string llada2 = Llada2("");
  for (const auto& [name, edits] : std::initializer_list<std::pair<const char*, bool>>{
           {"LLaDA2.0-mini", false},
           {"LLaDA2.1-mini", true},
           {"models--inclusionAI--LLaDA2.1-mini/snapshots/0123abcd", true}}) {
    const auto folder = Folder() / name;
    std::filesystem::create_directories(folder);
    Write(folder / "config.json", llada2);
    EXPECT_EQ(ConfigFromFolder(folder).decode.edit_threshold.has_value(), edits) << name;
    EXPECT_EQ(ConfigFromFolder(folder.string() + "/").name.substr(0, 7), "LLaDA2.") << name;
  }
}

TEST(Family, EndTokensOfAllFilesAreCollected) {
  const auto folder = Folder();
  Write(folder / "config.json",
        Qwen(R"(,"architectures":["SDARForCausalLM"],"mask_token_id":299,"eos_token_id":290)"));
  Write(folder / "generation_config.json", R"({"eos_token_id":[291,290]})");
  const ModelConfig config = ConfigFromFolder(folder);
  EXPECT_EQ(config.eos_id, 290);
  EXPECT_EQ(config.stop_ids, (std::vector<TokenId>{290, 291}));
  EXPECT_EQ(config.attention.kind, AttentionKind::kBlocks);
  EXPECT_EQ(config.attention.block_length, 4u);
}

TEST(Family, ImpossibleExpertsAreRefusedInOneLine) {
  EXPECT_EQ(RefusalOf(Llada2("")), "");
  for (const char* extra :
       {R"(,"n_group":3)", R"(,"n_group":16)", R"(,"topk_group":5)", R"(,"topk_group":0)",
        R"(,"num_experts_per_tok":9)", R"(,"num_experts_per_tok":0)", R"(,"n_group":0)",
        R"(,"moe_intermediate_size":0)", R"(,"routed_scaling_factor":0)", R"(,"rotary_dim":8)",
        R"(,"use_bias":true)", R"(,"score_function":"softmax")", R"(,"use_sliding_window":true)",
        R"(,"mask_token_id":298)"}) {
    const std::string message = RefusalOf(Llada2(extra));
    EXPECT_NE(message, "") << extra;
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  }
}

TEST(Family, EveryShapeIsSound) {
  for (const Family* family : Families()) {
    for (const auto& shape : family->shapes) {
      const ModelConfig config = ShapeNamed(shape.name);
      EXPECT_EQ(config.family, family->name);
      for (const auto& [id, text] : family->tokens) {
        EXPECT_LT(static_cast<size_t>(id), config.vocab_rows) << shape.name << " " << text;
      }
    }
  }
  // Published numbers of parameters: LLaDA-8B, and LLaDA2.0-mini to 1%.
  const auto parameters = [](std::string_view name) {
    const ModelConfig config = ShapeNamed(name);
    uint64_t total = 0;
    for (const StoredTensor& tensor : StoredTensors(config, kGgufNames, true)) {
      uint64_t count = 1;
      for (const uint64_t extent : tensor.shape) count *= extent;
      total += count;
    }
    return static_cast<double>(total);
  };
  EXPECT_EQ(parameters("llada-8b"), 8015581184.0);
  EXPECT_EQ(parameters("dream-7b"), 7615616512.0);
  EXPECT_EQ(parameters("a2d-qwen3-0.6b"), 596049920.0);
  EXPECT_EQ(parameters("a2d-qwen2.5-0.5b"), 494032768.0);
  EXPECT_NEAR(parameters("llada2-mini"), 16.26e9, 0.16e9);
  EXPECT_NEAR(parameters("llada-moe-7b"), 7.36e9, 0.07e9);
}

}  // namespace
}  // namespace spa
