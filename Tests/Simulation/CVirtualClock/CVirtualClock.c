#define _GNU_SOURCE
#include "CVirtualClock.h"
#include <dlfcn.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static _Thread_local int is_virtual;
static _Thread_local uint64_t now;
static _Thread_local uint64_t state;

// The wall clock is this far ahead of the other clocks.
static const uint64_t epoch = 1800000000000000000;

void virtual_clock_begin(uint64_t nanoseconds, uint64_t seed) {
  is_virtual = 1;
  now = nanoseconds;
  state = seed;
}

void virtual_clock_set(uint64_t nanoseconds) { now = nanoseconds; }

void virtual_clock_end(void) { is_virtual = 0; }

// SplitMix64.
static uint64_t next(void) {
  uint64_t mixed = state += 0x9E3779B97F4A7C15;
  mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9;
  mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EB;
  return mixed ^ (mixed >> 31);
}

static void fill(void *buffer, size_t size) {
  for (size_t done = 0; done < size; done += 8) {
    uint64_t word = next();
    memcpy((char *)buffer + done, &word, size - done < 8 ? size - done : 8);
  }
}

int clock_gettime(clockid_t clock, struct timespec *time) {
  if (is_virtual && (clock == CLOCK_MONOTONIC || clock == CLOCK_BOOTTIME || clock == CLOCK_REALTIME)) {
    uint64_t value = clock == CLOCK_REALTIME ? epoch + now : now;
    time->tv_sec = (time_t)(value / 1000000000);
    time->tv_nsec = (long)(value % 1000000000);
    return 0;
  }
  typedef int (*function)(clockid_t, struct timespec *);
  static _Atomic(function) libc;
  function original = atomic_load_explicit(&libc, memory_order_relaxed);
  if (original == NULL) {
    original = (function)dlsym(RTLD_NEXT, "clock_gettime");
    atomic_store_explicit(&libc, original, memory_order_relaxed);
  }
  return original(clock, time);
}

ssize_t getrandom(void *buffer, size_t size, unsigned int flags) {
  if (!is_virtual) return syscall(SYS_getrandom, buffer, size, flags);
  fill(buffer, size);
  return (ssize_t)size;
}

int getentropy(void *buffer, size_t size) {
  if (is_virtual) {
    fill(buffer, size);
    return 0;
  }
  return syscall(SYS_getrandom, buffer, size, 0) == (long)size ? 0 : -1;
}
