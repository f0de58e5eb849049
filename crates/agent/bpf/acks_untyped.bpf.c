/* ACK-window rewriting for kernels that do not show their own types (BTF): without them a program
 * cannot read the scales of a socket, so connections are treated from their SYN on.
 */
#define WITHOUT_TYPES
#include "acks.bpf.c"
