// What the kernels for GPUs share: one thread per lane, 32 lanes per tile, tables of a tile fetched to and stored from shared memory.

#define AXES 8
#define OPERANDS 5
#define RESULTS 6
#define TILE 32
#define EVERYONE 0xffffffffu
#define MAX(a, b) ((a) > (b) ? (a) : (b))
#define MIN(a, b) ((a) < (b) ? (a) : (b))

struct Job {
  const void* operand[OPERANDS];
  void* result[RESULTS];
  long long stride[OPERANDS][AXES];  // elements from one entry of a leading axis to the next; 0 where it is the same for all
  unsigned dims[AXES], lanes, one;
  int axes, horizon;
  float discount, limit;
};

// Words that the table of a lane takes where lanes come one after another: an odd number, so that lanes meet in no bank when each reads
// the same entry.
#define RAW(size) ((size) | 1)

// So many floats that a thread reads or writes at once.
template <int N>
struct alignas(4 * N) Vector {
  float word[N];
};

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
// 1 / x to a unit in the last place, in one instruction; for x that is neither subnormal nor very large.
INLINE float inverse(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
#else
template <int WORDS_EACH>
INLINE void copy(float* to, const float* from) {
  if (((unsigned long long)to | (unsigned long long)from) % (4 * WORDS_EACH)) __builtin_trap();  // as on a GPU
  for (int i = 0; i < WORDS_EACH; i++) to[i] = from[i];
}
INLINE void arrive() { __syncwarp(); }
INLINE float inverse(float x) { return 1.0f / x; }
#endif

// Where the operands of a lane begin, in elements.
template <int COUNT>
INLINE void places(const Job& job, unsigned lane, long long* at) {
#pragma unroll
  for (int k = 0; k < COUNT; k++) at[k] = 0;
#pragma unroll 1
  for (int axis = job.axes; axis-- > 0; lane /= job.dims[axis]) {
    const unsigned place = lane % job.dims[axis];
#pragma unroll
    for (int k = 0; k < COUNT; k++) at[k] += place * job.stride[k][axis];
  }
}

// Fetches the tables of all lanes of a tile, one after another. Where they are so in global memory too, 16 bytes are copied at a time.
template <int SIZE>
INLINE void fetch(const float* own, float* raw) {
  const int me = threadIdx.x % TILE;
  const float* begin = (const float*)__shfl_sync(EVERYONE, (unsigned long long)own, 0);
  if (__all_sync(EVERYONE, own == begin + me * SIZE && (unsigned long long)begin % 16 == 0)) {
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
  if (SIZE % 2 && count == TILE) {
#pragma unroll 8
    for (int i = me; i < TILE / 4 * SIZE; i += TILE) ((Vector<4>*)to)[i] = ((const Vector<4>*)raw)[i];
  } else {
#pragma unroll 8
    for (int i = me; i < count * SIZE; i += TILE) to[i] = raw[SIZE % 2 ? i : i + i / SIZE];
  }
}
