// A warp of CUDA on a CPU: 32 threads that meet at a barrier. Enough to run visits.cu and compare what it computes.
#include <barrier>
#include <bit>
#include <cmath>
#include <thread>
#include <vector>

#define __global__
#define __shared__
#define __syncwarp() meet.arrive_and_wait()
#define __ldg(pointer) (*(pointer))
#define threadIdx (unsigned_place{place})
struct unsigned_place { unsigned x; };
struct float2 { float x, y; };
static inline float2 make_float2(float x, float y) { return {x, y}; }
static thread_local unsigned place;
static unsigned_place blockIdx, blockDim{32};
static std::barrier<> meet(32);
static unsigned long long words_of_all[32];
static inline unsigned long long __shfl_sync(unsigned, unsigned long long value, int lane) {
  words_of_all[place] = value;
  __syncwarp();
  const unsigned long long found = words_of_all[lane];
  __syncwarp();
  return found;
}
static inline bool __all_sync(unsigned, bool holds) {
  bool all = true;
  for (int lane = 0; lane < 32; lane++) all &= __shfl_sync(0, holds, lane) != 0;
  return all;
}
static inline float __saturatef(float x) { return x > 0.0f ? (x < 1.0f ? x : 1.0f) : 0.0f; }
static inline float __fmaf_rn(float x, float y, float z) { return std::fma(x, y, z); }
static inline unsigned __float_as_uint(float x) { return std::bit_cast<unsigned>(x); }
static inline float __uint2float_rz(unsigned word) {
  const float nearest = (float)word;
  return (double)nearest > word ? std::nextafter(nearest, 0.0f) : nearest;
}
alignas(16) float memory[1 << 20];

// The kernel, one warp after another.
template <typename Job>
void run_warps(void (*kernel)(const Job), const Job* job) {
  for (blockIdx.x = 0; blockIdx.x * 32 < job->lanes; blockIdx.x++) {
    std::vector<std::thread> threads;
    for (unsigned i = 0; i < 32; i++) threads.emplace_back([=] { place = i; kernel(*job); });
    for (auto& thread : threads) thread.join();
  }
}
