/* The cgroup of a socket: it belongs for ever to the one in which it was made. Scopes of live sockets, and names by cgroup. */
#pragma once
#include "kernel.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>

/* Deeper ones count as the one above them. */
#define DEEPEST 15

static __always_inline struct cgroup *group_of(struct tcp_sock *tp)
{
	return tp->inet_conn.icsk_inet.sk.sk_cgrp_data.cgroup;
}

/* The number of the cgroup at a depth on the way to this one; 0: there is none, or the kernel is older than 6.1. */
static __always_inline __u64 group_at(struct cgroup *group, __u32 level)
{
	struct cgroup *ancestor = NULL;

	if (!bpf_core_field_exists(group->ancestors) || !group || (__u32)group->level < level)
		return 0;
	/* Not &group->ancestors[level]: loaders know no element of an array without length. */
	bpf_probe_read_kernel(&ancestor, sizeof(ancestor),
			      (char *)group + __builtin_preserve_field_info(group->ancestors, BPF_FIELD_BYTE_OFFSET) +
				      (level & 0xff) * sizeof(ancestor));
	return ancestor ? BPF_CORE_READ(ancestor, kn, id) : 0;
}
