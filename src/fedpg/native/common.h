// What the kernels for CPUs and GPUs share: random numbers and the exponential function.

#ifdef __CUDACC_RTC__
#define INLINE __device__ __forceinline__
#else
#define INLINE static inline __attribute__((always_inline))
#endif

#define ROTATE(x, n) (((x) << (n)) | ((x) >> (32 - (n))))
#define MIX(r) x1 = ROTATE(x1, r) ^ x0;
#define ROUND(r) x0 = x1 * one + x0; MIX(r)
#define KEYS(first, second, r) x1 = x1 * one + (second); x0 = x0 + (first) + x1; MIX(r)

// One block of threefry2x32 with 20 rounds, as JAX has it: two random words for a key (k0, k1) and a counter (x0, x1).
// `one` is 1; where the compiler does not know it, a GPU adds with its multipliers, which idle while its adders are the bottleneck.
// The sums of three terms are left to the adders, which take them at once.
// Reference: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
INLINE void threefry(unsigned k0, unsigned k1, unsigned x0, unsigned x1, unsigned one, unsigned* first, unsigned* second) {
  const unsigned k2 = k0 ^ k1 ^ 0x1BD11BDAu;
  KEYS(k0, k1, 13) ROUND(15) ROUND(26) ROUND(6)
  KEYS(k1, k2 + 1u, 17) ROUND(29) ROUND(16) ROUND(24)
  KEYS(k2, k0 + 2u, 13) ROUND(15) ROUND(26) ROUND(6)
  KEYS(k0, k1 + 3u, 17) ROUND(29) ROUND(16) ROUND(24)
  KEYS(k1, k2 + 4u, 13) ROUND(15) ROUND(26) ROUND(6)
  *first = x0 * one + k2; *second = x1 * one + (k0 + 5u);
}

// A number in [0, 1) from the upper 24 bits of a word; exact in float.
INLINE float uniform(unsigned word) { return (float)(word >> 8) * (1.0f / 16777216.0f); }

// e^x for x <= 0 to within two units in the last place, at least e^-87. Without calls and branches, so that loops over it vectorise.
INLINE float exponential(float x) {
  x = x < -87.0f ? -87.0f : x;
  const int n = (int)(x * 1.44269504f - 0.5f);
  const float r = x - (float)n * 0.693359375f + (float)n * 2.12194440e-4f;
  float p = 1.9875691500e-4f * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  union { unsigned word; float value; } power = {(unsigned)(n + 127) << 23};
  return (p * r * r + r + 1.0f) * power.value;
}
