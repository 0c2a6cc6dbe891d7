#include "writer/write_model.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "base/error.h"
#include "base/matrix.h"
#include "base/random.h"
#include "file/gguf_writer.h"
#include "kernels/block_codec.h"
#include "model/family.h"
#include "text/tokenizer.h"

namespace spa {
namespace {

constexpr uint32_t kQuantizationVersion = 2;

// llama.cpp's number for a file whose matrices are mostly of this type.
uint32_t FileType(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return 0;
    case DType::kF16:
      return 1;
    case DType::kQ4_0:
      return 2;
    case DType::kQ4_1:
      return 3;
    case DType::kQ5_0:
      return 8;
    case DType::kQ5_1:
      return 9;
    case DType::kQ8_0:
      return 7;
    case DType::kQ4_K:
      return 14;
    case DType::kQ5_K:
      return 16;
    case DType::kQ6_K:
      return 18;
    case DType::kBF16:
      return 32;
  }
  return 0;
}

// Small tensors that affect all others: never rounded.
bool StaysF32(TensorRole role, const std::vector<uint64_t>& shape) {
  return shape.size() == 1 || role == TensorRole::kRouter;
}

// The output head of a 4-bit model has more bits.
DType WantedType(TensorRole role, DType dtype) {
  const bool is_4_bit = dtype == DType::kQ4_0 || dtype == DType::kQ4_K;
  return role == TensorRole::kHead && is_4_bit ? DType::kQ6_K : dtype;
}

DType StoredType(TensorRole role, const std::vector<uint64_t>& shape, DType wanted) {
  if (StaysF32(role, shape)) return DType::kF32;
  for (const DType dtype : {WantedType(role, wanted), DType::kQ8_0, DType::kF16}) {
    if (shape.back() % Info(dtype).block_size == 0) return dtype;
  }
  return DType::kF16;
}

void CheckType(const ModelConfig& config, DType dtype) {
  const size_t block = Info(dtype).block_size;
  if (config.model_dim % block != 0) {
    throw Error(
        "{} packs {} values together, which do not divide the width of {}: take another "
        "type",
        Info(dtype).name, block, config.model_dim);
  }
}

void WriteExperts(GgufWriter& writer, const std::string& prefix, const ExpertConfig& experts) {
  const auto number = [&](const char* key, size_t value) {
    writer.AddUint32(prefix + key, static_cast<uint32_t>(value));
  };
  number("expert_count", experts.count);
  number("expert_used_count", experts.used);
  number("expert_feed_forward_length", experts.dim);
  number("expert_gating_func", experts.router == RouterKind::kSigmoid ? 2 : 1);
  writer.AddBool(prefix + "expert_weights_norm", experts.renormalise);
  writer.AddFloat32(prefix + "expert_weights_scale", static_cast<float>(experts.scale));
  if (experts.first_dense_layers > 0) {
    number("leading_dense_block_count", experts.first_dense_layers);
  }
  if (experts.shared_dim > 0) {
    number("expert_shared_count", 1);
    number("expert_shared_feed_forward_length", experts.shared_dim);
  }
  if (experts.groups > 1) {
    number("expert_group_count", experts.groups);
    number("expert_group_used_count", experts.groups_used);
  }
}

void WriteDiffusionKeys(GgufWriter& writer, const ModelConfig& config) {
  writer.AddBool("diffusion.shift_logits", config.logit_shift);
  writer.AddUint32("diffusion.gen_length", static_cast<uint32_t>(config.decode.gen_length));
  const bool blocks = config.attention.kind != AttentionKind::kFull;
  const bool causal = config.attention.kind == AttentionKind::kCausal;
  const size_t block = blocks ? config.attention.block_length : config.decode.block_length;
  if (block > 0) writer.AddUint32("diffusion.block_length", static_cast<uint32_t>(block));
  if (const auto threshold = config.decode.first_threshold) {
    writer.AddFloat32("diffusion.first_threshold", static_cast<float>(*threshold));
  }
  writer.AddString("diffusion.attention", causal ? "causal" : blocks ? "block" : "full");
  if (causal) writer.AddUint32("diffusion.canvas_length", static_cast<uint32_t>(block));
  if (blocks) {
    const bool start = config.attention.origin == BlockOrigin::kStart;
    writer.AddString("diffusion.block_origin", start ? "start" : "prompt_end");
  }
  if (config.single_turn) writer.AddBool("diffusion.single_turn", true);
  if (!config.question_forms.empty()) {
    writer.AddStrings("diffusion.question_forms", config.question_forms);
    writer.AddString("diffusion.knows", config.knows);
  }
  if (config.expand_id) {
    writer.AddUint32("diffusion.expand_token_id", static_cast<uint32_t>(*config.expand_id));
  }
  for (size_t i = 0; config.spa_budget && i < kBudgetKeys.size(); ++i) {
    writer.AddFloat32(kBudgetKeys[i], static_cast<float>((*config.spa_budget)[i]));
  }
  if (config.spa_prompt) writer.AddBool("spa.prompt", true);
}

// The heads of layers with a window (_swa) and of those without.
void WriteLayerShapes(GgufWriter& writer, const std::string& prefix, const ModelConfig& config) {
  const auto number = [&](const char* key, size_t value) {
    writer.AddUint32(prefix + key, static_cast<uint32_t>(value));
  };
  std::vector<int32_t> kv_heads, windowed;
  for (size_t layer = 0; layer < config.num_layers; ++layer) {
    kv_heads.push_back(static_cast<int32_t>(config.shape(layer).num_kv_heads));
    windowed.push_back(config.is_wide(layer) ? 0 : 1);
  }
  writer.AddInt32s(prefix + "attention.head_count_kv", kv_heads);
  writer.AddInt32s(prefix + "attention.sliding_window_pattern", windowed);
  number("attention.sliding_window", config.shape(0).window);
  for (const auto& [key, narrow, wide] :
       {std::tuple{"attention.key_length", config.head_dim, config.wide.head_dim},
        {"attention.value_length", config.head_dim, config.wide.head_dim},
        {"rope.dimension_count", config.rope_dim, config.wide.head_dim}}) {
    number(key, wide);
    number((std::string(key) + "_swa").c_str(), narrow);
  }
  writer.AddFloat32(prefix + "rope.freq_base", static_cast<float>(config.wide_rope_theta));
  writer.AddFloat32(prefix + "rope.freq_base_swa", static_cast<float>(config.rope_theta));
  writer.AddUint32("diffusion.turning_dimensions", static_cast<uint32_t>(config.wide_rope_dim));
}

void WriteConfig(GgufWriter& writer, const ModelConfig& config, DType file_type,
                 bool autoregressive = false) {
  const std::string architecture = autoregressive ? "llama" : config.family;
  const std::string prefix = architecture + ".";
  const auto number = [&](const char* key, size_t value) {
    writer.AddUint32(prefix + key, static_cast<uint32_t>(value));
  };
  writer.AddString("general.architecture", architecture);
  writer.AddString("general.name", config.name);
  writer.AddUint32("general.file_type", FileType(file_type));
  writer.AddUint32("general.quantization_version", kQuantizationVersion);
  number("block_count", config.num_layers);
  number("context_length", config.context_length);
  number("embedding_length", config.model_dim);
  if (config.ffn_dim > 0) number("feed_forward_length", config.ffn_dim);
  number("attention.head_count", config.num_heads);
  if (config.layer_shapes.empty()) {
    number("attention.head_count_kv", config.num_kv_heads);
    if (config.q_dim() != config.model_dim) {
      number("attention.key_length", config.head_dim);
      number("attention.value_length", config.head_dim);
    }
    writer.AddFloat32(prefix + "rope.freq_base", static_cast<float>(config.rope_theta));
    number("rope.dimension_count", config.rope_dim);
  } else {
    WriteLayerShapes(writer, prefix, config);
  }
  if (config.logit_cap > 0.0f) {
    writer.AddFloat32(prefix + "final_logit_softcapping", config.logit_cap);
  }
  writer.AddFloat32(prefix + "attention.layer_norm_rms_epsilon", config.norm_epsilon);
  number("vocab_size", config.vocab_rows);
  if (config.experts.count > 0) WriteExperts(writer, prefix, config.experts);
  if (autoregressive) return;
  writer.AddBool(prefix + "attention.causal", false);
  WriteDiffusionKeys(writer, config);
}

void WriteSpecialIds(GgufWriter& writer, const ModelConfig& config) {
  const auto id = [&](const char* key, std::optional<TokenId> token) {
    if (token) writer.AddUint32(key, static_cast<uint32_t>(*token));
  };
  id("tokenizer.ggml.bos_token_id", config.bos_id);
  id("tokenizer.ggml.eos_token_id", config.eos_id);
  if (config.stop_ids.size() > 1) id("tokenizer.ggml.eot_token_id", config.stop_ids[1]);
  id("tokenizer.ggml.padding_token_id", config.pad_id);
  if (config.mask_id >= 0) id("tokenizer.ggml.mask_token_id", config.mask_id);
}

void WriteTokenizer(GgufWriter& writer, const Tokenizer::GgufForm& form,
                    const ModelConfig& config) {
  writer.AddString("tokenizer.ggml.model", "gpt2");
  writer.AddString("tokenizer.ggml.pre", form.pre);
  writer.AddStrings("tokenizer.ggml.tokens", form.tokens);
  writer.AddInt32s("tokenizer.ggml.token_type", form.types);
  writer.AddStrings("tokenizer.ggml.merges", form.merges);
  writer.AddBool("tokenizer.ggml.add_bos_token", FamilyNamed(config.family).adds_bos);
  if (!form.chat_template.empty()) {
    writer.AddString("tokenizer.chat_template", form.chat_template);
  }
}

bool HasTokenizer(const std::filesystem::path& folder) {
  return std::filesystem::exists(folder / "tokenizer.json") ||
         std::filesystem::exists(folder / "vocab.json");
}

// Where each row of Wq or Wk goes in a file of llama.cpp's `llada` layout: RoPE pairs side by side.
std::vector<uint32_t> InterleavedRowOrder(const ModelConfig& config, TensorRole role) {
  if (role != TensorRole::kWq && role != TensorRole::kWk) return {};
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

std::vector<OtherType> WriteModel(const ModelFile& model, const std::filesystem::path& out,
                                  const WriteOptions& options, ThreadPool& pool) {
  std::error_code ignored;
  if (std::filesystem::equivalent(model.path(), out, ignored)) {
    throw Error("{} is the input model: write to another file", out.string());
  }
  const ModelConfig& config = model.config();
  if (options.dtype) CheckType(config, *options.dtype);
  const bool from_folder = model.gguf() == nullptr;
  const Family& family = FamilyNamed(config.family);
  const std::vector<StoredTensor> tensors =
      StoredTensors(config, kGgufNames, from_folder ? family.fused_qkv : model.fused_qkv());
  const auto stored_type = [&](const StoredTensor& stored) {
    if (StaysF32(stored.role(), stored.shape)) return DType::kF32;
    return options.dtype ? StoredType(stored.role(), stored.shape, *options.dtype)
                         : model.Get(stored.parts.front()).dtype;
  };
  const DType file_type = options.dtype.value_or(model.Get(TensorRole::kWo).dtype);
  GgufWriter writer(out);
  if (!from_folder) {
    const std::string_view replaced[] = {"general.file_type", "general.quantization_version"};
    writer.CopyMetadata(*model.gguf(), replaced);
    writer.AddUint32("general.file_type", FileType(file_type));
    writer.AddUint32("general.quantization_version", kQuantizationVersion);
  } else {
    WriteConfig(writer, config, file_type);
    ModelConfig ids = config;
    if (HasTokenizer(model.path())) {
      const Tokenizer tokenizer = Tokenizer::FromFolder(model.path());
      if (!ids.bos_id) ids.bos_id = tokenizer.bos();
      WriteTokenizer(writer, tokenizer.ToGguf(config.vocab_rows), config);
    }
    WriteSpecialIds(writer, ids);
  }
  std::vector<OtherType> others;
  for (const StoredTensor& stored : tensors) {
    const DType dtype = stored_type(stored);
    writer.DeclareTensor(stored.name, dtype, stored.shape);
    if (!options.dtype || StaysF32(stored.role(), stored.shape)) continue;
    if (dtype != WantedType(stored.role(), *options.dtype)) others.push_back({stored.name, dtype});
  }
  writer.BeginData();
  uint64_t done = 0;
  for (const StoredTensor& stored : tensors) {
    for (const TensorKey& part : stored.parts) {
      const Tensor& tensor = model.Get(part);
      const std::vector<uint32_t> order = from_folder && family.interleaved_qk
                                              ? InterleavedRowOrder(config, part.role)
                                              : std::vector<uint32_t>();
      WriteTensor(writer, tensor, stored_type(stored), order, pool);
      model.tensors().Release(tensor);
      done += tensor.bytes.size();
    }
    if (options.progress) {
      options.progress("writing",
                       static_cast<double>(done) / static_cast<double>(model.tensor_bytes()));
    }
  }
  writer.Finish();
  return others;
}

ModelConfig NamedShape(const std::string& name, size_t layers) {
  ModelConfig config = ShapeNamed(name);
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
  const Family& family = FamilyNamed(config.family);
  form.pre = family.pre;
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
  for (const auto& [id, text] : family.tokens) {
    form.tokens[static_cast<size_t>(id)] = text;
    form.types[static_cast<size_t>(id)] = 3;
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
      case DType::kQ8_0:
        set_half(block, deviation / 74.0);
        break;
      case DType::kQ4_0:
        set_half(block, deviation / 4.6);
        break;
      case DType::kQ5_0:
        set_half(block, deviation / 9.2);
        break;
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
      case DType::kQ6_K:
        set_half(block + 208, deviation / (18.5 * 74.0));
        break;
      default:
        SPA_CHECK(false);
    }
  }
}

size_t NumRows(const StoredTensor& tensor) {
  size_t rows = 1;
  for (size_t i = 0; i + 1 < tensor.shape.size(); ++i) rows *= tensor.shape[i];
  return rows;
}

bool IsNorm(TensorRole role) {
  using enum TensorRole;
  for (const TensorRole norm :
       {kAttnNorm, kFfnNorm, kFinalNorm, kQNorm, kKNorm, kPostAttnNorm, kPostFfnNorm,
        kPostDenseNorm, kExpertNorm, kPostExpertNorm, kConditionNorm, kRouterScale, kExpertScale,
        kLayerScale, kEncoderScale}) {
    if (role == norm) return true;
  }
  return false;
}

}  // namespace

void WriteSynthetic(const ModelConfig& config, DType dtype, uint64_t seed,
                    const std::filesystem::path& out, const Progress& progress, ThreadPool& pool,
                    bool autoregressive) {
  CheckType(config, dtype);
  GgufWriter writer(out);
  WriteConfig(writer, config, dtype, autoregressive);
  WriteTokenizer(writer, ByteTokenizer(config), config);
  WriteSpecialIds(writer, config);
  const std::vector<StoredTensor> tensors =
      StoredTensors(config, kGgufNames, FamilyNamed(config.family).fused_qkv);
  uint64_t total = 0, done = 0;
  for (const StoredTensor& tensor : tensors) {
    const DType type = StoredType(tensor.role(), tensor.shape, dtype);
    writer.DeclareTensor(tensor.name, type, tensor.shape);
    total += NumRows(tensor) * RowBytes(type, tensor.shape.back());
  }
  writer.BeginData();
  constexpr size_t kRows = 512;
  std::vector<std::byte> chunk;
  for (size_t t = 0; t < tensors.size(); ++t) {
    const StoredTensor& tensor = tensors[t];
    const DType type = StoredType(tensor.role(), tensor.shape, dtype);
    const size_t rows = NumRows(tensor);
    const size_t cols = tensor.shape.back(), row_bytes = RowBytes(type, cols);
    const bool norm = IsNorm(tensor.role());
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
