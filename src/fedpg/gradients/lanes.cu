// Rollouts and gradients of small tanh networks over finite actions on an NVIDIA GPU: one thread per lane, from its first step to its last.
//
// Compiled by NVRTC behind the task's step (see `lanes_cuda.py`), with -DSIZES=inputs,hidden,...,actions
// -DSCALED=0|1 -DSHARED=0|1 -DTHREADS=. All arrays have the
// lanes as their last axis, so that the threads of a warp read and write side by side. `lanes_xla.py` says what is computed.

#if SHARED
#define STRIDE THREADS
#else
#define STRIDE 1
#endif
#define INLINE __device__ __forceinline__
#define UNROLL _Pragma("unroll")

struct Job {
  const void* in[4];
  void* out[4];
  int lanes, horizon;
};

// The approximation of XLA, within a few units of the last place.
INLINE float quick_tanh(float x) {
  const float y = fminf(fmaxf(x, -7.90531110763549805f), 7.90531110763549805f), s = y * y;
  float p = -2.76076847742355e-16f;
  p = fmaf(p, s, 2.00018790482477e-13f);
  p = fmaf(p, s, -8.60467152213735e-11f);
  p = fmaf(p, s, 5.12229709037114e-08f);
  p = fmaf(p, s, 1.48572235717979e-05f);
  p = fmaf(p, s, 6.37261928875436e-04f);
  p = fmaf(p, s, 4.89352455891786e-03f);
  float q = 1.19825839466702e-06f;
  q = fmaf(q, s, 1.18534705686654e-04f);
  q = fmaf(q, s, 2.26843463243900e-03f);
  q = fmaf(q, s, 4.89352518554385e-03f);
  return fabsf(x) < 0.0004f ? x : __fdividef(y * p, q);
}

// Params of one lane: in registers, or in shared memory, where those of the threads of a block stand side by side.
struct Params {
  float* first;
  INLINE float operator[](int k) const { return first[k * STRIDE]; }
  INLINE Params operator+(int k) const { return {first + k * STRIDE}; }
};

template <int M, int N>
INLINE void affine(Params w, const float* x, float* y) {
  UNROLL for (int o = 0; o < N; o++) y[o] = w[M * N + o];
  UNROLL for (int i = 0; i < M; i++) {
    UNROLL for (int o = 0; o < N; o++) y[o] = fmaf(w[i * N + o], x[i], y[o]);
  }
}

// Adds the gradient of one layer, whose slopes are d, and puts the slopes of its inputs into `below`.
template <int M, int N>
INLINE void back(Params w, float* g, const float* x, const float* d, float* below) {
  UNROLL for (int o = 0; o < N; o++) g[M * N + o] += d[o];
  UNROLL for (int i = 0; i < M; i++) {
    float sum = 0.0f;
    UNROLL for (int o = 0; o < N; o++) {
      g[i * N + o] = fmaf(x[i], d[o], g[i * N + o]);
      sum = fmaf(w[i * N + o], d[o], sum);
    }
    below[i] = sum;
  }
}

template <int M, int N, int... REST>
struct Net {
  static constexpr int OWN = (M + 1) * N, NUMBERS = OWN + Net<N, REST...>::NUMBERS, ACTIONS = Net<N, REST...>::ACTIONS, INPUTS = M;

  static INLINE void logits(Params w, const float* x, float* z) {
    float h[N];
    affine<M, N>(w, x, h);
    UNROLL for (int o = 0; o < N; o++) h[o] = quick_tanh(h[o]);
    Net<N, REST...>::logits(w + OWN, h, z);
  }

  // head(logits, slopes) gives the slopes of the logits.
  template <typename F>
  static INLINE void ascend(Params w, float* g, const float* x, float* below, F head) {
    float h[N], d[N];
    affine<M, N>(w, x, h);
    UNROLL for (int o = 0; o < N; o++) h[o] = quick_tanh(h[o]);
    Net<N, REST...>::ascend(w + OWN, g + OWN, h, d, head);
    UNROLL for (int o = 0; o < N; o++) d[o] *= 1.0f - h[o] * h[o];
    back<M, N>(w, g, x, d, below);
  }
};

template <int M, int N>
struct Net<M, N> {
  static constexpr int NUMBERS = (M + 1) * N, ACTIONS = N;
  static INLINE void logits(Params w, const float* x, float* z) { affine<M, N>(w, x, z); }

  template <typename F>
  static INLINE void ascend(Params w, float* g, const float* x, float* below, F head) {
    float z[N], d[N];
    affine<M, N>(w, x, z);
    head(z, d);
    back<M, N>(w, g, x, d, below);
  }
};

using Policy = Net<SIZES>;
constexpr int A = Policy::ACTIONS, D = Policy::INPUTS, P = Policy::NUMBERS, S = SCALED ? 2 * D : 0;

template <int N>
INLINE void read(const float* from, long lanes, long lane, float* to) {
  UNROLL for (int k = 0; k < N; k++) to[k] = __ldg(from + k * lanes + lane);
}

// Params named `w`, read from the first entries of `constants`.
#if SHARED
#define PARAMS(w, constants)                 \
  __shared__ float own_##w[P * THREADS];     \
  const Params w = {own_##w + threadIdx.x};  \
  UNROLL for (int k = 0; k < P; k++) w.first[k * STRIDE] = __ldg(constants + k * lanes + lane);
#else
#define PARAMS(w, constants)                 \
  float own_##w[P];                          \
  const Params w = {own_##w};                \
  UNROLL for (int k = 0; k < P; k++) own_##w[k] = __ldg(constants + k * lanes + lane);
#endif

// What the network sees of an observation; scale: mean, then deviation.
INLINE void see(const float* scale, const float* observation, float* x) {
  UNROLL for (int i = 0; i < D; i++)
    x[i] = SCALED ? fminf(fmaxf((observation[i] - scale[i]) / scale[D + i], -FURTHEST), FURTHEST) : observation[i];
}

// exp(z - max z), z - max z in place, and their sum.
INLINE float powers(float* z, float* e) {
  float most = z[0], sum = 0.0f;
  UNROLL for (int k = 1; k < A; k++) most = fmaxf(most, z[k]);
  UNROLL for (int k = 0; k < A; k++) {
    z[k] -= most;
    e[k] = expf(z[k]);
    sum += e[k];
  }
  return sum;
}

#ifdef TASK
extern "C" __global__ void __launch_bounds__(THREADS) rollout(const Job job) {
  const long lane = blockIdx.x * THREADS + threadIdx.x, lanes = job.lanes;
  if (lane >= lanes) return;
  const float *constants = (const float*)job.in[0], *uniform = (const float*)job.in[1];
  float *observation = (float*)job.out[0], *reward = (float*)job.out[2], *mask = (float*)job.out[3];
  int* action = (int*)job.out[1];
  float scale[S + 1], agent[AGENT + 1], state[D];
  PARAMS(w, constants)
  read<S>(constants + P * lanes, lanes, lane, scale);
  read<AGENT>(constants + (P + S) * lanes, lanes, lane, agent);
  read<D>(constants + (P + S + AGENT) * lanes, lanes, lane, state);
  bool alive = true;
  int t = 0;
  for (; t < job.horizon && __any_sync(__activemask(), alive); t++) {
    float x[D], z[A], e[A], sum = 0.0f, after[D], paid;
    bool ended;
    see(scale, state, x);
    Policy::logits(w, x, z);
    const float total = powers(z, e);
    float cumulative[A];
    UNROLL for (int k = 0; k < A; k++) cumulative[k] = sum += e[k] / total;
    const float u = uniform[t * lanes + lane] * sum;
    int chosen = 0;
    UNROLL for (int k = 0; k < A - 1; k++) chosen += cumulative[k] <= u;
    step(state, chosen, agent, after, &paid, &ended);
    UNROLL for (int i = 0; i < D; i++) observation[(t * D + i) * lanes + lane] = state[i];
    action[t * lanes + lane] = chosen;
    reward[t * lanes + lane] = alive ? paid : 0.0f;
    mask[t * lanes + lane] = alive ? 1.0f : 0.0f;
    UNROLL for (int i = 0; i < D; i++) state[i] = alive ? after[i] : state[i];
    alive = alive && !ended;
  }
  for (; t < job.horizon; t++) {  // all lanes of the warp have ended
    UNROLL for (int i = 0; i < D; i++) observation[(t * D + i) * lanes + lane] = state[i];
    action[t * lanes + lane] = 0;
    reward[t * lanes + lane] = mask[t * lanes + lane] = 0.0f;
  }
}
#endif

extern "C" __global__ void __launch_bounds__(THREADS) score(const Job job) {
  const long lane = blockIdx.x * THREADS + threadIdx.x, lanes = job.lanes;
  if (lane >= lanes) return;
  const float *constants = (const float*)job.in[0], *observation = (const float*)job.in[1], *coefficient = (const float*)job.in[3];
  const int* action = (const int*)job.in[2];
  float *direction = (float*)job.out[0], *found = (float*)job.out[1];
  float scale[S + 1], g[P];
  PARAMS(w, constants)
  read<S>(constants + P * lanes, lanes, lane, scale);
  UNROLL for (int k = 0; k < P; k++) g[k] = 0.0f;
  for (int t = 0; t < job.horizon; t++) {
    float seen[D], x[D], below[D];
    read<D>(observation + t * D * lanes, lanes, lane, seen);
    const int chosen = action[t * lanes + lane];
    const float weight = coefficient[t * lanes + lane];
    see(scale, seen, x);
    Policy::ascend(w, g, x, below, [&](float* z, float* d) {
      float e[A], mine = 0.0f;
      const float total = powers(z, e);
      UNROLL for (int k = 0; k < A; k++) {
        mine = chosen == k ? z[k] : mine;
        d[k] = weight * ((chosen == k ? 1.0f : 0.0f) - e[k] / total);
      }
      found[t * lanes + lane] = mine - logf(total);
    });
  }
  UNROLL for (int k = 0; k < P; k++) direction[k * lanes + lane] = g[k];
}

extern "C" __global__ void __launch_bounds__(THREADS) log_probs(const Job job) {
  const long lane = blockIdx.x * THREADS + threadIdx.x, lanes = job.lanes;
  if (lane >= lanes) return;
  const float *constants = (const float*)job.in[0], *observation = (const float*)job.in[1];
  const int* action = (const int*)job.in[2];
  float* found = (float*)job.out[0];
  float scale[S + 1];
  PARAMS(w, constants)
  read<S>(constants + P * lanes, lanes, lane, scale);
  for (int t = 0; t < job.horizon; t++) {
    float seen[D], x[D], z[A], e[A], mine = 0.0f;
    read<D>(observation + t * D * lanes, lanes, lane, seen);
    see(scale, seen, x);
    Policy::logits(w, x, z);
    const float total = powers(z, e);
    UNROLL for (int k = 0; k < A; k++) mine = action[t * lanes + lane] == k ? z[k] : mine;
    found[t * lanes + lane] = mine - logf(total);
  }
}
