#define _GNU_SOURCE
#include "CLinux.h"
#include <pthread.h>

int clinux_available_processors(void) {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
  int count = CPU_COUNT(&set);
  return count > 0 ? count : 1;
}

void clinux_set_thread_name(const char *name) { pthread_setname_np(pthread_self(), name); }
