#include "engine/write_model.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "base/error.h"
#include "base/random.h"
#include "file/gguf_writer.h"
#include "kernels/block_codec.h"

namespace spa {
namespace {

constexpr uint32_t kQuantizationVersion = 2;

// llama.cpp's number for a file whose matrices are mostly of this type.
uint32_t FileType(DType dtype) {
  switch (dtype) {
    case DType::kF32: return 0;
    case DType::kF16: return 1;
    case DType::kQ4_0: return 2;
    case DType::kQ4_1: return 3;
    case DType::kQ5_0: return 8;
    case DType::kQ5_1: return 9;
    case DType::kQ8_0: return 7;
    case DType::kQ4_K: return 14;
    case DType::kQ5_K: return 16;
    case DType::kQ6_K: return 18;
    case DType::kBF16: return 32;
  }
  return 0;
}

DType StoredType(TensorRole role, const std::vector<uint64_t>& shape, DType wanted) {
  if (shape.size() == 1) return DType::kF32;
  if (role == TensorRole::kHead && (wanted == DType::kQ4_0 || wanted == DType::kQ4_K)) {
    wanted = DType::kQ6_K;
  }
  for (const DType dtype : {wanted, DType::kQ8_0, DType::kF16}) {
    if (shape.back() % Info(dtype).block_size == 0) return dtype;
  }
  return DType::kF16;
}

void WriteConfig(GgufWriter& writer, const ModelConfig& config, DType file_type) {
  const std::string family(FamilyName(config.family));
  const auto key = [&](const char* name) { return family + "." + name; };
  const auto u32 = [](size_t value) { return static_cast<uint32_t>(value); };
  writer.AddString("general.architecture", family);
  writer.AddString("general.name", config.name);
  writer.AddUint32("general.file_type", FileType(file_type));
  writer.AddUint32("general.quantization_version", kQuantizationVersion);
  writer.AddUint32(key("block_count"), u32(config.num_layers));
  writer.AddUint32(key("context_length"), u32(config.context_length));
  writer.AddUint32(key("embedding_length"), u32(config.model_dim));
  writer.AddUint32(key("feed_forward_length"), u32(config.ffn_dim));
  writer.AddUint32(key("attention.head_count"), u32(config.num_heads));
  writer.AddUint32(key("attention.head_count_kv"), u32(config.num_kv_heads));
  writer.AddFloat32(key("attention.layer_norm_rms_epsilon"), config.norm_epsilon);
  writer.AddFloat32(key("rope.freq_base"), static_cast<float>(config.rope_theta));
  writer.AddUint32(key("rope.dimension_count"), u32(config.head_dim));
  writer.AddUint32(key("vocab_size"), u32(config.vocab_rows));
  writer.AddBool(key("attention.causal"), false);
  writer.AddBool("diffusion.shift_logits", config.logit_shift);
  const auto add_length = [&](const char* name, const std::optional<size_t>& length) {
    if (length) writer.AddUint32(name, static_cast<uint32_t>(*length));
  };
  add_length("diffusion.gen_length", config.gen_length);
  add_length("diffusion.block_length", config.block_length);
  for (size_t i = 0; config.spa_budget && i < kBudgetKeys.size(); ++i) {
    writer.AddFloat32(kBudgetKeys[i], static_cast<float>((*config.spa_budget)[i]));
  }
}

void WriteTokenizer(GgufWriter& writer, const Tokenizer::GgufForm& form,
                    const ModelConfig& config) {
  writer.AddString("tokenizer.ggml.model", "gpt2");
  writer.AddString("tokenizer.ggml.pre", form.pre);
  writer.AddStrings("tokenizer.ggml.tokens", form.tokens);
  writer.AddInt32s("tokenizer.ggml.token_type", form.types);
  writer.AddStrings("tokenizer.ggml.merges", form.merges);
  const auto id = [&](const char* key, std::optional<TokenId> token) {
    if (token) writer.AddUint32(key, static_cast<uint32_t>(*token));
  };
  id("tokenizer.ggml.bos_token_id", config.bos_id);
  id("tokenizer.ggml.eos_token_id", config.eos_id);
  id("tokenizer.ggml.padding_token_id", config.pad_id);
  id("tokenizer.ggml.mask_token_id", config.mask_id);
  // llama.cpp's converter gives LLaDA a BOS and Dream none.
  writer.AddBool("tokenizer.ggml.add_bos_token", config.family == Family::kLlada);
  if (!form.chat_template.empty()) {
    writer.AddString("tokenizer.chat_template", form.chat_template);
  }
}

// Where each row of Wq or Wk goes in a file of llama.cpp's `llada` layout: RoPE pairs side by side.
std::vector<uint32_t> InterleavedRowOrder(const ModelConfig& config, TensorRole role) {
  if (config.family != Family::kLlada || (role != TensorRole::kWq && role != TensorRole::kWk)) {
    return {};
  }
  const size_t heads = role == TensorRole::kWq ? config.num_heads : config.num_kv_heads;
  const size_t half = config.head_dim / 2;
  std::vector<uint32_t> order;
  for (size_t head = 0; head < heads; ++head) {
    for (size_t j = 0; j < half; ++j) {
      for (size_t part = 0; part < 2; ++part) {
        order.push_back(static_cast<uint32_t>(head * config.head_dim + part * half + j));
      }
    }
  }
  return order;
}

// Re-encodes a tensor a few rows at a time, rows in `order` (empty: as stored).
void WriteTensor(GgufWriter& writer, const Tensor& tensor, DType dtype,
                 const std::vector<uint32_t>& order, ThreadPool& pool) {
  const size_t cols = tensor.cols(), rows = tensor.rows();
  const size_t in_bytes = RowBytes(tensor.dtype, cols), out_bytes = RowBytes(dtype, cols);
  constexpr size_t kRows = 256;
  std::vector<std::byte> chunk(kRows * out_bytes);
  Mat<float> values(pool.num_threads(), cols);
  for (size_t first = 0; first < rows; first += kRows) {
    const size_t count = std::min(kRows, rows - first);
    pool.ParallelFor(count, [&](size_t i, size_t thread) {
      const size_t row = order.empty() ? first + i : order[first + i];
      const std::byte* src = tensor.bytes.data() + row * in_bytes;
      std::byte* dst = chunk.data() + i * out_bytes;
      if (dtype == tensor.dtype) {
        std::memcpy(dst, src, out_bytes);
      } else {
        DecodeRow(tensor.dtype, src, cols, values.Row(thread));
        EncodeRow(dtype, values.Row(thread), cols, dst);
      }
    });
    writer.WriteData({chunk.data(), count * out_bytes});
  }
}

}  // namespace

const std::vector<DType>& EncodableTypes() {
  static const std::vector<DType> types = {DType::kF32,  DType::kF16,  DType::kBF16, DType::kQ8_0,
                                           DType::kQ4_0, DType::kQ4_K, DType::kQ6_K};
  return types;
}

void WriteModel(const ModelFile& model, const std::filesystem::path& out,
                const WriteOptions& options, ThreadPool& pool) {
  std::error_code ignored;
  if (std::filesystem::equivalent(model.path(), out, ignored)) {
    throw Error("{} is the model itself: write to another file", out.string());
  }
  const ModelConfig& config = model.config();
  const auto stored_type = [&](const ExpectedTensor& expected) {
    const DType now = model.Get(expected.role, expected.layer).dtype;
    return expected.shape.size() == 1 ? DType::kF32
           : options.dtype ? StoredType(expected.role, expected.shape, *options.dtype)
                           : now;
  };
  const std::vector<ExpectedTensor> tensors = ExpectedTensors(config);
  const DType file_type = options.dtype.value_or(model.Get(TensorRole::kWdown).dtype);
  GgufWriter writer(out);
  if (model.gguf() != nullptr) {
    const std::string_view replaced[] = {"general.file_type", "general.quantization_version"};
    writer.CopyMetadata(*model.gguf(), replaced);
    writer.AddUint32("general.file_type", FileType(file_type));
    writer.AddUint32("general.quantization_version", kQuantizationVersion);
  } else {
    WriteConfig(writer, config, file_type);
    const Tokenizer tokenizer = Tokenizer::FromFolder(model.path());
    ModelConfig ids = config;
    if (!ids.bos_id) ids.bos_id = tokenizer.bos();
    WriteTokenizer(writer, tokenizer.ToGguf(config.vocab_rows), ids);
  }
  for (const ExpectedTensor& expected : tensors) {
    writer.DeclareTensor(TensorName(NameScheme::kGguf, expected.role, expected.layer),
                         stored_type(expected), expected.shape);
  }
  writer.BeginData();
  uint64_t done = 0;
  for (const ExpectedTensor& expected : tensors) {
    const Tensor& tensor = model.Get(expected.role, expected.layer);
    const std::vector<uint32_t> order = model.gguf() != nullptr
                                            ? std::vector<uint32_t>()
                                            : InterleavedRowOrder(config, expected.role);
    WriteTensor(writer, tensor, stored_type(expected), order, pool);
    model.tensors().Release(tensor);
    done += tensor.bytes.size();
    if (options.progress) {
      options.progress("writing",
                       static_cast<double>(done) / static_cast<double>(model.tensor_bytes()));
    }
  }
  writer.Finish();
}

ModelConfig NamedShape(const std::string& name, size_t layers) {
  ModelConfig config;
  config.name = name;
  if (name == "llada-8b") {
    config.family = Family::kLlada;
    config.num_layers = 32;
    config.model_dim = 4096;
    config.num_heads = config.num_kv_heads = 32;
    config.ffn_dim = 12288;
    config.vocab_rows = 126464;
    config.context_length = 4096;
    config.norm_epsilon = 1e-5f;
    config.rope_theta = 500000.0;
    config.interleaved_qk = true;
    config.mask_id = 126336;
    config.eos_id = config.pad_id = 126081;
    config.bos_id = 126080;
  } else if (name == "dream-7b") {
    config.family = Family::kDream;
    config.num_layers = 28;
    config.model_dim = 3584;
    config.num_heads = 28;
    config.num_kv_heads = 4;
    config.ffn_dim = 18944;
    config.vocab_rows = 152064;
    config.context_length = 131072;
    config.norm_epsilon = 1e-6f;
    config.rope_theta = 1000000.0;
    config.qkv_bias = true;
    config.logit_shift = true;
    config.mask_id = 151666;
    config.eos_id = config.pad_id = config.bos_id = 151643;
  } else {
    throw Error("there is no shape '{}': choose llada-8b or dream-7b", name);
  }
  config.head_dim = config.model_dim / config.num_heads;
  if (layers > config.num_layers) {
    throw Error("{} has {} layers: it can be cut, not extended to {}", name, config.num_layers,
                layers);
  }
  if (layers > 0) config.num_layers = layers;
  return config;
}

namespace {

// One byte per token and no merges, with the special tokens at their true places: enough to feed
// text to a model that was never trained.
Tokenizer::GgufForm ByteTokenizer(const ModelConfig& config) {
  Tokenizer::GgufForm form;
  const bool llada = config.family == Family::kLlada;
  form.pre = llada ? "bailingmoe" : "qwen2";
  size_t next_extra = 256;
  for (size_t byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= 33 && byte <= 126) || (byte >= 161 && byte != 173);
    const size_t c = printable ? byte : next_extra++;
    form.tokens.push_back(c < 128 ? std::string(1, static_cast<char>(c))
                                  : std::string{static_cast<char>(0xc0 | (c >> 6)),
                                                static_cast<char>(0x80 | (c & 0x3f))});
    form.types.push_back(1);
  }
  while (form.tokens.size() < config.vocab_rows) {
    form.tokens.push_back(fmt::format("[PAD{}]", form.tokens.size()));
    form.types.push_back(5);
  }
  const auto special = [&](size_t id, const char* text) {
    form.tokens[id] = text;
    form.types[id] = 3;
  };
  if (llada) {
    special(126080, "<|startoftext|>");
    special(126081, "<|endoftext|>");
    special(126336, "<|mdm_mask|>");
    special(126346, "<|start_header_id|>");
    special(126347, "<|end_header_id|>");
    special(126348, "<|eot_id|>");
  } else {
    special(151643, "<|endoftext|>");
    special(151644, "<|im_start|>");
    special(151645, "<|im_end|>");
    special(151666, "<|mask|>");
  }
  return form;
}

// Random bytes in which every block is a valid one of `dtype` with weights of about 1/sqrt(cols):
// encoding billions of Gaussian numbers would take minutes and change no speed.
void RandomRow(DType dtype, size_t cols, const RandomStream& random, std::byte* out) {
  const size_t bytes = RowBytes(dtype, cols);
  const double deviation = 1.0 / std::sqrt(static_cast<double>(cols));
  if (Info(dtype).block_size == 1) {
    std::vector<float> values(cols);
    // Uniform with that deviation.
    for (size_t i = 0; i < cols; ++i) {
      values[i] = static_cast<float>((random.Uniform(i) - 0.5) * std::sqrt(12.0) * deviation);
    }
    EncodeRow(dtype, values.data(), cols, out);
    return;
  }
  for (size_t i = 0; i < bytes; i += 8) {
    const uint64_t bits = random.Bits(i);
    std::memcpy(out + i, &bits, std::min<size_t>(8, bytes - i));
  }
  const auto set_half = [&](size_t offset, double value) {
    std::byte half[2];
    const float f = static_cast<float>(value);
    EncodeRow(DType::kF16, &f, 1, half);
    std::memcpy(out + offset, half, 2);
  };
  const size_t block_bytes = Info(dtype).block_bytes;
  for (size_t block = 0; block < bytes; block += block_bytes) {
    switch (dtype) {  // deviation of the integers: 4 bits 4.6, 5 bits 9.2, 6 bits 18.5, 8 bits 74
      case DType::kQ8_0: set_half(block, deviation / 74.0); break;
      case DType::kQ4_0: set_half(block, deviation / 4.6); break;
      case DType::kQ5_0: set_half(block, deviation / 9.2); break;
      case DType::kQ4_1:
        set_half(block, deviation / 4.6);
        set_half(block + 2, -7.5 * deviation / 4.6);
        break;
      case DType::kQ5_1:
        set_half(block, deviation / 9.2);
        set_half(block + 2, -15.5 * deviation / 9.2);
        break;
      case DType::kQ4_K:  // 6-bit scales and minima are uniform too, about 32 in the mean
        set_half(block, deviation / (4.6 * 36.0));
        set_half(block + 2, 7.5 * deviation / (4.6 * 36.0));
        break;
      case DType::kQ5_K:
        set_half(block, deviation / (9.2 * 36.0));
        set_half(block + 2, 15.5 * deviation / (9.2 * 36.0));
        break;
      case DType::kQ6_K: set_half(block + 208, deviation / (18.5 * 74.0)); break;
      default: SPA_CHECK(false);
    }
  }
}

}  // namespace

void WriteSynthetic(const ModelConfig& config, DType dtype, uint64_t seed,
                    const std::filesystem::path& out, const Progress& progress,
                    ThreadPool& pool) {
  GgufWriter writer(out);
  WriteConfig(writer, config, dtype);
  WriteTokenizer(writer, ByteTokenizer(config), config);
  const std::vector<ExpectedTensor> tensors = ExpectedTensors(config);
  uint64_t total = 0, done = 0;
  for (const ExpectedTensor& tensor : tensors) {
    const DType type = StoredType(tensor.role, tensor.shape, dtype);
    writer.DeclareTensor(TensorName(NameScheme::kGguf, tensor.role, tensor.layer), type,
                         tensor.shape);
    const uint64_t rows = tensor.shape.size() == 2 ? tensor.shape[0] : 1;
    total += rows * RowBytes(type, tensor.shape.back());
  }
  writer.BeginData();
  constexpr size_t kRows = 512;
  std::vector<std::byte> chunk;
  for (size_t t = 0; t < tensors.size(); ++t) {
    const ExpectedTensor& tensor = tensors[t];
    const DType type = StoredType(tensor.role, tensor.shape, dtype);
    const size_t rows = tensor.shape.size() == 2 ? tensor.shape[0] : 1;
    const size_t cols = tensor.shape.back(), row_bytes = RowBytes(type, cols);
    const bool norm = tensor.role == TensorRole::kAttnNorm ||
                      tensor.role == TensorRole::kFfnNorm ||
                      tensor.role == TensorRole::kFinalNorm;
    chunk.resize(kRows * row_bytes);
    for (size_t first = 0; first < rows; first += kRows) {
      const size_t count = std::min(kRows, rows - first);
      pool.ParallelFor(count, [&](size_t i) {
        std::byte* row = chunk.data() + i * row_bytes;
        if (norm) {
          const std::vector<float> ones(cols, 1.0f);
          EncodeRow(type, ones.data(), cols, row);
        } else {
          RandomRow(type, cols, RandomStream(seed, t, first + i), row);
        }
      });
      writer.WriteData({chunk.data(), count * row_bytes});
      done += count * row_bytes;
      if (progress) progress("writing", static_cast<double>(done) / static_cast<double>(total));
    }
  }
  writer.Finish();
}

}  // namespace spa
