/* Another program on the same sockets, as a tuner of hosts: to two ports it sets the window clamp at every ACK, small or large, to
 * another one the congestion control. It leaves the flags of others as they are, and other ports alone. */
#include <linux/bpf.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define SOL_TCP 6
#define TCP_WINDOW_CLAMP 10
#define TCP_CONGESTION 13
#define SMALL 5397
#define LARGE 5398
#define CONGESTION 5399

char LICENSE[] SEC("license") = "Dual MIT/GPL";

SEC("sockops")
int tuning(struct bpf_sock_ops *ctx)
{
	char name[] = "cubic";
	__u32 port = bpf_ntohl(ctx->remote_port);
	int clamp = port == SMALL ? 40000 : 4000000;
	int clamped = port == SMALL || port == LARGE;

	if (clamped && ctx->op == BPF_SOCK_OPS_ACTIVE_ESTABLISHED_CB)
		bpf_sock_ops_cb_flags_set(ctx, ctx->bpf_sock_ops_cb_flags | BPF_SOCK_OPS_WRITE_HDR_OPT_CB_FLAG);
	if (clamped && ctx->op == BPF_SOCK_OPS_HDR_OPT_LEN_CB)
		bpf_setsockopt(ctx, SOL_TCP, TCP_WINDOW_CLAMP, &clamp, sizeof(clamp));
	if (port == CONGESTION && ctx->op == BPF_SOCK_OPS_ACTIVE_ESTABLISHED_CB)
		bpf_setsockopt(ctx, SOL_TCP, TCP_CONGESTION, name, sizeof(name));
	return 1;
}
