// Visit sums of trajectories in finite MDPs on a CPU: an XLA FFI handler for one shape of tables.
//
// Compiled with -DSTATES= -DACTIONS= -DVALUED=0|1 -DLAZY=0|1. VALUED adds the sums that a baseline of the state needs. The policy is
// given by logits. With LAZY it is given by probabilities, and the cumulative sums of a row are made when the row is visited: for tables
// with more rows than a trajectory has steps.
// Lanes are independent: a lane's result depends on its own operands only. `fedpg.gradients.tabular` says what is computed.

#define _DEFAULT_SOURCE
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "common.h"
#include "xla/ffi/api/c_api.h"

#define CELLS (STATES * ACTIONS)
#define TOGETHER 4  // lanes whose steps alternate, so that one computes while another waits for its table
#define SHARE 64    // lanes that a thread takes at a time
enum { KEY, START, POLICY, TRANSITION, REWARD, OPERANDS };

typedef struct {
  const void* operand[OPERANDS];
  int64_t stride[OPERANDS][16];  // elements from one entry of a leading axis to the next; 0 where the operand is the same for all
  int64_t axes, dims[16], lanes;
  float *visits, *returns, *discounts, *targets, *total;
  int64_t horizon;
  float discount;
  atomic_llong next, users;  // the next lane to do; threads that still look at this job
  atomic_int failed;
  atomic_llong done;  // lanes done
} Job;

typedef struct {  // of one lane
  unsigned key[2];
  int state, start;
  const float *policy, *transition, *reward;
  float own_policy[LAZY ? 1 : CELLS], own_transition[LAZY ? 1 : CELLS * STATES];
  float row[LAZY ? (STATES > ACTIONS ? STATES : ACTIONS) : 1];
} Lane;

static const void* entry(const Job* job, int operand, int64_t lane, int64_t bytes) {
  int64_t at = 0;
  for (int64_t axis = job->axes; axis-- > 0; lane /= job->dims[axis]) at += lane % job->dims[axis] * job->stride[operand][axis];
  return (const char*)job->operand[operand] + at * bytes;
}

INLINE void cumulate(const float* from, float* to, int rows, int width) {
  for (int r = 0; r < rows; r++) {
    float sum = 0.0f;
    for (int i = 0; i < width; i++) to[r * width + i] = sum += from[r * width + i];
  }
}

// The index on which a uniform number falls, from cumulative sums.
INLINE int pick(const float* row, int width, float u) {
  const float threshold = u * row[width - 1];
  int index = 0;
  for (int i = 0; i < width - 1; i++) index += row[i] <= threshold;
  return index;
}

INLINE const float* row_of(Lane* lane, const float* given, const float* own, int64_t number, int width) {
  if (!LAZY) return own + number * width;  // made before
  cumulate(given + number * width, lane->row, 1, width);
  return lane->row;
}

// Runs `count` lanes from `first` on. noise: (TOGETHER, 2, H); cells: (TOGETHER, H).
INLINE void roll(const Job* job, Lane* lanes, int64_t first, int count, float* noise, int* cells) {
  const int64_t horizon = job->horizon;
  for (int i = 0; i < count; i++) {
    Lane* lane = lanes + i;
    memcpy(lane->key, entry(job, KEY, first + i, 4), 8);
    lane->state = *(const int*)entry(job, START, first + i, 4);
    lane->policy = entry(job, POLICY, first + i, 4);
    lane->transition = entry(job, TRANSITION, first + i, 4);
    lane->reward = entry(job, REWARD, first + i, 4);
    if (!LAZY) {
      float chance[CELLS];
      for (int s = 0; s < STATES; s++) {
        float largest = lane->policy[s * ACTIONS];
        for (int a = 1; a < ACTIONS; a++) largest = lane->policy[s * ACTIONS + a] > largest ? lane->policy[s * ACTIONS + a] : largest;
        for (int a = 0; a < ACTIONS; a++) chance[s * ACTIONS + a] = lane->policy[s * ACTIONS + a] - largest;
      }
      for (int c = 0; c < CELLS; c++) chance[c] = exponential(chance[c]);
      cumulate(chance, lane->own_policy, STATES, ACTIONS);
      cumulate(lane->transition, lane->own_transition, CELLS, STATES);
    }
    float *act = noise + 2 * i * horizon, *move = act + horizon;
    const unsigned k0 = lane->key[0], k1 = lane->key[1];
    for (int64_t t = 0; t < horizon; t++) {
      unsigned a, b;
      threefry(k0, k1, (unsigned)t, 0u, 1u, &a, &b);
      act[t] = uniform(a);
      move[t] = uniform(b);
    }
  }
  for (int64_t t = 0; t < horizon; t++)
    for (int i = 0; i < count; i++) {
      Lane* lane = lanes + i;
      const float* u = noise + 2 * i * horizon + t;
      const int action = pick(row_of(lane, lane->policy, lane->own_policy, lane->state, ACTIONS), ACTIONS, u[0]);
      const int cell = lane->state * ACTIONS + action;
      cells[i * horizon + t] = cell;
      lane->state = pick(row_of(lane, lane->transition, lane->own_transition, cell, STATES), STATES, u[horizon]);
    }
}

// Adds up the visits of one lane, from the last step to the first. discounts: gamma^t, (H,).
INLINE void add_up(const Job* job, const float* reward, const int* cells, const float* discounts, int64_t lane) {
  float visits[CELLS] = {0}, returns[CELLS] = {0}, discounted[VALUED ? CELLS : 1] = {0}, targets[VALUED ? STATES : 1] = {0};
  float to_go = 0.0f, target = 0.0f, total = 0.0f;
  for (int64_t t = job->horizon; t-- > 0;) {
    const int cell = cells[t];
    const float r = reward[cell];
    total += r;
    to_go += discounts[t] * r;
    visits[cell] += 1.0f;
    returns[cell] += to_go;
    if (VALUED) {
      target = r + job->discount * target;
      discounted[cell] += discounts[t];
      targets[cell / ACTIONS] += target;
    }
  }
  memcpy(job->visits + lane * CELLS, visits, sizeof visits);
  memcpy(job->returns + lane * CELLS, returns, sizeof returns);
  if (VALUED) {
    memcpy(job->discounts + lane * CELLS, discounted, sizeof discounted);
    memcpy(job->targets + lane * STATES, targets, sizeof targets);
  }
  job->total[lane] = total;
}

// Takes lanes until none are left.
static void work(Job* job) {
  const int64_t horizon = job->horizon;
  float* noise = malloc(sizeof(float) * (2 * TOGETHER + 1) * horizon);
  int* cells = malloc(sizeof(int) * TOGETHER * horizon);
  Lane* lanes = malloc(sizeof(Lane) * TOGETHER);
  const int ready = noise && cells && lanes;
  if (!ready) job->failed = 1;
  float* discounts = ready ? noise + 2 * TOGETHER * horizon : NULL;
  float power = 1.0f;
  for (int64_t t = 0; ready && t < horizon; t++, power *= job->discount) discounts[t] = power;
  for (;;) {
    const int64_t begin = atomic_fetch_add(&job->next, SHARE), end = begin + SHARE < job->lanes ? begin + SHARE : job->lanes;
    if (begin >= job->lanes) break;
    for (int64_t lane = begin; ready && lane < end; lane += TOGETHER) {
      const int count = end - lane < TOGETHER ? (int)(end - lane) : TOGETHER;
      if (count == TOGETHER) roll(job, lanes, lane, TOGETHER, noise, cells);
      else for (int i = 0; i < count; i++) roll(job, lanes + i, lane + i, 1, noise + 2 * i * horizon, cells + i * horizon);
      for (int i = 0; i < count; i++) add_up(job, lanes[i].reward, cells + i * horizon, discounts, lane + i);
    }
    atomic_fetch_add(&job->done, end - begin);
  }
  free(noise); free(cells); free(lanes);
}

static void leave(Job* job) {
  if (atomic_fetch_sub(&job->users, 1) == 1) free(job);
}

static void help(void* data) {
  work(data);
  leave(data);
}

static XLA_FFI_Error* refuse(const XLA_FFI_Api* api, const char* message) {
  XLA_FFI_Error_Create_Args args = {.struct_size = XLA_FFI_Error_Create_Args_STRUCT_SIZE, .message = message,
                                    .errc = XLA_FFI_Error_Code_INTERNAL};
  return api->XLA_FFI_Error_Create(&args);
}

static int64_t attribute(const XLA_FFI_Attrs* attrs, const char* name, void* value, int64_t bytes) {
  for (int64_t i = 0; i < attrs->size; i++)
    if (attrs->names[i]->len == strlen(name) && !memcmp(attrs->names[i]->ptr, name, strlen(name))) {
      memcpy(value, ((XLA_FFI_Scalar*)attrs->attrs[i])->value, bytes);
      return 1;
    }
  return 0;
}

XLA_FFI_Error* fedpg_visits(XLA_FFI_CallFrame* frame) {
  if (frame->extension_start && frame->extension_start->type == XLA_FFI_Extension_Metadata) {
    XLA_FFI_Metadata* metadata = ((XLA_FFI_Metadata_Extension*)frame->extension_start)->metadata;
    metadata->api_version = (XLA_FFI_Api_Version){XLA_FFI_Api_Version_STRUCT_SIZE, NULL, XLA_FFI_API_MAJOR, XLA_FFI_API_MINOR};
    metadata->traits = 0;
    return NULL;
  }
  static const int ranks[OPERANDS] = {1, 0, 2, 3, 2};
  static const int64_t sizes[OPERANDS] = {2, 1, CELLS, CELLS * STATES, CELLS};
  Job* job = calloc(1, sizeof *job);
  if (!job) return refuse(frame->api, "out of memory");
  const XLA_FFI_Buffer* visits = frame->rets.rets[0];
  job->axes = visits->rank - 2;
  int sound = job->axes <= 16 && frame->args.size == OPERANDS && frame->rets.size == (VALUED ? 5 : 3);
  sound = sound && visits->dims[job->axes] == STATES && visits->dims[job->axes + 1] == ACTIONS;
  sound = sound && attribute(&frame->attrs, "horizon", &job->horizon, 8) && attribute(&frame->attrs, "discount", &job->discount, 4);
  job->lanes = 1;
  for (int64_t axis = 0; sound && axis < job->axes; axis++) job->lanes *= job->dims[axis] = visits->dims[axis];
  for (int k = 0; sound && k < OPERANDS; k++) {
    const XLA_FFI_Buffer* given = frame->args.args[k];
    sound = given->rank == job->axes + ranks[k];
    int64_t size = sizes[k];
    job->operand[k] = given->data;
    for (int64_t axis = job->axes; sound && axis-- > 0; size *= given->dims[axis])
      job->stride[k][axis] = given->dims[axis] == 1 ? 0 : size;
  }
  if (!sound) {
    free(job);
    return refuse(frame->api, "fedpg_visits: unexpected operands");
  }
  float** results[] = {&job->visits, &job->returns, &job->total, &job->discounts, &job->targets};
  for (int k = 0; k < frame->rets.size; k++) *results[k] = ((XLA_FFI_Buffer*)frame->rets.rets[k])->data;

  int64_t threads = 1;
  XLA_FFI_ThreadPool_NumThreads_Args count = {.struct_size = XLA_FFI_ThreadPool_NumThreads_Args_STRUCT_SIZE, .ctx = frame->ctx,
                                              .num_threads = &threads};
  XLA_FFI_Error* error = frame->api->XLA_FFI_ThreadPool_NumThreads(&count);
  if (error) {  // no pool: this thread does everything
    XLA_FFI_Error_Destroy_Args gone = {.struct_size = XLA_FFI_Error_Destroy_Args_STRUCT_SIZE, .error = error};
    frame->api->XLA_FFI_Error_Destroy(&gone);
    threads = 1;
  }
  const int64_t shares = (job->lanes + SHARE - 1) / SHARE;
  if (threads > shares) threads = shares;
  atomic_init(&job->users, 1);
  for (int64_t i = 1; i < threads; i++) {
    XLA_FFI_ThreadPool_Schedule_Args task = {.struct_size = XLA_FFI_ThreadPool_Schedule_Args_STRUCT_SIZE, .ctx = frame->ctx,
                                             .task = help, .data = job};
    atomic_fetch_add(&job->users, 1);
    if ((error = frame->api->XLA_FFI_ThreadPool_Schedule(&task))) {
      XLA_FFI_Error_Destroy_Args gone = {.struct_size = XLA_FFI_Error_Destroy_Args_STRUCT_SIZE, .error = error};
      frame->api->XLA_FFI_Error_Destroy(&gone);
      leave(job);
      break;
    }
  }
  work(job);
  while (atomic_load(&job->done) < job->lanes) sched_yield();  // others finish the lanes that they took
  const int failed = job->failed;
  leave(job);
  return failed ? refuse(frame->api, "out of memory") : NULL;
}
