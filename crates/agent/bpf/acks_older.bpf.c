/* ACK-window rewriting for kernels before 5.12, where functions that are verified alone take no
 * pointers: the same source with static functions. The verifier then checks them at every call.
 */
#define VERIFIED_ALONE static
#include "acks.bpf.c"
