// Visit sums of trajectories in finite MDPs on an NVIDIA GPU: one thread per lane, 32 lanes per tile, no communication between tiles.
//
// Compiled by NVRTC, behind common.h, with -DSTATES= -DACTIONS= -DVALUED=0|1 -DSHARED=0|1. VALUED adds the sums that a baseline of the
// state needs. With SHARED the policy is given by logits, and the tables of a tile are in shared memory, most of them as [entry][lane],
// where no two lanes meet in a bank. Without it the policy is given by probabilities, all tables stay in global memory, and a row is read
// when it is visited. `fedpg.gradients.tabular` says what is computed.

#define CELLS (STATES * ACTIONS)
#define AXES 8
#define TILE 32
#define EVERYONE 0xffffffffu
#define MAX(a, b) ((a) > (b) ? (a) : (b))
#define MIN(a, b) ((a) < (b) ? (a) : (b))
enum { KEY, START, POLICY, TRANSITION, REWARD, OPERANDS };

struct Job {
  const void* operand[OPERANDS];
  float *visits, *returns, *total, *discounts, *targets;
  unsigned short* cells;           // working memory, (lanes, H)
  long long stride[OPERANDS][AXES];  // elements from one entry of a leading axis to the next; 0 where it is the same for all
  unsigned dims[AXES], lanes, one;
  int axes, horizon;
  float discount;
};

// The index on which a uniform number falls, from cumulative probabilities `step` entries apart.
template <int WIDTH>
INLINE int pick(const float* row, int step, float u) {
  int index = 0;
#pragma unroll
  for (int i = 0; i < WIDTH - 1; i++) index += row[i * step] <= u;
  return index;
}

// The same from probabilities in global memory.
template <int WIDTH>
INLINE int pick_raw(const float* row, float u) {
  float sum = 0.0f;
  for (int i = 0; i < WIDTH; i++) sum += row[i];
  const float threshold = u * sum;
  int index = 0;
  sum = 0.0f;
  for (int i = 0; i < WIDTH - 1; i++) index += (sum += row[i]) <= threshold;
  return index;
}

// Words that the table of a lane takes where lanes come one after another: an odd number, so that lanes meet in no bank when each reads
// the same entry.
#define RAW(size) ((size) | 1)
#define SUMS (VALUED ? 3 * CELLS + STATES : 0)
#define TABLES MAX(RAW(CELLS * STATES), SUMS)  // of a lane, for transitions and later for sums
#define SPARE (2 * RAW(CELLS))                 // for what arrives and leaves, and for the tally
#define WORDS (2 * CELLS + TABLES + SPARE)

#ifdef __CUDACC_RTC__
// Copies from global to shared memory; what was copied is there after `arrive`.
template <int WORDS_EACH>
INLINE void copy(float* to, const float* from) {
#if __CUDA_ARCH__ >= 800
  const unsigned place = (unsigned)__cvta_generic_to_shared(to);
  if (WORDS_EACH == 4) asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(place), "l"(from) : "memory");
  else asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(place), "l"(from) : "memory");
#else
  for (int i = 0; i < WORDS_EACH; i++) to[i] = from[i];
#endif
}
INLINE void arrive() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_all;" ::: "memory");
#endif
  __syncwarp();
}
#else
template <int WORDS_EACH>
INLINE void copy(float* to, const float* from) {
  for (int i = 0; i < WORDS_EACH; i++) to[i] = from[i];
}
INLINE void arrive() { __syncwarp(); }
#endif

// Fetches the tables of all lanes of a tile, one after another. `spacing` is how far those of two lanes are apart, 0 if that differs.
template <int SIZE>
INLINE void fetch(const float* own, long long spacing, float* raw) {
  const int me = threadIdx.x % TILE;
  if (spacing == SIZE) {
    const float* begin = (const float*)__shfl_sync(EVERYONE, (unsigned long long)own, 0);
    if (SIZE % 2) {
#pragma unroll 8
      for (int i = me; i < TILE / 4 * SIZE; i += TILE) copy<4>(raw + 4 * i, begin + 4 * i);
    } else {
#pragma unroll 8
      for (int i = me; i < TILE * SIZE; i += TILE) copy<1>(raw + i + i / SIZE, begin + i);
    }
  } else {
#pragma unroll 1
    for (int lane = 0; lane < TILE; lane++) {
      const float* from = (const float*)__shfl_sync(EVERYONE, (unsigned long long)own, lane);
      for (int i = me; i < SIZE; i += TILE) copy<1>(raw + lane * RAW(SIZE) + i, from + i);
    }
  }
}

// Writes f(entry) of every lane of a tile to (lanes, SIZE) at `to`, which is where the tile begins.
template <int SIZE, typename F>
INLINE void store(float* to, float* raw, int count, F f) {
  const int me = threadIdx.x % TILE;
  __syncwarp();
#pragma unroll
  for (int i = 0; i < SIZE; i++) raw[me * RAW(SIZE) + i] = f(i);
  __syncwarp();
#pragma unroll 8
  for (int i = me; i < count * SIZE; i += TILE) to[i] = raw[SIZE % 2 ? i : i + i / SIZE];
}

extern "C" __global__ void visits(const Job job) {
  const unsigned begin = (blockIdx.x * blockDim.x + threadIdx.x) / TILE * TILE;
  if (begin >= job.lanes) return;
  const int me = threadIdx.x % TILE, count = MIN(job.lanes - begin, TILE);
#if !SHARED
  if (me >= count) return;
#endif
  const unsigned lane = begin + (me < count ? me : count - 1);  // threads too many repeat the last lane
  long long at[OPERANDS] = {0};
  unsigned rest = lane;
  for (int axis = job.axes; axis-- > 0; rest /= job.dims[axis]) {
    const unsigned place = rest % job.dims[axis];
#pragma unroll
    for (int k = 0; k < OPERANDS; k++) at[k] += place * job.stride[k][axis];
  }
  const unsigned* key = (const unsigned*)job.operand[KEY] + at[KEY];
  const unsigned k0 = key[0], k1 = key[1];
  int state = ((const int*)job.operand[START])[at[START]];
  const float* policy = (const float*)job.operand[POLICY] + at[POLICY];
  const float* transition = (const float*)job.operand[TRANSITION] + at[TRANSITION];
  const float* reward = (const float*)job.operand[REWARD] + at[REWARD];
  const int horizon = job.horizon;
  unsigned short* cells = VALUED ? job.cells + (long long)begin * horizon + me : 0;  // [t][lane of the tile]
  float earned = 0.0f, total = 0.0f, power = 1.0f;

#if SHARED
  extern __shared__ float memory[];
  float *own = memory + threadIdx.x / TILE * TILE * WORDS, *tables = own + TILE * 2 * CELLS, *spare = tables + TILE * TABLES;
#define SPACING(k) (job.axes == 1 && count == TILE ? job.stride[k][0] : 0)
  fetch<CELLS>(policy, SPACING(POLICY), spare);
  fetch<CELLS>(reward, SPACING(REWARD), spare + TILE * RAW(CELLS));
  fetch<CELLS * STATES>(transition, SPACING(TRANSITION), tables);
  arrive();
  float *p = own + me, *r = p + TILE * CELLS, *q = tables + me * RAW(CELLS * STATES);  // p and r as [entry][lane]
  const float *logits = spare + me * RAW(CELLS), *rewards = logits + TILE * RAW(CELLS);
#pragma unroll
  for (int s = 0; s < STATES; s++) {
    float largest = logits[s * ACTIONS], sum = 0.0f;
#pragma unroll
    for (int a = 1; a < ACTIONS; a++) largest = MAX(logits[s * ACTIONS + a], largest);
#pragma unroll
    for (int a = 0; a < ACTIONS; a++) p[(s * ACTIONS + a) * TILE] = sum += exponential(logits[s * ACTIONS + a] - largest);
    const float scale = 1.0f / sum;
#pragma unroll
    for (int a = 0; a < ACTIONS - 1; a++) p[(s * ACTIONS + a) * TILE] *= scale;
  }
#pragma unroll
  for (int i = 0; i < CELLS; i++) r[i * TILE] = rewards[i];
#pragma unroll 5
  for (int i = 0; i < CELLS; i++) {
    float sum = 0.0f, row[STATES];
#pragma unroll
    for (int s = 0; s < STATES; s++) row[s] = sum += q[i * STATES + s];
    const float scale = 1.0f / sum;
#pragma unroll
    for (int s = 0; s < STATES - 1; s++) q[i * STATES + s] = row[s] * scale;
  }
  __syncwarp();  // logits and rewards have been read
  float2* tally = (float2*)spare + me;  // visits, and the discounted rewards before each of them
  if (!VALUED)
    for (int i = 0; i < CELLS; i++) tally[i * TILE] = make_float2(0.0f, 0.0f);
#define ACTION(u) pick<ACTIONS>(p + state * (ACTIONS * TILE), TILE, u)
#define NEXT(u) pick<STATES>(q + cell * STATES, 1, u)
#define REWARD_OF(cell) r[(cell) * TILE]
#else
  float *visits = job.visits + (long long)lane * CELLS, *returns = job.returns + (long long)lane * CELLS;
  for (int i = 0; i < CELLS; i++) visits[i] = returns[i] = 0.0f;
#define ACTION(u) pick_raw<ACTIONS>(policy + state * ACTIONS, u)
#define NEXT(u) pick_raw<STATES>(transition + (long long)cell * STATES, u)
#define REWARD_OF(cell) __ldg(reward + (cell))
#endif

#pragma unroll 2
  for (int t = 0; t < horizon; t++) {
    unsigned a, b;
    threefry(k0, k1, t, 0, job.one, &a, &b);
    const int cell = state * ACTIONS + ACTION(uniform(a));
    const float x = REWARD_OF(cell);
    if (VALUED) {
      if (me < count) cells[t * count] = cell;
    } else {
#if SHARED
      float2 now = tally[cell * TILE];
      now.x += 1.0f;
      now.y += earned;
      tally[cell * TILE] = now;
#else
      visits[cell] += 1.0f;
      returns[cell] += earned;
#endif
      earned += power * x;
      total += x;
      power *= job.discount;
    }
    state = NEXT(uniform(b));
  }

#if VALUED
  // From the last step to the first. The sums take the place of the transitions.
#if SHARED
  __syncwarp();
  float *n = tables + me, *g = n + TILE * CELLS, *d = g + TILE * CELLS, *v = d + TILE * CELLS;
  const int step = TILE;
#else
  float *n = visits, *g = returns, *d = job.discounts + (long long)lane * CELLS, *v = job.targets + (long long)lane * STATES;
  const int step = 1;
#endif
  for (int i = 0; i < CELLS; i++) n[i * step] = g[i * step] = d[i * step] = 0.0f;
  for (int i = 0; i < STATES; i++) v[i * step] = 0.0f;
  float target = 0.0f;
  for (int t = horizon; t-- > 0 && me < count;) {
    const int cell = cells[t * count];
    const float x = REWARD_OF(cell);
    power = powf(job.discount, (float)t);
    total += x;
    earned += power * x;
    target = x + job.discount * target;
    n[cell * step] += 1.0f;
    g[cell * step] += earned;
    d[cell * step] += power;
    v[cell / ACTIONS * step] += target;
  }
#if SHARED
  store<CELLS>(job.visits + (long long)begin * CELLS, spare, count, [&](int i) { return n[i * TILE]; });
  store<CELLS>(job.returns + (long long)begin * CELLS, spare, count, [&](int i) { return g[i * TILE]; });
  store<CELLS>(job.discounts + (long long)begin * CELLS, spare, count, [&](int i) { return d[i * TILE]; });
  store<STATES>(job.targets + (long long)begin * STATES, spare, count, [&](int i) { return v[i * TILE]; });
#endif
#elif SHARED
  store<CELLS>(job.visits + (long long)begin * CELLS, tables, count, [&](int i) { return tally[i * TILE].x; });
  store<CELLS>(job.returns + (long long)begin * CELLS, tables, count, [&](int i) { return earned * tally[i * TILE].x - tally[i * TILE].y; });
#else
  for (int i = 0; i < CELLS; i++) returns[i] = earned * visits[i] - returns[i];
#endif
  if (me < count) job.total[lane] = total;
}
