/* Pacing of sockets below the gate: what the gate (gate.bpf.c), the program on sockets
 * (pacing.bpf.c) and the walk over them (sockets.bpf.c) share. The agent pins these maps by their
 * names, see receive.h; the loader of the gate says where, if sockets are paced (PACED_PINNING). */
#pragma once
#include "kernel.h"
#include <bpf/bpf_helpers.h>

#define SOL_SOCKET 1
#define SO_MAX_PACING_RATE 47
/* No bound, for setsockopt; in the socket it is the largest unsigned long. */
#define UNPACED 0xffffffffu

/* What is read of a socket besides kernel.h: loaders ignore what follows the three underscores. */
struct sock___paced {
	/* Bytes per second; the largest one: no bound. */
	unsigned long sk_max_pacing_rate;
} __attribute__((preserve_access_index));

/* State of one socket; it exists from the connection's beginning. */
struct paced_socket {
	/* When one of its packets came to the gate last; CLOCK_MONOTONIC. */
	__u64 seen_ns;
	/* The bound that this program set last, and the one before that; 0: none was set. */
	__u32 set, before;
	/* 1: this program has set the callback flag, so it may clear it. */
	__u32 flagged, pad;
};

/* What the gate says; one entry. */
struct pace {
	/* Of each socket, bytes per second; 0: none is paced. */
	__u64 rate;
	/* CLOCK_MONOTONIC. */
	__u64 at_ns;
};

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct paced_socket);
	__uint(pinning, PACED_PINNING);
} paced SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct pace);
	__uint(pinning, PACED_PINNING);
} pace SEC(".maps");

/* The bound of a socket, as setsockopt takes it; 0: it does not fit there, so it stays. */
static __always_inline __u32 pacing_bound(struct tcp_sock *tp)
{
	unsigned long bound = ((struct sock___paced *)tp)->sk_max_pacing_rate;

	if (bound == ~0ul)
		return UNPACED;
	return bound < UNPACED ? bound : 0;
}
