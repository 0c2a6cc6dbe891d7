/* spa.cpp for C and every language that can call C: load a model, tokenize, generate step by step,
 * read logits, write your own cache. The ABI is stable within a major version: structs that you
 * fill in begin with `size`, which you set to sizeof the struct, so that they may grow. Set the
 * rest to zero first: a library that is older than your header refuses fields it does not know,
 * unless they are zero.
 *
 * Functions return SPA_OK or an error code; spa_last_error() then holds a one-line message for the
 * calling thread, until its next call. Strings are UTF-8. A model may be used by one thread at a
 * time. */
#ifndef SPA_SPA_C_H_
#define SPA_SPA_C_H_

#include <stddef.h>
#include <stdint.h>

#include "spa/export.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum {
  SPA_OK = 0,
  SPA_INVALID = 1, /* a file, an option or an argument is wrong */
  SPA_MEMORY = 2,
  SPA_INTERNAL = 3, /* a bug in spa.cpp */
  SPA_STOPPED = 4   /* a callback asked to stop */
} spa_status;

typedef struct spa_model spa_model;
typedef struct spa_result spa_result;

SPA_API const char* spa_last_error(void);

/* ---- models */

/* `path`: a GGUF file or a Hugging Face folder; NULL: the embedded model. `threads` 0: one per
 * core. */
SPA_API spa_status spa_model_load(const char* path, size_t threads, spa_model** model);
SPA_API void spa_model_free(spa_model* model);
SPA_API size_t spa_model_vocab_size(const spa_model* model);
SPA_API size_t spa_model_num_layers(const spa_model* model);
SPA_API int32_t spa_model_mask_id(const spa_model* model);

/* Token ids of a text, or of a question in the model's chat template. Writes at most `capacity` ids
 * and sets `count` to how many there are. */
SPA_API spa_status spa_tokenize(spa_model* model, const char* text, int32_t* ids, size_t capacity,
                                size_t* count);
SPA_API spa_status spa_tokenize_chat(spa_model* model, const char* question, int32_t* ids,
                                     size_t capacity, size_t* count);
/* Text of token ids; `size` is set to its bytes without the final zero. */
SPA_API spa_status spa_detokenize(spa_model* model, const int32_t* ids, size_t count, char* text,
                                  size_t capacity, size_t* size);

/* Logits of one dense pass, row by row: [count, vocab]. */
SPA_API spa_status spa_logits(spa_model* model, const int32_t* ids, size_t count, float* logits);

/* ---- a cache of your own */

typedef struct {
  const uint32_t* rows; /* ascending, without repeats */
  size_t count;
} spa_rows;

typedef struct {
  const int32_t* ids;    /* [num_rows] */
  const uint8_t* masked; /* [num_rows], 1 where a position is open */
  size_t num_rows, prompt_length, block_begin, block_end, step, step_in_block;
  spa_rows visible; /* rows that take part */
  spa_rows changed; /* positions whose token is new since the last step */
  spa_rows wanted;  /* rows whose logits are read */
} spa_step;

typedef struct {
  size_t layer, num_layers;
  const spa_step* step;
  const float* inputs; /* [num_rows, model_dim]; rows that did not reach the layer hold nothing */
  size_t model_dim;
  spa_rows live; /* those that did */
} spa_layer;

typedef enum {
  SPA_REUSE_NOTHING = 0, /* rows that are not recomputed are present only as keys and values */
  SPA_REUSE_UPDATE = 1,  /* ... pass through with their last update */
  SPA_REUSE_OUTPUT = 2   /* ... pass through with their last output */
} spa_reuse;

/* A cache as callbacks. `create` makes the state of a sequence, which is passed to the others. Row
 * sets that they return must stay valid until the next callback. A callback that returns non-zero
 * ends the generation with SPA_STOPPED. */
typedef struct {
  size_t size; /* of this struct: sizeof(spa_policy) */
  void* user;
  spa_reuse reuse;
  void* (*create)(void* user);
  void (*destroy)(void* state);
  int (*begin_step)(void* state, const spa_step* step, spa_rows* rows);   /* rows of layer 0 */
  int (*plan_layer)(void* state, const spa_layer* layer, spa_rows* rows); /* rows to recompute */
  void (*end_step)(void* state);                                          /* may be NULL */
} spa_policy;

/* ---- generating */

typedef struct {
  size_t step;            /* 1 after the first */
  const int32_t* ids;     /* [num_ids], the whole canvas; open positions hold the mask */
  const uint8_t* settled; /* [num_ids] */
  size_t num_ids;
  const char* text; /* the settled beginning of the answer */
} spa_frame;

typedef struct {
  size_t size;         /* of this struct: sizeof(spa_generate_options) */
  const char* options; /* "threshold=0.9 gen-length=64": the options of `spa options`; NULL: none */
  const char* cache;   /* "spa", "spa:rank=64", ...; NULL: the model's default */
  const spa_policy* policy; /* your own cache instead; NULL: none */
  /* Called after every step; non-zero stops. */
  int (*on_step)(void* user, const spa_frame* frame);
  void* user;
} spa_generate_options;

/* Answers a prompt of token ids. `options` may be NULL. Free the result with spa_result_free. */
SPA_API spa_status spa_generate(spa_model* model, const int32_t* prompt, size_t count,
                                const spa_generate_options* options, spa_result** result);
SPA_API void spa_result_free(spa_result* result);
SPA_API const char* spa_result_text(const spa_result* result);
SPA_API const int32_t* spa_result_ids(const spa_result* result, size_t* count); /* the canvas */
SPA_API size_t spa_result_steps(const spa_result* result);
SPA_API double spa_result_seconds(const spa_result* result);
/* Share of rows that were computed. */
SPA_API double spa_result_rows_fraction(const spa_result* result);

#ifdef __cplusplus
}
#endif

#endif /* SPA_SPA_C_H_ */
