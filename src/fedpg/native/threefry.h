// One block of threefry2x32 with 20 rounds, as JAX has it: two random words for a key (k0, k1) and a counter (x0, x1).
// Reference: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011.

#ifdef __CUDACC_RTC__
#define INLINE __device__ __forceinline__
#else
#define INLINE static inline __attribute__((always_inline))
#endif

#define ROTATE(x, n) (((x) << (n)) | ((x) >> (32 - (n))))
#define ROUND(r) x0 += x1; x1 = ROTATE(x1, r) ^ x0;
#define EVEN ROUND(13) ROUND(15) ROUND(26) ROUND(6)
#define ODD ROUND(17) ROUND(29) ROUND(16) ROUND(24)

INLINE void threefry(unsigned k0, unsigned k1, unsigned x0, unsigned x1, unsigned* first, unsigned* second) {
  const unsigned k2 = k0 ^ k1 ^ 0x1BD11BDAu;
  x0 += k0; x1 += k1;
  EVEN x0 += k1; x1 += k2 + 1u;
  ODD x0 += k2; x1 += k0 + 2u;
  EVEN x0 += k0; x1 += k1 + 3u;
  ODD x0 += k1; x1 += k2 + 4u;
  EVEN x0 += k2; x1 += k0 + 5u;
  *first = x0; *second = x1;
}

// A number in [0, 1) from the upper 24 bits of a word; exact in float.
INLINE float uniform(unsigned word) { return (float)(word >> 8) * (1.0f / 16777216.0f); }
