/* ACK-window rewriting for kernels before 5.12, where functions that are verified alone take no
 * pointers: the same source, with structs passed in a map (see segment.h).
 */
#define ONLY_NUMBERS
#include "acks.bpf.c"
