/* The cgroup of a socket, which never changes after the socket is made. Used to select live
 * sockets, and congestion control by cgroup. */
#pragma once
#include "kernel.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>

/* Deeper cgroups count as their ancestor at this depth. */
#define MAX_DEPTH 15

/* NULL before Linux 5.17. */
static __always_inline struct cgroup *group_of(struct tcp_sock *tp)
{
	struct sock *sk = &tp->inet_conn.icsk_inet.sk;

	return bpf_core_field_exists(sk->sk_cgrp_data.cgroup) ? sk->sk_cgrp_data.cgroup : NULL;
}

/* The id of the ancestor cgroup at a depth; 0: there is none, or the kernel is older than 6.1.
 * Not inlined: in a loop clang moves the relocation of `ancestors` before the check that it exists.
 */
static __noinline __u64 group_at(struct cgroup *group, __u32 level)
{
	struct cgroup *ancestor = NULL;

	if (!bpf_core_field_exists(group->ancestors) || !group || (__u32)group->level < level)
		return 0;
	/* Not &group->ancestors[level]: loaders cannot relocate an element of a flexible array. */
	bpf_probe_read_kernel(&ancestor, sizeof(ancestor),
			      (char *)group + __builtin_preserve_field_info(group->ancestors, BPF_FIELD_BYTE_OFFSET) +
				      (level & 0xff) * sizeof(ancestor));
	return ancestor ? BPF_CORE_READ(ancestor, kn, id) : 0;
}
