// What a model is, as data: the differences between families, and between the file formats that
// carry them, end here. Read from GGUF metadata or from a Hugging Face config.json by the family's
// record (family.h); every value has been checked.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/token.h"
#include "file/gguf.h"

namespace spa {

// Which positions a position attends to.
enum class AttentionKind {
  kFull,    // all
  kBlocks,  // those of its own block and of the blocks before it
  kCausal,  // itself and those before it; the block being decoded sees all before it and itself
};
enum class BlockOrigin {
  kStart,      // block(p) = p div B
  kPromptEnd,  // counted back from the prompt's end: block(p) = (p + (-P mod B)) div B
};
struct AttentionPattern {
  AttentionKind kind = AttentionKind::kFull;
  size_t block_length = 0;  // B, unless full
  BlockOrigin origin = BlockOrigin::kStart;

  bool operator==(const AttentionPattern&) const = default;
  // The position after the last of `position`'s block.
  size_t BlockEnd(size_t position, size_t prompt_length) const {
    const size_t before = origin == BlockOrigin::kStart
                              ? 0
                              : (block_length - prompt_length % block_length) % block_length;
    return ((position + before) / block_length + 1) * block_length - before;
  }
};

// The heads of a layer, where layers differ.
struct LayerShape {
  size_t num_kv_heads = 0;
  size_t head_dim = 0;
  size_t window = 0;             // keys a position sees, itself included; 0: all
  bool values_are_keys = false;  // no Wv: a value is its key before norm and rotation
  bool operator==(const LayerShape&) const = default;
};

enum class Activation { kSilu, kGelu };  // of gated feed-forward networks; gelu in its tanh form

// A feed-forward network made of experts, of which a router picks a few for each row.
enum class RouterKind { kSoftmax, kSigmoid };
struct ExpertConfig {
  size_t count = 0;               // 0: the model has none
  size_t used = 0;                // per row
  size_t dim = 0;                 // width of one expert
  size_t shared_dim = 0;          // width of the expert that every row uses, unweighted; 0: none
  size_t first_dense_layers = 0;  // layers before the first one with experts
  RouterKind router = RouterKind::kSoftmax;
  bool bias = false;  // added to the scores that rank experts, never to their weights
  size_t groups = 1;  // equal ranges of experts; the best `groups_used` of them compete
  size_t groups_used = 1;
  bool renormalise = false;  // the weights of the chosen sum to `scale`
  double scale = 1.0;
  Activation activation = Activation::kSilu;
  // The router has a norm of its own, and each expert a factor.
  bool scaled = false;
  // A dense network runs beside the experts, each with norms of its own.
  bool beside_dense = false;
  bool fused_gate_up = false;  // stored as one tensor
};

// How the makers decode the model. The decoder turns this into its own options.
struct DecodeDefaults {
  enum class Schedule {
    kEvenSplit,       // a block's masks are spread evenly over its steps (LLaDA)
    kEvenSplitBlock,  // the same with the block's length, even if fewer are masked (SDAR, LLaDA2)
    kLinear,          // the float32 schedule of the A2D samplers
    kTimeGrid,        // equal strides in time (Dream)
    kEntropyKept,     // the share of highest entropy stays masked (RND1)
    kThreshold,       // no schedule: whatever exceeds the threshold, and always the best
  };
  enum class Order { kProbability, kEntropy };
  enum class Draw { kGumbel, kFiltered };
  size_t gen_length = 128;
  size_t block_length = 32;     // 0: the whole canvas
  size_t sub_block_length = 0;  // 0: a block has no sub-blocks (Fast-dLLM v2)
  size_t steps_per_block = 0;   // 0: as many as the block has positions
  Schedule schedule = Schedule::kEvenSplit;
  Order order = Order::kProbability;
  Draw draw = Draw::kGumbel;
  double temperature = 0.0;
  double top_p = 1.0;
  std::optional<double> threshold = {};        // settle what is more probable than this
  std::optional<double> first_threshold = {};  // and keep what the first step is so sure of
  std::optional<double> edit_threshold = {};   // and rewrite settled tokens (LLaDA2.1)
  size_t max_post_steps = 0;                   // passes over a full block that may still edit it
  // The canvas begins with random tokens; those that are not accepted are drawn anew. The
  // temperature falls to `temperature` (DiffusionGemma).
  bool noise = false;
  double first_temperature = 0.0;
  std::optional<double> entropy_bound = {};
  double stable_entropy = 0.0;    // a canvas is done when it is the one before, this sure
  bool pad_after_canvas = false;  // the position after the canvas holds the padding token (RND1)
  bool block_seeds_next = false;  // a full block's last row gives the next one's first token
};

// The published settings of each cache for this model. The defaults are LLaDA-8B's, for families
// without any.
struct CacheDefaults {
  // SPA-Cache, Equation 5: the peak as a share of the depth, the ratios there and at both ends.
  double spa_peak_depth = 0.75;
  double spa_peak_ratio = 0.25, spa_first_ratio = 0.03, spa_last_ratio = 0.13;
  double spa_reference_peak_depth = 0.75;  // as the authors' code has it
  size_t spa_proxy_share = 32;             // value rows for each row of a proxy
  size_t spa_reference_warmup = 0;         // dense steps the authors' code begins with
  size_t spa_prompt_interval = 50, spa_gen_interval = 7;  // of the authors' GSM8K scripts
  double spa_floor_ratio = 0.0625;
  size_t elastic_beta = 16;
  size_t dllm_prompt_interval = 50, dllm_gen_interval = 7;
  size_t dkv_interval = 8;
  bool dkv_by_block = true;  // dKV-Cache starts anew with every block
};

struct ModelConfig {
  std::string family = {};  // "llada": its record's name
  std::string name = {};    // for people: "LLaDA-8B-Instruct", or the file's name
  size_t num_layers = 0;
  size_t model_dim = 0;     // width of the residual stream
  size_t num_heads = 0;     // query heads
  size_t num_kv_heads = 0;  // divides num_heads
  size_t head_dim = 0;      // num_heads * head_dim need not be model_dim
  size_t ffn_dim = 0;       // of dense layers; 0 if there are none
  size_t vocab_rows = 0;    // rows of the embedding and of the output head
  size_t context_length = 0;
  float norm_epsilon = 0.0f;
  double rope_theta = 0.0;
  size_t rope_dim = 0;  // the first dimensions of a head that rotate
  bool qkv_bias = false;
  bool qk_norm = false;      // each head of q and k is normed before it rotates
  bool tied_head = false;    // the output head is the embedding
  bool logit_shift = false;  // position p is predicted by row p - 1
  // Layers with other heads than those above; empty: none. The first `num_layers` count.
  std::vector<LayerShape> layer_shapes = {};
  LayerShape wide = {};          // of the layers without a window, if there are any
  double wide_rope_theta = 0.0;  // of those, and how much of a head turns
  size_t wide_rope_dim = 0;
  Activation activation = Activation::kSilu;
  bool value_norm = false;         // each head of v is normed, without a gain
  float attention_scale = 0.0f;    // of query times key; 0: 1 / sqrt(head_dim)
  bool post_norms = false;         // what attention and FFN give is normed before it is added
  bool layer_scales = false;       // a layer's output has a factor, another one in encoded rows
  bool self_conditioning = false;  // rows of the block see what the step before expected there
  float embedding_scale = 1.0f;
  float logit_cap = 0.0f;  // logits are cap * tanh(logit / cap); 0: as they are
  // The rows of Wq and Wk are stored so that RoPE pairs are neighbours (llama.cpp's `llada` files).
  bool interleaved_qk = false;
  ExpertConfig experts = {};
  AttentionPattern attention = {};
  TokenId mask_id = -1;
  std::optional<TokenId> eos_id = {}, bos_id = {}, pad_id = {};
  std::vector<TokenId> stop_ids = {};     // every end token the files name, eos_id first
  std::optional<TokenId> expand_id = {};  // becomes two masks when written (DreamOn)
  std::string_view chat = {};             // its format in text/chat_template.h
  DecodeDefaults decode = {};
  bool single_turn = false;  // never saw a second question: each is asked alone
  // The only questions it was taught, if its file says so: patterns in which * stands for anything,
  // and what they are, in a sentence for people.
  std::vector<std::string> question_forms = {};
  std::string knows = {};
  CacheDefaults cache = {};
  // SPA-Cache's budget measured for this very model, if the file carries one: peak layer, and the
  // ratios at the peak, the first and the last layer.
  std::optional<std::array<double, 4>> spa_budget = {};
  bool spa_prompt = false;  // its rows of the prompt move with the answer: they compete, too

  // The heads of a layer.
  LayerShape shape(size_t layer) const {
    return layer_shapes.empty() ? LayerShape{num_kv_heads, head_dim} : layer_shapes[layer];
  }
  bool is_wide(size_t layer) const { return !layer_shapes.empty() && shape(layer) == wide; }
  size_t q_dim(size_t layer) const { return num_heads * shape(layer).head_dim; }
  size_t kv_dim(size_t layer) const { return shape(layer).num_kv_heads * shape(layer).head_dim; }
  // Of the largest layer.
  size_t max_q_dim() const { return std::max(q_dim(), num_heads * wide.head_dim); }
  size_t max_kv_dim() const { return std::max(kv_dim(), wide.num_kv_heads * wide.head_dim); }
  bool has_dense(size_t layer) const { return !has_experts(layer) || experts.beside_dense; }
  size_t q_dim() const { return num_heads * head_dim; }
  size_t kv_dim() const { return num_kv_heads * head_dim; }
  bool has_experts(size_t layer) const {
    return experts.count > 0 && layer >= experts.first_dense_layers;
  }
};

extern const std::array<const char*, 4> kBudgetKeys;  // of spa_budget in GGUF metadata

ModelConfig ConfigFromGguf(const GgufFile& file);
ModelConfig ConfigFromFolder(const std::filesystem::path& folder);

// Throws Error naming the number that is impossible. `where` is the file, for the message.
void ValidateConfig(const ModelConfig& config, const std::string& where);

}  // namespace spa
