// Linux APIs that Glibc's module map does not export to Swift: epoll, eventfd, netlink, and socket options defined as
// macros.
#ifndef CLINUX_H
#define CLINUX_H

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <arpa/inet.h>
#include <netdb.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <semaphore.h>
#include <stdint.h>
#include <sys/types.h>

// epoll_event is packed on x86-64. These functions leave its layout to C.
static inline struct epoll_event clinux_epoll_event(uint32_t events, uint64_t data) {
  struct epoll_event event;
  event.events = events;
  event.data.u64 = data;
  return event;
}
static inline uint64_t clinux_epoll_data(const struct epoll_event *event) { return event->data.u64; }

// The EPOLL constants as uint32_t, the type of `events`. The system's constants are an enumeration.
#define CLINUX_EPOLLIN 0x001u
#define CLINUX_EPOLLOUT 0x004u
#define CLINUX_EPOLLERR 0x008u
#define CLINUX_EPOLLHUP 0x010u
#define CLINUX_EPOLLRDHUP 0x2000u
#define CLINUX_EPOLLET 0x80000000u

// Returns the number of processors on which this process may run (its affinity mask), or 1 if unknown.
int clinux_available_processors(void);
// accept4(2) with a non-blocking, close-on-exec descriptor. Returns like accept(2).
int clinux_accept(int listener, struct sockaddr *address, socklen_t *size);
// Returns the bytes in a socket's send buffer, or -1 if unknown. For TCP: bytes not yet acknowledged (SIOCOUTQ,
// tcp(7)).
int clinux_unacknowledged_bytes(int socket);
// Returns the bytes in a TCP socket's send buffer that were not sent yet (SIOCOUTQNSD), or -1 if unknown.
int clinux_unsent_bytes(int socket);
// Returns the milliseconds since a TCP socket's peer sent its last acknowledgement (TCP_INFO), or -1 if unknown.
int clinux_milliseconds_since_acknowledgement(int socket);
// Returns the number of established connections that wait for accept(2) on a TCP socket that listens (TCP_INFO), or -1
// if unknown.
int clinux_pending_connections(int listener);
// signalfd(2), non-blocking and close-on-exec, for these signals. Returns like signalfd(2).
int clinux_signal_descriptor(const int *signals, int count);
// Reads a signal from such a descriptor. Returns its number, or -1 if none is pending.
int clinux_take_signal(int descriptor);
// sem_clockwait(3) on CLOCK_MONOTONIC. The arguments are the absolute time at which the wait ends.
int clinux_semaphore_wait(sem_t *semaphore, long seconds, long nanoseconds);
// Writes the text of an errno value to `text`, cut to `size` bytes and always terminated.
void clinux_error_text(int code, char *text, size_t size);
// Sets the name of the calling thread, at most 15 bytes. `top -H` shows it.
void clinux_set_thread_name(const char *name);
// A pointer that belongs to the calling thread, NULL until it is set. It identifies the event loop that runs on the
// thread.
void clinux_set_thread_owner(void *owner);
void *clinux_thread_owner(void);
// Starts `arguments[0]`, searched in PATH, in its own process group. Its input is /dev/null, it inherits only standard
// error, and no signal is blocked or ignored. `*output` is set to the reading end of its standard output. Returns 0 or
// an errno value.
int clinux_spawn(char *const arguments[], pid_t *process, int *output);

#endif
