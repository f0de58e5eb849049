/* The floor: what reading a capture costs at least. read() in a loop, Ethernet, IPv4, TCP, one hash table of flows with
 * packets and bytes, nothing else. No analysis of any kind can be faster than this on the same file.
 *
 * usage: floor FILE      (pcap, little-endian, Ethernet)
 */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BUFFER = 1 << 20, SLOTS = 1 << 17 };
struct flow { uint64_t addresses; uint32_t ports, used; uint64_t packets, bytes; };
static uint8_t buffer[BUFFER + 65536 + 16];
static struct flow flows[SLOTS];

static uint32_t be32(const uint8_t *p) { return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3]; }

static void count(const uint8_t *p, uint32_t len) {
    if (len < 54 || p[12] != 8 || p[13] != 0 || p[23] != 6) return;
    const uint8_t *ip = p + 14, *tcp = ip + (ip[0] & 15) * 4;
    if (tcp + 20 > p + len) return;
    uint32_t src = be32(ip + 12), dst = be32(ip + 16), ports = be32(tcp);
    /* both directions in one place: the smaller end first */
    if (src > dst || (src == dst && ports >> 16 > (ports & 0xffff))) {
        uint32_t t = src; src = dst; dst = t;
        ports = ports << 16 | ports >> 16;
    }
    uint64_t addresses = (uint64_t)src << 32 | dst, h = (addresses ^ ports) * 0x9e3779b97f4a7c15ull;
    for (uint32_t i = (uint32_t)(h >> 47);; i = (i + 1) % SLOTS) {
        struct flow *f = &flows[i];
        if (!f->used) { f->used = 1; f->addresses = addresses; f->ports = ports; }
        else if (f->addresses != addresses || f->ports != ports) continue;
        f->packets++;
        f->bytes += (uint32_t)(ip[2] << 8 | ip[3]);
        return;
    }
}

int main(int argc, char **argv) {
    int fd = argc == 2 ? open(argv[1], O_RDONLY) : -1;
    uint32_t magic = 0;
    if (fd < 0 || read(fd, buffer, 24) != 24 || (memcpy(&magic, buffer, 4), magic != 0xa1b2c3d4)) { fprintf(stderr, "usage: floor FILE.pcap\n"); return 2; }
    size_t have = 0;
    uint64_t packets = 0;
    ssize_t got;
    while ((got = read(fd, buffer + have, BUFFER)) > 0) {
        have += (size_t)got;
        size_t at = 0;
        while (have - at >= 16) {
            uint32_t kept;
            memcpy(&kept, buffer + at + 8, 4);
            if (kept > 65535) { fprintf(stderr, "broken record\n"); return 1; }
            if (have - at < 16 + kept) break;
            count(buffer + at + 16, kept);
            packets++;
            at += 16 + kept;
        }
        memmove(buffer, buffer + at, have -= at);
    }
    uint64_t connections = 0;
    for (int i = 0; i < SLOTS; i++) connections += flows[i].used;
    printf("%llu packets, %llu connections\n", (unsigned long long)packets, (unsigned long long)connections);
    return 0;
}
