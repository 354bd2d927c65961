/* Sparse inference on a CPU, behind a plain C interface.

   A plan is built once by calls that name values (numbers >= 0, each an image-like array of channels x height x width
   for every image of the batch), then finished, then run any number of times, by several threads at once.

       uint64_t plan; int32_t x, y;
       granet_plan_create(batch, threads, 32, NULL, &plan);
       granet_plan_input(plan, 3, 32, 32, &x);
       granet_plan_conv(plan, &conv, &y);
       granet_plan_output(plan, y);
       granet_plan_finish(plan);
       granet_plan_run(plan, 1, inputs, input_sizes, 1, outputs, output_sizes);
       granet_plan_destroy(plan);

   Every function returns 0, or a code below; what was wrong is then told by granet_message() in one line. Nothing that
   is passed by number can crash: plans are handles that are looked up, and every size, position and value is checked.
   Pointers must be NULL (which is refused) or hold as many elements as is said with them. */
#ifndef GRANET_NATIVE_H
#define GRANET_NATIVE_H

#include <stddef.h>
#include <stdint.h>

#if defined(_WIN32)
#define GRANET_API __declspec(dllexport)
#else
#define GRANET_API __attribute__((visibility("default")))
#endif

#ifdef __cplusplus
extern "C" {
#endif

#define GRANET_INTERFACE 2 /* goes up with every change of what is below */

enum granet_code {
  GRANET_OK = 0,
  GRANET_INVALID = 1,     /* an argument that is never allowed */
  GRANET_UNSUPPORTED = 2, /* meaningful, but not here: run it elsewhere */
  GRANET_MEMORY = 3,      /* there is not enough */
  GRANET_STATE = 4,       /* not at this time: no such plan, not finished, or finished already */
  GRANET_INTERNAL = 5     /* an error of this library */
};

GRANET_API int granet_interface(void);        /* GRANET_INTERFACE of the library that is loaded */
GRANET_API const char *granet_message(void);  /* about this thread's last refusal */
GRANET_API const char *granet_isas(int64_t bits); /* what this machine can run, best first: "avx512 avx2 baseline" */
GRANET_API size_t granet_struct_size(int which); /* 0 granet_conv, 1 granet_pool, 2 granet_choice, 3 granet_step */

/* threads: 1 to 256. bits: 32, or 16 for halves of floats between and inside layers: what the caller gives and takes are
   floats, and so are linear layers of one column. What is beyond 65504 becomes infinite. GRANET_UNSUPPORTED where the
   processor computes with none. isa: one of granet_isas(bits), or NULL for the best. */
GRANET_API int granet_plan_create(int64_t batch, int64_t threads, int64_t bits, const char *isa, uint64_t *plan);
GRANET_API int granet_plan_destroy(uint64_t plan);

GRANET_API int granet_plan_input(uint64_t plan, int64_t channels, int64_t height, int64_t width, int32_t *value);

/* Weights [out][in / groups][kernel_h][kernel_w] as the flat positions of those that are not zero, ascending, with their
   values. output = relu?(convolution + bias + residual). */
typedef struct granet_conv {
  int32_t input;
  int32_t residual; /* a value of the output's shape, or -1 */
  int64_t out_channels, kernel_h, kernel_w, stride_h, stride_w, padding_h, padding_w, dilation_h, dilation_w, groups;
  int64_t relu; /* 0 or 1 */
  int64_t count;
  const uint32_t *positions;
  const float *values;
  const float *bias; /* out_channels of them, or NULL */
} granet_conv;
GRANET_API int granet_plan_conv(uint64_t plan, const granet_conv *conv, int32_t *value);

/* A convolution of 1x1 on an input of 1x1: a linear layer of out_channels, and one column for every image. */
GRANET_API int granet_plan_linear(uint64_t plan, int32_t input, int64_t out_features, int32_t residual, int64_t relu,
                                  int64_t count, const uint32_t *positions, const float *values, const float *bias,
                                  int32_t *value);

enum granet_pool_kind { GRANET_POOL_MAX = 0, GRANET_POOL_AVERAGE = 1 };
typedef struct granet_pool {
  int32_t input, kind;
  int64_t kernel_h, kernel_w, stride_h, stride_w, padding_h, padding_w;
  int64_t count_padding; /* averages: 1 where zeros of the padding count */
} granet_pool;
GRANET_API int granet_plan_pool(uint64_t plan, const granet_pool *pool, int32_t *value);
GRANET_API int granet_plan_global_pool(uint64_t plan, int32_t input, int32_t kind, int32_t *value);
GRANET_API int granet_plan_add(uint64_t plan, int32_t left, int32_t right, int64_t relu, int32_t *value);
GRANET_API int granet_plan_relu(uint64_t plan, int32_t input, int32_t *value);
GRANET_API int granet_plan_flatten(uint64_t plan, int32_t input, int32_t *value); /* to channels x 1 x 1 */
GRANET_API int granet_plan_output(uint64_t plan, int32_t value); /* outputs come in the order of these calls */
GRANET_API int granet_plan_shape(uint64_t plan, int32_t value, int64_t shape[3]);

/* Chooses layouts and kernels, packs weights, plans memory. Nothing can be added afterwards. */
GRANET_API int granet_plan_finish(uint64_t plan);

/* Arrays are contiguous [batch][channels][height][width]; sizes are their numbers of elements. */
GRANET_API int granet_plan_run(uint64_t plan, int64_t inputs, const float *const *input, const int64_t *input_sizes,
                               int64_t outputs, float *const *output, const int64_t *output_sizes);

/* What a finished plan does, step by step. */
typedef struct granet_step {
  int32_t value; /* what it computes; -1 for a change of layout */
  int32_t tunable; /* whether it has choices */
  int64_t weights, multiply_adds; /* not zero; for one image */
  char text[128];
} granet_step;
GRANET_API int granet_plan_steps(uint64_t plan, int64_t *count);
GRANET_API int granet_plan_step(uint64_t plan, int64_t step, granet_step *about);
GRANET_API int granet_plan_memory(uint64_t plan, int64_t *weight_bytes, int64_t *activation_bytes);

/* How a tunable step is computed: `rows` output channels at once, in blocks of tile_h x tile_w vectors, from `slice`
   input channels at a time. Setting waits for runs to end and packs the step's weights again. */
typedef struct granet_choice {
  int32_t rows, tile_h, tile_w, slice;
} granet_choice;
GRANET_API int granet_plan_choices(uint64_t plan, int64_t step, int64_t capacity, granet_choice *choices,
                                   int64_t *count);
GRANET_API int granet_plan_chosen(uint64_t plan, int64_t step, granet_choice *choice);
GRANET_API int granet_plan_choose(uint64_t plan, int64_t step, const granet_choice *choice);

/* Least processor time in seconds of every step in repeated runs on zeros, on one thread, for about that long. */
GRANET_API int granet_plan_measure(uint64_t plan, double seconds, int64_t capacity, double *of_step);
/* The same of one step alone. */
GRANET_API int granet_plan_measure_step(uint64_t plan, int64_t step, double seconds, double *of_step);

#ifdef __cplusplus
}
#endif
#endif
