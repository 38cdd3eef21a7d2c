// Visit sums of trajectories in finite MDPs on an NVIDIA GPU: one thread per lane, 32 lanes per tile, no communication between tiles.
//
// Compiled by NVRTC, behind common.h and tiles.h, with -DSTATES= -DACTIONS= -DVALUED=0|1 -DSHARED=0|1. VALUED adds the sums that a
// baseline of the state needs. With SHARED the policy is given by logits, and the tables of a tile are in shared memory, where no two
// lanes meet in a bank. Without it the policy is given by probabilities, all tables stay in global memory, and a row is read when it is
// visited. `fedpg.gradients.tabular` says what is computed.

#define CELLS (STATES * ACTIONS)
enum { KEY, START, POLICY, TRANSITION, REWARD, USED };
enum { VISITS, RETURNS, TOTAL, DISCOUNTS, TARGETS, PATH };  // PATH is working memory, the cells visited, (lanes, H)

// A row of probabilities becomes N thresholds: the cumulative sums in units of 2^-24, rounded up. A uniform number has 24 bits, so
// rounding changes no comparison, and differences of whole numbers are never between 0 and 1.
template <int N>
INLINE void cumulate(const float* row, float* thresholds) {
  float sum = 0.0f;
#pragma unroll
  for (int i = 0; i < N; i++) thresholds[i] = sum += row[i];
  const float scale = 16777216.0f * inverse(sum + row[N]);
#pragma unroll
  for (int i = 0; i < N; i++) thresholds[i] = ceilf(thresholds[i] * scale);
}

// A table of rows of N words is in shared memory as [row][vector][lane]: a lane reads a row with few instructions, no two lanes from
// the same bank.
#define WIDTH(n) ((n) % 4 == 0 ? 4 : (n) % 2 == 0 ? 2 : 1)
template <int N>
INLINE void put(float* table, int row, const float* words) {
#pragma unroll
  for (int i = 0; i < N; i++) table[(row * N + i / WIDTH(N) * WIDTH(N)) * TILE + threadIdx.x % TILE * WIDTH(N) + i % WIDTH(N)] = words[i];
}

// Rows of a lane in shared memory, found by a biased index: BIAS times a constant is added to it, see `pick`. The constant is taken back
// once, in `origin`. `pitch` is unknown to the compiler, so that the multipliers find the address.
#define BIAS 0x4b000000u
struct Rows {
  char* memory;
  unsigned origin, pitch;  // bytes
};
INLINE Rows rows_of(void* first, unsigned size, unsigned bias, unsigned one) { return {(char*)first, 0u - bias * size, size * one}; }
INLINE char* at_row(const Rows& rows, unsigned row) { return rows.memory + (row * rows.pitch + rows.origin); }

// The index on which a random word falls, plus BIAS: N less the thresholds above it. The multipliers count, because the adders are the
// bottleneck: 256 thresholds - word is at least 1 or at most 0, and the bits of a float from 2^23 on are BIAS and a whole number. What
// rounding the word towards 0 leaves of its lower 8 bits lies above no threshold.
template <int N>
INLINE unsigned pick(const char* row, unsigned word) {
  const float u = __uint2float_rz(word);
  float index = 8388608.0f + N;
#pragma unroll
  for (int i = 0; i < N / WIDTH(N); i++) {
    const Vector<WIDTH(N)> thresholds = ((const Vector<WIDTH(N)>*)row)[i * TILE];
#pragma unroll
    for (int k = 0; k < WIDTH(N); k++) index -= __saturatef(__fmaf_rn(thresholds.word[k], 256.0f, -u));
  }
  return __float_as_uint(index);
}

// The same from probabilities in global memory.
template <int N>
INLINE unsigned pick_raw(const float* row, float u) {
  float sum = 0.0f;
  for (int i = 0; i < N; i++) sum += row[i];
  const float threshold = u * sum;
  unsigned index = 0;
  sum = 0.0f;
  for (int i = 0; i < N - 1; i++) index += (sum += row[i]) <= threshold;
  return index;
}

#define SUMS (VALUED ? 3 * CELLS + STATES : 0)
#define TABLES MAX(RAW(CELLS * STATES), SUMS)  // of a lane, for transitions and later for sums
#define CHOICES (STATES * (ACTIONS - 1))       // thresholds of the policy
#define STEPS (CELLS * (STATES - 1))           // thresholds of the transitions
#define WORDS (CHOICES + RAW(CELLS) + TABLES + RAW(CELLS))

extern "C" __global__ void visits(const Job job) {
  const unsigned begin = (blockIdx.x * blockDim.x + threadIdx.x) / TILE * TILE;
  if (begin >= job.lanes) return;
  const int me = threadIdx.x % TILE, count = MIN(job.lanes - begin, TILE);
#if !SHARED
  if (me >= count) return;
#endif
  const unsigned lane = begin + (me < count ? me : count - 1);  // threads too many repeat the last lane
  long long at[USED];
  places<USED>(job, lane, at);
  const unsigned* key = (const unsigned*)job.operand[KEY] + at[KEY];
  const unsigned k0 = key[0], k1 = key[1];
  unsigned state = ((const int*)job.operand[START])[at[START]];
  const float* policy = (const float*)job.operand[POLICY] + at[POLICY];
  const float* transition = (const float*)job.operand[TRANSITION] + at[TRANSITION];
  const float* reward = (const float*)job.operand[REWARD] + at[REWARD];
  const int horizon = job.horizon;
  unsigned short* cells = VALUED ? (unsigned short*)job.result[PATH] + (long long)begin * horizon + me : 0;  // [t][lane of the tile]
  float earned = 0.0f, total = 0.0f, power = 1.0f;
#define OF_LANE(k, size) ((float*)job.result[k] + (long long)lane * (size))
#define OF_TILE(k, size) ((float*)job.result[k] + (long long)begin * (size))

#if SHARED
  extern __shared__ float memory[];
  float *own = memory + threadIdx.x / TILE * TILE * WORDS, *p = own, *raw = p + TILE * CHOICES;
  float *q = raw + TILE * RAW(CELLS), *spare = q + TILE * TABLES;
  fetch<CELLS>(policy, spare);
  fetch<CELLS>(reward, raw);
  fetch<CELLS * STATES>(transition, q);
  arrive();
  const float *logits = spare + me * RAW(CELLS), *rows = q + me * RAW(CELLS * STATES);
#pragma unroll
  for (int s = 0; s < STATES; s++) {
    float row[ACTIONS], largest = logits[s * ACTIONS];
#pragma unroll
    for (int a = 1; a < ACTIONS; a++) largest = fmaxf(logits[s * ACTIONS + a], largest);
#pragma unroll
    for (int a = 0; a < ACTIONS; a++) row[a] = expf(logits[s * ACTIONS + a] - largest);
    cumulate<ACTIONS - 1>(row, row);
    put<ACTIONS - 1>(p, s, row);
  }
  float next[CELLS][STATES];  // in registers while the table changes its order
#pragma unroll
  for (int i = 0; i < CELLS; i++) cumulate<STATES - 1>(rows + i * STATES, next[i]);
  __syncwarp();
#pragma unroll
  for (int i = 0; i < CELLS; i++) put<STATES - 1>(q, i, next[i]);
  // Visits, and the discounted rewards before each of them: in what the transitions left of their place, and behind it.
  float2* tally = (float2*)(q + TILE * STEPS) + me;
  if (!VALUED)
#pragma unroll
    for (int i = 0; i < CELLS; i++) tally[i * TILE] = make_float2(0.0f, 0.0f);
  // Indices are biased from here on.
  state += BIAS;
#define BIAS_OF_CELL (BIAS * (ACTIONS + 1))
  const Rows actions = rows_of(p + me * WIDTH(ACTIONS - 1), 4 * TILE * (ACTIONS - 1), BIAS, job.one);
  const Rows steps = rows_of(q + me * WIDTH(STATES - 1), 4 * TILE * (STATES - 1), BIAS_OF_CELL, job.one);
  const Rows sums = rows_of(tally, 8 * TILE, BIAS_OF_CELL, job.one);
  const Rows rewards = rows_of(raw + me * RAW(CELLS), 4, BIAS_OF_CELL, job.one);
#define ACTION(word) pick<ACTIONS - 1>(at_row(actions, state), word)
#define NEXT(word) pick<STATES - 1>(at_row(steps, cell), word)
#define REWARD_OF(cell) *(const float*)at_row(rewards, cell)
#else
  float *visits = OF_LANE(VISITS, CELLS), *returns = OF_LANE(RETURNS, CELLS);
  for (int i = 0; i < CELLS; i++) visits[i] = returns[i] = 0.0f;
#define ACTION(word) pick_raw<ACTIONS>(policy + state * ACTIONS, uniform(word))
#define NEXT(word) pick_raw<STATES>(transition + (long long)cell * STATES, uniform(word))
#define REWARD_OF(cell) __ldg(reward + (cell))
#define BIAS_OF_CELL 0u
#endif

// Many steps at a time: the random numbers of later steps do not wait for the state.
#pragma unroll 10
  for (int t = 0; t < horizon; t++) {
    unsigned a, b;
    threefry(k0, k1, t, 0, job.one, &a, &b);
    const unsigned cell = state * ACTIONS + ACTION(a);
    const float x = REWARD_OF(cell);
    if (VALUED) {
      if (me < count) cells[t * count] = cell - BIAS_OF_CELL;
    } else {
#if SHARED
      float2* const place = (float2*)at_row(sums, cell);
      const float2 before = *place;
      *place = make_float2(before.x + 1.0f, before.y + earned);
#else
      visits[cell] += 1.0f;
      returns[cell] += earned;
#endif
      earned += power * x;
      total += x;
      power *= job.discount;
    }
    state = NEXT(b);
  }

#if VALUED
  // From the last step to the first. The sums take the place of the transitions.
#if SHARED
  __syncwarp();
  float *n = q + me, *g = n + TILE * CELLS, *d = g + TILE * CELLS, *v = d + TILE * CELLS;
  const int step = TILE;
#else
  float *n = visits, *g = returns, *d = OF_LANE(DISCOUNTS, CELLS), *v = OF_LANE(TARGETS, STATES);
  const int step = 1;
#endif
  for (int i = 0; i < CELLS; i++) n[i * step] = g[i * step] = d[i * step] = 0.0f;
  for (int i = 0; i < STATES; i++) v[i * step] = 0.0f;
  float target = 0.0f;
  for (int t = horizon; t-- > 0 && me < count;) {
    const int cell = cells[t * count];
    const float x = REWARD_OF(cell + BIAS_OF_CELL);
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
  store<CELLS>(OF_TILE(VISITS, CELLS), own, count, [&](int i) { return n[i * TILE]; });
  store<CELLS>(OF_TILE(RETURNS, CELLS), own, count, [&](int i) { return g[i * TILE]; });
  store<CELLS>(OF_TILE(DISCOUNTS, CELLS), own, count, [&](int i) { return d[i * TILE]; });
  store<STATES>(OF_TILE(TARGETS, STATES), own, count, [&](int i) { return v[i * TILE]; });
#endif
#elif SHARED
  store<CELLS>(OF_TILE(VISITS, CELLS), own, count, [&](int i) { return tally[i * TILE].x; });
  store<CELLS>(OF_TILE(RETURNS, CELLS), own, count, [&](int i) { return earned * tally[i * TILE].x - tally[i * TILE].y; });
#else
  for (int i = 0; i < CELLS; i++) returns[i] = earned * visits[i] - returns[i];
#endif
  if (me < count) ((float*)job.result[TOTAL])[lane] = total;
}
