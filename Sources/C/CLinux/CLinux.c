#define _GNU_SOURCE
#include "CLinux.h"
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>

int clinux_available_processors(void) {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
  int count = CPU_COUNT(&set);
  return count > 0 ? count : 1;
}

int clinux_accept(int listener, struct sockaddr *address, socklen_t *size) {
  return accept4(listener, address, size, SOCK_NONBLOCK | SOCK_CLOEXEC);
}

int clinux_unacknowledged_bytes(int socket) {
  int count = 0;
  return ioctl(socket, SIOCOUTQ, &count) == 0 ? count : -1;
}

int clinux_unsent_bytes(int socket) {
  int count = 0;
  return ioctl(socket, SIOCOUTQNSD, &count) == 0 ? count : -1;
}

int clinux_milliseconds_since_acknowledgement(int socket) {
  struct tcp_info information;
  socklen_t size = sizeof information;
  memset(&information, 0, sizeof information);
  return getsockopt(socket, IPPROTO_TCP, TCP_INFO, &information, &size) == 0 ? (int)information.tcpi_last_ack_recv : -1;
}

int clinux_pending_connections(int listener) {
  struct tcp_info information;
  socklen_t size = sizeof information;
  memset(&information, 0, sizeof information);
  if (getsockopt(listener, IPPROTO_TCP, TCP_INFO, &information, &size) != 0) return -1;
  // For a socket that listens, the kernel stores the length of the accept queue here.
  return information.tcpi_state == TCP_LISTEN ? (int)information.tcpi_unacked : -1;
}

int clinux_signal_descriptor(const int *signals, int count) {
  sigset_t set;
  sigemptyset(&set);
  for (int index = 0; index < count; index++) sigaddset(&set, signals[index]);
  return signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
}

int clinux_take_signal(int descriptor) {
  struct signalfd_siginfo information;
  return read(descriptor, &information, sizeof information) == sizeof information ? (int)information.ssi_signo : -1;
}

int clinux_semaphore_wait(sem_t *semaphore, long seconds, long nanoseconds) {
  struct timespec time = {.tv_sec = seconds, .tv_nsec = nanoseconds};
  return sem_clockwait(semaphore, CLOCK_MONOTONIC, &time);
}

void clinux_error_text(int code, char *text, size_t size) {
  char buffer[128];
  snprintf(text, size, "%s", strerror_r(code, buffer, sizeof buffer));
}

void clinux_set_thread_name(const char *name) { pthread_setname_np(pthread_self(), name); }

static _Thread_local void *thread_owner;

void clinux_set_thread_owner(void *owner) { thread_owner = owner; }

void *clinux_thread_owner(void) { return thread_owner; }

int clinux_spawn(char *const arguments[], pid_t *process, int *output) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return errno;
  posix_spawn_file_actions_t files;
  posix_spawnattr_t attributes;
  sigset_t none, all;
  sigemptyset(&none);
  sigfillset(&all);
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&files, ends[1], STDOUT_FILENO);
  posix_spawn_file_actions_addclosefrom_np(&files, STDERR_FILENO + 1);
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &all);
  posix_spawnattr_setpgroup(&attributes, 0);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  int result = posix_spawnp(process, arguments[0], &files, &attributes, arguments, environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&files);
  close(ends[1]);
  if (result == 0) *output = ends[0];
  else close(ends[0]);
  return result;
}
