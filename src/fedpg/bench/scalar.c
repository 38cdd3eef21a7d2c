// The limit that `fedpg bench tabular` compares with on a CPU: PAvg's local updates by plain loops, written for nothing else.
//
// One lane after another on every thread: K local steps of softmax, rollout and gradient, with xorshift instead of a counter-based
// generator. -DSTATES= -DACTIONS= -DLOCAL_STEPS= -DHORIZON=

#include <math.h>
#include <pthread.h>
#include <stdint.h>
#include <string.h>

#define CELLS (STATES * ACTIONS)

typedef struct {
  const float *transition, *reward;
  float* params;
  float lr, discount;
  int64_t first, end;
} Part;

static float next(uint32_t* x) {
  *x ^= *x << 13; *x ^= *x >> 17; *x ^= *x << 5;
  return (float)(*x >> 8) * (1.0f / 16777216.0f);
}

static int pick(const float* row, int width, float u) {
  int index = 0;
  while (index < width - 1 && row[index] <= u) index++;
  return index;
}

static void* run(void* data) {
  const Part* part = data;
  for (int64_t lane = part->first; lane < part->end; lane++) {
    const float *q = part->transition + lane * CELLS * STATES, *reward = part->reward + lane * CELLS;
    float cumulative[CELLS * STATES], p[CELLS], sums[CELLS], visits[CELLS], before[CELLS], *theta = part->params + lane * CELLS;
    for (int c = 0; c < CELLS; c++) {
      float sum = 0.0f;
      for (int i = 0; i < STATES; i++) cumulative[c * STATES + i] = sum += q[c * STATES + i];
    }
    uint32_t x = (uint32_t)(lane + 1) * 2654435761u;
    for (int k = 0; k < LOCAL_STEPS; k++) {
      for (int s = 0; s < STATES; s++) {
        float total = 0.0f, sum = 0.0f;
        for (int a = 0; a < ACTIONS; a++) total += p[s * ACTIONS + a] = expf(theta[s * ACTIONS + a]);
        for (int a = 0; a < ACTIONS; a++) sums[s * ACTIONS + a] = sum += p[s * ACTIONS + a] /= total;
      }
      memset(visits, 0, sizeof visits);
      memset(before, 0, sizeof before);
      int s = (int)(next(&x) * STATES);
      float earned = 0.0f, power = 1.0f;
      for (int t = 0; t < HORIZON; t++, power *= part->discount) {
        const int cell = s * ACTIONS + pick(sums + s * ACTIONS, ACTIONS, next(&x));
        visits[cell] += 1.0f;
        before[cell] += earned;
        earned += power * reward[cell];
        s = pick(cumulative + cell * STATES, STATES, next(&x));
      }
      for (int s = 0; s < STATES; s++) {
        float all = 0.0f;
        for (int c = s * ACTIONS; c < (s + 1) * ACTIONS; c++) all += earned * visits[c] - before[c];
        for (int c = s * ACTIONS; c < (s + 1) * ACTIONS; c++) theta[c] += part->lr * (earned * visits[c] - before[c] - p[c] * all);
      }
    }
  }
  return NULL;
}

// Local updates of all lanes on `threads` threads. transition: (lanes, S, A, S), reward and params: (lanes, S, A).
void scalar(const float* transition, const float* reward, float* params, float lr, float discount, int64_t lanes, int threads) {
  pthread_t ids[threads];
  Part parts[threads];
  for (int i = 0; i < threads; i++) {
    parts[i] = (Part){transition, reward, params, lr, discount, lanes * i / threads, lanes * (i + 1) / threads};
    pthread_create(&ids[i], NULL, run, &parts[i]);
  }
  for (int i = 0; i < threads; i++) pthread_join(ids[i], NULL);
}
