// Policy gradients of softmax tables on an NVIDIA GPU: one thread per lane, 32 lanes per tile.
//
// Compiled by NVRTC, behind common.h and tiles.h, with -DSTATES= -DACTIONS= -DWEIGHTED=0|1. With logits x, coefficients C and pi = softmax(x):
//
//   score = grad_x sum_{s,a} w C[s,a] log pi(a|s) = w (C[s,a] - pi(a|s) sum_b C[s,b])
//
// with w = 1, or if WEIGHTED w = exp(min(log ratio, limit)), log ratio = sum_{s,a} n[s,a] (log pi(a|s) - log mu(a|s)), where mu is the
// softmax of the behaviour's logits and n are visits.

#define CELLS (STATES * ACTIONS)
enum { LOGITS, COEFFICIENT, BEHAVIOUR, COUNT };
enum { SCORE, RATIO };
#define USED (WEIGHTED ? 4 : 2)
#define WORDS (USED * RAW(CELLS))

// The largest of the logits of a state, the exponentials of what they are below it, and the sum of these.
INLINE float normalise(const float* logits, float* exponentials, float* largest) {
  float most = logits[0], sum = 0.0f;
#pragma unroll
  for (int a = 1; a < ACTIONS; a++) most = fmaxf(logits[a], most);
#pragma unroll
  for (int a = 0; a < ACTIONS; a++) sum += exponentials[a] = expf(logits[a] - most);
  *largest = most;
  return sum;
}

extern "C" __global__ void score(const Job job) {
  const unsigned begin = (blockIdx.x * blockDim.x + threadIdx.x) / TILE * TILE;
  if (begin >= job.lanes) return;
  const int me = threadIdx.x % TILE, count = MIN(job.lanes - begin, TILE);
  const unsigned lane = begin + (me < count ? me : count - 1);  // threads too many repeat the last lane
  long long at[USED];
  places<USED>(job, lane, at);
  extern __shared__ float memory[];
  float* own = memory + threadIdx.x / TILE * TILE * WORDS;
#pragma unroll
  for (int k = 0; k < USED; k++) fetch<CELLS>((const float*)job.operand[k] + at[k], own + k * TILE * RAW(CELLS));
  arrive();
#define OF_LANE(k) (own + ((k) * TILE + me) * RAW(CELLS))
  const float* logits = OF_LANE(LOGITS);
  float* coefficient = OF_LANE(COEFFICIENT);
  float log_ratio = 0.0f;
#pragma unroll 1
  for (int s = 0; s < STATES; s++) {
    float row[ACTIONS], largest, total = 0.0f, *c = coefficient + s * ACTIONS;
    const float sum = normalise(logits + s * ACTIONS, row, &largest), scale = 1.0f / sum;
#pragma unroll
    for (int a = 0; a < ACTIONS; a++) total += c[a];
#pragma unroll
    for (int a = 0; a < ACTIONS; a++) c[a] -= row[a] * scale * total;
#if WEIGHTED
    const float *old = OF_LANE(BEHAVIOUR) + s * ACTIONS, *n = OF_LANE(COUNT) + s * ACTIONS;
    float largest_old;
    const float change = logf(normalise(old, row, &largest_old)) - logf(sum);
#pragma unroll
    for (int a = 0; a < ACTIONS; a++) log_ratio += n[a] * ((logits[s * ACTIONS + a] - largest) - (old[a] - largest_old) + change);
#endif
  }
  float w = 1.0f;
#if WEIGHTED
  w = expf(log_ratio > job.limit ? job.limit : log_ratio);
  if (me < count) ((float*)job.result[RATIO])[lane] = log_ratio;
#endif
  store<CELLS>((float*)job.result[SCORE] + (long long)begin * CELLS, own + TILE * RAW(CELLS), count, [&](int i) { return w * coefficient[i]; });
}
