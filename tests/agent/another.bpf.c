/* Another program on the same sockets. Like some in use, it replaces the callback flags of all programs when a connection is established. */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

char LICENSE[] SEC("license") = "Dual MIT/GPL";

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} calls SEC(".maps");

SEC("sockops")
int another(struct bpf_sock_ops *ctx)
{
	__u32 zero = 0;
	__u64 *count = bpf_map_lookup_elem(&calls, &zero);

	if (ctx->op == BPF_SOCK_OPS_ACTIVE_ESTABLISHED_CB)
		bpf_sock_ops_cb_flags_set(ctx, BPF_SOCK_OPS_RTT_CB_FLAG);
	if (count && ctx->op == BPF_SOCK_OPS_RTT_CB)
		*count += 1;
	return 1;
}
