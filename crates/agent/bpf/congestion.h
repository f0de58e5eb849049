/* Congestion control by destination or cgroup: what the program for new connections
 * (congestion.bpf.c) and the walk over existing ones (sockets.bpf.c) share. Maps are pinned by
 * their names, see receive.h. */
#pragma once
#include "group.h"
#include "receive.h"

/* The congestion control that connections to a prefix are to use. */
struct route {
	char name[16];
};

/* The congestion control that a socket had before the agent changed it, and the one that the agent
 * set: an application may set another one later. */
struct congestion_before {
	char name[16];
	char ours[16];
};

/* What the agent sets; one entry. */
struct congestion_config {
	/* CLOCK_MONOTONIC, ns: after this nothing is changed. */
	__u64 lease_until_ns;
};

struct congestion_counters {
	__u64 switched, refused;
};

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1024);
	__type(key, struct place);
	__type(value, struct route);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
} routes SEC(".maps");

/* By the id of a cgroup; it applies to all cgroups below it, too. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 256);
	__type(key, __u64);
	__type(value, struct route);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
} groups SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct congestion_before);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
} switched SEC(".maps");

/* The route of the deepest cgroup that has one, else of the longest prefix. */
static __always_inline struct route *route_of(struct tcp_sock *tp, const __u32 address[4])
{
	struct place key = { .prefix = 128, .address = { address[0], address[1], address[2], address[3] } };
	struct cgroup *group = group_of(tp);

	for (int level = MAX_DEPTH; level >= 0; level--) {
		__u64 id = group_at(group, level);
		struct route *route = id ? bpf_map_lookup_elem(&groups, &id) : NULL;

		if (route)
			return route;
	}
	return bpf_map_lookup_elem(&routes, &key);
}

static __always_inline bool same_name(const char a[16], const char b[16])
{
	for (int i = 0; i < 16; i++) {
		if (a[i] != b[i])
			return false;
		if (!a[i])
			return true;
	}
	return true;
}
