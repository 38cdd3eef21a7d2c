// The limit that `fedpg bench tabular` compares with on a GPU: PAvg's local updates in one kernel, written for nothing else.
//
// K local steps without leaving the multiprocessor: tables in shared memory, softmax, rollout and gradient on the lane's own thread,
// and xorshift instead of a counter-based generator. -DSTATES= -DACTIONS= -DLOCAL_STEPS= -DHORIZON=

#define CELLS (STATES * ACTIONS)
#define WORDS (5 * CELLS + CELLS * STATES)
#define T 32

static __device__ __forceinline__ float next(unsigned* x) {
  *x ^= *x << 13; *x ^= *x >> 17; *x ^= *x << 5;
  return (float)(*x >> 8) * (1.0f / 16777216.0f);
}

extern "C" __global__ void bare(const float* transition, const float* reward, const float* start_params, float* params, float lr,
                                float discount, unsigned lanes, unsigned seed) {
  extern __shared__ float memory[];
  const unsigned lane = blockIdx.x * blockDim.x + threadIdx.x, me = threadIdx.x % T;
  if (lane >= lanes) return;
  float* own = memory + threadIdx.x / T * T * WORDS + me;
  float *q = own, *r = q + T * CELLS * STATES, *theta = r + T * CELLS, *p = theta + T * CELLS;
  float2* tally = (float2*)(own - me + T * (CELLS * STATES + 3 * CELLS)) + me;
  float sum = 0.0f;
  for (int i = 0; i < CELLS * STATES; i++) q[i * T] = sum = i % STATES ? sum + transition[(size_t)lane * CELLS * STATES + i] : transition[(size_t)lane * CELLS * STATES + i];
  for (int i = 0; i < CELLS; i++) { r[i * T] = reward[(size_t)lane * CELLS + i]; theta[i * T] = start_params[(size_t)lane * CELLS + i]; }
  unsigned x = (lane + 1) * 2654435761u ^ seed;
  for (int k = 0; k < LOCAL_STEPS; k++) {
    for (int s = 0; s < STATES; s++) {
      float total = 0.0f;
#pragma unroll
      for (int a = 0; a < ACTIONS; a++) p[(s * ACTIONS + a) * T] = total += __expf(theta[(s * ACTIONS + a) * T]);
      const float scale = 1.0f / total;
#pragma unroll
      for (int a = 0; a < ACTIONS; a++) p[(s * ACTIONS + a) * T] *= scale;
    }
    for (int i = 0; i < CELLS; i++) tally[i * T] = make_float2(0.0f, 0.0f);
    int s = (int)(next(&x) * STATES);
    float earned = 0.0f, power = 1.0f;
#pragma unroll 2
    for (int t = 0; t < HORIZON; t++) {
      float u = next(&x);
      const float* row = p + s * ACTIONS * T;
      int a = 0;
#pragma unroll
      for (int i = 0; i < ACTIONS - 1; i++) a += row[i * T] <= u;
      const int cell = s * ACTIONS + a;
      float2 now = tally[cell * T];
      now.x += 1.0f; now.y += earned;
      tally[cell * T] = now;
      earned += power * r[cell * T];
      power *= discount;
      u = next(&x);
      row = q + cell * STATES * T;
      s = 0;
#pragma unroll
      for (int i = 0; i < STATES - 1; i++) s += row[i * T] <= u;
    }
    for (int s = 0; s < STATES; s++) {
      float all = 0.0f;
#pragma unroll
      for (int a = 0; a < ACTIONS; a++) { const float2 n = tally[(s * ACTIONS + a) * T]; all += earned * n.x - n.y; }
      float before = 0.0f;
#pragma unroll
      for (int a = 0; a < ACTIONS; a++) {
        const int c = (s * ACTIONS + a) * T;
        const float2 n = tally[c];
        theta[c] += lr * (earned * n.x - n.y - (p[c] - before) * all);
        before = p[c];
      }
    }
  }
  for (int i = 0; i < CELLS; i++) params[(size_t)lane * CELLS + i] = theta[i * T];
}
