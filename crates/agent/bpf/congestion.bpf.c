/* Congestion control by destination or cgroup, for new connections: what `ip route … congctl` does,
 * for one cgroup and under a lease.
 *
 * signal: a connection begins · model: the deepest cgroup that has a name, else the longest prefix
 * that contains its remote address · action: TCP_CONGESTION on the socket, also to a congestion
 * control that unprivileged programs may not choose. What the socket had before is stored, so that
 * the walk of sockets.bpf.c can undo it.
 *
 * Needs Linux 4.13 (TCP_CONGESTION from BPF), and 5.3 to store what was before.
 */
#include "congestion.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct congestion_config);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
} choice SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct congestion_counters);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
} tally SEC(".maps");

SEC("sockops")
int congestion(struct bpf_sock_ops *ctx)
{
	__u32 zero = 0, address[4];
	struct congestion_config *c = bpf_map_lookup_elem(&choice, &zero);
	struct congestion_counters *count = bpf_map_lookup_elem(&tally, &zero);
	struct congestion_before *before;
	struct bpf_sock *sk = ctx->sk;
	struct tcp_sock *tp;
	struct route *route;
	char name[16], now[16] = {};

	if (!c || !count || !sk)
		return 1;
	/* Active opens are changed before the SYN, so that already the first window is the new
	 * algorithm's. */
	if (ctx->op != BPF_SOCK_OPS_TCP_CONNECT_CB && ctx->op != BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB)
		return 1;
	if (bpf_ktime_get_ns() > c->lease_until_ns)
		return 1;
	remote_address(ctx, address);
	tp = bpf_skc_to_tcp_sock(sk);
	route = tp && space_selected(tp) ? route_of(tp, address) : NULL;
	if (!route)
		return 1;
	__builtin_memcpy(name, route->name, sizeof(name));
	bpf_getsockopt(ctx, SOL_TCP, TCP_CONGESTION, now, sizeof(now));
	if (same_name(name, now))
		return 1;
	if (bpf_setsockopt(ctx, SOL_TCP, TCP_CONGESTION, name, sizeof(name))) {
		count->refused++;
		return 1;
	}
	count->switched++;
	before = bpf_sk_storage_get(&switched, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
	if (before && !before->name[0])
		__builtin_memcpy(before->name, now, sizeof(now));
	if (before)
		__builtin_memcpy(before->ours, name, sizeof(name));
	return 1;
}
